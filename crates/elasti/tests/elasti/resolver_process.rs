//! `elasti resolver` as the process that a cluster runs: its exit codes, its signals, its endpoints, its logs.

use std::sync::atomic::Ordering;

use crate::process::{ResolverProcess, elasti};
use elasti_testkit::fixture::{self, Fixture, http_get as ask, service, until};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn it_serves_the_first_request_and_says_so_in_json_lines() {
    let fixture = Fixture::without_resolver().await;
    let files = tempfile::tempdir().unwrap();
    let token = files.path().join("token");
    std::fs::write(&token, "projected\n").unwrap();
    let file = token.to_str().unwrap();
    let more = [
        ("ELASTI_RESOLVER_TOKEN_FILE", file),
        ("QUEUE_RETRY_DURATION", "5"),
    ];
    let mut resolver = ResolverProcess::start(&fixture, &more).await;
    let address = fixture.asleep(service("cart")).await;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(resolver.admin(path).await.code(), 200, "{path}");
    }
    let answer = ask(&address, "/first").await;
    assert_eq!(
        (answer.code(), &answer.json()["path"]),
        (200, &"/first".into())
    );
    let received = fixture.operator.received.lock()[0].clone();
    assert_eq!(received.authorization.as_deref(), Some("Bearer projected"));
    resolver.signal("TERM").await;
    assert_eq!(resolver.ended().await.code(), Some(0));
    let mut printed = Vec::new();
    while let Some(line) = resolver.logs.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        printed.push(line["message"].as_str().unwrap_or_default().to_owned());
    }
    for expected in [
        "flags or variables have no effect here",
        "resolver started",
        "SIGTERM received: draining",
        "drained",
    ] {
        assert!(
            printed.iter().any(|line| line == expected),
            "{expected}: {printed:?}"
        );
    }
}

#[tokio::test]
async fn the_access_log_has_a_json_line_for_each_request_and_connection_and_no_query() {
    let fixture = Fixture::without_resolver().await;
    let more = [("ELASTI_RESOLVER_ACCESS_LOG", "1")];
    let mut resolver = ResolverProcess::start(&fixture, &more).await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(ask(&address, "/first?token=secret").await.code(), 200);
    // The app speaks no TLS and closes.
    let mut tls = TcpStream::connect(&address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut tls, &[0x16, 3, 1, 0, 1, 0])
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut tls, &mut rest).await;
    drop(tls);
    let mut lines = Vec::new();
    while lines.len() < 2 {
        let line = resolver.logs.next_line().await.unwrap().unwrap();
        assert!(!line.contains("secret"), "{line}");
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        if line["log"] == "access" {
            lines.push(line);
        }
    }
    let [http, tls] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert_eq!(
        (&http["path"], &http["status"]),
        (&"/first".into(), &200.into())
    );
    assert_eq!(
        (&http["namespace"], &http["service"]),
        (&"default".into(), &"cart".into())
    );
    assert!(http["held_ms"].as_u64() > Some(0), "{http}");
    assert_eq!(tls["protocol"], "tls");
    resolver.signal("TERM").await;
    assert_eq!(resolver.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_first_sigterm_is_not_ready_at_once_and_ends_only_after_the_held_request_is_answered_r15()
 {
    let fixture = Fixture::without_resolver().await;
    let mut resolver = ResolverProcess::start(&fixture, &[]).await;
    let address = fixture.asleep(service("cart")).await;
    fixture.operator.code.store(503, Ordering::Relaxed);
    let held = tokio::spawn(async move { ask(&address, "/held").await });
    until("it is held", async || resolver.held().await == 1).await;
    resolver.signal("TERM").await;
    until("it is not ready, and alive", async || {
        resolver.admin("/readyz").await.code() == 503
            && resolver.admin("/healthz").await.code() == 200
    })
    .await;
    let direct = format!("{}:{}", fixture.address, fixture::HTTP.listen);
    until(
        "after the settle time no connection is accepted",
        async || TcpListener::bind(&direct).await.is_ok(),
    )
    .await;
    assert!(resolver.child.try_wait().unwrap().is_none(), "it holds on");
    fixture.operator.code.store(200, Ordering::Relaxed);
    let answer = held.await.unwrap();
    assert_eq!(
        (answer.code(), &answer.json()["path"]),
        (200, &"/held".into())
    );
    assert_eq!(resolver.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_second_sigterm_ends_at_once() {
    let fixture = Fixture::without_resolver().await;
    let mut resolver = ResolverProcess::start(&fixture, &[]).await;
    let mut slow = service("cart");
    slow.start_seconds = "3600";
    let address = fixture.asleep(slow).await;
    let held = tokio::spawn(async move {
        let mut client = TcpStream::connect(&address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut rest = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut client, &mut rest).await
    });
    until("it is held", async || resolver.held().await == 1).await;
    resolver.signal("TERM").await;
    until("it drains", async || {
        resolver.admin("/readyz").await.code() == 503
    })
    .await;
    assert!(resolver.child.try_wait().unwrap().is_none());
    resolver.signal("TERM").await;
    assert_eq!(resolver.ended().await.code(), Some(1));
    let line = resolver.errors.next_line().await.unwrap().unwrap();
    assert_eq!(
        line,
        "elasti: second SIGTERM received: 1 held requests were cut off"
    );
    let _ = held.await.unwrap();
}

#[tokio::test]
async fn wrong_values_are_all_named_in_one_line_and_end_it_with_code_2() {
    let ended = elasti(&["resolver"])
        .env("REQ_TIMEOUT", "ten minutes")
        .env("ELASTI_RESOLVER_PORT", "http")
        .output()
        .await
        .unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let line = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    for part in [
        "REQ_TIMEOUT=\"ten minutes\"",
        "ELASTI_RESOLVER_PORT=\"http\"",
    ] {
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test]
async fn without_a_cluster_it_says_so_in_one_line() {
    let ended = elasti(&["resolver"])
        .env("KUBECONFIG", "/nowhere")
        .output()
        .await
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let line = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(
        line.contains("no access to Kubernetes is configured"),
        "{line}"
    );
}

#[tokio::test]
async fn help_names_every_variable() {
    let printed = elasti(&["resolver", "--help"]).output().await.unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    for one in elasti_resolver::VARIABLES {
        assert!(text.contains(one.name), "{}: {text}", one.name);
    }
}

#[tokio::test]
async fn both_processes_raise_the_soft_limit_of_open_files() {
    for process in ["resolver", "operator"] {
        let mut shell = tokio::process::Command::new("/bin/sh");
        let limited = "ulimit -Sn 256; exec \"$0\" \"$1\"";
        shell.args(["-c", limited, env!("CARGO_BIN_EXE_elasti"), process]);
        // It finds no cluster, and ends.
        shell.env_clear().env("KUBECONFIG", "/nowhere");
        let printed = shell.output().await.unwrap();
        let log = String::from_utf8_lossy(&printed.stdout);
        let raised = "\"message\":\"raised the limit of open files\",\"from\":256";
        assert!(log.contains(raised), "{process}: {log}");
    }
}
