//! The one translation from Kubernetes objects to the facts that decisions and explanations are made of.
//!
//! Two pure stages, because a cache keeps little and time passes: an object becomes slim facts (`PodFacts`,
//! `TargetFacts`, ...), and slim facts with the time become what `plan` takes (`Pod`, `Target`, ...).
//! Operator, resolver, CLI, lint and dashboard all read objects here, so that none can contradict another.

mod autoscaler;
mod elasti_service;
mod obstacle;
mod pod;
pub(crate) mod predecessor;
mod requests;
mod resolver;
mod rival;
mod selector;
mod service;
mod slice;
mod target;
mod template;
#[cfg(test)]
mod tests;

pub use autoscaler::{
    AutoscalerFacts, autoscaler, hpa_min_replicas, keda_before_to_text, keda_pause,
};
pub use elasti_service::{has_finalizer, me, user_request};
pub use obstacle::{Patience, Row, SLOW_AFTER, Stall, fail_fast, patience, refusal, stall};
pub(crate) use pod::lasting_containers;
pub use pod::{PodFacts, PodId, PodOwner, is_ready, named_ports, own_addresses, pods_of_service};
pub use predecessor::{
    OPERATOR_LABEL as PREDECESSOR_LABEL, PredecessorFacts, is_predecessor_resolver,
};
pub use requests::{MAX_RESOURCES, Requests};
pub use resolver::resolver;
pub use rival::{Claimant, rival, rival_among};
pub use selector::PodSelector;
pub use service::{ServiceFacts, private_service};
pub use slice::{FoundSlice, SliceFacts, SliceOwner, endpoints, endpoints_version, our_slices};
pub use target::{TargetFacts, replicas_of_scale, tells_pods_apart};
pub use template::TemplateFacts;

use elasti_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// The uid of the ElastiService that owns an object.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners
        .filter(|one| is_elasti_service(one))
        .map(|one| one.uid.clone())
        .next()
}

fn is_elasti_service(owner: &OwnerReference) -> bool {
    owner.kind == "ElastiService" && owner.api_version.starts_with(names::GROUP)
}
