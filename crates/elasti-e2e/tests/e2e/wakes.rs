//! Wakes: one scale write, whatever the cause and however many requests.

use std::time::Duration;

use elasti_api::WakeClient;
use elasti_api::names::WAKE_REQUESTED_ANNOTATION;
use elasti_e2e::{App, MERGE, OPERATOR_USER, ScaleWrites, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::json;
use tokio::time::{Instant, sleep};

/// Asleep, and the controllers have written every status of it: a status that they write in the same moment as a wake would
/// rightly cost a second try.
async fn asleep_and_settled(web: &App) {
    web.fall_asleep().await;
    web.until_nodes_follow().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_first_visitors_at_three_resolvers_cause_one_scale_write() {
    let env = TestEnv::with(|config| config.resolvers = 3).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    asleep_and_settled(&web).await;
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    let visitors = (0..100).map(|_| {
        let web = web.clone();
        tokio::spawn(async move { web.visit().await })
    });
    for visitor in visitors.collect::<Vec<_>>() {
        visitor.await.unwrap();
    }
    let mut calls = faults.journal();
    calls.retain(|c| c.number > before && c.user == OPERATOR_USER);
    let scales: Vec<_> = calls.iter().filter(|c| c.subresource == "scale").collect();
    assert_eq!(scales.len(), 1, "{scales:?}");
    let first = scales[0].number;
    let earlier: Vec<String> = calls
        .iter()
        .filter(|c| c.number < first && c.verb != Verb::Watch)
        .map(ToString::to_string)
        .collect();
    println!("calls of the operator before the scale write: {earlier:#?}");
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_while_a_wake_is_being_written_does_not_write_it_again() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    asleep_and_settled(&web).await;
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    let slow = Fault::Delay(Duration::from_secs(4));
    faults.strike(
        1,
        Calls::writes().user(OPERATOR_USER).subresource("scale"),
        slow,
    );
    let visitor = web.visitor();
    let scales = || {
        let mut calls = faults.journal();
        calls.retain(|c| c.number > before && c.user == OPERATOR_USER && c.subresource == "scale");
        calls
    };
    until("a wake is being written", async || scales().len() == 1).await;
    // A user requests the same, which the leader reconciles at once: a wake that was asked for, and a target at zero.
    let at = env.fake_cluster().server.clock().now() + SignedDuration::from_secs(1);
    let user_request =
        json!({"metadata": {"annotations": {WAKE_REQUESTED_ANNOTATION: at.to_string()}}});
    env.api().patch(&web.path(), MERGE, user_request).await;
    assert_eq!(web.replicas().await, 0, "the first write was too quick");
    web.until_serving().await;
    visitor.await.unwrap();
    assert_eq!(scales().len(), 1, "{:?}", scales());
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_that_dies_half_way_is_followed_by_one_that_ends_what_it_began() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.idle();
    until("it is being redirected", async || {
        !web.resolver_slices().await.is_empty()
    })
    .await;
    env.kill_operator(0).await;
    web.visit().await;
    env.restart_operator(0).await;
    web.until_asleep().await;
    env.kill_operator(0).await;
    // Held until there is someone to wake it.
    let visitor = {
        let web = web.clone();
        tokio::spawn(async move { web.visit().await })
    };
    until("the visitor is held", async || env.held() == 1).await;
    env.restart_operator(0).await;
    visitor.await.unwrap();
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_operator_a_target_that_is_zeroed_by_hand_holds_its_requests() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    until("its net is there", async || {
        !web.our_slices().await.is_empty()
    })
    .await;
    web.until_nodes_follow().await;
    env.kill_operator(0).await;
    web.scale_by_hand(0).await;
    until("its pods are gone", async || {
        env.api().items(&web.pods_path()).await.is_empty()
    })
    .await;
    web.until_nodes_follow().await;
    let visitor = web.visitor();
    until("the visitor is held", async || env.held() == 1).await;
    env.restart_operator(0).await;
    visitor.await.unwrap();
    env.requests().assert_nothing_lost();
}

/// The notes of the Events about its wakes.
async fn wake_notes(web: &App) -> Vec<String> {
    let events = web.events("ElastiService").await;
    let wakes = events.iter().filter(|event| event["action"] == "Wake");
    let notes = wakes.filter_map(|event| event["note"].as_str());
    notes.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_and_an_event_tell_whom_a_service_was_woken_for() {
    let env = TestEnv::with(|config| config.wake_clients = true).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    asleep_and_settled(&web).await;
    let path = web.visit().await.json()["path"].clone();
    until("the status tells it", async || {
        let wake = web.status().await.last_wake;
        let client = wake.and_then(|wake| wake.client).unwrap_or_default();
        client.path.as_deref() == path.as_str() && client.method.as_deref() == Some("GET")
    })
    .await;
    let clause = web.status().await.last_wake.unwrap().client.unwrap();
    let expected = format!("0 to 1: a request waits ({}).", clause.sentence());
    until("an Event tells it", async || {
        let notes = wake_notes(&web).await;
        notes.iter().any(|note| note.ends_with(&expected))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_by_its_pod_where_its_address_is_a_pods_alone() {
    let env = TestEnv::start().await;
    let (web, other) = (env.deploy("web").await, env.deploy("other").await);
    web.until_serving().await;
    other.until_serving().await;
    asleep_and_settled(&web).await;
    let pod = env.api().items(&other.pods_path()).await.remove(0);
    let text = |path: &str| pod.pointer(path).unwrap().as_str().unwrap().to_owned();
    let client = WakeClient::http("GET", "/a", None, &text("/status/podIP"));
    env.wake_for(0, &web, Some(client)).await;
    until("the status tells it", async || {
        let wake = web.status().await.last_wake;
        let client = wake.and_then(|wake| wake.client).unwrap_or_default();
        client.pod == Some(text("/metadata/name"))
            && client.namespace == Some(text("/metadata/namespace"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unless_resolvers_are_set_to_nothing_tells_whom_a_service_was_woken_for() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    asleep_and_settled(&web).await;
    web.visit().await;
    web.until_serving().await;
    let wake = web.status().await.last_wake.unwrap();
    assert_eq!((wake.by.as_str(), wake.client), ("Traffic", None));
    let notes = wake_notes(&web).await;
    let plain = |note: &String| note.ends_with("0 to 1: a request waits.");
    assert!(notes.iter().any(plain), "{notes:?}");
}

/// How often the target's spec was written.
async fn generation(env: &TestEnv, app: &App) -> Option<i64> {
    let target = env.api().get(&app.target_path()).await;
    target["metadata"]["generation"].as_i64()
}

/// As many as a morning wakes at once.
const SERVICES: usize = 90;

/// An app that has never run, asleep; only requests wake it, and it stays awake then.
async fn asleep_from_the_start(env: &TestEnv, number: usize) -> App {
    let mut web = blueprint(Box::leak(format!("web{number}").into_boxed_str()));
    (web.replicas, web.in_use) = (0, false);
    let web = env.build(web).await;
    web.until_asleep().await;
    web.edit(json!({"cooldownPeriod": 3600})).await;
    web
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ninety_services_that_are_woken_at_once_are_all_answered_and_each_is_scaled_once() {
    let env = TestEnv::start().await;
    let apps = join_all((0..SERVICES).map(|n| asleep_from_the_start(&env, n))).await;
    sleep(env.settle()).await;
    let before = join_all(apps.iter().map(|app| generation(&env, app))).await;
    let scale_writes = ScaleWrites::watch(&env).await;
    let start = Instant::now();
    let answers = join_all(apps.iter().map(async |app| {
        let answer = app.get().await;
        (answer, start.elapsed())
    }))
    .await;
    env.requests().assert_nothing_lost();
    until("every scale write is seen", async || {
        scale_writes.moments().len() == SERVICES
    })
    .await;
    let after = join_all(apps.iter().map(|app| generation(&env, app))).await;
    for (before, after) in before.iter().zip(after) {
        assert_eq!(after, before.map(|n| n + 1), "one write each");
    }
    let writes = scale_writes.moments().into_iter();
    let writes = writes.map(|at| at.duration_since(start)).collect();
    let answers = answers.into_iter().map(|(_, took)| took).collect();
    println!("{SERVICES} scale writes: {}", spread(writes));
    println!("{SERVICES} answers: {}", spread(answers));
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    format!(
        "p50 {:?}, last {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    )
}
