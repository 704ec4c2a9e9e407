//! Wakes, whatever the cause.

use elasti_api::Phase;
use elasti_e2e::{App, TestEnv, until};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_active_trigger_wakes_without_any_visitor() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.busy();
    web.until_serving().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_someone_scales_to_zero_is_answered_for_and_one_scaled_up_is_let_be() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.scale_by_hand(0).await;
    web.until_serving().await;
    assert!(web.replicas().await > 0, "it is in use, so it is woken");

    // Never read, nothing says that it is idle: a manual scale counts, and requests still wake it.
    web.set_reading(elasti_fake_cluster::prometheus::Reading::Empty);
    until("the doubt is known", async || {
        web.status().await.reason.as_deref() == Some("TriggerUnknown")
    })
    .await;
    web.scale_by_hand(0).await;
    web.until_asleep().await;
    // As long as nodes still send to the pod that ends, it answers, and nothing is woken.
    web.until_nodes_follow().await;
    web.visit().await;
    web.until_serving().await;
    web.scale_by_hand(3).await;
    until("three pods answer", async || {
        web.replicas().await == 3 && web.phase().await == Some(Phase::Serving)
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

/// How often the target's spec was written.
async fn generation(env: &TestEnv, app: &App) -> Option<i64> {
    let target = env.api().get(&app.target_path()).await;
    target["metadata"]["generation"].as_i64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zero_by_hand_within_the_cooldown_stands_until_the_next_request() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.until_nodes_follow().await;
    web.edit(json!({"cooldownPeriod": 3600})).await;
    web.visit().await;
    web.until_serving().await;
    let status = web.status().await;
    let woken_by = status.last_wake.as_ref().map(|wake| wake.by.as_str());
    assert_eq!(woken_by, Some("Traffic"), "{status:?}");
    let before = generation(&env, &web).await;

    web.scale_by_hand(0).await;
    web.until_asleep().await;
    web.until_nodes_follow().await;
    let zero = generation(&env, &web).await;
    assert_eq!(zero, before.map(|n| n + 1), "only the user wrote it");
    let contended = web.condition("Contended").await.map(|(status, _)| status);
    assert_eq!(contended.as_deref(), Some("True"));

    web.visit().await;
    web.until_serving().await;
    let woken = generation(&env, &web).await;
    assert_eq!(woken, zero.map(|n| n + 1), "one wake, by the next request");
    env.requests().assert_nothing_lost();
}
