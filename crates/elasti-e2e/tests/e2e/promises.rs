//! A request that meets a drain is answered at once: the leader promises that it stops no pod for a while, and the
//! resolver forwards to one that is marked.

use std::time::Duration;

use elasti_api::names::DRAIN_REASON;
use elasti_e2e::{App, OPERATOR_USER, STRATEGIC, TestEnv, TestEnvConfig, until};
use elasti_fake_cluster::faults::{Calls, Fault};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// A drain that lasts for as long as a test: the operator waits for a kubelet's tick that does not come.
fn long_drain(config: &mut TestEnvConfig) {
    config.times.tick_timeout = SignedDuration::from_secs(600);
    config.tick = Duration::from_secs(600);
}

async fn is_marked(env: &TestEnv, web: &App) -> bool {
    let pods = env.api().items(&web.core("pods")).await;
    let marked = |condition: &Value| condition["reason"] == DRAIN_REASON;
    let mut conditions = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .flat_map(|pod| pod["status"]["conditions"].as_array().into_iter().flatten());
    conditions.any(marked)
}

/// An app whose only pod is marked, and which no operator can unmark until faults are healed.
async fn draining(env: &TestEnv, users: &[&str]) -> App {
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.idle();
    until("its pod is marked", async || is_marked(env, &web).await).await;
    web.until_nodes_follow().await;
    for user in users {
        let marks = Calls::writes()
            .kind("pods")
            .subresource("status")
            .user(user);
        let faults = env.fake_cluster().server.faults();
        faults.strike_randomly(1000, marks, Fault::InternalError);
    }
    web
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_meets_a_drain_is_answered_while_the_pod_is_still_marked() {
    let env = TestEnv::with(long_drain).await;
    let web = draining(&env, &[OPERATOR_USER]).await;
    web.visit().await;
    assert!(is_marked(&env, &web).await, "it was not the mark's removal");
    assert_eq!(web.replicas().await, 1);
    web.busy();
    env.fake_cluster().server.faults().heal();
    web.until_serving().await;
    assert!(!is_marked(&env, &web).await);
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_that_reaches_a_follower_while_pods_drain_is_passed_on_to_the_leader() {
    let env = TestEnv::with(|config| {
        long_drain(config);
        (config.operators, config.resolvers) = (0, 0);
        config.leader_elect = true;
    })
    .await;
    let accounts = ["one", "other"];
    for account in accounts {
        env.account(account).await;
        let client = env.client_as(account).await;
        env.add_operator_with(client, |_| {}).await;
    }
    until("one leads", async || env.leaders().len() == 1).await;
    let leader = env.leaders()[0];
    // The operators' Service does not lead to the leader.
    let pod = format!("/api/v1/namespaces/elasti/pods/elasti-operator-{leader}/status");
    let out = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    env.api().patch(&pod, STRATEGIC, out).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/elasti/endpointslices";
    until("only the follower is called", async || {
        let slices = env.api().items(slices).await;
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        ready.count() == 1
    })
    .await;
    env.add_resolver().await;
    let users = accounts.map(|account| format!("system:serviceaccount:elasti:{account}"));
    let web = draining(&env, &users.each_ref().map(String::as_str)).await;
    web.visit().await;
    assert!(is_marked(&env, &web).await, "it was not the mark's removal");
    let promise = env.wake(1 - leader, &web).await.promise;
    assert_eq!(promise.map(|promise| promise.pods.len()), Some(1));
    assert_eq!(env.leaders(), [leader]);
    web.busy();
    env.fake_cluster().server.faults().heal();
    web.until_serving().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_that_a_follower_carries_out_is_reported_as_traffic() {
    let env = TestEnv::with(|config| {
        (config.operators, config.leader_elect) = (0, true);
    })
    .await;
    for account in ["one", "other"] {
        env.account(account).await;
        let client = env.client_as(account).await;
        env.add_operator_with(client, |_| {}).await;
    }
    until("one leads", async || env.leaders().len() == 1).await;
    let leader = env.leaders()[0];
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    env.wake(1 - leader, &web).await;
    until("the leader says what woke it", async || {
        web.status()
            .await
            .last_wake
            .is_some_and(|wake| wake.by == "Traffic")
    })
    .await;
    assert_eq!(env.leaders(), [leader]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_shuts_down_releases_the_lease_after_its_last_promise_has_ended() {
    let env = TestEnv::with(|config| {
        long_drain(config);
        config.leader_elect = true;
        config.times.promise = SignedDuration::from_secs(3);
    })
    .await;
    let web = draining(&env, &[OPERATOR_USER]).await;
    let asked_at = env.fake_cluster().server.clock().now();
    let promise = env.wake(0, &web).await.promise.unwrap();
    env.stop_operator(0).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/elasti/leases/elasti-operator";
    let lease = env.api().get(lease).await;
    assert!(lease["spec"]["holderIdentity"].is_null(), "{lease}");
    let released: Timestamp = lease["spec"]["renewTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let lasts = SignedDuration::from_millis(i64::try_from(promise.millis).unwrap());
    let tolerance = SignedDuration::from_millis(100);
    assert!(released >= asked_at + lasts - tolerance, "{released}");
}
