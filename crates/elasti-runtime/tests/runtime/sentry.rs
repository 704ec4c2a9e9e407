//! What is reported to Sentry, and what never leaves the process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elasti_runtime::logs;
use elasti_runtime::sentry::{Reports, Settings};
use elasti_testkit::sentry_stub::{Behaviour, ReceivedRequest, SentryStub};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use tracing_subscriber::layer::SubscriberExt as _;

fn settings(sentry: &SentryStub) -> Settings {
    Settings {
        dsn: sentry.dsn().parse().unwrap(),
        environment: "staging".into(),
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(Duration::from_secs(120), async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn sentence(event: &Value) -> &str {
    event["exception"]["values"][0]["value"].as_str().unwrap()
}

#[tokio::test]
async fn errors_and_panics_are_reported_and_nothing_that_a_client_sent() {
    let sentry = SentryStub::start(Behaviour::Accepts);
    let reports = logs::to_stdout().unwrap();
    let delivery = reports.start(Some(settings(&sentry)), "resolver");
    let secret = std::hint::black_box("s3cret");
    tracing::error!(target: "elasti_resolver", token = secret, why = format!("{secret}"), "a sentence of ours");
    tracing::error!(target: "kube_client", "of another crate: {secret}");
    tracing::warn!(target: "elasti_resolver", "only a warning");
    let literal = tokio::spawn(async { panic!("words of the program") });
    assert!(literal.await.is_err());
    let made = tokio::spawn(async move { panic!("{secret} of a client") });
    assert!(made.await.is_err());
    until("all arrived", || sentry.received().len() >= 3).await;
    delivery.end().await;

    let received = sentry.received();
    let events: Vec<Value> = received.iter().map(ReceivedRequest::event).collect();
    let sentences: Vec<&str> = events.iter().map(sentence).collect();
    assert_eq!(sentences.len(), 3, "{sentences:?}");
    assert_eq!(
        sentences[..2],
        ["a sentence of ours", "words of the program"]
    );
    assert!(sentences[2].contains("only in the log"), "{sentences:?}");
    for (received, level) in received.iter().zip(["error", "fatal", "fatal"]) {
        assert!(!received.body.contains("s3cret"), "{received:?}");
        assert_eq!(received.path(), "/api/7/envelope/");
        let auth = received.header("x-sentry-auth").unwrap();
        assert!(
            auth.contains("sentry_version=7") && auth.contains("sentry_key=k3y"),
            "{auth}"
        );
        let event = received.event();
        assert_eq!(event["level"], level);
        assert_eq!(event["environment"], "staging");
        assert_eq!(event["tags"]["process"], "resolver");
        let frame = &event["exception"]["values"][0]["stacktrace"]["frames"][0];
        assert!(
            frame["filename"]
                .as_str()
                .unwrap()
                .ends_with("tests/runtime/sentry.rs"),
            "{event}"
        );
        assert!(frame["lineno"].as_u64().unwrap() > 0, "{event}");
    }
}

/// Logs `count` errors.
async fn report(sentry: &SentryStub, count: usize) -> elasti_runtime::sentry::Delivery {
    let reports = Reports::default();
    let delivery = reports.start(Some(settings(sentry)), "operator");
    let subscriber = tracing_subscriber::registry().with(reports);
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..count {
            tracing::error!(target: "elasti_operator", "again");
        }
    });
    delivery
}

#[tokio::test]
async fn a_sentry_that_never_answers_or_is_not_there_delays_nothing() {
    let silent = SentryStub::start(Behaviour::Silent);
    report(&silent, 100_000).await.end().await;
    let gone = SentryStub::start(Behaviour::Unreachable);
    report(&gone, 100_000).await.end().await;
    assert!(silent.received().len() <= 20);
}

#[tokio::test]
async fn an_error_that_repeats_is_reported_a_few_times_only() {
    let sentry = SentryStub::start(Behaviour::Accepts);
    let delivery = report(&sentry, 100_000).await;
    until("some arrived", || sentry.received().len() >= 20).await;
    delivery.end().await;
    assert!(sentry.received().len() <= 32, "{}", sentry.received().len());
}

#[tokio::test]
async fn a_sentry_that_has_enough_is_left_alone() {
    let sentry = SentryStub::start(Behaviour::RateLimited);
    let delivery = report(&sentry, 20).await;
    until("it says so", || !sentry.received().is_empty()).await;
    delivery.end().await;
    assert_eq!(sentry.received().len(), 1);
}

#[test]
fn without_a_dsn_there_is_nothing_to_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(Reports::default().start(None, "operator").end());
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Sentences are sent, fields are not: so no sentence may be made of anything but the program's own words.
#[test]
fn the_sentence_of_every_error_is_the_programs_own() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for one in std::fs::read_dir(crates).unwrap() {
        let folder = one.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for part in text
            .split("error!(")
            .skip(1)
            .filter(|_| text.contains("tracing"))
        {
            let (macro_, _) = part.split_once(");").unwrap();
            let sentence = macro_.trim().trim_end_matches(',').rsplit_once('"');
            let sentence = sentence.and_then(|(before, _)| before.rsplit_once('"'));
            let (_, sentence) = sentence.unwrap_or_else(|| panic!("{}: {part}", file.display()));
            assert!(!sentence.contains('{'), "{}: {sentence}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no source was read");
}
