//! What one namespace does, by mistake or on purpose, stops no other.

use std::collections::BTreeSet;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, OPERATOR_USER, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use elasti_fake_cluster::prometheus::Reading;
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::json;

fn elasti_services(env: &TestEnv) -> String {
    let namespace = env.name_of("aaa");
    format!("/apis/elasti.truefoundry.com/v1alpha1/namespaces/{namespace}/elastiservices")
}

/// Creates an ElastiService in the namespace `aaa` whose target's kind is this one.
async fn name_kind(env: &TestEnv, name: &str, api_version: &str, kind: &str) {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
    let object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": name}, "spec": {"service": name, "scaleTargetRef": target},
    });
    env.api().make(&elasti_services(env), object).await;
}

async fn until_without_target(env: &TestEnv, name: &str) {
    until("it says that its own target is not there", async || {
        let object = env
            .api()
            .get(&format!("{}/{name}", elasti_services(env)))
            .await;
        let conditions = object["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.any(|c| c["type"] == names::condition::TARGET_FOUND && c["status"] == "False")
    })
    .await;
}

/// One app awake and one asleep, beside a target of a version that is not served, in a namespace that comes first.
/// A new operator takes nothing from either.
pub(crate) async fn a_version_that_is_not_served_harms_no_other_app(
    env: &TestEnv,
    restart: impl AsyncFnOnce(),
) {
    env.namespace("aaa").await;
    name_kind(env, "old", "apps/v1beta1", "Deployment").await;
    let awake = env.deploy("awake").await;
    let asleep = env.deploy("asleep").await;
    awake.until_serving().await;
    asleep.until_serving().await;
    asleep.fall_asleep().await;
    restart().await;
    awake.visit().await;
    asleep.visit().await;
    asleep.busy();
    asleep.until_serving().await;
    awake.fall_asleep().await;
    awake.visit().await;
    asleep.fall_asleep().await;
    until_without_target(env, "old").await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_starts_beside_a_version_that_is_not_served_harms_no_other_app() {
    let env = TestEnv::start().await;
    a_version_that_is_not_served_harms_no_other_app(&env, async || {
        env.stop_operator(0).await;
        env.restart_operator(0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_a_neighbour_makes_up_hide_no_deployment() {
    let env = TestEnv::with(|config| config.operators = 0).await;
    env.namespace("aaa").await;
    // The operator comes to know these first.
    name_kind(&env, "old", "apps/v1beta1", "Deployment").await;
    for n in 0..100 {
        let group = format!("g{n}.example/v1");
        name_kind(&env, &format!("bogus-{n}"), &group, "Thing").await;
    }
    env.add_operator().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    for name in ["old", "bogus-99"] {
        until_without_target(&env, name).await;
    }
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_quota_refuses_is_said_and_keeps_no_slice_from_being_written() {
    let env = TestEnv::start().await;
    let faults = env.fake_cluster().server.faults();
    // A quota that leaves no room for one more Service, such as our private one.
    let services = Calls::all().verb(Verb::Patch).kind("services");
    faults.strike_randomly(1000, services.user(OPERATOR_USER), Fault::Refuse);
    let web = env.deploy("web").await;
    until("the status says what is refused", async || {
        let conditions = web.status().await.conditions;
        let mut failed = conditions
            .iter()
            .filter(|c| c.type_ == names::condition::STEP_FAILED);
        failed.any(|c| c.reason == "EnsurePrivateService" && c.message.contains("quota"))
    })
    .await;
    until("an Event says so too", async || {
        let events = web.events("ElastiService").await;
        let said = |event: &serde_json::Value| event["reason"] == names::event::STEP_FAILED;
        events.iter().any(said)
    })
    .await;
    let metric =
        "elasti_operator_step_failure_counter{step=\"EnsurePrivateService\",error=\"forbidden\"}";
    assert!(env.metrics(0).contains(metric), "{}", env.metrics(0));
    // The net is written nonetheless, and what resolvers could not forward to does not sleep.
    until("there is a net", async || {
        !web.our_slices().await.is_empty()
    })
    .await;
    web.idle();
    until("it says why it stays awake", async || {
        web.status().await.reason.as_deref() == Some("RouteNotReady")
    })
    .await;
    assert!(web.replicas().await > 0);
    faults.heal();
    until("nothing is refused any more", async || {
        web.condition(names::condition::STEP_FAILED).await.is_none()
    })
    .await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_server_that_is_slower_than_reports_are_fresh_it_sleeps_nonetheless() {
    let env = TestEnv::with(|config| {
        config.times.report_fresh = SignedDuration::from_secs(2);
        // A reading is too old after three rounds.
        config.polling_interval = Duration::from_secs(4);
    })
    .await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    let prometheus = &env.fake_cluster().prometheus;
    // The value and then the uptime.
    prometheus.set_delay(Duration::from_millis(1200));
    web.fall_asleep().await;
    prometheus.set_delay(Duration::ZERO);
    web.visit().await;
    env.requests().assert_nothing_lost();
}

/// Queries of others, or too many of its own, can keep a service from being read anew for as long as they last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_triggers_get_no_turn_a_service_at_zero_is_redirected_and_wakes_once_they_do() {
    let env = TestEnv::with(|config| {
        // No reading is stale before the end.
        config.polling_interval = Duration::from_secs(100);
    })
    .await;
    let prometheus = env.prometheus();
    // Two of a namespace are asked at a time: the last ones are not asked within the 10 s of an attempt.
    let triggers: Vec<serde_json::Value> = (0..8)
        .map(|at| {
            let query = format!("slow_{at} or vector(5)");
            json!({"type": "prometheus", "metadata": {
                "query": query, "threshold": "1", "serverAddress": prometheus,
            }})
        })
        .collect();
    let stub = &env.fake_cluster().prometheus;
    stub.compute(|query| query.starts_with("slow_").then_some(Reading::Value(5.0)));
    let web = env
        .build(elasti_e2e::Blueprint {
            spec: json!({"triggers": triggers}),
            ..elasti_e2e::blueprint("web")
        })
        .await;
    web.until_serving().await;
    until("its triggers are active", async || {
        web.status().await.reason.as_deref() == Some("TriggerActive")
    })
    .await;
    stub.set_delay(Duration::from_secs(4));
    // Its trigger is active, but may have been so before that only.
    web.scale_by_hand(0).await;
    until("its requests go to the resolvers", async || {
        web.status().await.mode == Some(elasti_api::Mode::Proxy)
    })
    .await;
    assert_eq!(web.replicas().await, 0, "an old reading has not woken it");
    stub.set_delay(Duration::ZERO);
    until("it is woken", async || web.replicas().await > 0).await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_that_cannot_be_written_delays_neither_another_service_nor_another_namespace() {
    let env = TestEnv::start().await;
    env.namespace("aaa").await;
    let web = env.deploy("web").await;
    let admin = web.add_service("admin", json!({})).await;
    let neighbour = env
        .build(elasti_e2e::Blueprint {
            namespace: "aaa",
            ..elasti_e2e::blueprint("shop")
        })
        .await;
    for app in [&web, &admin, &neighbour] {
        until("it has its net", async || {
            !app.our_slices().await.is_empty()
        })
        .await;
    }
    neighbour.fall_asleep().await;
    let faults = env.fake_cluster().server.faults();
    let slices = || Calls::writes().kind("endpointslices").user(OPERATOR_USER);
    // None of the neighbour's from now on.
    faults.strike_randomly(
        1000,
        slices().namespace(neighbour.blueprint.namespace),
        Fault::Refuse,
    );
    env.add_resolver().await;
    env.kill_resolver(0).await;
    for app in [&web, &admin] {
        until("it follows the resolvers", async || {
            app.slice_addresses().await == env.resolver_addresses()
        })
        .await;
    }
    assert_ne!(neighbour.slice_addresses().await, env.resolver_addresses());
    // One of the two Services of the app, once.
    let home = web.blueprint.namespace;
    faults.strike(1, slices().namespace(home), Fault::Refuse);
    web.fall_asleep().await;
    let calls = faults.journal();
    let written: Vec<_> = { calls.iter() }
        .filter(|call| call.kind == "endpointslices" && call.namespace == home)
        .filter(|call| call.user == OPERATOR_USER && call.verb == Verb::Patch)
        .collect();
    let refused = written.iter().position(|call| call.code == 403).unwrap();
    let (refused, next) = (written[refused], written[refused + 1]);
    assert_ne!(refused.name, next.name, "the other one goes on at once");
    assert_eq!(next.code, 200);
    faults.heal();
    until("the neighbour follows, too", async || {
        neighbour.slice_addresses().await == env.resolver_addresses()
    })
    .await;
    tokio::join!(web.visit(), admin.visit(), neighbour.visit());
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ninety_services_that_are_woken_at_once_are_all_answered_with_one_scale_write_each() {
    let env = TestEnv::start().await;
    let names = (0..90).map(|n| &*format!("web-{n}").leak());
    let mut apps = Vec::new();
    for name in names {
        let mut app = blueprint(name);
        (app.replicas, app.in_use) = (0, false);
        apps.push(env.build(app).await);
    }
    for app in &apps {
        app.until_asleep().await;
    }
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    join_all(apps.iter().map(App::visit)).await;
    env.requests().assert_nothing_lost();
    let mut writes = faults.journal();
    writes.retain(|call| {
        let is_write = call.subresource == "scale" && call.verb.writes();
        call.number > before && is_write && call.user == OPERATOR_USER && call.code < 300
    });
    let scaled: BTreeSet<&str> = writes.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((scaled.len(), writes.len()), (apps.len(), apps.len()));
}
