//! Other protocols than HTTP/1.1 through a wake, and directly.

use bytes::Bytes;
use elasti_e2e::{App, TestEnv, blueprint, greeting};
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One gRPC call on a connection of its own; gives the message back that came.
async fn call(app: &App, message: &'static [u8]) -> Bytes {
    let address = app.address(80);
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let call = Request::post(format!("http://{address}/echo.Echo/Say"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(message)))
        .unwrap();
    let answer = client.send_request(call).await.unwrap();
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    body.to_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_app_sleeps_and_a_call_wakes_it_and_gets_its_message_and_status() {
    let env = TestEnv::start().await;
    let rpc = env.deploy("rpc").await;
    rpc.until_serving().await;
    // One message: not compressed, five bytes long.
    let message = b"\0\0\0\0\x05hello";
    assert_eq!(call(&rpc, message).await.as_ref(), message);
    for _ in 0..2 {
        rpc.fall_asleep().await;
        assert_eq!(call(&rpc, message).await.as_ref(), message);
        assert!(rpc.replicas().await > 0);
    }
}

/// Hears the greeting, says something, and hears it again.
async fn talk(app: &App, words: &str) {
    let mut stream = TcpStream::connect(app.address(80)).await.unwrap();
    stream.write_all(words.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    assert!(received.starts_with("hello from "), "{received}");
    assert!(received.ends_with(words), "{received}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_speaks_first_over_tcp_sleeps_and_a_connection_wakes_it() {
    let env = TestEnv::start().await;
    let mut tcp = blueprint("tcp");
    tcp.image = "speaks-first:1";
    let tcp = env.build(tcp).await;
    tcp.until_serving().await;
    talk(&tcp, "awake\n").await;
    tcp.fall_asleep().await;
    // A client that sends nothing and waits for the greeting wakes it too.
    let said = greeting(&tcp.address(80)).await.unwrap();
    assert!(said.starts_with("hello from "), "{said}");
    tcp.fall_asleep().await;
    talk(&tcp, "asleep\n").await;
    assert!(tcp.replicas().await > 0);
}
