//! Watches say what Kubernetes' watches say: from a version on, by selector, with bookmarks, and 410 when too old.

use std::pin::Pin;

use crate::fixture::{ApiClient, CONFIG_MAPS, MERGE, a_server, config_map};
use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use futures::{AsyncBufReadExt as _, Stream, StreamExt as _};
use http::Request;
use serde_json::{Value, json};

type Events = Pin<Box<dyn Stream<Item = Value>>>;

async fn watch(server: &ApiServer, query: &str) -> Events {
    let request = Request::get(format!("{CONFIG_MAPS}?watch=1&{query}"))
        .body(Vec::new())
        .unwrap();
    let lines = server
        .client()
        .request_stream(request)
        .await
        .unwrap()
        .lines();
    Box::pin(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

async fn seen(events: &mut Events) -> (String, String) {
    let event = events.next().await.expect("the watch is open");
    (
        event["type"].as_str().unwrap().to_owned(),
        event["object"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    )
}

fn typed(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_what_is_there() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    let mut events = watch(&server, "").await;
    assert_eq!(seen(&mut events).await, typed("ADDED", "a"));
    api_client
        .patch(
            &format!("{CONFIG_MAPS}/a"),
            MERGE,
            json!({"data": {"k": "v"}}),
        )
        .await;
    assert_eq!(seen(&mut events).await, typed("MODIFIED", "a"));
    api_client.delete(&format!("{CONFIG_MAPS}/a")).await;
    assert_eq!(seen(&mut events).await, typed("DELETED", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_replays_what_came_after_it() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let first = api_client
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    api_client
        .make(CONFIG_MAPS, config_map("b", json!({})))
        .await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut events = watch(&server, &format!("resourceVersion={version}")).await;
    assert_eq!(seen(&mut events).await, typed("ADDED", "b"));
}

#[tokio::test(start_paused = true)]
async fn objects_that_enter_and_leave_a_selection_are_added_and_deleted() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let label = |value: Value| json!({"metadata": {"labels": {"tier": value}}});
    api_client
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    let mut events = watch(&server, "labelSelector=tier%3Dfront").await;
    let path = format!("{CONFIG_MAPS}/a");
    api_client.patch(&path, MERGE, label(json!("front"))).await;
    assert_eq!(seen(&mut events).await, typed("ADDED", "a"));
    api_client
        .patch(&path, MERGE, json!({"data": {"k": "v"}}))
        .await;
    assert_eq!(seen(&mut events).await, typed("MODIFIED", "a"));
    let (_, left) = api_client.patch(&path, MERGE, label(json!("back"))).await;
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(
        event["object"]["metadata"]["labels"]["tier"], "front",
        "shown as it last matched"
    );
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    api_client.delete(&path).await;
    api_client
        .make(
            CONFIG_MAPS,
            json!({"metadata": {"name": "z", "labels": {"tier": "front"}}}),
        )
        .await;
    assert_eq!(seen(&mut events).await, typed("ADDED", "z"));
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let server = a_server();
    ApiClient::new(&server)
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    let mut events = watch(
        &server,
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    )
    .await;
    assert_eq!(seen(&mut events).await, typed("ADDED", "a"));
    let end = events.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"],
        json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"resourceVersion": server.version().to_string(), "annotations": {"k8s.io/initial-events-end": "true"}},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_the_timeout_ends_the_watch() {
    let server = a_server();
    let begun = tokio::time::Instant::now();
    let mut events = watch(&server, "allowWatchBookmarks=true&timeoutSeconds=150").await;
    for _ in 0..2 {
        assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    }
    assert!(events.next().await.is_none());
    assert_eq!(begun.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_out_of_the_history_is_told_410() {
    let server = ApiServer::new(ApiServerConfig {
        history_limit: 3,
        ..ApiServerConfig::default()
    });
    let api_client = ApiClient::new(&server);
    for at in 0..6 {
        api_client
            .make(CONFIG_MAPS, config_map(&format!("m{at}"), json!({})))
            .await;
    }
    let mut events = watch(&server, "resourceVersion=8").await;
    let event = events.next().await.unwrap();
    assert_eq!(
        (
            &event["type"],
            &event["object"]["code"],
            &event["object"]["reason"]
        ),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(
        event["object"]["message"]
            .as_str()
            .unwrap()
            .starts_with("too old resource version: 8 (")
    );
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watch_faults_drop_repeat_and_silence_events() {
    use elasti_fake_cluster::faults::{Calls, Fault, Verb, WatchFault};
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let watches = || Calls::all().verb(Verb::Watch).kind("configmaps");
    server
        .faults()
        .strike(1, watches(), Fault::Watch(WatchFault::DropEvent));
    server
        .faults()
        .strike(1, watches(), Fault::Watch(WatchFault::RepeatEvent));
    server
        .faults()
        .strike(1, watches(), Fault::Watch(WatchFault::GoSilent));
    let mut events = watch(&server, "timeoutSeconds=60").await;
    for name in ["dropped", "twice", "never", "after"] {
        api_client
            .make(CONFIG_MAPS, config_map(name, json!({})))
            .await;
    }
    assert_eq!(seen(&mut events).await, typed("ADDED", "twice"));
    assert_eq!(seen(&mut events).await, typed("ADDED", "twice"));
    let silence = tokio::time::timeout(std::time::Duration::from_secs(3600), events.next()).await;
    assert!(
        silence.is_err(),
        "not even the timeout ends a half-open watch"
    );
}
