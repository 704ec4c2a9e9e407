//! The processes and Sentry: a wrong DSN is a usage error, errors are reported, and a hanging Sentry does not delay the exit.

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use crate::process::{LIMIT, ResolverProcess, elasti};
use elasti_testkit::fixture::{Fixture, http_get as ask, service, until};
use elasti_testkit::sentry_stub::{Behaviour, ReceivedRequest, SentryStub};
use serde_json::Value;
use tokio::time::timeout;

#[tokio::test]
async fn a_wrong_dsn_is_one_line_that_does_not_repeat_it_and_exit_code_2() {
    for process in ["operator", "resolver"] {
        let ended = elasti(&[process])
            .env("SENTRY_DSN", "https://s3cret.example/without-a-key")
            .output();
        let ended = timeout(LIMIT, ended).await.unwrap().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{process}");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("SENTRY_DSN=(hidden) cannot be used"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}

/// An operator that cannot start, because its port is taken.
async fn failing_operator(sentry: &SentryStub) -> Option<i32> {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    let fake_cluster = elasti_fake_cluster::api_server::ApiServer::new(Default::default());
    let nowhere = "127.0.0.1:1".parse().unwrap();
    std::fs::write(&kubeconfig, fake_cluster.kubeconfig(nowhere)).unwrap();
    let ended = elasti(&[
        "operator",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ])
    .env("KUBECONFIG", &kubeconfig)
    .env("ELASTI_OPERATOR_BIND_ADDRESS", "127.0.0.1")
    .env("ELASTI_OPERATOR_PORT", port)
    .env(
        "PROMETHEUS_TRIGGER_SERVER_ADDRESS",
        "http://user:s3cret@prometheus:9090",
    )
    .env("SENTRY_DSN", sentry.dsn())
    .env("SENTRY_ENVIRONMENT", "staging")
    .output();
    let ended = timeout(LIMIT, ended).await.unwrap().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("the wake port cannot be opened"), "{said}");
    ended.status.code()
}

fn check(received: &[ReceivedRequest], process: &str) {
    assert_eq!(received.len(), 1, "{received:?}");
    assert!(!received[0].body.contains("s3cret"), "{received:?}");
    let event: Value = received[0].event();
    let reported = &event["exception"]["values"][0]["value"];
    assert_eq!(reported, "the process ends with an error");
    assert_eq!(event["tags"]["process"], process);
    assert_eq!(event["environment"], "staging");
    assert_eq!(
        event["release"],
        concat!("elasti@", env!("CARGO_PKG_VERSION"))
    );
}

#[tokio::test]
async fn an_operator_that_cannot_start_tells_sentry_before_it_ends() {
    let sentry = SentryStub::start(Behaviour::Accepts);
    assert_eq!(failing_operator(&sentry).await, Some(1));
    check(&sentry.received(), "operator");
}

#[tokio::test]
async fn a_sentry_that_hangs_or_is_gone_changes_nothing_about_the_end() {
    for behaviour in [Behaviour::Silent, Behaviour::Unreachable] {
        let sentry = SentryStub::start(behaviour);
        assert_eq!(failing_operator(&sentry).await, Some(1), "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_resolver_that_is_cut_off_tells_sentry_and_nothing_of_the_request() {
    let sentry = SentryStub::start(Behaviour::Accepts);
    let fixture = Fixture::without_resolver().await;
    let dsn = sentry.dsn();
    let more = [
        ("SENTRY_DSN", dsn.as_str()),
        ("SENTRY_ENVIRONMENT", "staging"),
    ];
    let mut resolver = ResolverProcess::start(&fixture, &more).await;
    let address = fixture.asleep(service("cart")).await;
    fixture.operator.code.store(503, Ordering::Relaxed);
    let held = tokio::spawn(async move { ask(&address, "/s3cret").await });
    until("it is held", async || resolver.held().await == 1).await;
    resolver.signal("TERM").await;
    until("it drains", async || {
        resolver.admin("/readyz").await.code() == 503
    })
    .await;
    resolver.signal("TERM").await;
    assert_eq!(resolver.ended().await.code(), Some(1));
    check(&sentry.received(), "resolver");
    held.abort();
}
