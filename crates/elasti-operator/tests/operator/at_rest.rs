//! What an operator asks the API server for while nothing happens.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::scripted_server::until;
use elasti_fake_cluster::faults::Verb;
use elasti_operator::{Running, Settings};
use elasti_testkit::fixture::Fixture;
use tokio::time::sleep;

const MINUTES: usize = 10;

#[tokio::test(start_paused = true)]
async fn a_leader_at_rest_makes_fewer_than_twenty_calls_a_minute_and_writes_its_lease_only() {
    let fixture = Fixture::without_resolver().await;
    let server = &fixture.fake_cluster.server;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = Settings {
        wake: any_port,
        metrics: None,
        health: None,
        operator_namespace: "default".into(),
        ..Settings::default()
    };
    let running = Running::start(settings, server.client()).await.unwrap();
    until("it leads", async || running.is_ready() && running.leads()).await;
    // Until everything that happens at the start is over.
    sleep(Duration::from_mins(2)).await;
    let before = server.faults().calls();
    sleep(Duration::from_mins(MINUTES as u64)).await;
    let mut calls = server.faults().journal();
    calls.retain(|call| call.number > before);
    assert!(calls.len() < 20 * MINUTES, "{calls:?}");
    let reads = [Verb::Get, Verb::List, Verb::Watch];
    calls.retain(|call| !reads.contains(&call.verb) && !call.kind.ends_with("reviews"));
    assert!(calls.iter().all(|call| call.kind == "leases"), "{calls:?}");
    assert!(!calls.is_empty(), "it has renewed its lease");
    running.stop().await;
}
