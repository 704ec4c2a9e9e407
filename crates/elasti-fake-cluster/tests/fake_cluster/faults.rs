//! Faults strike exactly the calls they are meant for, and replay from their seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fixture::{ApiClient, CONFIG_MAPS, a_server, config_map};
use elasti_fake_cluster::api_server::ApiServer;
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use elasti_fake_cluster::recorder;
use http::Request;
use kube::client::Body;
use serde_json::json;

async fn drops(server: &ApiServer, body: serde_json::Value) -> bool {
    let request = Request::post(CONFIG_MAPS)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap();
    server.client().send(request).await.is_err()
}

#[tokio::test]
async fn a_lost_answer_was_applied_and_a_crash_before_was_not() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let crashed_at = Arc::new(AtomicU64::new(0));
    let noted = crashed_at.clone();
    server
        .faults()
        .on_crash(move |call| noted.store(call.number, Ordering::SeqCst));
    server
        .faults()
        .strike(1, Calls::writes().kind("configmaps"), Fault::LoseAnswer);
    server.faults().strike(
        2,
        Calls::writes().kind("configmaps"),
        Fault::CrashCallerBefore,
    );
    assert!(drops(&server, config_map("a", json!({}))).await);
    assert_eq!(
        crashed_at.load(Ordering::SeqCst),
        0,
        "a lost answer crashes no caller"
    );
    assert!(drops(&server, config_map("b", json!({}))).await);
    assert_eq!(crashed_at.load(Ordering::SeqCst), 2);
    assert_eq!(api_client.get(&format!("{CONFIG_MAPS}/a")).await.0, 200);
    assert_eq!(api_client.get(&format!("{CONFIG_MAPS}/b")).await.0, 404);
    assert!(
        !drops(&server, config_map("b", json!({}))).await,
        "each struck once"
    );
}

#[tokio::test(start_paused = true)]
async fn conflicts_throttling_errors_delays_and_stale_reads_are_what_they_say() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client
        .make(CONFIG_MAPS, config_map("a", json!({"k": "old"})))
        .await;
    api_client
        .put(
            &format!("{CONFIG_MAPS}/a"),
            config_map("a", json!({"k": "new"})),
        )
        .await;
    let gets = || Calls::all().verb(Verb::Get);
    server.faults().strike(1, gets(), Fault::Conflict);
    server.faults().strike(
        2,
        gets(),
        Fault::TooManyRequests {
            retry_after_seconds: 7,
        },
    );
    server.faults().strike(3, gets(), Fault::InternalError);
    server
        .faults()
        .strike(4, gets(), Fault::Delay(Duration::from_secs(40)));
    server
        .faults()
        .strike(5, gets(), Fault::StaleRead { versions_back: 1 });
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(api_client.get(&path).await.0, 409);
    let (code, status) = api_client.get(&path).await;
    assert_eq!(
        (code, &status["details"]["retryAfterSeconds"]),
        (429, &json!(7))
    );
    assert_eq!(api_client.get(&path).await.0, 500);
    let begun = tokio::time::Instant::now();
    assert_eq!(api_client.get(&path).await.1["data"]["k"], "new");
    assert_eq!(begun.elapsed().as_secs(), 40);
    assert_eq!(api_client.get(&path).await.1["data"]["k"], "old");
    assert_eq!(api_client.get(&path).await.1["data"]["k"], "new");
    let codes: Vec<u16> = server
        .faults()
        .journal()
        .iter()
        .map(|call| call.code)
        .collect();
    assert_eq!(codes, [201, 200, 409, 429, 500, 200, 200, 200]);
}

#[tokio::test]
async fn random_faults_replay_from_their_seed() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let server = a_server();
        server
            .faults()
            .strike_randomly(300, Calls::writes(), Fault::InternalError);
        let recording = recorder::record(&server.client(), &recorder::sequence(5, 80))
            .await
            .unwrap();
        runs.push(
            recording
                .iter()
                .map(|exchange| exchange.code)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains(&500));
}

#[tokio::test]
async fn a_recording_replays_against_another_simulated_cluster_without_a_difference() {
    let requests = recorder::sequence(11, 400);
    let first = recorder::record(&a_server().client(), &requests)
        .await
        .unwrap();
    let written = recorder::from_lines(&recorder::to_lines(&first)).unwrap();
    let second = recorder::record(&a_server().client(), &requests)
        .await
        .unwrap();
    let differences = recorder::differences(&written, &second);
    assert!(
        differences.is_empty(),
        "{} differ, first: {} | {}",
        differences.len(),
        differences[0].0,
        differences[0].1
    );
    let codes: std::collections::BTreeSet<u16> =
        first.iter().map(|exchange| exchange.code).collect();
    assert!(
        [200, 201, 404, 409, 422]
            .iter()
            .all(|code| codes.contains(code)),
        "the sequence is varied: {codes:?}"
    );
}
