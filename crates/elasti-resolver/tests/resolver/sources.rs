//! Who may reach a service through a resolver: by the address of the connection alone, and a refused one wakes nothing.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_api::names;
use elasti_fake_cluster::faults::{Call, Verb};
use elasti_testkit::fixture::{
    ELASTI, Fixture, MERGE, PODS, READER, Response, STRATEGIC, http_get, in_namespace, service,
    small_steps, until,
};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// The listen port itself: the nodes of the simulated cluster would connect with addresses of their own.
fn listen_port(fixture: &Fixture) -> String {
    format!("{}:20001", fixture.address)
}

/// An address that no other client of this process has.
fn client_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = std::process::id().to_le_bytes()[0];
    Ipv4Addr::new(127, 253, process, NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn connect_from(source: Ipv4Addr, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

async fn get_from(source: Ipv4Addr, address: &str, host: &str) -> Response {
    let mut stream = connect_from(source, address).await;
    let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Response {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn assert_refused(answer: &Response) {
    assert_eq!(answer.code(), 403, "{answer:?}");
    assert_eq!(
        answer.header(names::REASON_HEADER),
        Some("SourceNotAllowed")
    );
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
}

/// A client's pod that runs, with this address.
async fn make_pod(fixture: &Fixture, namespace: &str, name: &str, more: Value) {
    let mut spec =
        json!({"nodeName": "elsewhere", "containers": [{"name": "app", "image": "local"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pods = in_namespace(namespace, PODS);
    fixture.api_client.make(&pods, pod).await;
}

async fn set_address(
    fixture: &Fixture,
    namespace: &str,
    name: &str,
    address: Ipv4Addr,
    phase: &str,
) {
    let path = format!("{}/{name}/status", in_namespace(namespace, PODS));
    let status = json!({"phase": phase, "podIP": address, "podIPs": [{"ip": address}]});
    let api_client = &fixture.api_client;
    api_client
        .patch(&path, STRATEGIC, json!({"status": status}))
        .await;
}

fn restricted(name: &'static str, allow_from: &Value) -> elasti_testkit::fixture::TestService {
    let mut restricted = service(name);
    restricted.spec = json!({"hold": {"allowFrom": allow_from}, "probeResponse": [
        {"path": {"value": "/healthz"}, "response": {"status": 200}}]});
    restricted
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_not_allowed_gets_403_wakes_nothing_and_does_not_count_as_activity() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.into()].into()).await;
    let (friend, stranger) = (client_address(), client_address());
    let cidrs = json!({"cidrs": [format!("{friend}/32")]});
    fixture.asleep(restricted("cart", &cidrs)).await;
    let address = listen_port(&fixture);
    for host in ["cart", "cart.default"] {
        assert_refused(&get_from(stranger, &address, host).await);
    }
    let by_host = format!("{}:8012", fixture.address);
    assert_refused(&get_from(stranger, &by_host, "cart.default").await);
    // Raw TCP gets nothing and an end.
    let mut raw = connect_from(stranger, &address).await;
    raw.write_all(&[0x16, 0x03, 0x01, 0x00]).await.unwrap();
    let mut received = Vec::new();
    let _ = raw.read_to_end(&mut received).await;
    assert_eq!(String::from_utf8_lossy(&received), "");
    assert_eq!(fixture.operator.wakes(), [""; 0]);
    assert_eq!(fixture.resolver().held(), 0);
    let activity = fixture.activity().await;
    assert_eq!(activity.services[0].last_connection_millis_ago, None);
    let answer = get_from(friend, &address, "cart").await;
    assert_eq!(answer.code(), 200, "{answer:?}");
    assert_eq!(fixture.operator.wakes(), ["cart"]);
    // Awake it is as closed as asleep.
    assert_refused(&get_from(stranger, &address, "cart").await);
    let metrics = fixture.admin("/metrics").await.body;
    // Four requests, and the raw connection.
    let refused = "elasti_resolver_failures{reason=\"SourceNotAllowed\",fault=\"client\"} 5";
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn every_stream_of_one_http2_connection_is_refused() {
    let fixture = Fixture::start().await;
    fixture.asleep(restricted("cart", &json!({}))).await;
    let stream = connect_from(client_address(), &listen_port(&fixture)).await;
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (client, connection) = handshake.await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let streams = (0..5).map(|_| {
        let mut client = client.clone();
        async move {
            let request = Request::get("http://cart/healthz").body(Full::<Bytes>::default());
            // After the first refusal the connection ends: a late stream may not be taken at all.
            let answer = client.send_request(request.unwrap()).await.ok()?;
            let status = answer.status().as_u16();
            drop(answer.collect().await);
            Some(status)
        }
    });
    let answers = futures::future::join_all(streams).await;
    assert!(answers.contains(&Some(403)), "{answers:?}");
    for answer in answers.into_iter().flatten() {
        assert_eq!(answer, 403);
    }
    assert_eq!(fixture.operator.wakes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_an_allowed_namespace_come_in_and_lose_that_with_their_address() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    fixture.namespace("web").await;
    let (client, node) = (client_address(), client_address());
    fixture
        .asleep(restricted("cart", &json!({"namespaces": ["web"]})))
        .await;
    let address = listen_port(&fixture);
    // A pod of another namespace, and one on its node's network, which others have too.
    make_pod(&fixture, "default", "stranger", json!({})).await;
    set_address(&fixture, "default", "stranger", client, "Running").await;
    make_pod(&fixture, "web", "on-node", json!({"hostNetwork": true})).await;
    set_address(&fixture, "web", "on-node", node, "Running").await;
    assert_refused(&get_from(client, &address, "cart").await);
    assert_refused(&get_from(node, &address, "cart").await);
    assert_eq!(fixture.operator.wakes(), [""; 0]);
    // A pod connects before its address is known, and waits for that.
    make_pod(&fixture, "web", "client", json!({})).await;
    let early = tokio::spawn({
        let address = address.clone();
        async move { get_from(client, &address, "cart").await }
    });
    set_address(&fixture, "web", "client", client, "Running").await;
    let early = early.await.unwrap();
    assert_eq!(early.code(), 200, "{early:?}");
    // Once it has ended, its address may be another's.
    set_address(&fixture, "web", "client", client, "Succeeded").await;
    until("its address is free", async || {
        get_from(client, &address, "cart").await.code() == 403
    })
    .await;
}

/// There may be a thousand of them, and one held request is enough.
#[tokio::test(start_paused = true)]
async fn a_held_request_renews_no_watch_of_sources_sooner() {
    let fixture = Fixture::start().await;
    fixture.namespace("web").await;
    let client = client_address();
    let allowed = json!({"namespaces": ["web"], "cidrs": [format!("{client}/32")]});
    let mut never = restricted("cart", &allowed);
    never.image = "never-ready:1";
    fixture.asleep(never).await;
    let address = listen_port(&fixture);
    assert_refused(&get_from(client_address(), &address, "cart").await);
    let mut held = connect_from(client, &address).await;
    held.write_all(b"GET / HTTP/1.1\r\nHost: cart\r\n\r\n")
        .await
        .unwrap();
    until("it is held", async || fixture.resolver().held() == 1).await;
    let faults = fixture.fake_cluster.server.faults();
    let watches = || {
        let calls = faults.journal().into_iter();
        let of_sources = |call: &Call| {
            let Call { verb, kind, .. } = call;
            (*verb, &**kind, &*call.namespace) == (Verb::Watch, "pods", "web")
        };
        calls.filter(of_sources).count()
    };
    let before = watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.resolver().held(), 1);
    let renewed = watches() - before;
    assert!((1..=5).contains(&renewed), "{renewed} in a minute");
}

#[tokio::test(start_paused = true)]
async fn one_source_that_is_not_known_yet_has_few_connections_waiting() {
    let fixture = Fixture::start().await;
    let faults = fixture.fake_cluster.server.faults();
    let pods = elasti_fake_cluster::faults::Calls::all().kind("pods");
    faults.strike_randomly(1000, pods, elasti_fake_cluster::faults::Fault::Refuse);
    fixture
        .asleep(restricted("cart", &json!({"sameNamespace": true})))
        .await;
    let address = listen_port(&fixture);
    let flooder = client_address();
    let flood: Vec<_> = (0..40)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move { get_from(flooder, &address, "cart").await })
        })
        .collect();
    for one in flood {
        assert_refused(&one.await.unwrap());
    }
    assert_eq!(fixture.operator.wakes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_default_counts_where_a_spec_does_not_say_and_the_host_route_can_be_closed() {
    let friend = client_address();
    let fixture = Fixture::with(|settings| {
        settings.proxy = None;
        settings.allow_from = Some(elasti_api::AllowFrom {
            cidrs: vec![format!("{friend}/32")],
            ..elasti_api::AllowFrom::default()
        });
    })
    .await;
    fixture.asleep(service("cart")).await;
    let address = listen_port(&fixture);
    assert_refused(&http_get(&address, "/").await);
    assert_eq!(get_from(friend, &address, "cart").await.code(), 200);
    assert!(
        TcpStream::connect((fixture.address, 8012)).await.is_err(),
        "the host route is open"
    );
    // The spec counts before the default.
    let open = json!({"spec": {"hold": {"allowFrom": {"cidrs": ["0.0.0.0/0"]}}}});
    fixture
        .api_client
        .patch(&format!("{ELASTI}/cart"), MERGE, open)
        .await;
    until("everybody may come in", async || {
        http_get(&address, "/").await.code() == 200
    })
    .await;
}
