//! The sample apps behind their Services: WebSocket, gRPC, plain TCP, child processes.

use crate::fixture::{
    DEPLOYMENTS, MERGE, PODS, a_fake_cluster, a_service, deployment, items, until,
};
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test(start_paused = true)]
async fn sample_apps_speak_websocket_plain_tcp_and_run_as_processes() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let mut addresses = Vec::new();
    for (name, image) in [
        ("ws", "echo:1"),
        ("first", "speaks-first:1"),
        ("child", "process:1"),
    ] {
        let mut object = deployment(name, 1);
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        container["image"] = json!(image);
        container["command"] = json!(["sleep", "1000000"]);
        container["readinessProbe"] = if name == "child" {
            Value::Null
        } else {
            json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1})
        };
        let address = a_service(&api_client, name).await;
        api_client.make(DEPLOYMENTS, object).await;
        until("it is ready", async || {
            api_client.get(&format!("{DEPLOYMENTS}/{name}")).await.1["status"]["readyReplicas"] == 1
        })
        .await;
        until("the address listens", async || {
            name == "child" || TcpStream::connect(&address).await.is_ok()
        })
        .await;
        addresses.push(address);
    }
    let mut socket = TcpStream::connect(&addresses[0]).await.unwrap();
    let hello = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(hello.as_bytes()).await.unwrap();
    let mut head = vec![0; 400];
    let read = socket.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
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

    let mut socket = TcpStream::connect(&addresses[1]).await.unwrap();
    let mut greeting = [0; 11];
    socket.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello from ");

    api_client
        .patch(
            &format!("{DEPLOYMENTS}/child/scale"),
            MERGE,
            json!({"spec": {"replicas": 0}}),
        )
        .await;
    until("the process has ended", async || {
        items(&api_client, &format!("{PODS}?labelSelector=app%3Dchild"))
            .await
            .is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_grpc_call_gets_its_messages_back_and_then_the_status() {
    let (_fake_cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "grpc").await;
    api_client.make(DEPLOYMENTS, deployment("grpc", 1)).await;
    until("the address listens", async || {
        TcpStream::connect(&address).await.is_ok()
    })
    .await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    // One message: not compressed, five bytes long.
    let message = Bytes::from_static(b"\0\0\0\0\x05hello");
    let call = Request::post(format!("http://{address}/echo.Echo/Say"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(message.clone()))
        .unwrap();
    let answer = client.send_request(call).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), message);
}
