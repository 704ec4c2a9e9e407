//! What one namespace does, by mistake or on purpose, stops no other.

use std::collections::BTreeSet;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, OPERATOR_USER, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::json;

const ELASTI_SERVICES: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/aaa/elastiservices";

/// Creates an ElastiService in the namespace `aaa` whose target's kind is this one.
async fn name_kind(env: &TestEnv, name: &str, api_version: &str, kind: &str) {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": name});
    let object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": name}, "spec": {"service": name, "scaleTargetRef": target},
    });
    env.api().make(ELASTI_SERVICES, object).await;
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
    let target_found = async |name: &str| {
        let object = env.api().get(&format!("{ELASTI_SERVICES}/{name}")).await;
        let conditions = object["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.unwrap_or_default().into_iter();
        conditions.any(|c| c["type"] == names::condition::TARGET_FOUND && c["status"] == "False")
    };
    for name in ["old", "bogus-99"] {
        until("it says that its own target is not there", async || {
            target_found(name).await
        })
        .await;
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
