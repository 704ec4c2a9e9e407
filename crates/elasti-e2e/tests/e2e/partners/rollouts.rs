//! The controller of Argo Rollouts: canary and blue-green, in progress while the app sleeps and wakes.

use elasti_api::names;
use elasti_e2e::{App, MERGE, Target, TestEnv, blueprint, until};
use serde_json::{Value, json};

async fn rollout(app: &App, env: &TestEnv) -> Value {
    env.api().get(&app.target_path()).await
}

async fn until_rollout(app: &App, env: &TestEnv, phase: &str) {
    until(&format!("the Rollout is {phase}"), async || {
        let found = rollout(app, env).await;
        let observed = found["status"]["observedGeneration"].as_str();
        let observed = observed.and_then(|text| text.parse::<i64>().ok());
        found["status"]["phase"] == phase && observed == found["metadata"]["generation"].as_i64()
    })
    .await;
}

/// Another version of the pods.
async fn update(app: &App, env: &TestEnv, version: &str) {
    let template = json!({"metadata": {"annotations": {"example.com/version": version}}});
    let patch = json!({"spec": {"template": template}});
    env.api().patch(&app.target_path(), MERGE, patch).await;
}

/// The versions of the pods that are ready.
async fn versions(app: &App, env: &TestEnv) -> Vec<String> {
    let mut pods = env.api().items(&app.pods_path()).await;
    pods.retain(|pod| {
        let conditions = pod["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let version = |pod: &Value| {
        let version = pod["metadata"]["annotations"]["example.com/version"].as_str();
        version.unwrap_or("1").to_owned()
    };
    let mut versions: Vec<String> = pods.iter().map(version).collect();
    versions.sort();
    versions
}

async fn until_versions(app: &App, env: &TestEnv, wanted: &[&str]) {
    until(&format!("pods of the versions {wanted:?}"), async || {
        versions(app, env).await == wanted
    })
    .await;
}

fn nothing_lost(env: &TestEnv) {
    env.requests().assert_nothing_lost();
    println!("{} requests, none lost", env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Argo Rollouts: cargo xtask e2e --partners"]
async fn a_canary_in_progress_sleeps_wakes_with_both_versions_and_goes_on() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let mut web = blueprint("web");
    (web.target, web.replicas) = (Target::Rollout, 2);
    web.target_spec =
        json!({"strategy": {"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}}});
    web.spec = json!({"minTargetReplicas": 2});
    // A rollout of an app that is awake stops pods that nodes still send to, with Elasti or without.
    web.pod = json!({"container": {"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}});
    let web = env.build(web).await;
    web.until_serving().await;
    until_rollout(&web, &env, "Healthy").await;

    let (stop, coming) = web.visitors();
    update(&web, &env, "2").await;
    until_rollout(&web, &env, "Paused").await;
    until_versions(&web, &env, &["1", "2"]).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    coming.await.unwrap();

    web.fall_asleep().await;
    until("no pod is left", async || {
        env.api().items(&web.pods_path()).await.is_empty()
    })
    .await;
    web.visit().await;
    web.busy();
    web.until_serving().await;
    until_versions(&web, &env, &["1", "2"]).await;

    // `kubectl argo rollouts promote`.
    let (stop, coming) = web.visitors();
    let promote = json!({"status": {"pauseConditions": null}});
    let path = format!("{}/status", web.target_path());
    env.api().patch(&path, MERGE, promote).await;
    until_rollout(&web, &env, "Healthy").await;
    until_versions(&web, &env, &["2", "2"]).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    coming.await.unwrap();

    web.fall_asleep().await;
    web.visit().await;
    nothing_lost(&env);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Argo Rollouts: cargo xtask e2e --partners"]
async fn a_blue_green_rollout_is_updated_asleep_and_awake_and_no_request_is_lost() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let mut web = blueprint("web");
    web.target = Target::Rollout;
    web.target_spec =
        json!({"strategy": {"blueGreen": {"activeService": "web", "scaleDownDelaySeconds": 5}}});
    let web = env.build(web).await;
    web.until_serving().await;
    until_rollout(&web, &env, "Healthy").await;

    web.fall_asleep().await;
    update(&web, &env, "2").await;
    until_rollout(&web, &env, "Healthy").await;
    assert_eq!(web.replicas().await, 0, "an update wakes nothing");
    web.visit().await;
    until_versions(&web, &env, &["2"]).await;
    web.busy();
    web.until_serving().await;

    let (stop, coming) = web.visitors();
    update(&web, &env, "3").await;
    until_rollout(&web, &env, "Healthy").await;
    until_versions(&web, &env, &["3"]).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    coming.await.unwrap();
    let selector = web.private_service().await["spec"]["selector"].clone();
    let path = format!("{}/web", web.core("services"));
    assert_eq!(selector, env.api().get(&path).await["spec"]["selector"]);

    web.fall_asleep().await;
    web.visit().await;
    let conflict = web.condition(names::condition::CONFLICT).await;
    assert_eq!(conflict.unwrap().0, "False");
    nothing_lost(&env);
}
