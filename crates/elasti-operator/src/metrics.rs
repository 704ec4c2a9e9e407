//! The operator's metrics: those of KubeElasti with its names, labels and values, and ours under names of their own.
//! No label has values that users or errors could multiply without bound.

mod kept;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use elasti_api::{Mode, Reason};
use elasti_core::observed::Reading;
use elasti_runtime::metrics::{Family, Registry, Series};

use crate::error::Error;
use crate::name::Name;
use crate::savings::Savings;
use crate::slim::Declared;
use kept::Kept;

/// The `error` label where there was none.
const SUCCESS: &str = "success";

/// The resource of Services.
const SERVICES: &str = "services";

/// All families of the operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    kept: Kept,
    resolver_namespace: String,
    watches: Arc<Family>,
    watch_events: Arc<Family>,
    scale_writes: Arc<Family>,
    cold_start: Arc<Family>,
    held: Arc<Family>,
    cannot_drain: Arc<Family>,
    waking: Arc<Family>,
    savings: Savings,
    step_failures: Arc<Family>,
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

/// A watch that runs.
#[must_use]
pub(crate) struct WatchGuard(Arc<Series>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.decrement();
    }
}

impl Metrics {
    /// Every family, without a series.
    #[must_use]
    pub fn new(resolver_namespace: &str) -> Self {
        let registry = Registry::default();
        let labels = &["crd_name", "namespace"];
        Self {
            kept: Kept::new(&registry),
            resolver_namespace: resolver_namespace.to_owned(),
            watches: registry.gauge(
                "elasti_operator_watch_count",
                "Watches that run, each shared by all services.",
                &["resource"],
            ),
            watch_events: registry.counter(
                "elasti_operator_watch_event_counter",
                "Changes that watches delivered.",
                &["resource", "action"],
            ),
            scale_writes: registry.counter(
                "elasti_operator_scale_write_counter",
                "Scale writes, by direction.",
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
            waking: registry.gauge(
                "elasti_operator_waking",
                "1 while a wake waits for its pods, by what it waits for or has failed by.",
                &["crd_name", "namespace", "reason"],
            ),
            savings: Savings::new(&registry),
            step_failures: registry.counter(
                "elasti_operator_step_failure_counter",
                "Steps of plans that could not be carried out, and why.",
                &["step", "error"],
            ),
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
        let labels = [&*name.to_string(), label(error)];
        self.kept.reconcile.with(&labels).observe(took);
    }

    pub(crate) fn finalizer_removed(&self, name: &Name, error: Option<&Error>) {
        let labels = [&*name.to_string(), label(error)];
        self.kept.finalizer.with(&labels).increment();
    }

    pub(crate) fn status_written(&self, name: &Name, mode: Mode, error: Option<&Error>) {
        let mode = match mode {
            Mode::Proxy => "proxy",
            Mode::Serve => "serve",
        };
        let labels = [&*name.to_string(), mode, label(error)];
        self.kept.update.with(&labels).increment();
    }

    pub(crate) fn set_state(&self, name: &Name, mode: Mode, held: u32) {
        let crd = name.to_string();
        self.kept
            .mode
            .with(&[&crd])
            .set(i64::from(mode == Mode::Proxy));
        let labels = [&*crd, &*name.namespace];
        self.held.with(&labels).set(i64::from(held));
    }

    pub(crate) fn set_cannot_drain(&self, name: &Name, holds: bool) {
        let labels = [&*name.to_string(), &*name.namespace];
        self.cannot_drain.with(&labels).set(i64::from(holds));
    }

    /// What a wake waits for; nothing where none does.
    pub(crate) fn set_waking(&self, name: &Name, reason: Option<Reason>) {
        let crd = name.to_string();
        let labels = reason.map(|reason| [&*crd, &*name.namespace, reason.as_str()]);
        if !labels.is_some_and(|labels| self.waking.has(&labels)) {
            self.waking.forget(&[&crd]);
        }
        if let Some(labels) = labels {
            self.waking.with(&labels).set(1);
        }
    }

    /// The target, whose resource has this name, and the Service of an ElastiService are watched.
    pub(crate) fn set_watched(&self, me: &Declared, resource: &str) {
        self.set_watched_object(me, resource, &me.spec.scale_target_ref.name);
        if self.set_watched_object(me, SERVICES, &me.spec.service) {
            // It exists: the first that its watch delivers is the Service itself.
            self.service_changed(me);
        }
    }

    /// Gives whether that is new.
    fn set_watched_object(&self, me: &Declared, resource: &str, object: &str) -> bool {
        let name = informer_name(me, &me.name.namespace, resource, object);
        let is_new = !self.kept.informer_count.has(&[&name]);
        if is_new {
            self.kept.informer_count.with(&[&name]).set(1);
            self.kept
                .informer
                .with(&[&name, "add", SUCCESS])
                .increment();
        }
        is_new
    }

    pub(crate) fn target_changed(&self, me: &Declared) {
        let reference = &me.spec.scale_target_ref;
        let kind = reference.kind.to_lowercase();
        let key = informer_name(me, &me.name.namespace, &kind, &reference.name);
        self.informer_handled(me, &key);
    }

    pub(crate) fn service_changed(&self, me: &Declared) {
        // KubeElasti names the resolvers' namespace here.
        let key = informer_name(me, &self.resolver_namespace, SERVICES, &me.spec.service);
        self.informer_handled(me, &key);
    }

    /// Every replica of the operator watches, but only the one that leads counts.
    fn informer_handled(&self, me: &Declared, key: &str) {
        let name = informer_name(me, &me.name.namespace, SERVICES, &me.spec.service);
        if self.kept.informer_count.has(&[&name]) {
            let labels = [&*me.name.to_string(), key, SUCCESS];
            self.kept.informer_handler.with(&labels).increment();
        }
    }

    pub(crate) fn step_failed(&self, step: &'static str, error: &Error) {
        self.step_failures.with(&[step, error.as_str()]).increment();
    }

    /// Counts a watch for as long as the guard lives.
    pub(crate) fn watch_started(&self, resource: &str) -> WatchGuard {
        let series = self.watches.with(&[resource]);
        series.increment();
        WatchGuard(series)
    }

    pub(crate) fn change_received(&self, resource: &str, action: &'static str) {
        self.watch_events.with(&[resource, action]).increment();
    }

    pub(crate) fn scaled(&self, me: &Declared, direction: Scaling, error: Option<&Error>) {
        let reference = &me.spec.scale_target_ref;
        let target = format!("{}-{}", reference.kind, reference.name);
        let (service, namespace, error) = (&*me.spec.service, &*me.name.namespace, label(error));
        if direction == Scaling::Up {
            let labels = [service, namespace, &target, error];
            self.kept.wake_writes.with(&labels).increment();
        }
        let labels = [service, namespace, &target, direction.as_str(), error];
        self.scale_writes.with(&labels).increment();
    }

    pub(crate) fn cold_started(&self, name: &Name, took: Duration) {
        let labels = [&*name.to_string(), &*name.namespace];
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
        let crd = name.to_string();
        for family in [
            &self.kept.reconcile,
            &self.kept.finalizer,
            &self.kept.update,
            &self.kept.mode,
            &self.kept.informer_handler,
            &self.cold_start,
            &self.held,
            &self.cannot_drain,
            &self.waking,
        ] {
            family.forget(&[&crd]);
        }
        let informers = format!("{}/{}/", name.name, name.namespace);
        for family in [&self.kept.informer_count, &self.kept.informer] {
            family.forget_where_first_begins(&informers);
        }
        self.savings.forget(name);
        for family in [&self.kept.wake_writes, &self.scale_writes] {
            family.forget(&[service, &name.namespace]);
        }
    }

    /// Another operator leads now: what was true of the services when this one last looked may be true no more.
    pub(crate) fn forget_states(&self) {
        for family in [
            &self.kept.mode,
            &self.held,
            &self.cannot_drain,
            &self.waking,
            &self.kept.informer_count,
        ] {
            family.forget(&[]);
        }
    }
}

/// Which way a write scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scaling {
    Down,
    Up,
}

impl Scaling {
    fn as_str(self) -> &'static str {
        match self {
            Self::Down => "scaleDown",
            Self::Up => "scaleUp",
        }
    }
}

/// What KubeElasti calls the watch of one object for one ElastiService.
fn informer_name(me: &Declared, namespace: &str, resource: &str, object: &str) -> String {
    format!("{}/{namespace}/{resource}/{object}", me.name.name)
}

fn label(error: Option<&Error>) -> &'static str {
    error.map_or(SUCCESS, Error::as_str)
}
