//! The facts of one service from its live objects, by the operator's own readers.

use std::collections::BTreeMap;

use elasti_api::{ElastiServiceStatus, Mode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::LiveObjects;
use super::events::last_message;
use crate::view::{self, Facts, Lookup};
use elasti_core::facts::{self, PodFacts, PodId, ServiceFacts, TargetFacts};
use elasti_core::observed::{
    Autoscaler, Family, Observed, Owned, PrivateServiceShape, Report, SliceRole, SliceShape,
};

/// What the operator's rules and plan are given: all that the live objects tell. What they do not tell counts as in
/// order.
#[must_use]
pub fn observed(live: &LiveObjects) -> Observed {
    let nothing = ElastiServiceStatus::default();
    let status = live.me.status.as_ref().unwrap_or(&nothing);
    let mut o = view::observed(
        &Facts {
            me: &live.me,
            target: &Lookup::Unknown,
            held: None,
            now: live.now,
        },
        status,
    );
    o.rival = facts::rival_among(&live.me, &live.others);
    let service = live.service.found().cloned();
    o.service = service.map(|service| ServiceFacts::from_object(service).service);
    o.private_service = { o.service.as_ref() }
        .map(PrivateServiceShape::from)
        .map_or(Owned::Missing, Owned::Ours);
    let target = live.target.found().map(|object| target(live, object));
    o.target = target
        .as_ref()
        .map(|(version, target)| target.target(version));
    let pods: Vec<PodFacts> = live.pods.iter().map(PodFacts::from_object).collect();
    let name = &live.me.spec.scale_target_ref.name;
    (o.pods, _) = facts::pods_of_service(
        live.pods.iter().map(PodId::from_object).zip(&pods),
        target.as_ref().map(|(_, target)| (name.as_str(), target)),
        facts::fail_fast(&live.me.spec),
        live.now,
    );
    // Slices are not looked up: the status tells whether ours redirects.
    o.slice = match status.mode {
        Some(Mode::Proxy) => Owned::Ours(vec![SliceShape {
            family: Family::V4,
            role: SliceRole::Redirect,
            ports: Vec::new(),
            endpoints: BTreeMap::new(),
        }]),
        Some(Mode::Serve) | None => Owned::Missing,
    };
    if let Lookup::Found(pods) = &live.resolvers {
        let named = pods.iter().filter_map(|pod| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            facts::resolver(name, &PodFacts::from_object(pod), Report::NotAsked)
        });
        o.resolvers = named.collect();
        let none = o.ready_resolvers().next().is_none();
        o.stable_since.no_resolver_since = none.then_some(live.now);
    }
    if let Lookup::Found(nodes) = &live.nodes {
        o.nodes = Some(nodes.iter().cloned().collect());
    }
    if let Some(named) = &live.me.spec.autoscaler {
        o.autoscaler = match &live.autoscaler {
            Lookup::Found(object) => facts::autoscaler(named.type_, Some(object)),
            Lookup::Missing => facts::autoscaler(named.type_, None),
            Lookup::Unknown => Autoscaler::None,
        };
    }
    o
}

/// The target, and its version. Kinds without a condition for it tell only by Events what refuses their pods.
fn target(live: &LiveObjects, object: &Value) -> (String, TargetFacts) {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap_or_default();
    let reference = &live.me.spec.scale_target_ref;
    let read = TargetFacts::from_object(&metadata, object);
    let spec_replicas = read.replicas;
    let mut target = read.for_kind(reference.group(), &reference.kind);
    // The operator asks `/scale` where `spec.replicas` may not tell; its status has what it was told.
    let recorded = live.me.status.as_ref().and_then(|status| status.replicas);
    let recorded = recorded.and_then(|n| u32::try_from(n).ok());
    target.replicas = target.replicas.or(spec_replicas).or(recorded);
    let refused = || {
        let message = last_message(live, &reference.name, &["FailedCreate"])?;
        Some(facts::refusal(&message, None))
    };
    target.refused = target.refused.or_else(refused);
    (metadata.resource_version.unwrap_or_default(), target)
}
