//! How many replicas a wake scales to.

use elasti_api::ElastiServiceSpec;

use crate::observed::Autoscaler;

/// The replicas of a wake: the spec's, but at least one and at least the HPA's minimum.
#[must_use]
pub fn on_wake(spec: &ElastiServiceSpec, autoscaler: &Autoscaler) -> u32 {
    let floor = match autoscaler {
        Autoscaler::Hpa { min_replicas } => *min_replicas,
        Autoscaler::None | Autoscaler::Missing | Autoscaler::Keda(_) => 1,
    };
    spec.min_target_replicas.max(floor).max(1)
}
