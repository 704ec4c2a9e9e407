//! The resolver's metrics: KubeElasti's names, and its labels as far as their values are bounded.
//! Never labels anything with a URI, a host or an error text: clients choose those.

mod limits;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use elasti_api::AnswerReason;
use elasti_api::names::{HELD_METRIC, private_service};
use elasti_core::ports::ServiceKey;
use elasti_runtime::metrics::{Family, Registry, Series};
use elasti_runtime::otlp::Counts;
use http::{Method, Response, StatusCode};
use parking_lot::RwLock;

use crate::answer::Failure;
use crate::ended_hold::EndedHold;
use crate::forward::body::Body;
use crate::host_route::HostRoute;
use crate::protocol::CountedAs;
use crate::reach::Destination;
use crate::table::RouteTable;
use crate::wake::WakeError;
use limits::LimitMetrics;

/// Methods that have a series of their own; clients may invent others, which share the last one.
const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "other",
];

/// What tells apart the series of one service's requests: the method's place in [`METHODS`], the status (0: none), and
/// why no pod answered.
type Outcome = (usize, u16, Option<AnswerReason>);

/// The series of one service, each looked up once: labels cost more than counting.
#[derive(Debug, Default)]
pub(crate) struct RequestSeries {
    requests: RwLock<HashMap<Outcome, Arc<Series>>>,
    host: OnceLock<Arc<Series>>,
}

/// All families.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    cluster_domain: String,
    host_header: String,
    hosts: Arc<Family>,
    queued: Arc<Family>,
    requests: Arc<Family>,
    failures: Arc<Family>,
    switches: Arc<Family>,
    wakes: Arc<Family>,
    probes: Arc<Family>,
    pub(crate) ports_failed: Arc<Series>,
    holds: Arc<Family>,
    relays: Arc<Family>,
    pub(crate) limits: LimitMetrics,
    pub(crate) spans: Counts,
    pub(crate) access_lines_dropped: Arc<Series>,
}

impl Metrics {
    pub(crate) fn new(route: &HostRoute) -> Self {
        let registry = Registry::default();
        let header = route.host_header.as_ref();
        Self {
            cluster_domain: route.cluster_domain.clone(),
            host_header: header.map_or_else(String::new, train_case),
            hosts: registry.counter(
                "elasti_resolver_host_extraction_count",
                "Requests on the host route, by whether their host names a managed service.",
                &["source", "extractionType", "hostHeader", "error"],
            ),
            queued: registry.gauge(
                HELD_METRIC,
                "Requests that wait for a pod.",
                &["namespace", "source"],
            ),
            probes: registry.counter(
                "elasti_resolver_probe_count",
                "Probes of starting pods that were run ahead of the kubelet, by result.",
                &["result"],
            ),
            requests: registry.histogram(
                "elasti_resolver_incoming_requests",
                "Seconds from request headers to response headers.",
                &["namespace", "source", "target", "method", "status", "error"],
            ),
            failures: registry.counter(
                "elasti_resolver_failures",
                "Requests that the target did not answer, by reason and by whose fault it was.",
                &["reason", "fault"],
            ),
            switches: registry.counter(
                "elasti_resolver_traffic_switch_count",
                "Traffic switches of a service; enabled: whether traffic goes to the resolver since.",
                &["namespace", "source", "enabled"],
            ),
            wakes: registry.counter(
                "elasti_resolver_operator_rpc_count",
                "Wakes that were sent to the operator, by why they failed.",
                &["error"],
            ),
            ports_failed: registry
                .gauge(
                    "elasti_resolver_listen_ports_failed",
                    "Routes whose listen port cannot be opened.",
                    &[],
                )
                .with(&[]),
            holds: registry.histogram(
                "elasti_resolver_hold_seconds",
                "Seconds that requests and connections were held, by how the hold ended.",
                &["namespace", "source", "protocol", "outcome"],
            ),
            relays: registry.counter(
                "elasti_resolver_relay_count",
                "Connections that are not HTTP, by why they reached no pod.",
                &["namespace", "source", "protocol", "error"],
            ),
            limits: LimitMetrics::new(&registry),
            spans: spans(&registry),
            access_lines_dropped: registry
                .counter(
                    "elasti_resolver_access_log_dropped_count",
                    "Lines of the access log that were dropped because standard output did not take them.",
                    &[],
                )
                .with(&[]),
            registry,
        }
    }

    pub(crate) fn request(
        &self,
        destination: Option<&Destination>,
        method: &Method,
        forwarded: &Result<Response<Body>, Failure>,
        took: Duration,
    ) {
        let (status, reason) = match forwarded {
            Ok(response) => (Some(response.status()), None),
            Err(failure) => {
                let reason = failure.reason();
                self.failures
                    .with(&[reason.as_str(), failure.fault()])
                    .increment();
                (failure.told_status(), Some(reason))
            }
        };
        // A pod may make up its own; they share one series.
        let status = status.filter(|status| !status_text(*status).is_empty());
        let status = status.map_or(0, |status| status.as_u16());
        let outcome = (known_method(method), status, reason);
        let Some(Destination { key, stats, .. }) = destination else {
            return self.request_series(None, outcome).observe(took);
        };
        let all = &stats.series.requests;
        if let Some(series) = all.read().get(&outcome) {
            return series.observe(took);
        }
        let series = self.request_series(Some(key), outcome);
        all.write().entry(outcome).or_insert(series).observe(took);
    }

