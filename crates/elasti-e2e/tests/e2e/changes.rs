//! What changes around an app while it sleeps or wakes, where only the simulated cluster can show it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, STRATEGIC, Target, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault};
use serde_json::json;
use tokio::time::sleep;

/// Long enough for several reconciles.
async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolvers_are_scaled_from_one_to_three_and_back_under_load_and_no_client_notices() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    env.add_resolver().await;
    env.add_resolver().await;
    until("all three answer for it", async || {
        web.slice_addresses().await == env.resolver_addresses() && web.replicas().await == 0
    })
    .await;
    assert_eq!(web.slice_addresses().await.len(), 3);

    // An app that cannot start yet keeps its visitors at the resolvers.
    let (stop, coming) = web.visitors();
    web.until_serving().await;
    for index in [0, 1] {
        env.stop_resolver(index).await;
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();

    web.until_asleep().await;
    assert_eq!(web.slice_addresses().await, env.resolver_addresses());
    assert_eq!(web.slice_addresses().await.len(), 1);
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_is_scaled_away_while_it_holds_serves_what_it_holds() {
    let env = TestEnv::with(|config| config.resolvers = 2).await;
    let mut slow = blueprint("web");
    slow.start_seconds = "4";
    let web = env.build(slow).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let waiting: Vec<_> = (0..12).map(|_| web.visitor()).collect();
    until("they wait", async || env.held() == 12).await;
    let answered = async {
        until("it is out of the slice", async || {
            web.slice_addresses().await.len() == 1
        })
        .await;
        for visitor in waiting {
            visitor.await.unwrap();
        }
    };
    tokio::join!(env.stop_resolver(0), answered);
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_ends_answers_for_as_long_as_slices_name_it() {
    let env = TestEnv::with(|config| config.resolvers = 2).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    until("both answer for it", async || {
        web.slice_addresses().await == env.resolver_addresses()
    })
    .await;
    // As long as a leader may need for many other slices.
    let slices = Calls::writes().kind("endpointslices").user(OPERATOR_USER);
    let late = Fault::Delay(Duration::from_secs(5));
    let faults = env.fake_cluster().server.faults();
    faults.strike_randomly(1000, slices, late);
    let visits = async {
        // Nothing new has come for several settle times when they do.
        sleep(Duration::from_secs(2)).await;
        let visitors: Vec<_> = (0..12).map(|_| web.visitor()).collect();
        for visitor in visitors {
            visitor.await.unwrap();
        }
    };
    tokio::join!(env.stop_resolver(0), visits);
    env.requests().assert_nothing_lost();
    assert_eq!(web.slice_addresses().await, env.resolver_addresses());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_comes_while_the_api_server_is_down_waits_and_is_answered_once_it_is_back() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    let awake = env.deploy("awake").await;
    web.until_serving().await;
    awake.until_serving().await;
    web.fall_asleep().await;

    let faults = env.fake_cluster().server.faults();
    for user in [OPERATOR_USER, RESOLVER_USER] {
        faults.strike_randomly(1000, Calls::all().user(user), Fault::InternalError);
    }
    let visitor = web.visitor();
    until("the visitor is held", async || env.held() == 1).await;
    awake.visit().await;
    a_while().await;
    assert_eq!(web.replicas().await, 0, "nothing could wake it");
    assert_eq!(env.held(), 1, "and the visitor still waits");
    awake.visit().await;

    faults.heal();
    visitor.await.unwrap();
    web.until_serving().await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_that_reaches_a_follower_is_done_by_it_while_the_leader_lives() {
    let env = TestEnv::with(|config| {
        config.operators = 0;
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
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;

    // The operators' Service no longer leads to the leader.
    let pod = format!("/api/v1/namespaces/elasti/pods/elasti-operator-{leader}/status");
    let out = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    env.api().patch(&pod, STRATEGIC, out).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/elasti/endpointslices";
    until("only the follower is called", async || {
        let slices = env.api().items(slices).await;
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
    let old = env.resolver_addresses().len();
    env.add_resolver().await;
    for index in 0..old {
        env.stop_resolver(index).await;
    }
    until("the new resolver answers for it", async || {
        web.slice_addresses().await == env.resolver_addresses()
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    let before = env.fake_cluster().server.faults().calls();
    web.visit().await;
    let mut scales = env.fake_cluster().server.faults().journal();
    scales.retain(|c| c.number > before && c.subresource == "scale" && c.verb.writes());
    let follower = format!("system:serviceaccount:elasti:{}", accounts[1 - leader]);
    let users: Vec<&str> = scales.iter().map(|c| c.user.as_str()).collect();
    assert_eq!(users, [follower], "{scales:?}");
    assert_eq!(env.leaders(), [leader]);
    web.until_serving().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_that_are_installed_later_are_picked_up() {
    let env = TestEnv::start().await;
    let mut canary = blueprint("canary");
    canary.target = Target::Rollout;
    let canary = env.build_without_target(canary).await;
    until("the API server does not serve Rollouts", async || {
        canary.status().await.reason.as_deref() == Some("TargetNotFound")
    })
    .await;
    env.fake_cluster().install_rollouts_and_keda();
    canary.make_target().await;
    canary.until_serving().await;
    canary.until_answering().await;
    canary.fall_asleep().await;
    canary.visit().await;
    env.requests().assert_nothing_lost();
}
