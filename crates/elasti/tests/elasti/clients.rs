//! Real clients through a wake, against the resolver as a process: curl, gRPC by tonic, WebSocket, TLS by openssl.
//! curl and openssl must be installed.

use std::process::{Output, Stdio};

use crate::process::{LIMIT, ResolverProcess, hollow, pod_address};
use bytes::{Buf as _, BufMut as _};
use elasti_testkit::fixture::{self, Fixture, TestPort, service};
use futures::{SinkExt as _, StreamExt as _};
use http::uri::PathAndQuery;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

/// A simulated cluster and the process; the process ends with it.
async fn start() -> (Fixture, ResolverProcess) {
    let fixture = Fixture::without_resolver().await;
    let resolver = ResolverProcess::start(&fixture, &[]).await;
    (fixture, resolver)
}

fn curl(arguments: &[&str]) -> Command {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--noproxy",
        "*",
        "--max-time",
        "110",
    ])
    .args(arguments)
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .kill_on_drop(true);
    curl
}

async fn printed(mut command: Command) -> Output {
    let ended = timeout(LIMIT, command.output()).await;
    let output = ended.expect("it never ends").expect("it is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    output
}

/// All JSON answers of one run, one after the other.
fn answers(output: &Output) -> Vec<Value> {
    serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

#[tokio::test]
async fn curl_keeps_its_connection_over_http_1_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(service("cart")).await;
    let urls = [1, 2, 3].map(|at| format!("http://{address}/{at}"));
    let output = printed(curl(&[
        "--http1.1",
        "--verbose",
        &urls[0],
        &urls[1],
        &urls[2],
    ]))
    .await;
    let paths: Vec<Value> = answers(&output)
        .iter()
        .map(|one| one["path"].clone())
        .collect();
    assert_eq!(paths, ["/1", "/2", "/3"]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        log.matches("Re-using existing connection").count(),
        2,
        "{log}"
    );
}

#[tokio::test]
async fn curl_uploads_100_mb_in_chunks_through_a_wake_with_constant_memory() {
    let (fixture, resolver) = start().await;
    let address = fixture.asleep(service("cart")).await;
    let bytes: u64 = 100 << 20;
    let body = tempfile::tempfile().unwrap();
    body.set_len(bytes).unwrap();
    let before = resolver.memory_kib("VmRSS");
    let mut upload = curl(&[
        "--http1.1",
        "--upload-file",
        "-",
        &format!("http://{address}/up"),
    ]);
    upload.stdin(body);
    let output = printed(upload).await;
    let answer = &answers(&output)[0];
    assert_eq!(answer["bytes"], bytes);
    assert_eq!(answer["headers"]["transfer-encoding"], "chunked");
    let peak = resolver.memory_kib("VmHWM");
    println!("100 MB through the resolver: {before} KiB before, {peak} KiB at the peak");
    assert!(
        peak - before < 16 * 1024,
        "{before} KiB before, {peak} KiB at the peak"
    );
}

#[tokio::test]
async fn curl_that_expects_100_continue_gets_it_once_a_pod_wants_the_body() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(service("cart")).await;
    let url = format!("http://{address}/up");
    let asks = ["--http1.1", "--verbose", "--header", "Expect: 100-continue"];
    let patient = ["--expect100-timeout", "100", "--data", "abc", &url];
    let output = printed(curl(&[asks.as_slice(), patient.as_slice()].concat())).await;
    assert_eq!(answers(&output)[0]["bytes"], 3);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("< HTTP/1.1 100 Continue"), "{log}");
}

#[tokio::test]
async fn curl_speaks_h2c_with_prior_knowledge_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(service("cart")).await;
    // One connection each: curl 7.88 cannot use one again that it opened with prior knowledge.
    for path in ["/1", "/2"] {
        let url = format!("http://{address}{path}");
        let output = printed(curl(&["--http2-prior-knowledge", "--data", "abc", &url])).await;
        let answer = &answers(&output)[0];
        assert_eq!(answer["path"], path);
        assert_eq!(
            (&answer["version"], &answer["bytes"]),
            (&json!("HTTP/2.0"), &json!(3))
        );
    }
}

