//! What a user requests by annotation: sleep now, wake now.

use std::time::Duration;

use elasti_api::names::{SLEEP_REQUESTED_ANNOTATION, WAKE_REQUESTED_ANNOTATION};
use elasti_e2e::{App, MERGE, OPERATOR_USER, TestEnv, blueprint, until};
use elasti_fake_cluster::faults::Verb;
use jiff::SignedDuration;
use serde_json::json;

/// Annotates with a time that nothing seen so far is later than.
async fn ask(env: &TestEnv, web: &App, annotation: &str) {
    let at = env.fake_cluster().server.clock().now() + SignedDuration::from_secs(1);
    let user_request = json!({"metadata": {"annotations": {annotation: at.to_string()}}});
    env.api().patch(&web.path(), MERGE, user_request).await;
}

/// What Events say about its wakes.
async fn wake_notes(web: &App) -> Vec<String> {
    let events = web.events("ElastiService").await;
    let wakes = events.iter().filter(|event| event["action"] == "Wake");
    let notes = wakes.filter_map(|event| event["note"].as_str());
    notes.map(str::to_owned).collect()
}

/// Waits for the Event about a wake that a user requested. None says that a request waits: no client is there.
async fn until_an_event_names_the_request(web: &App) {
    let says = |note: &String| note.contains("A wake was requested at ");
    until("an Event names the user's request", async || {
        wake_notes(web).await.iter().any(says)
    })
    .await;
    let notes = wake_notes(web).await;
    let waits = |note: &String| note.contains("a request waits");
    assert!(!notes.iter().any(waits), "{notes:?}");
}

/// Asks for sleep, and again where a missing reading on a loaded machine has made the request void.
async fn put_to_sleep(env: &TestEnv, web: &App) {
    for _ in 0..5 {
        ask(env, web, SLEEP_REQUESTED_ANNOTATION).await;
        let asleep = tokio::time::timeout(Duration::from_secs(20), web.until_asleep());
        if asleep.await.is_ok() {
            return;
        }
        let status = web.status().await;
        println!("not asleep: {:?} {:?}", status.reason, status.triggers);
    }
    web.until_asleep().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_puts_an_app_to_sleep_before_its_cooldown_is_over_and_wakes_it_again() {
    let env = TestEnv::start().await;
    let mut plan = blueprint("web");
    plan.spec = json!({"cooldownPeriod": 900});
    let web = env.build(plan).await;
    web.until_serving().await;
    web.visit().await;

    web.idle();
    until("it cools down", async || {
        web.status().await.reason.as_deref() == Some("CoolingDown")
    })
    .await;
    put_to_sleep(&env, &web).await;
    until("it says why it sleeps", async || {
        web.status().await.reason.as_deref() == Some("SleepRequested")
    })
    .await;

    ask(&env, &web, WAKE_REQUESTED_ANNOTATION).await;
    web.until_serving().await;
    until_an_event_names_the_request(&web).await;
    let status = web.status().await;
    let wake = status.last_wake.unwrap();
    assert_eq!(wake.by, "WakeRequested");
    assert!(
        wake.scaled_at.is_some() && wake.ready_at >= wake.scaled_at,
        "{wake:?}"
    );
    assert!(status.asleep_seconds.is_some());
    web.visit().await;

    // A later request to sleep ends the wake, and a wake by traffic takes precedence over that.
    put_to_sleep(&env, &web).await;
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    web.visit().await;
    web.until_serving().await;
    until("the whole wake is reported", async || {
        let wake = web.status().await.last_wake.unwrap();
        wake.by == "Traffic" && wake.ready_at.is_some() && wake.answered_at.is_some()
    })
    .await;
    let wake = web.status().await.last_wake.unwrap();
    let moments = [
        Some(wake.asked_at.clone()),
        wake.scaled_at.clone(),
        wake.scheduled_at.clone(),
        wake.started_at.clone(),
        wake.ready_at.clone(),
    ];
    assert!(
        moments.is_sorted() && moments.iter().all(Option::is_some),
        "{wake:?}"
    );
    assert!(wake.answered_at >= wake.scaled_at, "{wake:?}");
    let mut calls = faults.journal();
    calls.retain(|c| c.number > before && c.user == OPERATOR_USER);
    calls.retain(|c| c.verb == Verb::Patch && c.subresource == "status");
    calls.retain(|c| c.to_string().contains("elastiservices"));
    println!("{wake:?}\nstatus writes of the wake: {}", calls.len());
    assert!(calls.len() <= 5, "{calls:#?}");
    assert_eq!(web.status().await.reason.as_deref(), Some("WokenByRequest"));
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_words_is_ignored_and_the_status_says_so() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    let user_request =
        json!({"metadata": {"annotations": {SLEEP_REQUESTED_ANNOTATION: "tonight"}}});
    env.api().patch(&web.path(), MERGE, user_request).await;
    until("it is said", async || {
        let conditions = web.status().await.conditions;
        let mut ready = conditions.iter().filter(|c| c.type_ == "Ready");
        ready.any(|c| c.message.contains("is ignored: it is not a time"))
    })
    .await;
    assert!(web.replicas().await > 0);
}
