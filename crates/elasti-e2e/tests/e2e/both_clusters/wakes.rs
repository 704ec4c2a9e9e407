//! Wakes, whatever the cause.

use elasti_api::Phase;
use elasti_e2e::{TestEnv, until};

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
