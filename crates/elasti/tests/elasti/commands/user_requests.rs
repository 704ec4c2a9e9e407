//! `elasti wake` and `elasti sleep`: what they write, what they wait for, and what they say if it does not come.

use std::time::Duration;

use elasti_e2e::until;
use serde_json::{Value, json};

use super::fixture::{Fixture, days_ago};

fn status(phase: &str, reason: &str, sentence: &str, holds: bool) -> Value {
    let word = if holds { "True" } else { "False" };
    json!({
        "phase": phase, "mode": "serve", "reason": reason, "replicas": i32::from(phase != "Asleep"),
        "observedGeneration": 1, "quietSince": days_ago(1),
        "triggers": [{"type": "prometheus", "reading": "quiet", "value": "0", "threshold": "0.5", "since": days_ago(1)}],
        "conditions": [{"type": "Ready", "status": word, "reason": reason, "message": sentence, "lastTransitionTime": days_ago(1)}],
    })
}

async fn one(first: Value) -> Fixture {
    let fixture = Fixture::unattended().await;
    fixture.workload("web", 0, json!({})).await;
    fixture.declare("web", json!({})).await;
    fixture.status("web", first).await;
    fixture
}

/// Writes these statuses, one after the other, once the request is written.
async fn play(fixture: &Fixture, user_request: &str, steps: Vec<Value>) {
    until("the request is written", async || {
        let object = fixture.object("web").await;
        object["metadata"]["annotations"][format!("elasti.truefoundry.com/{user_request}")]
            .is_string()
    })
    .await;
    for step in steps {
        fixture.status("web", step).await;
    }
}

/// How many events watches have been sent.
fn events_sent(fixture: &Fixture) -> usize {
    fixture.env.fake_cluster().server.faults().delivered().len()
}

/// The command may not watch yet: a status is written until its watch has it.
async fn until_watched(fixture: &Fixture, status: Value) {
    let before = events_sent(fixture);
    let written = std::cell::Cell::new(0_u32);
    until("the watch has it", async || {
        written.set(written.get() + 1);
        let mut status = status.clone();
        status["held"] = json!(written.get());
        fixture.status("web", status).await;
        events_sent(fixture) > before
    })
    .await;
}

