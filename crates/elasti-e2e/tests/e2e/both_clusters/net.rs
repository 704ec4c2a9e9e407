//! What reaches no pod although no one redirected it falls into the net: it is held, and answered by the next pod.

use elasti_e2e::{App, TestEnv, blueprint, until};
use serde_json::json;

/// Its only pod is deleted, and the next one is not ready yet.
async fn down(app: &App, env: &TestEnv) {
    let path = app.pods_path();
    let name = |pod: &serde_json::Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    let old = name(&env.api().items(&path).await[0]);
    let pod = format!("{}/{old}", app.core("pods"));
    env.api().delete(&pod).await;
    until("the old pod is gone", async || {
        let pods = env.api().items(&path).await;
        !pods.is_empty() && pods.iter().all(|pod| name(pod) != old)
    })
    .await;
    // Within the settle time every node has learnt it.
    tokio::time::sleep(env.settle()).await;
}

async fn one_slow_pod(env: &TestEnv, spec: serde_json::Value) -> App {
    let mut web = blueprint("web");
    web.start_seconds = "6";
    web.spec = spec;
    let web = env.build(web).await;
    web.until_serving().await;
    until("its net is there", async || {
        !web.our_slices().await.is_empty()
    })
    .await;
    assert!(web.resolver_slices().await.is_empty(), "no redirect");
    tokio::time::sleep(env.settle()).await;
    web
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_finds_no_ready_pod_waits_for_the_next_one() {
    let env = TestEnv::start().await;
    let web = one_slow_pod(&env, json!({})).await;
    down(&web, &env).await;
    let visitor = web.visitor();
    until("the visitor is held", async || web.held().await == 1).await;
    visitor.await.unwrap();
    assert!(web.replicas().await > 0);
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_when_down_false_a_request_that_finds_no_ready_pod_is_refused_at_once() {
    let env = TestEnv::start().await;
    let web = one_slow_pod(&env, json!({"hold": {"whenDown": false}})).await;
    down(&web, &env).await;
    let answer = web.get().await.unwrap();
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(answer.header("x-elasti-reason"), Some("Down"));
    // Asleep it still waits.
    web.until_serving().await;
    web.fall_asleep().await;
    assert_eq!(web.get().await.unwrap().code(), 200);
}
