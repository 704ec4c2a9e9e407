//! How connections begin and end: clients that leave or still upload, targets that name a host, TLS where HTTP was said.

use std::time::Duration;

use elasti_testkit::fixture::{Fixture, HTTP, TestPort, http_get, send_raw, service, until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use crate::pods::{hollow, pod_address};

const UPLOAD: usize = 32 * 1024 * 1024;

/// Uploads all of it whatever comes back; gives what came back.
async fn upload(address: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let writing = tokio::spawn(async move {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {UPLOAD}\r\n\r\n");
        writer.write_all(head.as_bytes()).await?;
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..UPLOAD / piece.len() {
            writer.write_all(&piece).await?;
        }
        Ok::<_, std::io::Error>(writer)
    });
    let written = writing.await.unwrap();
    assert!(written.is_ok(), "reset while it uploads: {written:?}");
    let mut answer = String::new();
    reader.read_to_string(&mut answer).await.unwrap();
    answer
}

/// With a real clock: a paused one would run through the time that a client has for its upload.
#[tokio::test]
async fn a_refused_upload_is_not_reset_before_its_client_has_the_answer() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": 1}});
    let address = fixture.asleep(never).await;
    let answer = upload(&address).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("still starting.\n"), "{answer}");
}

#[tokio::test]
async fn an_answer_before_the_end_of_an_upload_is_not_lost_in_a_reset() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { upload(&address).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    assert!(pod.read(&mut [0; 1024]).await.unwrap() > 0);
    let answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
    pod.write_all(answer).await.unwrap();
    // As servers do that want no more of it: a moment for the answer, then the end.
    sleep(Duration::from_millis(500)).await;
    drop(pod);
    let answer = client.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nno"), "{answer}");
}

/// With a real clock, like the others.
#[tokio::test]
async fn an_upload_that_is_answered_early_reaches_a_pod_that_reads_on_whole() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move {
        let mut client = TcpStream::connect(&address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {UPLOAD}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok") {
            answer.push(client.read_u8().await.unwrap());
        }
        let written = client.write_all(&vec![b'x'; UPLOAD]).await;
        assert!(written.is_ok(), "{written:?}");
        client.shutdown().await.unwrap();
        client.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        received.push(pod.read_u8().await.unwrap());
    }
    let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok";
    pod.write_all(answer).await.unwrap();
    let mut body = vec![0; UPLOAD];
    pod.read_exact(&mut body).await.unwrap();
    let answer = client.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_tls_client_that_closes_its_side_while_held_has_left() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(&[0x16, 3, 1, 0, 5]).await.unwrap();
    until("it is held", async || fixture.resolver().held() == 1).await;
    let left = Instant::now();
    client.shutdown().await.unwrap();
    until("its slot is free", async || fixture.resolver().held() == 0).await;
    assert!(
        left.elapsed() < Duration::from_secs(10),
        "not at its deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn tls_is_relayed_though_http_was_declared() {
    let fixture = Fixture::start().await;
    let mut declared = hollow("cart");
    declared.ports = vec![TestPort {
        app_protocol: Some("http"),
        ..HTTP
    }];
    let address = fixture.asleep(declared).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let hello = [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3];
    client.write_all(&hello).await.unwrap();
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut received = [0; 10];
    pod.read_exact(&mut received).await.unwrap();
    assert_eq!(received, hello);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_http_1_0_that_names_no_host_gets_one() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let answer = send_raw(&address, "GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(answer.json()["headers"]["host"], "cart.default");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_names_a_host_counts_before_the_header_rfc_9112() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let get = "GET http://shop.example/a?b HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
    let answer = send_raw(&address, get).await;
    assert_eq!(answer.json()["headers"]["host"], "shop.example");
    let route = format!("{}:8012", fixture.address);
    let get = "GET http://cart.default/a HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
    assert_eq!(send_raw(&route, get).await.json()["path"], "/a");
}

#[tokio::test(start_paused = true)]
async fn a_client_of_the_host_route_keeps_its_connection_though_pods_are_in_rotation() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let serving = json!({"mode": "serve", "phase": "Serving"});
    fixture.status("cart", serving).await;
    until("the resolver has the new mode", async || {
        let metrics = fixture.admin("/metrics").await.body;
        metrics.contains("enabled=\"disabled\"} 1")
    })
    .await;
    let mut gateway = TcpStream::connect((fixture.address, 8012)).await.unwrap();
    let get = b"GET / HTTP/1.1\r\nHost: cart.default\r\n\r\n";
    for _ in 0..2 {
        gateway.write_all(get).await.unwrap();
        let mut answer = vec![0; 65_536];
        let read = gateway.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_to_a_pod_is_closed() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    let mut head = [0; 1024];
    assert!(pod.read(&mut head).await.unwrap() > 0);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    pod.write_all(answer).await.unwrap();
    assert_eq!(client.await.unwrap().body, "hi");
    let ended = timeout(Duration::from_secs(5), pod.read(&mut head)).await;
    assert_eq!(ended.expect("it stays open").unwrap(), 0);
}
