//! What sleep has saved so far: counters that the leader brings up to date at every scrape.
//! They come from the sums in the statuses, so that a change of requests or of the leader changes nothing of the past.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use elasti_core::savings::{Saved, asleep_seconds, saved_seconds};
use elasti_runtime::metrics::{Family, Registry};
use jiff::Timestamp;

use crate::name::Name;
use crate::slim::Declared;
use crate::store::{Cache, target_of};

const HOUR_SECONDS: f64 = 3600.0;

/// The counters.
#[derive(Debug)]
pub(crate) struct Savings {
    asleep_seconds: Arc<Family>,
    pod_seconds: Arc<Family>,
    cpu_seconds: Arc<Family>,
    memory_gib_seconds: Arc<Family>,
    resource_seconds: Arc<Family>,
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
                "Saved pod seconds times the CPU cores that a pod requested as its sleep began.",
                labels,
            ),
            memory_gib_seconds: registry.counter(
                "elasti_operator_saved_memory_gib_seconds",
                "Saved pod seconds times the GiB of memory that a pod requested as its sleep began.",
                labels,
            ),
            resource_seconds: registry.counter(
                "elasti_operator_saved_resource_seconds",
                "Saved pod seconds times the extended resources that a pod requested as its sleep began.",
                &["crd_name", "namespace", "resource"],
            ),
        }
    }

    /// Brings the counters up to this moment.
    pub(crate) fn count(&self, cache: &Cache, now: Timestamp) {
        for me in cache.declared.values() {
            let target = cache.target(&target_of(me));
            let asked = target.and_then(|target| target.facts.replicas);
            self.count_one(me, asked, now);
        }
    }

    /// The same for one service; `replicas` is what its target asks for, if that is known.
    fn count_one(&self, me: &Declared, replicas: Option<u32>, now: Timestamp) {
        let reported = me.status.replicas.and_then(|n| u32::try_from(n).ok());
        let replicas = replicas.or(reported);
        let seconds = asleep_seconds(&me.status, replicas, now);
        let sums = saved_seconds(&me.status, replicas, now);
        let saved = Saved::from(&sums);
        let crd = me.name.to_string();
        let labels = [crd.as_str(), &*me.name.namespace];
        for (family, value) in [
            (&self.asleep_seconds, seconds),
            (&self.pod_seconds, sums.pod_seconds),
            (&self.cpu_seconds, whole_seconds(saved.cpu_hours)),
            (&self.memory_gib_seconds, whole_seconds(saved.gib_hours)),
        ] {
            // Between a wake and the status that records it, the status has less than was counted.
            family.with(&labels).raise(value);
        }
        for (resource, seconds) in &sums.resource_seconds {
            let [crd, namespace] = labels;
            let series = self.resource_seconds.with(&[crd, namespace, resource]);
            series.raise(*seconds);
        }
    }

    fn families(&self) -> [&Family; 5] {
        [
            &self.asleep_seconds,
            &self.pod_seconds,
            &self.cpu_seconds,
            &self.memory_gib_seconds,
            &self.resource_seconds,
        ]
    }

    /// Only the leader counts: the same seconds twice would add up.
    pub(crate) fn forget_all(&self) {
        for family in self.families() {
            family.forget(&[]);
        }
    }

    pub(crate) fn forget(&self, name: &Name) {
        for family in self.families() {
            family.forget(&[&name.to_string()]);
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "far below 2^52, and whole seconds are enough"
)]
fn whole_seconds(hours: f64) -> i64 {
    (hours * HOUR_SECONDS).round() as i64
}