/// Messages that are plain words: gRPC frames them, no schema is needed.
#[derive(Clone, Copy, Debug, Default)]
struct Words;

impl Codec for Words {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Words {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Words {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

async fn grpc(address: &str) -> tonic::client::Grpc<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    client
}

const SAY: PathAndQuery = PathAndQuery::from_static("/echo.Echo/Say");

#[tokio::test]
async fn tonic_makes_a_unary_call_and_then_a_stream_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(service("cart")).await;
    let mut client = grpc(&address).await;
    let asked = tonic::Request::new("hello".to_owned());
    let answer = client.unary(asked, SAY, Words).await.unwrap();
    assert_eq!(answer.into_inner(), "hello");

    // Both ways at once: each answer is heard before the next message is sent.
    let (mut say, messages) = futures::channel::mpsc::channel::<String>(1);
    say.send("0".into()).await.unwrap();
    client.ready().await.unwrap();
    let stream = client.streaming(tonic::Request::new(messages), SAY, Words);
    let mut heard = stream.await.unwrap().into_inner();
    for at in 1..50 {
        let last = heard.message().await.unwrap();
        assert_eq!(last, Some((at - 1).to_string()));
        say.send(at.to_string()).await.unwrap();
    }
    drop(say);
    assert_eq!(heard.message().await.unwrap().as_deref(), Some("49"));
    assert_eq!(heard.message().await.unwrap(), None, "and the status is OK");
}

#[tokio::test]
async fn tonic_hears_unavailable_and_why_when_the_service_cannot_start() {
    let (fixture, _resolver) = start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": 1}});
    let address = fixture.asleep(never).await;
    let mut client = grpc(&address).await;
    let asked = tonic::Request::new("hello".to_owned());
    let refused = client.unary(asked, SAY, Words).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert_eq!(
        refused.metadata().get("x-elasti-reason").unwrap(),
        "HoldDeadline"
    );
    assert!(
        refused.message().contains("did not start in time"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_websocket_client_talks_both_ways_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(service("chat")).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut socket, answer) =
        tokio_tungstenite::client_async(format!("ws://{address}/talk"), stream)
            .await
            .unwrap();
    assert_eq!(answer.status(), 101);
    for words in ["hello".to_owned(), "x".repeat(100_000)] {
        socket.send(words.clone().into()).await.unwrap();
        let heard = socket.next().await.unwrap().unwrap();
        assert_eq!(heard.into_text().unwrap().as_str(), words);
    }
    socket.close(None).await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
}

#[tokio::test]
async fn curl_hears_server_sent_events_one_by_one_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let address = fixture.asleep(hollow("news")).await;
    let mut listener = curl(&[
        "--http1.1",
        "--no-buffer",
        &format!("http://{address}/events"),
    ])
    .spawn()
    .unwrap();
    let pod = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut pod, _) = timeout(LIMIT, pod.accept()).await.unwrap().unwrap();
    let mut head = [0; 2048];
    assert!(pod.read(&mut head).await.unwrap() > 0);
    pod.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n",
    )
    .await
    .unwrap();
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    for at in 0..3 {
        // The next event is sent only after the one before was heard.
        pod.write_all(format!("data: {at}\n\n").as_bytes())
            .await
            .unwrap();
        let mut heard = Vec::new();
        while heard.len() < 2 {
            let line = timeout(LIMIT, lines.next_line()).await.unwrap().unwrap();
            heard.push(line.unwrap());
        }
        assert_eq!(heard, [format!("data: {at}"), String::new()]);
    }
    drop(pod);
    assert!(listener.wait().await.unwrap().success());
}

