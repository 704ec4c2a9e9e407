//! Defects of the predecessor, each as what its users felt; here none of them happens, where only the simulated cluster can show it.

use std::time::Duration;

use elasti_api::{Mode, Phase, names};
use elasti_e2e::{OPERATOR_USER, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use tokio::time::sleep;

/// Writes to resolver slices by the operator.
fn slice_writes() -> Calls {
    Calls::writes().kind("endpointslices").user(OPERATOR_USER)
}

/// Long enough for several reconciles.
async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_no_client_is_sent_to_zero_replicas_before_a_resolver_answers() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;

    // As long as the Service cannot be pointed at the resolvers, the pods stay.
    let faults = env.fake_cluster().server.faults();
    faults.strike_randomly(1000, slice_writes(), Fault::InternalError);
    web.idle();
    until("it tries to redirect", async || {
        let journal = faults.journal();
        journal
            .iter()
            .any(|c| c.kind == "endpointslices" && c.code == 500)
    })
    .await;
    a_while().await;
    assert_eq!(web.replicas().await, 1);
    web.visit().await;

    faults.heal();
    web.until_asleep().await;
    let journal = faults.journal();
    let of_operator = || {
        journal
            .iter()
            .filter(|c| c.user == OPERATOR_USER && c.code < 300)
    };
    let redirected = of_operator().find(|c| c.kind == "endpointslices" && c.verb == Verb::Patch);
    let marked = of_operator().find(|c| c.kind == "pods" && c.subresource == "status");
    let zeroed = of_operator().find(|c| c.kind == "deployments" && c.subresource == "scale");
    let order = [redirected, marked, zeroed].map(|call| call.unwrap().number);
    assert!(order.is_sorted(), "redirect, drain, zero: {order:?}");
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_the_status_says_proxy_only_once_the_resolvers_are_in_the_path() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    let faults = env.fake_cluster().server.faults();
    faults.strike_randomly(1000, slice_writes(), Fault::InternalError);
    web.idle();
    web.until_phase(Phase::Redirecting).await;
    a_while().await;
    let status = web.status().await;
    assert_eq!(status.mode, Some(Mode::Serve), "{status:?}");
    let redirected = web.condition(names::condition::TRAFFIC_REDIRECTED).await;
    assert_eq!(redirected.unwrap().0, "False");
    faults.heal();
    web.until_asleep().await;
    assert_eq!(web.resolver_slices().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r14_without_any_resolver_everything_that_sleeps_wakes_and_is_reached_directly() {
    let env = TestEnv::with(|config| config.resolvers = 2).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    env.kill_resolver(0).await;
    env.kill_resolver(1).await;
    until("it is awake and direct", async || {
        web.replicas().await > 0 && web.resolver_slices().await.is_empty()
    })
    .await;
    web.visit().await;
    a_while().await;
    assert!(
        web.replicas().await > 0,
        "nothing sleeps without a resolver"
    );
    assert_eq!(web.status().await.reason.as_deref(), Some("NoResolver"));
    env.requests().assert_nothing_lost();

    env.add_resolver().await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r17_of_two_operators_only_the_leader_acts_and_when_it_dies_the_other_does() {
    let env = TestEnv::with(|config| {
        config.operators = 0;
        config.leader_elect = true;
    })
    .await;
    for account in ["one", "other"] {
        env.account(account).await;
        let client = env.client_as(account).await;
        env.add_operator_with(client, |_| {}).await;
    }
    until("one leads", async || env.leaders().len() == 1).await;
    let first = env.leaders()[0];
    let user_of =
        |index: usize| format!("system:serviceaccount:elasti:{}", ["one", "other"][index]);
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let faults = env.fake_cluster().server.faults();
    let acts = |user: &str| {
        let mut calls = faults.journal();
        calls.retain(|c| {
            let reviews = c.kind.ends_with("reviews");
            c.user == user && c.verb.writes() && c.kind != "leases" && !reviews
        });
        calls
    };
    let idle_hands = acts(&user_of(1 - first));
    assert!(
        idle_hands.is_empty(),
        "only the leader acts: {idle_hands:?}"
    );
    assert!(!acts(&user_of(first)).is_empty());

    env.kill_operator(first).await;
    // A wake needs no leader.
    web.visit().await;
    let wake = acts(&user_of(1 - first));
    assert_eq!(
        wake.iter().filter(|c| c.subresource == "scale").count(),
        1,
        "{wake:?}"
    );
    until("the other leads", async || env.leaders() == [1 - first]).await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r20_an_app_that_sleeps_already_when_the_operator_starts_is_answered_for() {
    let env = TestEnv::with(|config| config.operators = 0).await;
    let mut asleep = blueprint("web");
    asleep.replicas = 0;
    let web = env.build(asleep).await;
    web.idle();
    env.add_operator().await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}
