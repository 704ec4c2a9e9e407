//! The access log: one JSON line for each sampled request or connection, on standard output.
//! Never a query, a body or a header other than `User-Agent`. No request waits for it: lines that find the queue full are
//! dropped and counted.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use elasti_api::client_text;
use elasti_runtime::metrics::Series;
use http::{HeaderMap, Request, header};
use serde::Serialize;

use crate::clock::Clock;
use crate::reach::Destination;

/// Lines that wait to be written: 1,024 of at most 1.5 KiB.
const QUEUE_SIZE: usize = 1024;
const METHOD_BYTES: usize = 20;
const PATH_BYTES: usize = 512;
const AGENT_BYTES: usize = 256;

/// The way to standard output.
#[derive(Debug)]
pub(crate) struct AccessLog {
    /// Between 0 and 1.
    share: f64,
    clock: Clock,
    lines: SyncSender<String>,
    dropped: Arc<Series>,
}

/// A request or connection that is logged when it has ended.
#[derive(Debug, Default, Serialize)]
pub(crate) struct AccessLine {
    time: String,
    log: &'static str,
    namespace: String,
    service: String,
    /// `HTTP/1.1`, `HTTP/2.0`, `tls` or `tcp`.
    protocol: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    method: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    user_agent: String,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Why no pod answered.
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    held_ms: u64,
    took_ms: u64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) status: Option<u16>,
    pub(crate) reason: &'static str,
    pub(crate) held: Duration,
    pub(crate) took: Duration,
}

impl AccessLog {
    /// `None` unless a share of all is to be logged. A thread of its own writes, because standard output may block.
    pub(crate) fn start(share: f64, clock: Clock, dropped: Arc<Series>) -> Option<Self> {
        if share <= 0.0 {
            return None;
        }
        let (lines, waiting) = sync_channel(QUEUE_SIZE);
        let writer = std::thread::Builder::new().name("access-log".into());
        if let Err(error) = writer.spawn(move || write(&waiting)) {
            tracing::warn!(%error, "access log disabled: its thread cannot be started");
            return None;
        }
        Some(Self {
            share,
            clock,
            lines,
            dropped,
        })
    }

    /// A line for this request, if it is one of the share.
    pub(crate) fn request<B>(&self, request: &Request<B>, client: &str) -> Option<Box<AccessLine>> {
        self.is_sampled()
            .then(|| Box::new(AccessLine::of_request(request, client)))
    }

    /// The same for a connection that is relayed.
    pub(crate) fn connection(&self, protocol: &str, client: IpAddr) -> Option<Box<AccessLine>> {
        let line = || AccessLine {
            protocol: protocol.to_owned(),
            client: client.to_canonical().to_string(),
            ..AccessLine::default()
        };
        self.is_sampled().then(|| Box::new(line()))
    }

    fn is_sampled(&self) -> bool {
        self.share >= 1.0 || rand::random::<f64>() < self.share
    }

    pub(crate) fn write(&self, line: Box<AccessLine>, to: Option<&Destination>, ended: &Ended) {
        let time = self.clock.now().to_string();
        let Some(text) = line.text(time, to, ended) else {
            return;
        };
        if self.lines.try_send(text).is_err() {
            self.dropped.increment();
        }
    }
}

impl AccessLine {
    fn of_request<B>(request: &Request<B>, client: &str) -> Self {
        let agent = user_agent(request.headers()).unwrap_or_default();
        Self {
            protocol: format!("{:?}", request.version()),
            method: client_text(request.method().as_str().as_bytes(), METHOD_BYTES),
            path: client_text(request.uri().path().as_bytes(), PATH_BYTES),
            user_agent: client_text(agent, AGENT_BYTES),
            client: client.to_owned(),
            ..Self::default()
        }
    }

    /// Whole milliseconds are enough, and no service has a hold of more than a day.
    fn text(self, time: String, to: Option<&Destination>, ended: &Ended) -> Option<String> {
        let key = to.map(|destination| &destination.key);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let line = Self {
            time,
            log: "access",
            namespace: key.map(|key| key.namespace.clone()).unwrap_or_default(),
            service: key.map(|key| key.service.clone()).unwrap_or_default(),
            status: ended.status,
            reason: ended.reason,
            held_ms: millis(ended.held),
            took_ms: millis(ended.took),
            ..self
        };
        serde_json::to_string(&line).ok()
    }
}

pub(crate) fn user_agent(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(header::USER_AGENT)
        .map(|value| value.as_bytes())
}

/// Until the log is dropped.
fn write(waiting: &Receiver<String>) {
    for mut line in waiting {
        line.push('\n');
        // In one piece, so that it does not mix with the lines of others. Where it cannot be written, neither can an error.
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(request: &Request<()>, ended: &Ended) -> Value {
        let line = AccessLine::of_request(request, "10.1.2.3");
        let text = line.text("now".into(), None, ended).unwrap();
        assert!(!text.contains('\n'), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_line_has_neither_query_nor_any_other_header() {
        let request = Request::post("/a/b?token=secret#part")
            .header("user-agent", "curl/8")
            .header("authorization", "Bearer secret")
            .header("cookie", "secret")
            .body(())
            .unwrap();
        let ended = Ended {
            status: Some(503),
            reason: "HoldDeadline",
            held: Duration::from_millis(1500),
            took: Duration::from_millis(1502),
        };
        let expected = json!({
            "time": "now", "log": "access", "namespace": "", "service": "", "protocol": "HTTP/1.1", "method": "POST",
            "path": "/a/b", "user_agent": "curl/8", "client": "10.1.2.3", "status": 503, "reason": "HoldDeadline",
            "held_ms": 1500, "took_ms": 1502,
        });
        assert_eq!(line(&request, &ended), expected);
    }

    #[test]
    fn what_a_client_writes_is_bounded_and_cannot_fake_a_line() {
        let agent = http::HeaderValue::from_bytes(b"x\"}\t{\xff").unwrap();
        let request = Request::get(format!("/{}", "a".repeat(5000)))
            .header("user-agent", agent)
            .body(())
            .unwrap();
        let line = line(&request, &Ended::default());
        assert_eq!(line["path"].as_str().unwrap().len(), PATH_BYTES);
        assert_eq!(line["user_agent"], "x\"}\\x09{\\xff");
    }

    #[test]
    fn a_share_of_nothing_starts_nothing_and_a_full_queue_drops() {
        let registry = elasti_runtime::metrics::Registry::default();
        let dropped = registry.counter("dropped", "Dropped.", &[]).with(&[]);
        let start = |share| AccessLog::start(share, Clock::start(), dropped.clone());
        assert!(start(0.0).is_none());
        let (lines, _waiting) = sync_channel(1);
        let log = AccessLog {
            share: 1.0,
            clock: Clock::start(),
            lines,
            dropped: dropped.clone(),
        };
        for _ in 0..3 {
            let line = log.connection("tls", [10, 1, 2, 3].into()).unwrap();
            log.write(line, None, &Ended::default());
        }
        assert_eq!(dropped.get(), 2);
    }
}
