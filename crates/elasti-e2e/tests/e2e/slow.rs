//! Wakes of minutes on a real cluster, without a clock that can be paused: `cargo xtask e2e --slow`.

use std::time::Duration;

use elasti_e2e::{TestEnv, blueprint, until};
use serde_json::{Value, json};

const VISITORS: usize = 5;

/// The same app as in `slow_starts`, on the clock of the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes more than three minutes: cargo xtask e2e --slow"]
async fn an_app_that_starts_for_three_minutes_behind_a_startup_probe_answers_all_who_wait() {
    let env = TestEnv::start().await;
    let mut slow = blueprint("slow");
    slow.replicas = 0;
    slow.in_use = false;
    slow.start_seconds = "180";
    let startup = json!({"tcpSocket": {"port": 8080}, "failureThreshold": 30, "periodSeconds": 10});
    slow.pod = json!({"container": {"startupProbe": startup}});
    // The minutes that the startup probe allows do not count.
    slow.spec = json!({"hold": {"failFastSeconds": 30}});
    let slow = env.build(slow).await;
    slow.until_asleep().await;
    slow.until_nodes_follow().await;

    let waiting: Vec<_> = (0..VISITORS).map(|_| slow.visitor()).collect();
    until("they wait", async || slow.held().await == VISITORS).await;
    for visitor in waiting {
        visitor.await.unwrap();
    }
    let pods = env.api().items(&slow.pods_path()).await;
    let restarts = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    let restarted = pods.iter().any(|pod| restarts(pod) > Some(0));
    assert!(!restarted, "{pods:#?}");
    env.requests().assert_nothing_lost();
    let took: Vec<Duration> = env.requests().all().iter().map(|one| one.took).collect();
    println!("{} requests, none lost, after {took:.1?}", took.len());
}
