//! The resolver's own endpoints: health, metrics, queue status, activity.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elasti_api::names;
use elasti_core::ports::ServiceKey;
use elasti_runtime::callers::Callers;
use elasti_runtime::http_server::HttpServer;
use elasti_runtime::peer_tls::TlsAcceptor;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::activity::{self, ActivityReporter};
use crate::drain::Lifecycle;
use crate::hold::Hold;
use crate::metrics::Metrics;
use crate::net::TcpListener;
use crate::table::RouteTable;

/// Prometheus and operators: a few dozen at most, of which none needs more than a few connections.
const SERVER: HttpServer = HttpServer {
    max_connections: 256,
    max_connections_per_peer: 32,
    header_timeout: Duration::from_secs(10),
};

/// The kubelet alone, which opens a connection for each probe.
const HEALTH: HttpServer = HttpServer {
    max_connections: 1024,
    max_connections_per_peer: 32,
    header_timeout: Duration::from_secs(2),
};

/// What the endpoints report about.
#[derive(Debug)]
pub(crate) struct Admin {
    pub(crate) table: RouteTable,
    pub(crate) hold: Arc<Hold>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) activity: ActivityReporter,
}

/// Routes are loaded and listened to, and the resolver is not ending. A resolver that was killed may still be named by
/// EndpointSlices, and nodes send to it as soon as it is ready again.
pub(crate) fn is_ready(table: &RouteTable, lifecycle: &Lifecycle) -> bool {
    table.first_ports_are_open() && lifecycle.is_serving()
}

/// Serves for as long as the future lives.
pub(crate) async fn serve(admin: Arc<Admin>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let respond = move |peer, request| respond(admin.clone(), peer, request);
    SERVER.serve_with_tls(listener, tls, respond).await;
}

/// Serves the probes alone.
pub(crate) async fn serve_health(admin: Arc<Admin>, listener: TcpListener) {
    let respond = move |_, request: Request<Incoming>| {
        let health = health(&admin, request.uri().path());
        let missing = || text(StatusCode::NOT_FOUND, "not found");
        std::future::ready(Ok::<_, Infallible>(health.unwrap_or_else(missing)))
    };
    HEALTH.serve(listener, respond).await;
}

fn health(admin: &Admin, path: &str) -> Option<Response<Full<Bytes>>> {
    let unready = "routes are not loaded, or the resolver is ending";
    match path {
        "/readyz" if !is_ready(&admin.table, &admin.lifecycle) => {
            Some(text(StatusCode::SERVICE_UNAVAILABLE, unready))
        }
        "/healthz" | "/readyz" => Some(text(StatusCode::OK, "ok")),
        _ => None,
    }
}

async fn respond(
    admin: Arc<Admin>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "only GET"));
    }
    if let Some(health) = health(&admin, request.uri().path()) {
        return Ok(health);
    }
    Ok(match request.uri().path() {
        names::METRICS_PATH => {
            let only = parameter(request.uri().query().unwrap_or_default(), "name");
            admin
                .metrics
                .limits
                .set_connections(admin.lifecycle.connections());
            let body = admin.metrics.encode(&admin.table, only);
            let mut response = text(StatusCode::OK, body);
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        names::QUEUE_STATUS_PATH => {
            queue_status(&admin.hold, request.uri().query().unwrap_or_default())
        }
        names::ACTIVITY_PATH => {
            match activity::authorize(&admin.callers, peer, request.headers()).await {
                Ok(()) => json(&admin.activity.report()),
                Err(why) => text(activity::status(why), why.to_string()),
            }
        }
        _ => text(StatusCode::NOT_FOUND, "not found"),
    })
}

/// A parameter of the query. Names of Kubernetes and of metrics need no percent-encoding.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found.map(|(_, value)| value)
}

fn queue_status(hold: &Hold, query: &str) -> Response<Full<Bytes>> {
    let value = |name: &str| parameter(query, name).unwrap_or_default();
    let key = ServiceKey::new(value("namespace"), value("service"));
    json(&serde_json::json!({"queueStatus": u8::from(hold.held(&key) > 0)}))
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = text(StatusCode::OK, bytes);
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "cannot be serialized"),
    }
}
