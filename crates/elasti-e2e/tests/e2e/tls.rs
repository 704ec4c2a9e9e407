//! Operators and resolvers that speak TLS with one another.

use elasti_e2e::{TestEnv, get};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_a_service_sleeps_and_wakes_and_metrics_need_none() {
    let env = TestEnv::with(|config| {
        config.tls = true;
        config.operators = 2;
        config.leader_elect = true;
    })
    .await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    for _ in 0..2 {
        web.busy();
        web.until_serving().await;
        web.fall_asleep().await;
        web.visit().await;
    }
    let resolver = env.resolver_addresses().first().cloned().unwrap();
    for address in [resolver, env.operator_address(0).to_string()] {
        let metrics = get(&format!("{address}:8013"), "/metrics").await.unwrap();
        assert_eq!(metrics.code(), 200, "{metrics:?}");
    }
    env.requests().assert_nothing_lost();
}