#[tokio::test]
async fn raw_tcp_works_both_ways_round_through_a_wake() {
    let (fixture, _resolver) = start().await;
    let mut speaks_first = service("db");
    speaks_first.image = "speaks-first:1";
    let address = fixture.asleep(speaks_first).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let mut greeting = [0; 14];
    timeout(LIMIT, client.read_exact(&mut greeting))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&greeting, b"hello from db-", "the server speaks first");

    let mut other = hollow("queue");
    other.ports = vec![TestPort {
        listen: 20_002,
        ..fixture::HTTP
    }];
    let address = fixture.asleep(other).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(b"\x00\x01binary").await.unwrap();
    let mut address = None;
    fixture::until("its pod has an address", async || {
        let pods = fixture.api_client.items(fixture::PODS).await;
        let pod = pods
            .iter()
            .find(|pod| pod["metadata"]["labels"]["app"] == "queue");
        address = pod.and_then(|pod| {
            pod["status"]["podIP"]
                .as_str()?
                .parse::<std::net::IpAddr>()
                .ok()
        });
        address.is_some()
    })
    .await;
    let pod = TcpListener::bind((address.unwrap(), 8000 + fixture::HTTP.port))
        .await
        .unwrap();
    let (mut pod, _) = timeout(LIMIT, pod.accept()).await.unwrap().unwrap();
    let mut heard = [0; 8];
    pod.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"\x00\x01binary", "the client speaks first");
    client.shutdown().await.unwrap();
    assert_eq!(
        pod.read(&mut heard).await.unwrap(),
        0,
        "a closed side is passed on"
    );
    pod.write_all(b"last words").await.unwrap();
    drop(pod);
    let mut rest = Vec::new();
    timeout(LIMIT, client.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rest, b"last words", "and the other side goes on");
}

/// A certificate for `shop.test` that signs itself.
async fn certificate(folder: &std::path::Path) {
    let mut make = Command::new("openssl");
    make.current_dir(folder).args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=shop.test",
        "-addext",
        "subjectAltName=DNS:shop.test",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
    ]);
    printed(make).await;
}

#[tokio::test]
async fn tls_passes_through_a_wake_untouched_and_the_certificate_is_the_services_own() {
    let (fixture, _resolver) = start().await;
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path()).await;
    let mut secure = hollow("shop");
    secure.ports = vec![TestPort {
        name: "https",
        port: 443,
        ..fixture::HTTP
    }];
    let address = fixture.asleep(secure).await;
    let ca = folder.path().join("cert.pem");
    let to = format!("shop.test:443:{address}");
    let client = curl(&[
        "--cacert",
        ca.to_str().unwrap(),
        "--connect-to",
        &to,
        "https://shop.test/",
    ]);
    let client = tokio::spawn(printed(client));
    let (pod, _) = pod_address(&fixture).await;
    let _server = Command::new("openssl")
        .current_dir(folder.path())
        .args([
            "s_server", "-cert", "cert.pem", "-key", "key.pem", "-www", "-quiet",
        ])
        .args(["-accept", &format!("{pod}:8443")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = client.await.unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("s_server"), "{page}");
}

#[tokio::test]
async fn two_ports_of_one_service_wake_it_and_both_work() {
    let (fixture, _resolver) = start().await;
    let mut two = service("cart");
    two.ports.push(TestPort {
        name: "admin",
        port: 81,
        listen: 20_002,
        app_protocol: None,
    });
    let address = fixture.asleep(two).await;
    let host = address.split(':').next().unwrap();
    let urls = [
        format!("http://{host}:81/admin"),
        format!("http://{host}:80/shop"),
    ];
    let output = printed(curl(&[&urls[0], &urls[1]])).await;
    let seen: Vec<Value> = answers(&output)
        .iter()
        .map(|one| one["path"].clone())
        .collect();
    assert_eq!(seen, ["/admin", "/shop"]);
}
