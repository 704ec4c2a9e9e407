//! Many ElastiServices: what the operator costs at rest. Prints figures; fails only far above the goals.

use std::time::Duration;

use elasti_e2e::{OPERATOR_USER, TestEnv, until};
use elasti_fake_cluster::faults::{Call, Verb};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The first reconcile of each costs the simulated cluster in its debug build far more than the operator, so not a thousand.
const SERVICES: usize = 300;

/// Whether the operator wrote something, reviews of access aside.
fn changes(call: &Call) -> bool {
    call.user == OPERATOR_USER && call.verb.writes() && !call.kind.ends_with("reviews")
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn make_services(env: &TestEnv) {
    let api = env.api();
    let prometheus = env.fake_cluster().prometheus.address;
    for number in 0..SERVICES {
        let name = format!("web-{number:04}");
        let labels = json!({"app": name});
        api.make("/apis/apps/v1/namespaces/default/deployments", json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "echo:1"}]},
            }},
        }))
        .await;
        api.make("/api/v1/namespaces/default/services", json!({
            "metadata": {"name": name}, "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }))
        .await;
        api.make("/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices", json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": name},
            "spec": {
                "service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": {"query": "up", "threshold": "1", "serverAddress": format!("http://{prometheus}")}}],
            },
        }))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_services_at_rest_cost_watches_and_nothing_else() {
    let _alone = crate::alone().await;
    let env = TestEnv::with(|config| {
        config.operators = 0;
        config.polling_interval = Duration::from_secs(30);
    })
    .await;
    make_services(&env).await;
    let before_kib = resident_kib();
    let started = Instant::now();
    env.add_operator().await;
    println!(
        "lists of {SERVICES} services read after {:?}",
        started.elapsed()
    );
    let faults = env.fake_cluster().server.faults();
    let quiet = async || {
        let before = faults.journal().iter().filter(|c| changes(c)).count();
        sleep(Duration::from_secs(3)).await;
        let after = faults.journal().iter().filter(|c| changes(c)).count();
        before == after
    };
    until("everything is written", quiet).await;
    println!("at rest after {:?}", started.elapsed());
    // The simulated cluster is in the same process and keeps what was written, so this is an upper bound.
    let grown = resident_kib().saturating_sub(before_kib);
    println!(
        "resident memory grew by {grown} KiB, {:.1} KiB a service, with the simulated cluster's and the resolver's share",
        grown as f64 / SERVICES as f64
    );

    let before = faults.calls();
    let span = Duration::from_secs(40);
    sleep(span).await;
    let mut calls = faults.journal();
    calls.retain(|c| c.number > before && c.user == OPERATOR_USER);
    let writes: Vec<String> = calls
        .iter()
        .filter(|c| changes(c))
        .map(ToString::to_string)
        .collect();
    assert!(writes.is_empty(), "nothing is written at rest: {writes:?}");
    let watches = calls.iter().filter(|c| c.verb == Verb::Watch).count();
    let each_minute = |count: usize| count as f64 * 60.0 / span.as_secs_f64();
    println!(
        "calls a minute at rest: {:.0}, of which watches {:.0}",
        each_minute(calls.len()),
        each_minute(watches)
    );
    let watched = env.metrics(0);
    let watched: Vec<&str> = watched
        .lines()
        .filter(|l| l.starts_with("elasti_operator_watch_count{"))
        .collect();
    println!("{}", watched.join("\n"));
    assert!(watched.len() <= 8, "one watch a kind: {watched:?}");
}
