//! What a refused connection gets, and what it may do next.

use bytes::Bytes;
use elasti_testkit::fixture::{Fixture, service};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test(start_paused = true)]
async fn a_client_that_speaks_no_http_gets_none_when_it_is_refused() {
    let fixture = Fixture::start().await;
    let mut never = service("db");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": 2}});
    let address = fixture.asleep(never).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(&[0x16, 0x03, 0x01, 0x00]).await.unwrap();
    let mut received = Vec::new();
    // With its bytes unread the connection ends in a reset.
    let _ = client.read_to_end(&mut received).await;
    assert_eq!(String::from_utf8_lossy(&received), "");
}

#[tokio::test(start_paused = true)]
async fn a_refused_upload_gets_connection_close_so_that_no_request_crosses_the_end() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": 2}});
    let address = fixture.asleep(never).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let upload = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    client.write_all(upload).await.unwrap();
    let mut received = Vec::new();
    let _ = client.read_to_end(&mut received).await;
    let received = String::from_utf8_lossy(&received);
    assert!(received.starts_with("HTTP/1.1 503 "), "{received}");
    assert!(received.contains("\r\nconnection: close\r\n"), "{received}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_may_wait_anew_with_its_next_request() {
    let fixture = Fixture::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "8";
    slow.spec = json!({"hold": {"timeoutSeconds": 3}});
    let address = fixture.asleep(slow).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let mut codes = Vec::new();
    while codes.last() != Some(&200) {
        client.ready().await.unwrap();
        let request = Request::get("/")
            .header("host", "test")
            .body(Full::<Bytes>::default())
            .unwrap();
        let answer = client.send_request(request).await.unwrap();
        codes.push(answer.status().as_u16());
        drop(answer.collect().await);
        assert!(
            codes.len() < 30,
            "only refusals on one connection: {codes:?}"
        );
    }
    assert_eq!(codes[0], 503);
}
