//! What is kept of one request or relayed connection until it has ended: for the access log, and for the spans of its holds.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elasti_core::ports::ServiceKey;
use http::{HeaderMap, Request};
use tokio::time::Instant;

use crate::access_log::{AccessLine, Ended};
use crate::connection::Proxy;
use crate::ended_hold::EndedHold;
use crate::protocol::CountedAs;
use crate::reach::Destination;
use crate::trace::TraceContext;

/// The record of one request or connection.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    /// If it is logged.
    line: Option<Box<AccessLine>>,
    began: Instant,
    held_micros: AtomicU64,
    /// As it came, once it was held and holds are traced.
    trace: OnceLock<TraceContext>,
}

impl RequestRecord {
    pub(crate) fn of_request<B>(proxy: &Proxy, request: &Request<B>, client: &str) -> Self {
        let log = proxy.access_log.as_ref();
        Self::new(log.and_then(|log| log.request(request, client)))
    }

    pub(crate) fn of_connection(proxy: &Proxy, counted_as: CountedAs, client: IpAddr) -> Self {
        let log = proxy.access_log.as_ref();
        Self::new(log.and_then(|log| log.connection(counted_as.as_str(), client)))
    }

    fn new(line: Option<Box<AccessLine>>) -> Self {
        Self {
            line,
            began: Instant::now(),
            held_micros: AtomicU64::new(0),
            trace: OnceLock::new(),
        }
    }

    pub(crate) fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Counts the time of a hold.
    pub(crate) fn add_hold(&self, ended: &EndedHold) {
        let micros = u64::try_from(ended.took().as_micros()).unwrap_or(u64::MAX);
        self.held_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The same for a request, whose span is exported and passed on in its headers where holds are traced.
    pub(crate) fn hold_ended(
        &self,
        proxy: &Proxy,
        key: &ServiceKey,
        ended: &EndedHold,
        headers: &mut HeaderMap,
    ) {
        self.add_hold(ended);
        if let Some(tracer) = &proxy.tracer {
            let context = self
                .trace
                .get_or_init(|| TraceContext::from_headers(headers));
            tracer.hold_ended(context, key, ended, headers);
        }
    }

    /// Writes its line, if it has one.
    pub(crate) fn end(
        self,
        proxy: &Proxy,
        to: Option<&Destination>,
        status: Option<u16>,
        reason: &'static str,
    ) {
        if let (Some(log), Some(line)) = (&proxy.access_log, self.line) {
            let ended = Ended {
                status,
                reason,
                held: Duration::from_micros(self.held_micros.load(Ordering::Relaxed)),
                took: self.began.elapsed(),
            };
            log.write(line, to, &ended);
        }
    }
}
