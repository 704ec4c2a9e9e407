//! What the resolver reports about itself, how it ends, and what it does while the cluster is unhealthy.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::{ActivityReport, ListenPort, RouteGeneration, names};
use elasti_fake_cluster::faults::{Calls, Fault, Verb, WatchFault};
use elasti_resolver::{Running, Settings};
use elasti_testkit::fixture::{
    ELASTI, Fixture, HTTP, TestPort, http_get, own_address, send_raw, service, until,
};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

const READER: &str = "system:serviceaccount:default:default";

async fn token(fixture: &Fixture) -> String {
    let request =
        json!({"spec": {"audiences": [names::ACTIVITY_AUDIENCE], "expirationSeconds": 3600}});
    let made = fixture
        .api_client
        .make(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            request,
        )
        .await;
    made["status"]["token"].as_str().unwrap().to_owned()
}

async fn activity(fixture: &Fixture, token: &str) -> ActivityReport {
    let text = format!(
        "GET /activity HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    let answer = send_raw(&format!("{}:8013", fixture.address), &text).await;
    assert_eq!(answer.code(), 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn activity_is_reported_to_the_operator_only() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let mut slow = service("cart");
    slow.start_seconds = "60";
    let address = fixture.asleep(slow).await;
    for (authorization, code) in [
        ("", 401),
        ("Authorization: Basic Og==\r\n", 401),
        ("Authorization: Bearer guess\r\n", 401),
        ("Authorization: Bearer fake-cluster-admin\r\n", 403),
    ] {
        let text = format!(
            "GET /activity HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n"
        );
        let answer = send_raw(&format!("{}:8013", fixture.address), &text).await;
        assert_eq!(answer.code(), code, "{authorization}");
    }
    let token = token(&fixture).await;
    let before = activity(&fixture, &token).await.services;
    let port = ListenPort {
        name: "http".into(),
        port: 80,
        listen_port: HTTP.listen,
    };
    assert_eq!(before.len(), 1);
    assert_eq!(
        before[0].route_generation,
        RouteGeneration::from_ports(&[port])
    );
    assert_eq!(
        (
            before[0].held,
            before[0].open,
            before[0].last_connection_millis_ago
        ),
        (0, 0, None)
    );
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    let during = activity(&fixture, &token).await.services;
    assert_eq!((during[0].held, during[0].open), (1, 0));
    assert!(during[0].last_connection_millis_ago.is_some());
    assert_eq!(client.await.unwrap().code(), 200);
    until("nothing is open", async || {
        let after = activity(&fixture, &token).await.services;
        (after[0].held, after[0].open) == (0, 0)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_taken_port_is_missing_from_the_route_and_shown_by_a_metric_until_it_is_free() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let taken = TcpListener::bind((fixture.address, 20_002)).await.unwrap();
    let mut two = service("cart");
    two.ports.push(TestPort {
        name: "admin",
        port: 81,
        listen: 20_002,
        app_protocol: None,
    });
    fixture.asleep(two).await;
    let token = token(&fixture).await;
    let port = |name: &str, port: u16, listen_port: u16| ListenPort {
        name: name.into(),
        port,
        listen_port,
    };
    let http = port("http", 80, HTTP.listen);
    until("the free port is reported", async || {
        activity(&fixture, &token).await.services[0].route_generation
            == RouteGeneration::from_ports(std::slice::from_ref(&http))
    })
    .await;
    let metrics = fixture.admin("/metrics").await.body;
    assert!(
        metrics.contains("elasti_resolver_listen_ports_failed 1\n"),
        "{metrics}"
    );
    drop(taken);
    let both = RouteGeneration::from_ports(&[http.clone(), port("admin", 81, 20_002)]);
    until("both are reported", async || {
        activity(&fixture, &token).await.services[0].route_generation == both
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_loses_its_listener_and_keeps_its_open_connections() {
    let fixture = Fixture::start().await;
    let mut tcp = service("db");
    tcp.image = "speaks-first:1";
    let address = fixture.asleep(tcp).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let mut greeting = [0; 11];
    tokio::io::AsyncReadExt::read_exact(&mut client, &mut greeting)
        .await
        .unwrap();
    fixture.api_client.delete(&format!("{ELASTI}/db")).await;
    until("the port is closed", async || {
        TcpListener::bind((fixture.address, HTTP.listen))
            .await
            .is_ok()
    })
    .await;
    tokio::io::AsyncWriteExt::write_all(&mut client, b"still here\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    while !rest.ends_with(b"still here\n") {
        rest.push(tokio::io::AsyncReadExt::read_u8(&mut client).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn sigterm_makes_it_not_ready_first_accepts_for_the_settle_time_and_serves_held_requests_r15()
{
    let mut fixture = Fixture::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "60";
    let address = fixture.asleep(slow).await;
    assert_eq!(
        (
            fixture.admin("/healthz").await.code(),
            fixture.admin("/readyz").await.code()
        ),
        (200, 200)
    );
    let resolver = Arc::new(fixture.resolver.take().unwrap());
    let ending = {
        let resolver = resolver.clone();
        tokio::spawn(async move { resolver.drain().await })
    };
    until("it is not ready", async || {
        fixture.admin("/readyz").await.code() == 503
    })
    .await;
    assert_eq!(fixture.admin("/healthz").await.code(), 200, "but alive");
    let late = tokio::spawn(async move { http_get(&address, "/late").await });
    until("a late one is accepted and held", async || {
        resolver.held() == 1
    })
    .await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    until("after the settle time nothing is accepted", async || {
        TcpListener::bind(&direct).await.is_ok()
    })
    .await;
    assert!(!ending.is_finished());
    assert_eq!(late.await.unwrap().code(), 200, "held to the end");
    ending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_not_ready_before_its_routes_are_loaded() {
    let fixture = Fixture::start().await;
    let lists = Calls::all().kind("endpointslices").verb(Verb::List);
    for call in 1..=3 {
        fixture
            .fake_cluster
            .server
            .faults()
            .strike(call, lists.clone(), Fault::InternalError);
    }
    let address = own_address();
    let settings = Settings {
        bind: address.into(),
        admin: (address, 8013).into(),
        health: (address, 8011).into(),
        proxy: Some((address, 8012).into()),
        ..Settings::default()
    };
    let resolver = Running::start(settings, fixture.fake_cluster.server.client()).unwrap();
    let ready = http_get(&format!("{address}:8013"), "/readyz").await;
    assert_eq!(ready.code(), 503);
    until("the lists succeed", async || resolver.is_ready()).await;
    assert_eq!(
        http_get(&format!("{address}:8013"), "/readyz").await.code(),
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_noticed_while_something_is_held() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let silent = Fault::Watch(WatchFault::GoSilent);
    let watches = Calls::all().verb(Verb::Watch);
    fixture
        .fake_cluster
        .server
        .faults()
        .strike(1, watches.clone().kind("pods"), silent);
    fixture
        .fake_cluster
        .server
        .faults()
        .strike(1, watches.kind("endpointslices"), silent);
    let started = Instant::now();
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_for_a_while_does_not_stop_known_routes() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    for call in 1..=40 {
        fixture.fake_cluster.server.faults().strike(
            call,
            Calls::all().verb(Verb::Watch),
            Fault::InternalError,
        );
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(http_get(&direct, "/").await.code(), 200);
}