    fn request_series(&self, key: Option<&ServiceKey>, outcome: Outcome) -> Arc<Series> {
        let (method, status, reason) = outcome;
        let method = METHODS.get(method).copied().unwrap_or_default();
        let (namespace, source) = key.map_or(("", ""), |key| (&*key.namespace, &*key.service));
        let target = key.map_or_else(String::new, |key| private_service(&key.service));
        let status = StatusCode::from_u16(status).map_or("", status_text);
        let error = reason.map_or("", AnswerReason::as_str);
        self.requests
            .with(&[namespace, source, &target, method, status, error])
    }

    /// A hold has ended.
    pub(crate) fn hold_ended(&self, key: &ServiceKey, counted_as: CountedAs, ended: &EndedHold) {
        let ServiceKey { namespace, service } = key;
        self.holds
            .with(&[namespace, service, counted_as.as_str(), ended.outcome()])
            .observe(ended.took());
    }

    /// A connection that is not HTTP has reached a pod, or has not.
    pub(crate) fn relay(&self, key: &ServiceKey, counted_as: CountedAs, failure: Option<Failure>) {
        let ServiceKey { namespace, service } = key;
        let error = failure.map_or("", |failure| failure.reason().as_str());
        self.relays
            .with(&[namespace, service, counted_as.as_str(), error])
            .increment();
        if let Some(failure) = failure {
            self.failures.with(&[error, failure.fault()]).increment();
        }
    }

    /// A request on the host route named this service, or none.
    pub(crate) fn host(&self, destination: Option<&Destination>) {
        let labels = |source: &str, kind: &str, error: &str| {
            self.hosts.with(&[source, kind, &self.host_header, error])
        };
        match destination {
            Some(Destination { key, stats, .. }) => stats
                .series
                .host
                .get_or_init(|| labels(&self.host_of(key), "cache-hit", ""))
                .increment(),
            None => labels("", "error", AnswerReason::NotManaged.as_str()).increment(),
        }
    }

    /// The full name of a Service.
    fn host_of(&self, key: &ServiceKey) -> String {
        let ServiceKey { namespace, service } = key;
        format!("{service}.{namespace}.svc.{}", self.cluster_domain)
    }

    pub(crate) fn switched(&self, key: &ServiceKey, in_rotation: bool) {
        let enabled = if in_rotation { "disabled" } else { "enabled" };
        self.switches
            .with(&[&key.namespace, &self.host_of(key), enabled])
            .increment();
    }

    /// A probe was run ahead of the kubelet.
    pub(crate) fn probed(&self, passes: bool) {
        let result = if passes { "passed" } else { "failed" };
        self.probes.with(&[result]).increment();
    }

    pub(crate) fn wake(&self, result: Result<(), WakeError>) {
        self.wakes
            .with(&[result.map_or_else(WakeError::as_str, |()| "")])
            .increment();
    }

    /// Removes the series of a service that is not managed any more.
    pub(crate) fn forget(&self, key: &ServiceKey) {
        for family in [&self.queued, &self.requests, &self.holds, &self.relays] {
            family.forget(&[&key.namespace, &key.service]);
        }
        let host = self.host_of(key);
        self.switches.forget(&[&key.namespace, &host]);
        self.hosts.forget(&[&host]);
    }

    /// Everything, or the family of one name.
    pub(crate) fn encode(&self, table: &RouteTable, only: Option<&str>) -> String {
        for service in table.services() {
            let key = &service.key;
            let held = service
                .stats
                .held
                .load(std::sync::atomic::Ordering::Relaxed);
            self.queued
                .with(&[&key.namespace, &key.service])
                .set(held.into());
        }
        self.limits.update();
        self.registry.encode_only(only)
    }
}

fn spans(registry: &Registry) -> Counts {
    let spans = registry.counter(
        "elasti_resolver_span_count",
        "Spans of holds, by whether the collector took them.",
        &["result"],
    );
    Counts {
        sent: spans.with(&["sent"]),
        dropped: spans.with(&["dropped"]),
    }
}

fn known_method(method: &Method) -> usize {
    let mut known = METHODS.iter();
    let at = known.position(|name| *name == method.as_str());
    at.unwrap_or(METHODS.len() - 1)
}

/// What Go's `http.StatusText` says, which is what KubeElasti's label has.
fn status_text(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NON_AUTHORITATIVE_INFORMATION => "Non-Authoritative Information",
        StatusCode::PAYLOAD_TOO_LARGE => "Request Entity Too Large",
        StatusCode::URI_TOO_LONG => "Request URI Too Long",
        StatusCode::RANGE_NOT_SATISFIABLE => "Requested Range Not Satisfiable",
        other => other.canonical_reason().unwrap_or_default(),
    }
}

/// `X-Envoy-Decorator-Operation`, as users write it; the header itself is kept in lower case.
fn train_case(name: &http::HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}
