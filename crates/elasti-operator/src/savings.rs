//! What sleep has saved so far, counted at every scrape by the operator that leads.
//! Never decides and never writes: the read model says how long a service has slept and what that is worth.

use elasti_core::savings::asleep_seconds;

use crate::operator::Operator;
use crate::store::target_of;

/// Brings the counters up to this moment.
pub(crate) fn count(operator: &Operator) {
    if !operator.leads() {
        operator.metrics.leave_savings_to_others();
        return;
    }
    let now = operator.clock.now();
    let known = operator.store.known();
    for me in known.declared.values() {
        // What its pods would request is not known before the target is: counted too early, it would be lost.
        let Some(target) = known.target(&target_of(me)) else {
            continue;
        };
        let told = me.status.replicas.and_then(|n| u32::try_from(n).ok());
        let seconds = asleep_seconds(&me.status, target.facts.replicas.or(told), now);
        let pods = me.spec.min_target_replicas;
        let requests = target.facts.requests;
        operator.metrics.slept(&me.name, seconds, pods, requests);
    }
}
