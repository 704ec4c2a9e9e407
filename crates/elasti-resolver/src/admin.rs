//! The resolver's own endpoints: health, metrics, queue status, activity.
//! Never shares a port with a client's traffic.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elasti_api::names;
use elasti_core::ports::ServiceKey;
use elasti_runtime::http_server::HttpServer;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::activity;
use crate::net::TcpListener;
use crate::resolver::Resolver;

/// Probes, Prometheus and operators: a few dozen at most.
const SERVER: HttpServer = HttpServer {
    max_connections: 256,
    max_connections_per_peer: 256,
    header_timeout: Duration::from_secs(10),
};

/// Serves for as long as the future lives.
pub(crate) async fn serve(resolver: Arc<Resolver>, listener: TcpListener) {
    let answer = move |peer, request| answer(resolver.clone(), peer, request);
    SERVER.serve(listener, answer).await;
}

async fn answer(
    resolver: Arc<Resolver>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(words(StatusCode::METHOD_NOT_ALLOWED, "only GET"));
    }
    Ok(match request.uri().path() {
        "/healthz" => words(StatusCode::OK, "ok"),
        "/readyz" if resolver.is_ready() => words(StatusCode::OK, "ok"),
        "/readyz" => words(
            StatusCode::SERVICE_UNAVAILABLE,
            "routes are not loaded, or the resolver is ending",
        ),
        names::METRICS_PATH => {
            let only = asked(request.uri().query().unwrap_or_default(), "name");
            let text = resolver.metrics.encode(&resolver.table.load(), only);
            let mut response = words(StatusCode::OK, text);
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        names::QUEUE_STATUS_PATH => {
            queue_status(&resolver, request.uri().query().unwrap_or_default())
        }
        names::ACTIVITY_PATH => match activity::may_ask(&resolver, peer, request.headers()).await {
            Ok(()) => json(&activity::report(&resolver)),
            Err(why) => words(activity::code(why), why.to_string()),
        },
        _ => words(StatusCode::NOT_FOUND, "not found"),
    })
}

/// A parameter of the query. Names of Kubernetes and of metrics need no percent-encoding.
fn asked<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found.map(|(_, value)| value)
}

fn queue_status(resolver: &Resolver, query: &str) -> Response<Full<Bytes>> {
    let value = |name: &str| asked(query, name).unwrap_or_default();
    let key = ServiceKey::new(value("namespace"), value("service"));
    json(&serde_json::json!({"queueStatus": u8::from(resolver.hold.held(&key) > 0)}))
}

fn words(status: StatusCode, words: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(words.into()));
    *response.status_mut() = status;
    response
}

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = words(StatusCode::OK, bytes);
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(_) => words(StatusCode::INTERNAL_SERVER_ERROR, "cannot be written"),
    }
}
