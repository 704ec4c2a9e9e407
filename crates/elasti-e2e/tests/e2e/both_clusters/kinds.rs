//! The same life for every kind of target, and beside every autoscaler.

use std::sync::atomic::Ordering;

use elasti_api::names;
use elasti_e2e::{App, Blueprint, MERGE, Target, TestEnv, blueprint, until};
use serde_json::{Value, json};

async fn live(env: &TestEnv, blueprint: Blueprint) -> App {
    let app = env.build(blueprint).await;
    app.until_serving().await;
    app.fall_asleep().await;
    app.visit().await;
    app.busy();
    app.until_serving().await;
    app.fall_asleep().await;
    app.visit().await;
    env.requests().assert_nothing_lost();
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_sleeps_and_wakes() {
    let env = TestEnv::start().await;
    let mut db = blueprint("db");
    db.target = Target::StatefulSet;
    live(&env, db).await;
}

/// Out of rotation or deleted, as every pod of a target that sleeps must be.
fn is_leaving(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|one| one["type"] == "Ready" && one["status"] == "True");
    !is_ready || !pod["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_stateful_set_of_three_sleeps_and_wakes_under_requests() {
    let env = TestEnv::start().await;
    let mut db = blueprint("db");
    db.target = Target::StatefulSet;
    db.replicas = 3;
    db.target_spec = json!({"podManagementPolicy": "OrderedReady"});
    db.spec = json!({"minTargetReplicas": 3});
    let db = env.build(db).await;
    db.until_serving().await;
    db.idle();
    until("the highest pod is taken out", async || {
        db.replicas().await < 3
    })
    .await;
    // It meets the drain, which is cancelled.
    db.visit().await;
    db.until_asleep().await;
    until("its pods are gone", async || {
        let pods = env.api().items(&db.pods_path()).await;
        assert!(pods.iter().all(is_leaving), "back in rotation: {pods:#?}");
        pods.is_empty()
    })
    .await;

    let together: Vec<_> = (0..5).map(|_| db.visitor()).collect();
    let (stop, coming) = db.visitors();
    db.busy();
    for visitor in together {
        visitor.await.unwrap();
    }
    db.until_serving().await;
    let target = db.target_path();
    until("all three are ready", async || {
        env.api().get(&target).await["status"]["readyReplicas"] == 3
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_sleeps_and_wakes() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let mut canary = blueprint("canary");
    canary.target = Target::Rollout;
    live(&env, canary).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_port_of_a_service_wakes_it_and_is_answered() {
    let env = TestEnv::start().await;
    let mut two = blueprint("two");
    two.ports = vec![("http", 80), ("admin", 81)];
    let app = live(&env, two).await;
    app.until_asleep().await;
    let answer = app.get_at(81).await.unwrap();
    assert_eq!(answer.code(), 200, "{answer:?}");
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hpa_rests_at_zero_and_a_wake_asks_for_its_minimum() {
    let env = TestEnv::start().await;
    let hpa = json!({
        "metadata": {"name": "web"},
        "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let home = env.home();
    let path = format!("/apis/autoscaling/v2/namespaces/{home}/horizontalpodautoscalers");
    env.api().make(&path, hpa).await;
    let mut web = blueprint("web");
    web.spec = json!({"autoscaler": {"type": "hpa", "name": "web"}});
    let web = env.build(web).await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    assert_eq!(web.replicas().await, 2);
    env.requests().assert_nothing_lost();
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keda_is_paused_while_the_app_sleeps_and_given_back_when_it_wakes() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let cpu = json!({"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}});
    let scaled = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "web", "annotations": {"fake-cluster.example/active": "true"}},
        "spec": {
            "scaleTargetRef": {"name": "web"}, "minReplicaCount": 1, "maxReplicaCount": 3, "triggers": [cpu],
        },
    });
    let home = env.home();
    let path = format!("/apis/keda.sh/v1alpha1/namespaces/{home}/scaledobjects");
    env.api().make(&path, scaled).await;
    let path = format!("{path}/web");
    let mut web = blueprint("web");
    web.requests = json!({"cpu": "10m"});
    web.spec = json!({"autoscaler": {"type": "keda", "name": "web"}});
    let web = env.build(web).await;
    web.until_serving().await;

    web.fall_asleep().await;
    until("KEDA is pinned at zero", async || {
        let object = env.api().get(&path).await;
        annotation(&object, names::KEDA_PAUSED_ANNOTATION) == Some("true")
            && annotation(&object, names::KEDA_PAUSED_REPLICAS_ANNOTATION) == Some("0")
    })
    .await;

    web.visit().await;
    until("KEDA is given back", async || {
        let object = env.api().get(&path).await;
        annotation(&object, names::KEDA_PAUSED_ANNOTATION) == Some("false")
            && annotation(&object, names::KEDA_PAUSED_REPLICAS_ANNOTATION).is_none()
            && annotation(&object, names::KEDA_BEFORE_ANNOTATION).is_none()
    })
    .await;
    web.busy();
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();

    env.api().delete(&web.path()).await;
    until("the ElastiService is gone", async || {
        web.object().await.is_null()
    })
    .await;
    let object = env.api().get(&path).await;
    assert_ne!(
        annotation(&object, names::KEDA_PAUSED_ANNOTATION),
        Some("true")
    );
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_private_service_follows_the_public_one_while_the_app_sleeps() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let path = format!("{}/web", web.core("services"));
    let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}, {"name": "more", "port": 8080, "targetPort": "http"}]);
    env.api()
        .patch(&path, MERGE, json!({"spec": {"ports": ports}}))
        .await;
    until("both ports are redirected", async || {
        let slices = web.resolver_slices().await;
        slices.len() == 1 && slices[0]["ports"].as_array().map(Vec::len) == Some(2)
    })
    .await;
    let private = web.private_service().await;
    assert_eq!(private["spec"]["ports"].as_array().unwrap().len(), 2);
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}
