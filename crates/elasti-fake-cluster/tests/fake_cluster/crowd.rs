//! 1,000 watchers and 10,000 objects: starting, listing and fan-out, with times printed and memory within a stated bound.

use std::time::Instant;

use crate::fixture::{ApiClient, CONFIG_MAPS, MERGE, a_server, config_map};
use elasti_fake_cluster::api_server::ApiServer;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use http::Request;
use serde_json::json;

const WATCHERS: usize = 1_000;
const OBJECTS: usize = 10_000;
const CHANGES: usize = 50;

/// Resident memory in MiB, where the system says it.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

async fn follow(server: ApiServer, version: u64) -> usize {
    let request = Request::get(format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}"))
        .body(Vec::new())
        .unwrap();
    let lines = server
        .client()
        .request_stream(request)
        .await
        .unwrap()
        .lines();
    lines.take(CHANGES).count().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watchers_of_ten_thousand_objects_are_cheap() {
    let before = resident_mib();
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let begun = Instant::now();
    for at in 0..OBJECTS {
        api_client
            .make(
                CONFIG_MAPS,
                config_map(&format!("object-{at:05}"), json!({"k": "v".repeat(200)})),
            )
            .await;
    }
    let created = begun.elapsed();
    let begun = Instant::now();
    let (_, list) = api_client.get(CONFIG_MAPS).await;
    let listed = begun.elapsed();
    assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
    drop(list);
    let full = resident_mib();

    let begun = Instant::now();
    let version = server.version();
    let watchers: Vec<_> = (0..WATCHERS)
        .map(|_| tokio::spawn(follow(server.clone(), version)))
        .collect();
    for at in 0..CHANGES {
        api_client
            .patch(
                &format!("{CONFIG_MAPS}/object-{at:05}"),
                MERGE,
                json!({"data": {"k": "new"}}),
            )
            .await;
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), CHANGES);
    }
    let fanned = begun.elapsed();
    let crowded = resident_mib();
    println!(
        "{OBJECTS} creates {created:?}, list {listed:?} (with parsing), {WATCHERS} watchers x {CHANGES} events {fanned:?}, memory {before} -> {full} -> {crowded} MiB"
    );
    assert!(
        full - before < 400 && crowded - before < 600,
        "memory {before} -> {full} -> {crowded} MiB"
    );
}
