//! The same attacks where the protection is switched off by a setting: each does harm the neighbour, so the suite can fail.
//! Where no setting does that, a test beside the protection does; docs/security.md names them all.

use elasti_e2e::{App, OPERATOR_USER, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::Call;
use jiff::SignedDuration;
use serde_json::json;

use super::clients::{locked, reach};
use super::tenant::{AAA, Tenant, wake};
use crate::alone;

/// An environment whose one operator differs.
async fn env_with(change: impl FnOnce(&mut elasti_operator::Settings)) -> (TestEnv, App) {
    let env = TestEnv::with(|config| config.operators = 0).await;
    let client = env.client_as("elasti-operator-controller-manager").await;
    env.add_operator_with(client, change).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    (env, web)
}

/// How many calls of the operator in the attacker's namespace are of this kind.
fn calls(env: &TestEnv, is_one: impl Fn(&Call) -> bool) -> usize {
    let journal = env.fake_cluster().server.faults().journal();
    let counts = |call: &&Call| call.user == OPERATOR_USER && call.namespace == AAA && is_one(call);
    journal.iter().filter(counts).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_worker_the_hanging_writes_of_one_namespace_keep_a_neighbour_awake() {
    let _alone = alone().await;
    let (env, web) = env_with(|settings| settings.concurrency = 1).await;
    let tenant = Tenant::start(&env, &web).await;
    tenant.hanging_writes();
    let mut slow = blueprint("slow");
    slow.namespace = AAA;
    env.build(slow).await;
    let hung = || calls(&env, |call| call.verb.writes());
    until("the first write hangs", async || hung() > 0).await;
    web.idle();
    // With workers to share it sleeps meanwhile: see the suite.
    until("two more hang", async || hung() >= 3).await;
    assert!(web.replicas().await > 0, "the attack has done no harm");
    env.fake_cluster().server.faults().heal();
    web.until_asleep().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_anonymous_wakes_anybody_wakes_a_neighbour() {
    let _alone = alone().await;
    let (env, web) = env_with(|settings| settings.allow_anonymous_wakes = true).await;
    web.fall_asleep().await;
    let address = format!("{}:8013", env.operator_address(0));
    assert_eq!(wake(&address, "").await, Some(200));
    until("the neighbour is awake", async || web.replicas().await > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_resolvers_taken_from_a_tenants_namespace_its_pods_keep_a_neighbour_awake() {
    let _alone = alone().await;
    let (env, web) = env_with(|settings| settings.resolver_namespace = AAA.to_owned()).await;
    let tenant = Tenant::start(&env, &web).await;
    tenant.false_resolvers().await;
    web.idle();
    until("it waits for what is no resolver", async || {
        let reason = web.status().await.reason;
        let reasons = ["ResolverUnreachable", "RouteNotReady"];
        reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
    })
    .await;
    assert!(web.replicas().await > 0, "the attack has done no harm");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_allow_from_a_tenant_reaches_and_wakes_a_neighbour_through_a_resolver() {
    let _alone = alone().await;
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    let tenant = Tenant::start(&env, &web).await;
    let open = locked(&env, json!({})).await;
    let [host_route, listen_port] = tenant.ways_to(&open).await;
    assert_eq!(reach(&host_route).await, Some(200));
    assert_eq!(reach(&listen_port).await, Some(200));
    assert!(open.replicas().await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_pause_each_zero_of_another_is_answered_with_a_write() {
    let _alone = alone().await;
    let env = TestEnv::with(|config| config.times.contention_pause = SignedDuration::ZERO).await;
    env.namespace(AAA).await;
    let mut fought = blueprint("fought");
    fought.namespace = AAA;
    fought.starts = false;
    fought.in_use = false;
    fought.replicas = 0;
    let fought = env.build(fought).await;
    fought.until_asleep().await;
    for _ in 0..10 {
        // With a pause only the first one of them is not refused.
        env.wake(0, &fought).await;
        fought.scale_by_hand(0).await;
    }
    let is_write = |call: &Call| call.subresource == "scale" && call.verb.writes();
    assert!(calls(&env, is_write) >= 10);
}
