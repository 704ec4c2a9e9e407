//! The resolver's metrics, under the contract's names.
//! Never labels anything with a URI, a host or an error text: clients choose those.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use elasti_api::names::HELD_METRIC;
use elasti_core::ports::ServiceKey;
use elasti_runtime::metrics::{Family, Registry, Series};
use http::Response;

use crate::answer::Failure;
use crate::forward::body::Body;
use crate::reach::Destination;
use crate::table::Table;
use crate::wake::WakeError;

/// Classes of responses; the last one: no pod responded.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// The series of one service's requests, by class, each looked up once: labels cost more than counting.
#[derive(Debug, Default)]
pub(crate) struct RequestSeries([OnceLock<Arc<Series>>; CLASSES.len()]);

/// All families.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    hosts: Arc<Family>,
    queued: Arc<Family>,
    requests: Arc<Family>,
    failures: Arc<Family>,
    switches: Arc<Family>,
    wakes: Arc<Family>,
    pub(crate) ports_failed: Arc<Series>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::default();
        let service_labels: &[&str] = &["namespace", "service"];
        Self {
            hosts: registry.counter(
                "elasti_resolver_host_extraction_count",
                "Requests on the host route, by whether their host names a managed service.",
                &["result"],
            ),
            queued: registry.gauge(HELD_METRIC, "Requests that wait for a pod.", service_labels),
            requests: registry.histogram(
                "elasti_resolver_incoming_requests",
                "Seconds from a request's head to its answer's.",
                &["namespace", "service", "status"],
            ),
            failures: registry.counter(
                "elasti_resolver_failures",
                "Requests that the target did not answer, by reason and by whose fault it was.",
                &["reason", "fault"],
            ),
            switches: registry.counter(
                "elasti_resolver_traffic_switch_count",
                "Times that a service's traffic changed its way, by where it goes since.",
                &["namespace", "service", "mode"],
            ),
            wakes: registry.counter(
                "elasti_resolver_operator_rpc_count",
                "Wakes that were sent to the operator, by how it took them.",
                &["result"],
            ),
            ports_failed: registry
                .gauge(
                    "elasti_resolver_listen_ports_failed",
                    "Routes whose listen port cannot be opened.",
                    &[],
                )
                .with(&[]),
            registry,
        }
    }

    pub(crate) fn request(
        &self,
        destination: Option<&Destination>,
        forwarded: &Result<Response<Body>, Failure>,
        took: Duration,
    ) {
        let class = match forwarded {
            Ok(response) => match response.status().as_u16() {
                100..=199 => 0,
                200..=299 => 1,
                300..=399 => 2,
                400..=499 => 3,
                _ => 4,
            },
            Err(failure) => {
                self.failures
                    .with(&[failure.reason().as_str(), failure.fault()])
                    .increment();
                5
            }
        };
        let status = CLASSES.get(class).copied().unwrap_or_default();
        match destination {
            Some(Destination { key, stats, .. }) => {
                let find = || self.requests.with(&[&key.namespace, &key.service, status]);
                if let Some(series) = stats.requests.0.get(class) {
                    series.get_or_init(find).observe(took);
                }
            }
            None => self.requests.with(&["", "", status]).observe(took),
        }
    }

    pub(crate) fn host(&self, managed: bool) {
        self.hosts
            .with(&[if managed { "managed" } else { "unknown" }])
            .increment();
    }

    pub(crate) fn switched(&self, key: &ServiceKey, in_rotation: bool) {
        let mode = if in_rotation { "serve" } else { "proxy" };
        self.switches
            .with(&[&key.namespace, &key.service, mode])
            .increment();
    }

    pub(crate) fn wake(&self, result: Result<(), WakeError>) {
        self.wakes
            .with(&[result.map_or_else(WakeError::as_str, |()| "ok")])
            .increment();
    }

    /// Removes the series of a service that is not managed any more.
    pub(crate) fn forget(&self, key: &ServiceKey) {
        for family in [&self.queued, &self.requests, &self.switches] {
            family.forget(&[&key.namespace, &key.service]);
        }
    }

    /// Everything, or the family of one name.
    pub(crate) fn encode(&self, table: &Table, only: Option<&str>) -> String {
        for (key, service) in &table.services {
            let held = service
                .stats
                .held
                .load(std::sync::atomic::Ordering::Relaxed);
            self.queued
                .with(&[&key.namespace, &key.service])
                .set(held.into());
        }
        self.registry.encode_only(only)
    }
}
