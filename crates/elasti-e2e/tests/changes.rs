//! What changes around an app while it sleeps or wakes, where only the simulated cluster can show it.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::atomic::Ordering;
use std::time::Duration;

use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, STRATEGIC, Target, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault};
use serde_json::json;
use tokio::time::sleep;

/// Several looks with everything that they do.
async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolvers_are_scaled_from_one_to_three_and_back_under_visitors_and_nobody_notices() {
    let hood = TestEnv::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    hood.add_resolver().await;
    hood.add_resolver().await;
    until("all three answer for it", async || {
        web.slice_addresses().await == hood.resolver_addresses() && web.replicas().await == 0
    })
    .await;
    assert_eq!(web.slice_addresses().await.len(), 3);

    // An app that cannot start yet keeps its visitors at the resolvers.
    let (stop, coming) = web.visitors();
    web.until_serving().await;
    for index in [0, 1] {
        hood.stop_resolver(index).await;
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();

    web.until_asleep().await;
    assert_eq!(web.slice_addresses().await, hood.resolver_addresses());
    assert_eq!(web.slice_addresses().await.len(), 1);
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_is_scaled_away_while_it_holds_serves_whoever_waits_there() {
    let hood = TestEnv::with(|config| config.resolvers = 2).await;
    let mut slow = blueprint("web");
    slow.start_seconds = "4";
    let web = hood.build(slow).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let waiting: Vec<_> = (0..12).map(|_| web.visitor()).collect();
    until("they wait", async || hood.held() == 12).await;
    let answered = async {
        until("it is out of the slice", async || {
            web.slice_addresses().await.len() == 1
        })
        .await;
        for visitor in waiting {
            visitor.await.unwrap();
        }
    };
    tokio::join!(hood.stop_resolver(0), answered);
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_comes_while_the_api_server_is_down_waits_and_is_answered_once_it_is_back() {
    let hood = TestEnv::start().await;
    let web = hood.deploy("web").await;
    let awake = hood.deploy("awake").await;
    web.until_serving().await;
    awake.until_serving().await;
    web.fall_asleep().await;

    let faults = hood.fake_cluster().server.faults();
    for user in [OPERATOR_USER, RESOLVER_USER] {
        faults.strike_randomly(1000, Calls::all().user(user), Fault::InternalError);
    }
    let visitor = web.visitor();
    until("the visitor is held", async || hood.held() == 1).await;
    awake.visit().await;
    a_while().await;
    assert_eq!(web.replicas().await, 0, "nobody could wake it");
    assert_eq!(hood.held(), 1, "and the visitor still waits");
    awake.visit().await;

    faults.heal();
    visitor.await.unwrap();
    web.until_serving().await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_that_reaches_a_follower_is_done_by_it_while_the_leader_lives() {
    let hood = TestEnv::with(|config| {
        config.operators = 0;
        config.leader_elect = true;
    })
    .await;
    let accounts = ["one", "other"];
    for account in accounts {
        hood.account(account).await;
        let client = hood.client_as(account).await;
        hood.add_operator_with(client, |_| {}).await;
    }
    until("one leads", async || hood.leaders().len() == 1).await;
    let leader = hood.leaders()[0];
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;

    // The operators' Service no longer leads to the leader.
    let pod = format!("/api/v1/namespaces/elasti/pods/elasti-operator-{leader}/status");
    let out = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    hood.api().patch(&pod, STRATEGIC, out).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/elasti/endpointslices";
    until("only the follower is called", async || {
        let slices = hood.api().items(slices).await;
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        endpoints
            .filter(|endpoint| endpoint["conditions"]["ready"] == true)
            .count()
            == 1
    })
    .await;
    // The old resolvers may have a connection to the leader; one that starts now finds the follower only.
    let old = hood.resolver_addresses().len();
    hood.add_resolver().await;
    for index in 0..old {
        hood.stop_resolver(index).await;
    }
    until("the new resolver answers for it", async || {
        web.slice_addresses().await == hood.resolver_addresses()
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    let before = hood.fake_cluster().server.faults().calls();
    web.visit().await;
    let mut scales = hood.fake_cluster().server.faults().journal();
    scales.retain(|c| c.number > before && c.subresource == "scale" && c.verb.writes());
    let follower = format!("system:serviceaccount:elasti:{}", accounts[1 - leader]);
    let users: Vec<&str> = scales.iter().map(|c| c.user.as_str()).collect();
    assert_eq!(users, [follower], "{scales:?}");
    assert_eq!(hood.leaders(), [leader]);
    web.until_serving().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_that_are_installed_later_are_picked_up() {
    let hood = TestEnv::start().await;
    let mut canary = blueprint("canary");
    canary.target = Target::Rollout;
    let canary = hood.build_without_target(canary).await;
    until("nobody knows Rollouts", async || {
        canary.status().await.reason.as_deref() == Some("TargetNotFound")
    })
    .await;
    hood.fake_cluster().install_rollouts_and_keda();
    canary.make_target().await;
    canary.until_serving().await;
    canary.until_answering().await;
    canary.fall_asleep().await;
    canary.visit().await;
    hood.ledger().assert_nothing_lost();
}
