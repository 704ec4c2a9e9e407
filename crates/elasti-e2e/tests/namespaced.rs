//! An installation without any right in the cluster: it serves the namespaces that it was given, as well as any other.
#![allow(missing_docs, clippy::unwrap_used)]

use elasti_api::Phase;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv, until};
use elasti_fake_cluster::faults::Call;

/// What operators and resolvers asked the API server.
fn own_calls(hood: &TestEnv) -> Vec<Call> {
    let mut calls = hood.fake_cluster().server.faults().journal();
    calls.retain(|call| [OPERATOR_USER, RESOLVER_USER].contains(&call.user.as_str()));
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_right_in_the_cluster_an_app_sleeps_wakes_and_is_let_go() {
    let hood = TestEnv::with(|config| {
        config.namespaces = vec!["default".into()];
        config.only_namespaced_rights = true;
        config.leader_elect = true;
        config.resolvers = 2;
        config.operators = 2;
    })
    .await;
    let web = hood.deploy("web").await;
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
    hood.api().delete(&web.path()).await;
    until("the app is let go awake", async || {
        web.object().await.is_null() && web.replicas().await > 0
    })
    .await;
    hood.ledger().assert_nothing_lost();

    let calls = own_calls(&hood);
    let refused: Vec<&Call> = calls.iter().filter(|call| call.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    // Everybody may ask for their own rights, and a namespace's Role may let it be read by name.
    let in_cluster = |call: &&Call| {
        let own_rights = call.kind == "selfsubjectaccessreviews";
        let by_name = call.kind == "namespaces" && call.name == "default";
        call.namespace.is_empty() && !own_rights && !by_name
    };
    let in_cluster: Vec<&Call> = calls.iter().filter(in_cluster).collect();
    assert!(in_cluster.is_empty(), "{in_cluster:?}");
}