fn timeless(printed: &str) -> String {
    let line = |line: &str| match line.split_once(" after ") {
        Some((head, tail)) if tail.ends_with("ms") || tail.ends_with('s') => {
            format!("{head} after N")
        }
        _ => line.to_owned(),
    };
    printed.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_comes() {
    let fixture = one(status("Asleep", "Idle", "It sleeps.", true)).await;
    let steps = vec![
        status("Waking", "WakeRequested", "A wake was asked for.", true),
        status("Restoring", "WakeRequested", "A wake was asked for.", true),
        status("Serving", "CoolingDown", "It cools down.", true),
    ];
    let (printed, ()) = tokio::join!(
        fixture.types(&["wake", "web"]),
        play(&fixture, "wake-requested", steps)
    );
    insta::assert_snapshot!(timeless(&printed));
}

/// A ready pod is not enough: a service that goes back to sleep before it serves was not woken.
#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_falls_back_fails_and_says_why() {
    let fixture = one(status("Asleep", "Idle", "It sleeps.", true)).await;
    let (printed, ()) = tokio::join!(fixture.types(&["wake", "web"]), async {
        let up = status("Restoring", "WakeRequested", "A wake was asked for.", true);
        play(&fixture, "wake-requested", Vec::new()).await;
        until_watched(&fixture, up).await;
        let back = status(
            "Redirecting",
            "SleepRequested",
            "Sleep was requested.",
            true,
        );
        fixture.status("web", back).await;
    });
    assert!(
        printed
            .contains("default/web: cannot be woken: it went back to sleep: Sleep was requested."),
        "{printed}"
    );
    assert!(printed.contains("[exit 1]"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_fails_ends_at_once() {
    let fixture = one(status("Asleep", "Idle", "It sleeps.", true)).await;
    let sentence = "Pod web-1 cannot start: image x:1 cannot be pulled.";
    let steps = vec![status("Waking", "ImagePull", sentence, false)];
    let (printed, ()) = tokio::join!(
        fixture.types(&["wake", "web"]),
        play(&fixture, "wake-requested", steps)
    );
    insta::assert_snapshot!(timeless(&printed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_that_no_operator_grants() {
    let fixture = one(status("Asleep", "Idle", "It sleeps.", true)).await;
    let mut transcript = fixture.types(&["wake", "web", "--timeout", "1500ms"]).await;
    transcript.push_str(&fixture.types(&["wake", "web", "--wait=false"]).await);
    transcript.push_str(
        &fixture
            .types(&["wake", "web", "--dry-run=server", "-o", "json"])
            .await,
    );
    transcript.push_str(&fixture.types(&["wake", "web", "--timeout", "soon"]).await);
    transcript.push_str(&fixture.types(&["wake", "missing"]).await);
    let kept = transcript
        .lines()
        .filter(|line| !line.starts_with("2> ..."));
    insta::assert_snapshot!(kept.collect::<Vec<_>>().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_awake_stays_awake() {
    let fixture = one(status("Serving", "CoolingDown", "It cools down.", true)).await;
    insta::assert_snapshot!(fixture.types(&["wake", "web"]).await);
    let user_request = &fixture.object("web").await["metadata"]["annotations"]["elasti.truefoundry.com/wake-requested"];
    assert!(
        user_request
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .is_ok(),
        "{user_request}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_that_comes() {
    let fixture = one(status("Serving", "CoolingDown", "It cools down.", true)).await;
    let steps = vec![
        status(
            "Redirecting",
            "SleepRequested",
            "Sleep was asked for.",
            true,
        ),
        status("Draining", "Draining", "Pods leave rotation.", true),
        status("Asleep", "SleepRequested", "Sleep was asked for.", true),
    ];
    let (printed, ()) = tokio::join!(
        fixture.types(&["sleep", "web"]),
        play(&fixture, "sleep-requested", steps)
    );
    let again = fixture.types(&["sleep", "web"]).await;
    insta::assert_snapshot!(timeless(&printed) + "\n" + &again);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_that_a_request_cancels() {
    let fixture = one(status("Serving", "CoolingDown", "It cools down.", true)).await;
    let down = status(
        "Redirecting",
        "SleepRequested",
        "Sleep was asked for.",
        true,
    );
    let back = status(
        "Restoring",
        "Traffic",
        "Resolver r-1 is holding requests.",
        true,
    );
    // Between two statuses the watch must see the first.
    let play = async {
        play(&fixture, "sleep-requested", Vec::new()).await;
        until_watched(&fixture, down).await;
        fixture.status("web", back).await;
    };
    let (said, ()) = tokio::join!(fixture.types(&["sleep", "web"]), play);
    insta::assert_snapshot!(timeless(&said));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_that_is_not_possible_now_says_why_and_writes_nothing() {
    let active = json!([{"type": "prometheus", "reading": "active", "value": "7", "threshold": "0.5", "since": days_ago(1)}]);
    let mut busy = status(
        "Serving",
        "TriggerActive",
        "Trigger 0 is at or above its threshold of 0.5.",
        true,
    );
    busy["triggers"] = active;
    let fixture = one(busy).await;
    let mut transcript = fixture.types(&["sleep", "web"]).await;
    fixture
        .status("web", status("Serving", "Paused", "It is paused.", true))
        .await;
    fixture.types(&["pause", "web"]).await;
    transcript.push_str(&fixture.types(&["sleep", "web"]).await);
    transcript.push_str(&fixture.types(&["sleep", "--all", "-o", "json"]).await);
    insta::assert_snapshot!(transcript);
    let annotations = fixture.object("web").await["metadata"]["annotations"].to_string();
    assert!(!annotations.contains("sleep-requested"), "{annotations}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_grants_both_requests() {
    let fixture = Fixture::with(|config| config.polling_interval = Duration::from_secs(1)).await;
    fixture.workload("web", 1, json!({})).await;
    fixture
        .declare("web", json!({"cooldownPeriod": 3600}))
        .await;
    until("it serves and its trigger is read", async || {
        let status = &fixture.object("web").await["status"];
        status["phase"] == "Serving" && status["quietSince"].is_string()
    })
    .await;
    // On a busy machine a reading may be too old for a moment: then sleep is called off, rightly, and asked for again.
    let mut transcript = String::new();
    until("it is put to sleep", async || {
        transcript = timeless(&fixture.types(&["sleep", "web"]).await);
        !transcript.contains("[exit")
    })
    .await;
    let mut transcript = transcript.replace("already asleep", "asleep");
    assert_eq!(
        fixture.object("web").await["status"]["phase"],
        "Asleep",
        "{transcript}"
    );
    transcript.push('\n');
    transcript.push_str(&timeless(&fixture.types(&["wake", "web"]).await));
    insta::assert_snapshot!(transcript);
    let why = fixture.types(&["why", "web"]).await;
    assert!(why.contains("a user's request (WakeRequested)"), "{why}");
    assert!(why.contains("scaled") && why.contains("ready"), "{why}");
}
