//! What sleep has saved so far: counters that the leader brings up to date at every scrape.

use std::collections::HashMap;
use std::sync::Arc;

use elasti_core::facts::Requests;
use elasti_core::savings::{Tally, asleep_seconds};
use elasti_runtime::metrics::{Family, Registry};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::name::Name;
use crate::store::{Cache, target_of};

const HOUR_SECONDS: f64 = 3600.0;

/// The counters, and how far each service's have grown.
#[derive(Debug)]
pub(crate) struct Savings {
    asleep_seconds: Arc<Family>,
    pod_seconds: Arc<Family>,
    cpu_seconds: Arc<Family>,
    memory_gib_seconds: Arc<Family>,
    tallies: Mutex<HashMap<Name, Tally>>,
}

impl Savings {
    pub(crate) fn new(registry: &Registry) -> Self {
        let labels = &["crd_name", "namespace"];
        Self {
            asleep_seconds: registry.counter(
                "elasti_operator_asleep_seconds",
                "Seconds that the target has slept.",
                labels,
            ),
            pod_seconds: registry.counter(
                "elasti_operator_saved_pod_seconds",
                "Seconds asleep times minTargetReplicas.",
                labels,
            ),
            cpu_seconds: registry.counter(
                "elasti_operator_saved_cpu_seconds",
                "Saved pod seconds times the CPU cores that a pod requests.",
                labels,
            ),
            memory_gib_seconds: registry.counter(
                "elasti_operator_saved_memory_gib_seconds",
                "Saved pod seconds times the GiB of memory that a pod requests.",
                labels,
            ),
            tallies: Mutex::default(),
        }
    }

    /// Brings the counters up to this moment.
    pub(crate) fn count(&self, cache: &Cache, now: Timestamp) {
        for me in cache.declared.values() {
            // What its pods would request is not known before the target is: counted too early, it would be lost.
            let Some(target) = cache.target(&target_of(me)) else {
                continue;
            };
            let reported = me.status.replicas.and_then(|n| u32::try_from(n).ok());
            let seconds = asleep_seconds(&me.status, target.facts.replicas.or(reported), now);
            let pods = me.spec.min_target_replicas;
            self.set(&me.name, seconds, pods, target.facts.requests);
        }
    }

    /// A service has slept for so long, and so many pods with these requests did not run.
    fn set(&self, name: &Name, seconds: i64, pods: u32, requests: Requests) {
        let tally = {
            let mut tallies = self.tallies.lock();
            let tally = tallies.entry(name.clone()).or_default();
            tally.grow(seconds, pods, requests);
            *tally
        };
        #[allow(
            clippy::cast_possible_truncation,
            reason = "far below 2^52, and whole seconds are enough"
        )]
        let whole = |hours: f64| (hours * HOUR_SECONDS).round() as i64;
        let crd = name.to_string();
        let labels = [crd.as_str(), &*name.namespace];
        let Tally { seconds, saved } = tally;
        for (family, value) in [
            (&self.asleep_seconds, seconds),
            (&self.pod_seconds, whole(saved.pod_hours)),
            (&self.cpu_seconds, whole(saved.cpu_hours)),
            (&self.memory_gib_seconds, whole(saved.gib_hours)),
        ] {
            family.with(&labels).set(value);
        }
    }

    /// Only the leader counts: the same seconds twice would add up.
    pub(crate) fn forget_all(&self) {
        let names: Vec<Name> = self.tallies.lock().keys().cloned().collect();
        for name in names {
            self.forget(&name);
        }
    }

    pub(crate) fn forget(&self, name: &Name) {
        self.tallies.lock().remove(name);
        for family in [
            &self.asleep_seconds,
            &self.pod_seconds,
            &self.cpu_seconds,
            &self.memory_gib_seconds,
        ] {
            family.forget(&[&name.to_string()]);
        }
    }
}
