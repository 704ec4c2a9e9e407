//! Apps that are slow to start, on a clock that does not wait: what may pass by itself is held for, and shown.

use std::time::Duration;

use elasti_api::{Phase, names};
use elasti_e2e::{App, Blueprint, MERGE, TestEnv, blueprint, until};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Between two timers the clock may jump while bytes are on their way; this is the longest jump.
const BEAT: Duration = Duration::from_millis(5);

/// An app that sleeps, in a cluster whose time passes as fast as it can.
async fn asleep(change: impl FnOnce(&mut Blueprint)) -> (TestEnv, App) {
    tokio::spawn(async {
        loop {
            sleep(BEAT).await;
        }
    });
    let env = TestEnv::start().await;
    let mut web = blueprint("web");
    web.replicas = 0;
    web.in_use = false;
    change(&mut web);
    let web = env.build(web).await;
    web.until_asleep().await;
    web.until_nodes_follow().await;
    (env, web)
}

async fn until_reason(web: &App, reason: &str) {
    until(&format!("the status says {reason}"), async || {
        let status = web.status().await;
        status.phase == Some(Phase::Waking) && status.reason.as_deref() == Some(reason)
    })
    .await;
}

/// A node that the pod would fit on.
async fn add_node(env: &TestEnv) {
    let nodes = env.api().items("/api/v1/nodes").await;
    let name = nodes[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    env.api()
        .patch(&format!("/api/v1/nodes/{name}"), MERGE, label)
        .await;
}

fn needs_another_node() -> Value {
    json!({"nodeSelector": {"disk": "ssd"}})
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_ready_after_75_seconds_is_answered() {
    let (env, web) = asleep(|web| web.start_seconds = "75").await;
    let visitor = web.visitor();
    until_reason(&web, "NotReady").await;
    visitor.await.unwrap();
    env.requests().assert_nothing_lost();
}

#[tokio::test(start_paused = true)]
async fn three_minutes_that_a_startup_probe_allows_do_not_count() {
    let (env, web) = asleep(|web| {
        web.start_seconds = "180";
        web.spec = json!({"hold": {"failFastSeconds": 30}});
        let startup =
            json!({"tcpSocket": {"port": 8080}, "failureThreshold": 30, "periodSeconds": 10});
        web.pod = json!({"container": {"startupProbe": startup}});
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_added_later_takes_the_pod_and_everybody_is_answered() {
    let (env, web) = asleep(|web| web.pod = needs_another_node()).await;
    let visitors: Vec<_> = (0..5).map(|_| web.visitor()).collect();
    until_reason(&web, "NotScheduled").await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(env.held(), 5);
    add_node(&env).await;
    for visitor in visitors {
        visitor.await.unwrap();
    }
    env.requests().assert_nothing_lost();
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_failed_is_remembered_until_one_succeeds() {
    let (env, web) = asleep(|web| {
        web.pod = needs_another_node();
        web.spec = json!({"hold": {"failFastSeconds": 20}});
    })
    .await;
    let answer = web.get().await.unwrap();
    assert_eq!(answer.code(), 503, "{answer:?}");
    let reason = answer.header(names::REASON_HEADER);
    assert_eq!(reason, Some("Unschedulable"), "{answer:?}");
    let failed = web.status().await.failed_wake.unwrap();
    assert_eq!(failed.reason, "Unschedulable");
    assert!(failed.message.contains("nodes are available"), "{failed:?}");
    web.until_asleep().await;
    assert_eq!(web.status().await.failed_wake, Some(failed), "asleep again");
    add_node(&env).await;
    web.visit().await;
    until("it is forgotten", async || {
        web.status().await.failed_wake.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_fails_when_its_cooldown_is_long_over_is_remembered_too() {
    let (env, web) = asleep(|web| {
        web.pod = needs_another_node();
        web.spec = json!({"hold": {"failFastSeconds": 20}});
    })
    .await;
    let at = env.fake_cluster().server.clock().now();
    let wake =
        json!({"metadata": {"annotations": {names::WAKE_REQUESTED_ANNOTATION: at.to_string()}}});
    env.api().patch(&web.path(), MERGE, wake).await;
    until("it is woken", async || web.replicas().await > 0).await;
    web.until_asleep().await;
    let failed = web.status().await.failed_wake.expect("it is remembered");
    assert_eq!(failed.reason, "Unschedulable", "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_port_of_a_native_sidecar_is_reached_as_soon_as_the_pod_is_ready() {
    let (env, web) = asleep(|web| {
        let ports = json!([{"name": "mesh", "containerPort": 8443}]);
        let sidecar =
            json!({"name": "mesh", "image": "echo:1", "restartPolicy": "Always", "ports": ports});
        web.pod = json!({"initContainers": [sidecar]});
        let ports = json!([{"name": "http", "port": 80, "targetPort": "mesh"}]);
        web.service = json!({"ports": ports});
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

/// Whether the kubelet has said that its pod is ready.
async fn pod_is_ready(env: &TestEnv, web: &App) -> bool {
    let pods = env.api().items(&web.pods_path()).await;
    let conditions = pods[0]["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn an_app_with_the_default_probe_is_answered_ahead_of_its_kubelet_and_handed_over_after_it() {
    let (env, web) = asleep(|web| {
        web.start_seconds = "3";
        // Every 10 s by default.
        web.pod = json!({"container": {"readinessProbe": {"tcpSocket": {"port": 8080}}}});
    })
    .await;
    web.visit().await;
    assert!(!pod_is_ready(&env, &web).await, "ahead of the kubelet");
    assert_eq!(web.status().await.phase, Some(Phase::Waking));
    let (stop, visitors) = web.visitors();
    web.busy();
    web.until_serving().await;
    assert!(pod_is_ready(&env, &web).await);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    visitors.await.unwrap();
    env.requests().assert_nothing_lost();
}
