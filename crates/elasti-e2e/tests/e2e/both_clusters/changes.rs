//! What changes around an app while it sleeps or wakes, as its users feel it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_api::Phase;
use elasti_e2e::{App, MERGE, TestEnv, blueprint, get, until};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Long enough for several reconciles.
async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

/// A window of an hour that is half a day away.
fn elsewhen() -> Value {
    let now = jiff::Timestamp::now().as_second().rem_euclid(86_400) / 3600;
    json!({"schedule": format!("0 {} * * *", (now + 12) % 24), "duration": "1h"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_its_active_window_an_app_is_kept_awake_and_woken_if_it_sleeps() {
    let env = TestEnv::start().await;
    let mut always = blueprint("web");
    always.spec = json!({"enabledPeriod": {"schedule": "0 0 * * *", "duration": "24h"}});
    let web = env.build(always).await;
    web.until_serving().await;
    web.fall_asleep().await;

    // The window ends: it is awake without any request.
    web.edit(json!({"enabledPeriod": elsewhen(), "minTargetReplicas": 2}))
        .await;
    until("it is kept awake", async || {
        web.replicas().await == 2 && web.phase().await == Some(Phase::Serving)
    })
    .await;
    a_while().await;
    assert_eq!(web.replicas().await, 2, "it may not sleep now");
    let reason = web.status().await.reason;
    assert_eq!(reason.as_deref(), Some("OutsideWindow"));

    // A window that cannot be parsed is none: it never sleeps.
    web.edit(json!({"enabledPeriod": {"schedule": "every day", "duration": "1h"}}))
        .await;
    a_while().await;
    assert_eq!(web.replicas().await, 2, "doubt is not idle");

    web.edit(json!({"enabledPeriod": null})).await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_check_is_answered_without_a_wake_and_a_visitor_is_not() {
    let env = TestEnv::start().await;
    let mut probed = blueprint("web");
    probed.spec = json!({"probeResponse": [{
        "path": {"type": "Exact", "value": "/healthz"}, "method": "GET",
        "response": {"status": 200, "body": "sleeping well"},
    }]});
    let web = env.build(probed).await;
    web.until_serving().await;
    let direct = get(&web.address(80), "/healthz").await.unwrap();
    assert!(direct.body.contains("\"pod\""), "the app's own: {direct:?}");

    web.fall_asleep().await;
    for _ in 0..5 {
        let answer = get(&web.address(80), "/healthz").await.unwrap();
        assert_eq!(
            (answer.code(), answer.body.as_str()),
            (200, "sleeping well")
        );
    }
    a_while().await;
    assert_eq!(web.replicas().await, 0, "a health check woke it");
    assert_eq!(web.phase().await, Some(Phase::Asleep));
    web.visit().await;
    assert!(web.replicas().await > 0);
    env.requests().assert_nothing_lost();
}

/// Asks for the health of an app every 200 ms, by a new connection each, as a load balancer or a monitor does; how often an
/// answer was not 200.
async fn check_health(web: App, stop: Arc<AtomicBool>) -> usize {
    let mut failed = 0;
    while !stop.load(Ordering::Relaxed) {
        let answer = get(&web.address(80), "/healthz").await;
        failed += usize::from(!answer.is_ok_and(|answer| answer.code() == 200));
        sleep(Duration::from_millis(200)).await;
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_whose_health_is_checked_all_the_time_falls_asleep_and_its_checks_stay_good() {
    let env = TestEnv::start().await;
    let mut probed = blueprint("web");
    probed.spec = json!({"cooldownPeriod": 3, "probeResponse": [{
        "path": {"type": "Exact", "value": "/healthz"}, "response": {"status": 200},
    }]});
    let web = env.build(probed).await;
    web.until_serving().await;
    let stop = Arc::new(AtomicBool::new(false));
    let checks = tokio::spawn(check_health(web.clone(), stop.clone()));
    for _ in 0..2 {
        web.fall_asleep().await;
        a_while().await;
        assert_eq!(web.replicas().await, 0, "a health check woke it");
        web.visit().await;
        web.busy();
        web.until_serving().await;
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(checks.await.unwrap(), 0, "health checks failed");
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_the_service_gains_while_the_app_sleeps_wakes_it_too() {
    let env = TestEnv::start().await;
    let mut two = blueprint("web");
    two.ports = vec![("http", 80), ("admin", 81)];
    let web = env.build(two).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let service = format!("{}/web", web.core("services"));
    let port =
        |name: &str, port: u16, to: &str| json!({"name": name, "port": port, "targetPort": to});
    let ports = json!([
        port("http", 80, "http"),
        port("admin", 81, "admin"),
        port("late", 82, "admin")
    ]);
    env.api()
        .patch(&service, MERGE, json!({"spec": {"ports": ports}}))
        .await;
    until("three ports lead to the resolvers", async || {
        let slices = web.resolver_slices().await;
        slices.len() == 1 && slices[0]["ports"].as_array().map(Vec::len) == Some(3)
    })
    .await;
    web.until_nodes_follow().await;
    assert_eq!(web.replicas().await, 0);
    let answer = web.get_at(82).await.unwrap();
    assert_eq!(answer.code(), 200, "{answer:?}");
    web.get_at(81).await.unwrap();
    env.requests().assert_nothing_lost();
}
