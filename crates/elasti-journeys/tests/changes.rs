//! What changes around an app while it sleeps or wakes, as its users feel it.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_api::Phase;
use elasti_journeys::{
    App, MERGE, Neighbourhood, OPERATOR_USER, RESOLVER_USER, STRATEGIC, blueprint, get, until,
};
use elasti_town::faults::{Calls, Fault};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Several looks with everything that they do.
async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

/// Someone who comes now and is answered later.
fn a_visitor(app: &App) -> JoinHandle<()> {
    let app = app.clone();
    tokio::spawn(async move { drop(app.visit().await) })
}

/// Visitors who come one after the other until told to stop.
fn visitors(app: &App) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let (app, stop) = (app.clone(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let coming = tokio::spawn(async move {
        while !stopped.load(Ordering::Relaxed) {
            // The ledger remembers.
            drop(app.get().await);
            sleep(Duration::from_millis(25)).await;
        }
    });
    (stop, coming)
}

/// A window of an hour that is half a day away.
fn elsewhen() -> Value {
    let now = jiff::Timestamp::now().as_second().rem_euclid(86_400) / 3600;
    json!({"schedule": format!("0 {} * * *", (now + 12) % 24), "duration": "1h"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outside_its_active_window_an_app_is_kept_awake_and_woken_if_it_sleeps() {
    let hood = Neighbourhood::start().await;
    let mut always = blueprint("web");
    always.spec = json!({"enabledPeriod": {"schedule": "0 0 * * *", "duration": "24h"}});
    let web = hood.build(always).await;
    web.until_serving().await;
    web.fall_asleep().await;

    // The window ends: nobody came, and yet it is there.
    web.edit(json!({"enabledPeriod": elsewhen(), "minTargetReplicas": 2}))
        .await;
    until("it is kept awake", async || {
        web.replicas().await == 2 && web.phase().await == Some(Phase::Serving)
    })
    .await;
    a_while().await;
    assert_eq!(web.replicas().await, 2, "it may not sleep now");
    let reason = web.status().await.reason;
    assert_eq!(reason.as_deref(), Some("OutsideWindow"));

    // A window that nobody can read is none: it never sleeps.
    web.edit(json!({"enabledPeriod": {"schedule": "every day", "duration": "1h"}}))
        .await;
    a_while().await;
    assert_eq!(web.replicas().await, 2, "doubt is not idle");

    web.edit(json!({"enabledPeriod": null})).await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

async fn slice_addresses(app: &App) -> BTreeSet<String> {
    let slices = app.resolver_slices().await;
    let endpoints = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().unwrap().clone());
    let address = |endpoint: Value| endpoint["addresses"][0].as_str().unwrap().to_owned();
    endpoints.map(address).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resolvers_are_scaled_from_one_to_three_and_back_under_visitors_and_nobody_notices() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    hood.add_resolver().await;
    hood.add_resolver().await;
    until("all three answer for it", async || {
        slice_addresses(&web).await == hood.resolver_addresses() && web.replicas().await == 0
    })
    .await;
    assert_eq!(slice_addresses(&web).await.len(), 3);

    // An app that cannot start yet keeps its visitors at the resolvers.
    let (stop, coming) = visitors(&web);
    web.until_serving().await;
    for index in [0, 1] {
        hood.stop_resolver(index).await;
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();

    web.until_asleep().await;
    assert_eq!(slice_addresses(&web).await, hood.resolver_addresses());
    assert_eq!(slice_addresses(&web).await.len(), 1);
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_is_scaled_away_while_it_holds_serves_whoever_waits_there() {
    let hood = Neighbourhood::with(|plot| plot.resolvers = 2).await;
    let mut slow = blueprint("web");
    slow.start_seconds = "4";
    let web = hood.build(slow).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let waiting: Vec<_> = (0..12).map(|_| a_visitor(&web)).collect();
    until("they wait", async || hood.held() == 12).await;
    let answered = async {
        until("it is out of the slice", async || {
            slice_addresses(&web).await.len() == 1
        })
        .await;
        for visitor in waiting {
            visitor.await.unwrap();
        }
    };
    tokio::join!(hood.stop_resolver(0), answered);
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_health_check_is_answered_without_a_wake_and_a_visitor_is_not() {
    let hood = Neighbourhood::start().await;
    let mut probed = blueprint("web");
    probed.spec = json!({"probeResponse": [{
        "path": {"type": "Exact", "value": "/healthz"}, "method": "GET",
        "response": {"status": 200, "body": "sleeping well"},
    }]});
    let web = hood.build(probed).await;
    web.until_serving().await;
    let direct = get(&web.address(80), "/healthz").await.unwrap();
    assert!(direct.body.contains("\"pod\""), "the app's own: {direct:?}");

    web.fall_asleep().await;
    for _ in 0..5 {
        let answer = get(&web.address(80), "/healthz").await.unwrap();
        assert_eq!(
            (answer.code(), answer.body.as_str()),
            (200, "sleeping well")
        );
    }
    a_while().await;
    assert_eq!(web.replicas().await, 0, "nobody woke it");
    assert_eq!(web.phase().await, Some(Phase::Asleep));
    web.visit().await;
    assert!(web.replicas().await > 0);
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visitor_who_comes_while_the_api_server_is_down_waits_and_is_answered_once_it_is_back() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    let awake = hood.deploy("awake").await;
    web.until_serving().await;
    awake.until_serving().await;
    web.fall_asleep().await;

    let faults = hood.town().server.faults();
    for user in [OPERATOR_USER, RESOLVER_USER] {
        faults.strike_randomly(1000, Calls::all().user(user), Fault::InternalError);
    }
    let visitor = a_visitor(&web);
    until("the visitor is held", async || hood.held() == 1).await;
    awake.visit().await;
    a_while().await;
    assert_eq!(web.replicas().await, 0, "nobody could wake it");
    assert_eq!(hood.held(), 1, "and the visitor still waits");
    awake.visit().await;

    faults.heal();
    visitor.await.unwrap();
    web.until_serving().await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_that_reaches_a_follower_is_done_by_it_while_the_leader_lives() {
    let hood = Neighbourhood::with(|plot| {
        plot.operators = 0;
        plot.leader_elect = true;
    })
    .await;
    let accounts = ["one", "other"];
    for account in accounts {
        hood.account(account).await;
        let client = hood.client_as(account).await;
        hood.add_operator_with(client, |_| {}).await;
    }
    until("one leads", async || hood.leaders().len() == 1).await;
    let leader = hood.leaders()[0];
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;

    // The operators' Service no longer leads to the leader.
    let pod = format!("/api/v1/namespaces/elasti/pods/elasti-operator-{leader}/status");
    let out = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    hood.api().patch(&pod, STRATEGIC, out).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/elasti/endpointslices";
    until("only the follower is called", async || {
        let slices = hood.api().items(slices).await;
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        endpoints
            .filter(|endpoint| endpoint["conditions"]["ready"] == true)
            .count()
            == 1
    })
    .await;
    sleep(Duration::from_millis(500)).await;
    let before = hood.town().server.faults().calls();
    web.visit().await;
    let mut scales = hood.town().server.faults().journal();
    scales.retain(|c| c.number > before && c.subresource == "scale" && c.verb.writes());
    let follower = format!("system:serviceaccount:elasti:{}", accounts[1 - leader]);
    let users: Vec<&str> = scales.iter().map(|c| c.user.as_str()).collect();
    assert_eq!(users, [follower], "{scales:?}");
    assert_eq!(hood.leaders(), [leader]);
    web.until_serving().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_the_service_gains_while_the_app_sleeps_wakes_it_too() {
    let hood = Neighbourhood::start().await;
    let mut two = blueprint("web");
    two.ports = vec![("http", 80), ("admin", 81)];
    let web = hood.build(two).await;
    web.until_serving().await;
    web.fall_asleep().await;
    let service = format!("{}/web", web.core("services"));
    let port =
        |name: &str, port: u16, to: &str| json!({"name": name, "port": port, "targetPort": to});
    let ports = json!([
        port("http", 80, "http"),
        port("admin", 81, "admin"),
        port("late", 82, "admin")
    ]);
    hood.api()
        .patch(&service, MERGE, json!({"spec": {"ports": ports}}))
        .await;
    until("three ports lead to the resolvers", async || {
        let slices = web.resolver_slices().await;
        slices.len() == 1 && slices[0]["ports"].as_array().map(Vec::len) == Some(3)
    })
    .await;
    // Nodes follow within the settle time.
    sleep(Duration::from_millis(500)).await;
    assert_eq!(web.replicas().await, 0);
    let answer = web.get_at(82).await.unwrap();
    assert_eq!(answer.code(), 200, "{answer:?}");
    web.get_at(81).await.unwrap();
    hood.ledger().assert_nothing_lost();
}
