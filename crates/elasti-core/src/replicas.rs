//! How many replicas a wake scales to.

use elasti_api::ElastiServiceSpec;

use crate::observed::{Autoscaler, Observed};

/// The replicas of a wake. A status that still remembers what a drain took away has not seen the zero: then it is
/// as many as before, as if the sleep had been cancelled.
#[must_use]
pub fn to_wake(spec: &ElastiServiceSpec, o: &Observed) -> u32 {
    let remembered = o.me.remembered.replicas_before_drain;
    on_wake(spec, &o.autoscaler).max(remembered.unwrap_or(0))
}

/// The replicas of a wake: the spec's, but at least one and at least the HPA's minimum.
#[must_use]
pub fn on_wake(spec: &ElastiServiceSpec, autoscaler: &Autoscaler) -> u32 {
    let floor = match autoscaler {
        Autoscaler::Hpa { min_replicas } => *min_replicas,
        Autoscaler::None | Autoscaler::Missing | Autoscaler::Keda(_) => 1,
    };
    spec.min_target_replicas.max(floor).max(1)
}
