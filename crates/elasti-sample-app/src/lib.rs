//! The sample app of tests and demo: HTTP/1.1, h2c, gRPC, WebSocket, or a protocol in which the server speaks first.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
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

/// How it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers HTTP/1.1 and h2c with what it was asked; sends gRPC messages back.
    Echo,
    /// Greets every connection first, then echoes bytes.
    SpeaksFirst,
}

/// Called with the path of every request.
pub type OnVisit = Arc<dyn Fn(&str) + Send + Sync>;

/// One pod's app.
#[derive(Clone)]
pub struct SampleApp {
    /// How it answers.
    pub behaviour: Behaviour,
    /// The pod that it says it is.
    pub pod: String,
    /// Called for every request.
    pub on_visit: OnVisit,
}

impl fmt::Debug for SampleApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SampleApp {{ {:?}, {} }}", self.behaviour, self.pod)
    }
}

impl SampleApp {
    /// Serves one port until asked to stop; then the listener closes at once, the worst case, and open requests may end.
    pub async fn serve(self, listener: TcpListener, mut stop: watch::Receiver<Option<Duration>>) {
        let graceful = GracefulShutdown::new();
        let mut streams = JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(Option::is_some) => break,
            };
            let Ok((stream, _)) = stream else { continue };
            if self.behaviour == Behaviour::SpeaksFirst {
                streams.spawn(speak_first(stream, format!("hello from {}\n", self.pod)));
                continue;
            }
            let (pod, on_visit) = (self.pod.clone(), self.on_visit.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                on_visit(request.uri().path());
                answer(request, pod.clone())
            });
            let connection = auto::Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .into_owned();
            let connection = graceful.watch(connection);
            streams.spawn(async move { drop(connection.await) });
        }
        // Nothing is accepted from the moment of SIGTERM.
        drop(listener);
        graceful.shutdown().await;
        while streams.join_next().await.is_some() {}
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

async fn answer(mut request: Request<Incoming>, pod: String) -> Result<Response<Body>, Infallible> {
    if let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned() {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(echo_websocket(upgrade));
        return Ok(switch_to_websocket(key.as_bytes()));
    }
    let content_type = request.headers().get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc")) {
        return Ok(echo_messages(request));
    }
    let (parts, body) = request.into_parts();
    let length = body
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
    let echo = json!({
        "pod": pod, "method": parts.method.as_str(), "path": parts.uri.path(), "query": parts.uri.query(),
        "version": format!("{:?}", parts.version), "headers": headers, "bytes": length,
    });
    let body = Full::new(Bytes::from(echo.to_string()));
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
async fn echo_websocket(upgrade: hyper::upgrade::OnUpgrade) {
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

async fn speak_first(mut stream: TcpStream, greeting: String) {
    let (mut buffer, mut length) = ([0_u8; 4096], 0);
    if stream.write_all(greeting.as_bytes()).await.is_err() {
        return;
    }
    loop {
        if let Some(received) = buffer.get(..length)
            && stream.write_all(received).await.is_err()
        {
            return;
        }
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => length = read,
            _ => return,
        }
    }
}
