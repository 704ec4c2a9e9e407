//! An HPA with metrics that metrics-server reads from the kubelets.

use elasti_e2e::{App, TestEnv, blueprint, until};
use serde_json::{Value, json};

async fn hpa(env: &TestEnv) -> Value {
    let home = env.home();
    let path = format!("/apis/autoscaling/v2/namespaces/{home}/horizontalpodautoscalers/web");
    env.api().get(&path).await
}

/// An app, and an HPA that scales it by a resource.
async fn deploy(env: &TestEnv, replicas: (u32, u32), resource: Value) -> App {
    let path = format!(
        "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
        env.home()
    );
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let object = json!({
        "metadata": {"name": "web"},
        "spec": {
            "minReplicas": replicas.0, "maxReplicas": replicas.1, "scaleTargetRef": target,
            "metrics": [{"type": "Resource", "resource": resource}],
        },
    });
    env.api().make(&path, object).await;
    let mut web = blueprint("web");
    web.requests = json!({"cpu": "100m", "memory": "64Mi"});
    web.spec = json!({"autoscaler": {"type": "hpa", "name": "web"}});
    env.build(web).await
}

/// What the HPA says of its own activity.
async fn until_reason(env: &TestEnv, reason: &str) {
    until(&format!("the HPA says {reason}"), async || {
        let object = hpa(env).await;
        let conditions = object["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == "ScalingActive" && c["reason"] == reason)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real metrics-server: cargo xtask e2e --partners"]
async fn an_hpa_with_real_metrics_rests_at_zero_and_reads_them_again_after_the_wake() {
    let env = TestEnv::start().await;
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 90}});
    let web = deploy(&env, (2, 4), cpu).await;
    web.until_serving().await;
    until_reason(&env, "ValidMetricFound").await;
    web.fall_asleep().await;
    until_reason(&env, "ScalingDisabled").await;
    web.visit().await;
    assert_eq!(web.replicas().await, 2, "the HPA's minimum");
    web.busy();
    web.until_serving().await;
    until_reason(&env, "ValidMetricFound").await;
    web.fall_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real metrics-server: cargo xtask e2e --partners"]
async fn an_hpa_that_always_asks_for_more_is_no_obstacle_to_sleep() {
    let env = TestEnv::start().await;
    // Every pod uses more than that, so the HPA asks for its maximum whatever happens.
    let memory =
        json!({"name": "memory", "target": {"type": "AverageValue", "averageValue": "10Ki"}});
    let web = deploy(&env, (1, 3), memory).await;
    web.until_serving().await;
    until("the HPA has scaled it", async || web.replicas().await == 3).await;
    web.visit().await;
    web.fall_asleep().await;
    until_reason(&env, "ScalingDisabled").await;
    web.visit().await;
    web.busy();
    until("the HPA has scaled it again", async || {
        web.replicas().await == 3
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}
