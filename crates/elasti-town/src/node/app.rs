//! The sample apps that images name, as servers in this process.
//! Never outlives its pod: dropping the app closes everything.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::visits::Visits;
use crate::api_server::object::Object as _;

/// What an image does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Answers HTTP/1.1 and h2c with what it was asked; sends gRPC messages back.
    Echo,
    /// Greets every connection first, then echoes bytes.
    SpeaksFirst,
    /// Runs but never listens.
    Deaf,
    /// Ends with code 1 after a second.
    Crashes,
    /// Cannot be pulled.
    Missing,
    /// Runs the container's command as a child process.
    Process,
}

/// A container as the kubelet runs it.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) manner: Manner,
    /// The time before it listens.
    pub(crate) start_after: Duration,
    pub(crate) ports: Vec<u16>,
    pod: String,
    visits: Visits,
}

impl App {
    /// Reads a container: the image's last path segment names the app, `START_SECONDS` slows its start.
    pub(crate) fn of(container: &Value, pod: &str, visits: Visits) -> Self {
        let image = container.text("/image");
        let name = image
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .split([':', '@'])
            .next()
            .unwrap_or_default();
        let manner = match name {
            "speaks-first" => Manner::SpeaksFirst,
            "never-ready" => Manner::Deaf,
            "crash-loop" => Manner::Crashes,
            "missing" => Manner::Missing,
            "process" => Manner::Process,
            _ => Manner::Echo,
        };
        let variable = container
            .list("/env")
            .iter()
            .find(|one| one.text("/name") == "START_SECONDS");
        let seconds = variable
            .and_then(|one| one.text("/value").parse().ok())
            .unwrap_or(if name == "slow-start" { 5.0 } else { 0.0 });
        let mut ports: Vec<u16> = container
            .list("/ports")
            .iter()
            .filter_map(|port| port.number("/containerPort"))
            .filter_map(|port| u16::try_from(port).ok())
            .collect();
        if ports.is_empty() {
            ports.push(8080);
        }
        Self {
            manner,
            start_after: Duration::from_secs_f64(seconds),
            ports,
            pod: pod.to_owned(),
            visits,
        }
    }

    /// Serves until told to stop; then the listeners close at once and open requests may end within `grace`.
    pub(crate) async fn serve(
        self,
        address: Ipv4Addr,
        mut stop: watch::Receiver<Option<Duration>>,
    ) {
        tokio::select! {
            () = tokio::time::sleep(self.start_after) => {}
            _ = stop.wait_for(Option::is_some) => return,
        }
        let mut tasks = JoinSet::new();
        if self.manner != Manner::Deaf {
            for port in &self.ports {
                // A port that is taken is a pod that never gets ready, as it would be in a container.
                let Ok(listener) = TcpListener::bind((address, *port)).await else {
                    continue;
                };
                tasks.spawn(self.clone().accept(listener, stop.clone()));
            }
        }
        let grace = stop
            .wait_for(Option::is_some)
            .await
            .map_or(None, |grace| *grace)
            .unwrap_or_default();
        let finish = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(grace, finish).await;
    }

    async fn accept(self, listener: TcpListener, mut stop: watch::Receiver<Option<Duration>>) {
        let graceful = GracefulShutdown::new();
        let mut streams = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(Option::is_some) => break,
            };
            let Ok((stream, _)) = stream else { continue };
            if self.manner == Manner::SpeaksFirst {
                streams.spawn(speak(stream, format!("hello from {}\n", self.pod)));
                continue;
            }
            let (pod, visits) = (self.pod.clone(), self.visits.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                visits.write(&pod, request.uri().path());
                answer(request, pod.clone())
            });
            let connection = auto::Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .into_owned();
            let connection = graceful.watch(connection);
            streams.spawn(async move { drop(connection.await) });
        }
        // The worst case: nothing is accepted from the moment of SIGTERM.
        drop(listener);
        graceful.shutdown().await;
        while streams.join_next().await.is_some() {}
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

async fn answer(mut request: Request<Incoming>, pod: String) -> Result<Response<Body>, Infallible> {
    if let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(talk(upgrade));
        return Ok(switch_to_websocket(key.as_bytes()));
    }
    let content_type = request.headers().get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        return Ok(echo_messages(request));
    }
    let (parts, body) = request.into_parts();
    let received = body
        .collect()
        .await
        .map(|body| body.to_bytes().len())
        .unwrap_or_default();
    let headers: serde_json::Map<String, Value> = parts
        .headers
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                json!(String::from_utf8_lossy(value.as_bytes())),
            )
        })
        .collect();
    let told = json!({
        "pod": pod, "method": parts.method.as_str(), "path": parts.uri.path(), "query": parts.uri.query(),
        "version": format!("{:?}", parts.version), "headers": headers, "bytes": received,
    });
    let body = Full::new(Bytes::from(told.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// A gRPC call of any method, unary or streaming: every message comes back as it came, then the status.
fn echo_messages(request: Request<Incoming>) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = request
        .into_body()
        .with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}

fn switch_to_websocket(key: &[u8]) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = derive_accept_key(key).parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// Sends every WebSocket message back.
async fn talk(upgrade: hyper::upgrade::OnUpgrade) {
    let Ok(stream) = upgrade.await else { return };
    let mut socket =
        WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let answer = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            Message::Close(_) => return drop(socket.close(None).await),
            _ => Ok(()),
        };
        if answer.is_err() {
            return;
        }
    }
}

async fn speak(mut stream: TcpStream, greeting: String) {
    let (mut buffer, mut length) = ([0_u8; 4096], 0);
    if stream.write_all(greeting.as_bytes()).await.is_err() {
        return;
    }
    loop {
        if let Some(heard) = buffer.get(..length)
            && stream.write_all(heard).await.is_err()
        {
            return;
        }
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => length = read,
            _ => return,
        }
    }
}
