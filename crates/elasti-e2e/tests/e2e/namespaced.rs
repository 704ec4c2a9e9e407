//! An installation without cluster-wide permissions serves the namespaces that it was given as well as any other.

use elasti_api::Phase;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv, until};
use elasti_fake_cluster::faults::Call;

/// What operators and resolvers asked the API server.
fn own_calls(env: &TestEnv) -> Vec<Call> {
    let mut calls = env.fake_cluster().server.faults().journal();
    calls.retain(|call| [OPERATOR_USER, RESOLVER_USER].contains(&call.user.as_str()));
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_cluster_wide_permissions_an_app_sleeps_wakes_and_is_finalized() {
    let env = TestEnv::with(|config| {
        config.namespaces = vec!["default".into()];
        config.only_namespaced_permissions = true;
        config.leader_elect = true;
        config.resolvers = 2;
        config.operators = 2;
    })
    .await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    for _ in 0..2 {
        web.fall_asleep().await;
        assert_eq!(web.phase().await, Some(Phase::Asleep));
        let answer = web.visit().await;
        assert!(answer.body.contains("/web/"), "{answer:?}");
        web.busy();
        web.until_serving().await;
    }
    web.fall_asleep().await;
    env.api().delete(&web.path()).await;
    until("the app is let go awake", async || {
        web.object().await.is_null() && web.replicas().await > 0
    })
    .await;
    env.requests().assert_nothing_lost();

    let calls = own_calls(&env);
    let refused: Vec<&Call> = calls.iter().filter(|call| call.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    // Every account may ask for its own permissions, and a namespace's Role may let it be read by name.
    let in_cluster = |call: &&Call| {
        let own_permissions = call.kind == "selfsubjectaccessreviews";
        let by_name = call.kind == "namespaces" && call.name == "default";
        call.namespace.is_empty() && !own_permissions && !by_name
    };
    let in_cluster: Vec<&Call> = calls.iter().filter(in_cluster).collect();
    assert!(in_cluster.is_empty(), "{in_cluster:?}");
}
