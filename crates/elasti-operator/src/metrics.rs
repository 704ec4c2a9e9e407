//! The operator's metrics, under exactly the names of the contract.
//! No label has values that users or errors could multiply without bound.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use elasti_api::Mode;
use elasti_core::observed::Reading;
use elasti_runtime::metrics::{Family, Registry};

use crate::error::Error;
use crate::name::Name;
use crate::savings::Savings;

/// All families of the operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconcile: Arc<Family>,
    finalizer: Arc<Family>,
    update: Arc<Family>,
    mode: Arc<Family>,
    informer_count: Arc<Family>,
    informer: Arc<Family>,
    informer_handler: Arc<Family>,
    scale: Arc<Family>,
    cold_start: Arc<Family>,
    held: Arc<Family>,
    cannot_drain: Arc<Family>,
    savings: Savings,
    wake_refusals: Arc<Family>,
    trigger_readings: Arc<Family>,
    refresh: OnceLock<Refresh>,
}

/// What happens before a scrape.
struct Refresh(Box<dyn Fn(&Metrics) + Send + Sync>);

impl std::fmt::Debug for Refresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refresh")
    }
}

/// What the gauge of the same name says.
const CANNOT_DRAIN: &str =
    "1 while the kubelets' ticks leave no gap for a drain, so that the service stays awake.";

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Every family, without a series.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::default();
        let labels = &["crd_name", "namespace"];
        Self {
            reconcile: registry.histogram(
                "elasti_operator_reconcile",
                "Seconds that one reconcile of an ElastiService took.",
                &["crd_name", "namespace", "error"],
            ),
            finalizer: registry.counter(
                "elasti_operator_CRD_finalizer_counter",
                "Finalizers put on and taken off ElastiServices.",
                &["crd_name", "namespace", "error"],
            ),
            update: registry.counter(
                "elasti_operator_CRD_update_counter",
                "Statuses written.",
                &["crd_name", "namespace", "mode", "error"],
            ),
            mode: registry.gauge(
                "elasti_operator_mode",
                "1 while the pods answer (serve), 0 while the resolver does (proxy).",
                labels,
            ),
            informer_count: registry.gauge(
                "elasti_operator_informer_count",
                "Watches that run.",
                &["informer_name"],
            ),
            informer: registry.counter(
                "elasti_operator_informer_counter",
                "Watches started and ended.",
                &["key", "action", "error"],
            ),
            informer_handler: registry.counter(
                "elasti_operator_informer_handler_counter",
                "Changes that watches delivered.",
                &["key", "action", "error"],
            ),
            scale: registry.counter(
                "elasti_operator_scale_counter",
                "Scale writes.",
                &["service_name", "namespace", "target", "action", "error"],
            ),
            cold_start: registry.histogram(
                "elasti_operator_cold_start_seconds",
                "Seconds from a wake's scale write until the Service's endpoints showed a ready pod.",
                labels,
            ),
            held: registry.gauge(
                "elasti_operator_held_requests",
                "Requests that waited when the resolvers were last asked.",
                labels,
            ),
            cannot_drain: registry.gauge("elasti_operator_cannot_drain", CANNOT_DRAIN, labels),
            savings: Savings::new(&registry),
            wake_refusals: registry.counter(
                "elasti_operator_wake_refusal_counter",
                "Wakes that were refused, by the reason in the response.",
                &["reason"],
            ),
            trigger_readings: registry.counter(
                "elasti_operator_trigger_reading_counter",
                "Readings of triggers; for one that is unknown, why.",
                &["type", "reading", "cause"],
            ),
            refresh: OnceLock::new(),
            registry,
        }
    }

    /// Everything in Prometheus' text format.
    #[must_use]
    pub fn encode(&self) -> String {
        if let Some(Refresh(refresh)) = self.refresh.get() {
            refresh(self);
        }
        self.registry.encode()
    }

    pub(crate) fn reconciled(&self, name: &Name, took: Duration, error: Option<&Error>) {
        let labels = [&*name.name, &*name.namespace, label(error)];
        self.reconcile.with(&labels).observe(took);
    }

    pub(crate) fn finalizer_written(&self, name: &Name, error: Option<&Error>) {
        let labels = [&*name.name, &*name.namespace, label(error)];
        self.finalizer.with(&labels).increment();
    }

    pub(crate) fn status_written(&self, name: &Name, mode: Mode, error: Option<&Error>) {
        let mode = match mode {
            Mode::Proxy => "proxy",
            Mode::Serve => "serve",
        };
        let labels = [&*name.name, &*name.namespace, mode, label(error)];
        self.update.with(&labels).increment();
    }

    pub(crate) fn set_state(&self, name: &Name, mode: Mode, held: u32) {
        let labels = [&*name.name, &*name.namespace];
        self.mode.with(&labels).set(i64::from(mode == Mode::Serve));
        self.held.with(&labels).set(i64::from(held));
    }

    pub(crate) fn set_cannot_drain(&self, name: &Name, holds: bool) {
        let labels = [&*name.name, &*name.namespace];
        self.cannot_drain.with(&labels).set(i64::from(holds));
    }

    pub(crate) fn watch_started(&self, resource: &str) {
        self.informer_count.with(&[resource]).increment();
        self.informer.with(&[resource, "start", ""]).increment();
    }

    pub(crate) fn change_received(&self, resource: &str, action: &'static str) {
        let labels = [resource, action, ""];
        self.informer_handler.with(&labels).increment();
    }

    pub(crate) fn scaled(
        &self,
        service: &Name,
        target: &str,
        action: &'static str,
        error: Option<&Error>,
    ) {
        let (name, namespace) = (&*service.name, &*service.namespace);
        let labels = [name, namespace, target, action, label(error)];
        self.scale.with(&labels).increment();
    }

    pub(crate) fn cold_started(&self, name: &Name, took: Duration) {
        let labels = [&*name.name, &*name.namespace];
        self.cold_start.with(&labels).observe(took);
    }

    /// Brings up to date, before each scrape, what grows by the passing of time alone.
    pub(crate) fn before_each_scrape(&self, refresh: impl Fn(&Self) + Send + Sync + 'static) {
        // An operator starts once.
        let _ = self.refresh.set(Refresh(Box::new(refresh)));
    }

    pub(crate) fn savings(&self) -> &Savings {
        &self.savings
    }

    /// A wake was refused; `reason` is from the closed list of refusals.
    pub(crate) fn wake_refused(&self, reason: &'static str) {
        self.wake_refusals.with(&[reason]).increment();
    }

    /// A trigger was read; `cause` is from the closed list of its kind's errors.
    pub(crate) fn trigger_read(&self, kind: &'static str, reading: &Reading, cause: &'static str) {
        let reading = match reading {
            Reading::Active { .. } => "active",
            Reading::Quiet { .. } => "quiet",
            Reading::Unknown { .. } | Reading::Unread => "unknown",
        };
        let labels = [kind, reading, cause];
        self.trigger_readings.with(&labels).increment();
    }

    /// Forgets an ElastiService that is gone.
    pub(crate) fn forget(&self, name: &Name, service: &str) {
        let labels = [&*name.name, &*name.namespace];
        for family in [
            &self.reconcile,
            &self.finalizer,
            &self.update,
            &self.mode,
            &self.cold_start,
            &self.held,
        ] {
            family.forget(&labels);
        }
        self.savings.forget(name);
        self.scale.forget(&[service, &name.namespace]);
    }
}

fn label(error: Option<&Error>) -> &'static str {
    error.map(Error::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn every_family_is_documented() {
        let text = include_str!("../../../docs/metrics.md");
        let encoded = Metrics::new().encode();
        let types = encoded
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        let families: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(families.len(), 17, "{families:?}");
        for name in families {
            assert!(text.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
