//! Connections of every kind through a wake: keep-alive, raw TCP both ways round, WebSocket, h2c with gRPC, uploads.

use bytes::Bytes;
use elasti_testkit::fixture::{
    Fixture, HTTP, PODS, TestPort, http_get, send_raw, service, small_steps, until,
};
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn http1(address: &str) -> hyper::client::conn::http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(path)
        .header("host", "test")
        .body(Full::default())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_serves_many_requests_and_survives_another_sleep() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let mut client = http1(&address).await;
    for at in 0..5 {
        client.ready().await.unwrap();
        let answer = client.send_request(get(&format!("/{at}"))).await.unwrap();
        assert_eq!(answer.status(), 200);
        let echo: Value =
            serde_json::from_slice(&answer.collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!(echo["path"], format!("/{at}"));
    }
    fixture.api_client.scale("cart", 0).await;
    until("no pod is left", async || {
        fixture.api_client.items(PODS).await.is_empty()
    })
    .await;
    client.ready().await.unwrap();
    let answer = client.send_request(get("/again")).await.unwrap();
    assert_eq!(
        answer.status(),
        200,
        "held on a connection that was already open"
    );
    assert_eq!(fixture.operator.wakes(), ["cart", "cart"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_first_gets_its_connection_once_a_pod_is_ready() {
    let fixture = Fixture::start().await;
    let mut tcp = service("db");
    tcp.image = "speaks-first:1";
    let address = fixture.asleep(tcp).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let mut greeting = [0; 14];
    client.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello from db-");
    client.write_all(b"\n<<>>").await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(
        rest.ends_with(b"\n<<>>"),
        "half-close lets the echo come back: {rest:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_speaks_first_and_closes_its_side_while_held_still_gets_the_answer() {
    let fixture = Fixture::start().await;
    let mut tcp = service("db");
    tcp.image = "speaks-first:1";
    let address = fixture.asleep(tcp).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(&[0x17, 0x03, 0x01, 0x00]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert!(received.starts_with(b"hello from db-"), "{received:?}");
    assert!(
        received.ends_with(&[0x17, 0x03, 0x01, 0x00]),
        "{received:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_declared_protocol_that_is_not_http_is_relayed_as_it_is() {
    let fixture = Fixture::start().await;
    let mut tls = service("db");
    tls.image = "speaks-first:1";
    tls.ports = vec![TestPort {
        app_protocol: Some("https"),
        ..HTTP
    }];
    let address = fixture.asleep(tls).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let words = b"GET / HTTP/1.1\r\n\r\n";
    client.write_all(words).await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(words) {
        received.push(client.read_u8().await.unwrap());
    }
    assert!(
        received.starts_with(b"hello from db-"),
        "not understood, only relayed: {received:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_websocket_is_upgraded_through_a_wake_and_counts_as_open() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("chat")).await;
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let hello = "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(hello.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(
        head.starts_with("http/1.1 101") && head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{head}"
    );
    // A masked text frame of two letters, mask 0.
    socket
        .write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i'])
        .await
        .unwrap();
    let mut frame = [0; 4];
    socket.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, &[0x81, 0x02, b'h', b'i']);
}

#[tokio::test(start_paused = true)]
async fn h2c_streams_reach_the_pod_as_http2() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    let address = fixture.asleep(service("cart")).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let http_get = async |at: u32| {
        let request = Request::post(format!("http://cart.default/{at}"))
            .version(Version::HTTP_2)
            .header("te", "trailers")
            .header("content-type", "application/octet-stream")
            .body(Full::new(Bytes::from_static(b"12345")))
            .unwrap();
        let answer = client.clone().send_request(request).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), answer.version()),
            (200, Version::HTTP_2)
        );
        serde_json::from_slice::<Value>(&answer.collect().await.unwrap().to_bytes()).unwrap()
    };
    let (one, two, three) = tokio::join!(http_get(1), http_get(2), http_get(3));
    for (at, echo) in [(1, one), (2, two), (3, three)] {
        assert_eq!(echo["path"], format!("/{at}"));
        assert_eq!(echo["version"], "HTTP/2.0");
        assert_eq!(echo["bytes"], 5);
        assert_eq!(echo["headers"]["te"], "trailers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_is_held_and_gets_its_messages_and_trailers() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    let address = fixture.asleep(service("cart")).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    // One message: not compressed, five bytes long.
    let message = Bytes::from_static(b"\0\0\0\0\x05hello");
    let call = Request::post("http://cart.default/echo.Echo/Say")
        .version(Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(Full::new(message.clone()))
        .unwrap();
    let answer = client.send_request(call).await.unwrap();
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), message);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_that_is_refused_gets_the_grpc_status_unavailable() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    let mut slow = service("cart");
    slow.image = "never-ready:1";
    slow.spec = serde_json::json!({"hold": {"timeoutSeconds": 3}});
    let address = fixture.asleep(slow).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::post("http://cart.default/shop.Cart/Get")
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let answer = client.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["grpc-status"], "14");
    assert_eq!(answer.headers()["x-elasti-reason"], "HoldDeadline");
    assert_eq!(answer.headers()["retry-after"], "5");
}

#[tokio::test(start_paused = true)]
async fn a_chunked_upload_and_expect_100_continue_pass_through_a_wake() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let chunked = "POST /up HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let answer = send_raw(&address, chunked).await;
    assert_eq!((answer.code(), &answer.json()["bytes"]), (200, &11.into()));

    let mut client = TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut go_on = [0; 25];
    client.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"abc").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"bytes\":3"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn once_pods_are_in_rotation_connections_close_so_that_clients_take_the_direct_path() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    // The nodes know the pod by now; this client is one that still arrives at the resolver.
    let mut client = http1(&format!("{}:{}", fixture.address, HTTP.listen)).await;
    let answer = client.send_request(get("/")).await.unwrap();
    assert!(!answer.headers().contains_key("connection"));
    drop(answer.collect().await);
    fixture
        .status(
            "cart",
            serde_json::json!({"mode": "serve", "phase": "Serving"}),
        )
        .await;
    until("the resolver has the new mode", async || {
        let metrics = fixture.admin("/metrics").await.body;
        metrics.contains("elasti_resolver_traffic_switch_count{namespace=\"default\",source=\"cart.default.svc.cluster.local\",enabled=\"disabled\"} 1")
    })
    .await;
    client.ready().await.unwrap();
    let answer = client.send_request(get("/")).await.unwrap();
    assert_eq!(answer.status(), 200, "late arrivals are always served");
    assert_eq!(answer.headers()["connection"], "close");
}
