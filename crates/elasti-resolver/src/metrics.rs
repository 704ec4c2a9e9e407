//! The resolver's metrics, under the contract's names.
//! Never labels anything with a URI, a host or an error text.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use elasti_api::names::HELD_METRIC;
use elasti_core::ports::ServiceKey;
use elasti_runtime::metrics::{Family, Registry, Series};
use http::Response;

use crate::answer::Failure;
use crate::forward::body::Body;
use crate::forward::http::Destination;
use crate::table::Table;
use crate::wake::WakeFault;

/// Classes of answers; the last one is no answer of a pod.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "none"];

/// The series of one service's requests, by class, each found once and then kept: labels cost more than counting.
#[derive(Debug, Default)]
pub(crate) struct RequestSeries([OnceLock<Arc<Series>>; CLASSES.len()]);

/// All of them.
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
        let of_service: &[&str] = &["namespace", "service"];
        Self {
            hosts: registry.counter(
                "elasti_resolver_host_extraction_count",
                "Requests on the host route, by whether their host names a managed service.",
                &["result"],
            ),
            queued: registry.gauge(HELD_METRIC, "Requests that wait for a pod.", of_service),
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
        answered: &Result<Response<Body>, Failure>,
        took: Duration,
    ) {
        let class = match answered {
            Ok(answer) => match answer.status().as_u16() {
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
        let word = CLASSES.get(class).copied().unwrap_or_default();
        match destination {
            Some(Destination { key, seen, .. }) => {
                let find = || self.requests.with(&[&key.namespace, &key.service, word]);
                if let Some(series) = seen.requests.0.get(class) {
                    series.get_or_init(find).observe(took);
                }
            }
            None => self.requests.with(&["", "", word]).observe(took),
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

    pub(crate) fn wake(&self, said: Result<(), WakeFault>) {
        self.wakes
            .with(&[said.map_or_else(WakeFault::as_str, |()| "ok")])
            .increment();
    }

    /// Nothing is left to say about a service that is gone.
    pub(crate) fn forget(&self, key: &ServiceKey) {
        for family in [&self.queued, &self.requests, &self.switches] {
            family.forget(&[&key.namespace, &key.service]);
        }
    }

    /// Everything, or the family of one name.
    pub(crate) fn encode(&self, table: &Table, only: Option<&str>) -> String {
        for (key, service) in &table.services {
            let held = service.seen.held.load(std::sync::atomic::Ordering::Relaxed);
            self.queued
                .with(&[&key.namespace, &key.service])
                .set(held.into());
        }
        self.registry.encode_only(only)
    }
}
