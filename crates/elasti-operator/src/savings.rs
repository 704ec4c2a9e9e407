//! What sleep has saved so far, counted at every scrape by the operator that leads.

use elasti_core::view::asleep_seconds;
use jiff::Timestamp;

use crate::metrics::Metrics;
use crate::store::{Cache, target_of};

/// Brings the counters up to this moment.
pub(crate) fn count(metrics: &Metrics, cache: &Cache, now: Timestamp) {
    for me in cache.declared.values() {
        // What its pods would request is not known before the target is: counted too early, it would be lost.
        let Some(target) = cache.target(&target_of(me)) else {
            continue;
        };
        let reported = me.status.replicas.and_then(|n| u32::try_from(n).ok());
        let seconds = asleep_seconds(&me.status, target.replicas.or(reported), now);
        let pods = me.spec.min_target_replicas;
        metrics.set_asleep(&me.name, seconds, pods, target.requests);
    }
}
