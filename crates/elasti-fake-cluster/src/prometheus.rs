//! A stand-in for Prometheus: instant queries answered from a table that tests set.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::api_server::request::Query;
use crate::clock::Clock;

/// What a query gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// One sample.
    Value(f64),
    /// Several series, one sample each.
    Several(Vec<f64>),
    /// No series.
    Empty,
    /// An answer with this code and no result.
    Fails(u16),
}

type Table = Arc<Mutex<Answers>>;
type Computed = Arc<dyn Fn(&str) -> Option<Reading> + Send + Sync>;

/// What queries get, and how long that takes.
#[derive(Default)]
struct Answers {
    readings: BTreeMap<String, Reading>,
    /// Asked for queries that the table does not have.
    computed: Option<Computed>,
    delay: Duration,
    /// Queries that begin with this take so long instead.
    slow: Option<(String, Duration)>,
}

impl Answers {
    fn delay_of(&self, query: &str) -> Duration {
        match &self.slow {
            Some((prefix, delay)) if query.starts_with(prefix) => *delay,
            _ => self.delay,
        }
    }

    fn reading(&self, query: &str) -> Reading {
        let known = self.readings.get(query).cloned();
        let computed = || self.computed.as_ref().and_then(|compute| compute(query));
        known
            .or_else(computed)
            .unwrap_or(match query.contains("up{") {
                true => Reading::Value(1.0),
                false => Reading::Empty,
            })
    }
}

/// A running stand-in; dropping it stops it.
pub struct Prometheus {
    /// Where it listens.
    pub address: SocketAddr,
    table: Table,
    task: AbortHandle,
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prometheus")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Prometheus {
    /// Listens on a loopback port. A query that is not in the table and asks for uptime is 1, any other is empty.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(clock: Clock) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let table = Table::default();
        let task = tokio::spawn(accept(listener, table.clone(), clock)).abort_handle();
        Ok(Self {
            address,
            table,
            task,
        })
    }

    /// Sets what `query` gets from now on.
    pub fn set(&self, query: &str, reading: Reading) {
        let readings = &mut self.table.lock().readings;
        readings.insert(query.to_owned(), reading);
    }

    /// Queries that are not in the table get what `compute` makes of them, if anything.
    pub fn compute(&self, compute: impl Fn(&str) -> Option<Reading> + Send + Sync + 'static) {
        self.table.lock().computed = Some(Arc::new(compute));
    }

    /// From now on every answer takes this long.
    pub fn set_delay(&self, delay: Duration) {
        self.table.lock().delay = delay;
    }

    /// From now on answers to queries that begin with `prefix` take this long.
    pub fn set_delay_of(&self, prefix: &str, delay: Duration) {
        self.table.lock().slow = Some((prefix.to_owned(), delay));
    }
}

async fn accept(listener: TcpListener, table: Table, clock: Clock) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let table = table.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, table.clone(), clock));
                    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    table: Table,
    clock: Clock,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let form = body
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let (code, body) = if parts.uri.path() == "/api/v1/query" {
        let from_url = Query::parse(parts.uri.query().unwrap_or_default())
            .get("query")
            .to_owned();
        let from_form = Query::parse(&String::from_utf8_lossy(&form))
            .get("query")
            .to_owned();
        let query = if from_url.is_empty() {
            from_form
        } else {
            from_url
        };
        let delay = table.lock().delay_of(&query);
        tokio::time::sleep(delay).await;
        let reading = table.lock().reading(&query);
        result(&reading, clock)
    } else {
        (404, json!("not found"))
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

fn result(reading: &Reading, clock: Clock) -> (u16, Value) {
    let now = clock.now().as_millisecond();
    let series = |at: usize, value: f64| json!({"metric": {"series": at.to_string()}, "value": [now / 1000, value.to_string()]});
    let samples = match reading {
        Reading::Value(value) => vec![*value],
        Reading::Several(values) => values.clone(),
        Reading::Empty => vec![],
        Reading::Fails(code) => {
            return (
                *code,
                json!({"status": "error", "errorType": "internal", "error": "asked to fail"}),
            );
        }
    };
    let all: Vec<Value> = samples
        .iter()
        .enumerate()
        .map(|(at, value)| series(at, *value))
        .collect();
    (
        200,
        json!({"status": "success", "data": {"resultType": "vector", "result": all}}),
    )
}
