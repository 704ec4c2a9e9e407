//! What is cached of each watched object: its identity and the facts that `elasti_core::facts` reads from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use elasti_api::{
    ElastiService, ElastiServiceSpec, ElastiServiceStatus, EnabledPeriod, ListenPort,
    MAX_DURATION_CHARS, MAX_SCHEDULE_CHARS, names, reduce_triggers,
};
use elasti_core::facts::{
    self, FoundSlice, PodFacts, PodId, ServiceFacts, SliceFacts, TargetFacts,
};
use elasti_core::observed::{Me, UserRequest};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::name::Name;

/// No object in Kubernetes has a longer name; a kind with its group and version may be a little longer.
const MAX_NAME_BYTES: usize = 512;
/// More than any object has: 100 finalizers of 160 characters.
const MAX_FINALIZER_BYTES: usize = 16 * 1024;

/// Something that is kept of a watched object.
pub(crate) trait FromObject: Sized + Clone + Send + 'static {
    /// Reads one object; an error means that this object cannot be used.
    fn from_object(object: Value) -> Result<Self, serde_json::Error>;
    /// Which object it is.
    fn name(&self) -> &Name;
}

/// An ElastiService.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) created: Timestamp,
    pub(crate) generation: i64,
    pub(crate) deleting_since: Option<Timestamp>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) wake_request: UserRequest,
    pub(crate) sleep_request: UserRequest,
    pub(crate) spec: Arc<ElastiServiceSpec>,
    pub(crate) status: Arc<ElastiServiceStatus>,
}

impl Declared {
    /// The Service that it is about.
    pub(crate) fn service(&self) -> Name {
        self.name.sibling(self.spec.service.as_str())
    }

    /// The listen ports that the status records for one of its Services.
    pub(crate) fn recorded_ports(&self, service: &Name) -> Vec<ListenPort> {
        if *service == self.service() {
            return self.status.ports.clone();
        }
        let others = self.status.services.iter();
        let found = others.filter(|one| *one.name == *service.name);
        found.flat_map(|one| one.ports.clone()).collect()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        facts::has_finalizer(&self.finalizers)
    }
}

impl FromObject for Declared {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let ElastiService {
            metadata,
            mut spec,
            status,
        } = serde_json::from_value(object)?;
        check_names(&spec)?;
        check_finalizers(&metadata)?;
        reduce(&mut spec);
        let status = status.unwrap_or_default();
        let Me {
            created,
            generation,
            deleting_since,
            finalizer: _,
            wake_request,
            sleep_request,
            remembered: _,
        } = facts::me(&metadata, &status);
        Ok(Self {
            name: Name::from_metadata(&metadata),
            wake_request,
            sleep_request,
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            created,
            generation,
            deleting_since,
            finalizers: metadata.finalizers.unwrap_or_default(),
            spec: Arc::new(spec),
            status: Arc::new(status),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// Keeps only what decisions need of a spec, within bounds: those who may create ElastiServices must not fill the memory
/// of an operator that keeps all of them. What is too large becomes an error that the status tells.
fn reduce(spec: &mut ElastiServiceSpec) {
    reduce_triggers(&mut spec.triggers);
    // Only resolvers read it.
    spec.probe_response = Vec::new();
    let one = spec.enabled_period.as_mut();
    for EnabledPeriod {
        schedule, duration, ..
    } in one.into_iter().chain(&mut spec.enabled_periods)
    {
        for (text, max) in [
            (schedule, MAX_SCHEDULE_CHARS),
            (duration, MAX_DURATION_CHARS),
        ] {
            if text.chars().count() > max {
                *text = format!("more than {max} characters");
            }
        }
    }
}

/// What names no object that could exist cannot be served, whatever it names.
fn check_names(spec: &ElastiServiceSpec) -> Result<(), serde_json::Error> {
    let target = &spec.scale_target_ref;
    let autoscaler = spec.autoscaler.as_ref().map(|one| &one.name);
    let mut all = [
        &spec.service,
        &target.api_version,
        &target.kind,
        &target.name,
    ]
    .into_iter()
    .chain(autoscaler);
    match all.any(|name| name.len() > MAX_NAME_BYTES) {
        true => Err(serde::de::Error::custom(
            "a name in the spec is longer than any name in Kubernetes",
        )),
        false => Ok(()),
    }
}

/// All of them are written back with ours, so they cannot be cut.
fn check_finalizers(metadata: &ObjectMeta) -> Result<(), serde_json::Error> {
    let all = metadata.finalizers.iter().flatten();
    match all.map(String::len).sum::<usize>() > MAX_FINALIZER_BYTES {
        true => Err(serde::de::Error::custom("it has too many finalizers")),
        false => Ok(()),
    }
}

/// A Service, public or ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceView {
    pub(crate) name: Name,
    pub(crate) version: String,
    pub(crate) uid: String,
    pub(crate) facts: ServiceFacts,
}

impl FromObject for ServiceView {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let object: core_v1::Service = serde_json::from_value(object)?;
        Ok(Self {
            name: Name::from_metadata(&object.metadata),
            version: object.metadata.resource_version.clone().unwrap_or_default(),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            facts: ServiceFacts::from_object(object),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// An EndpointSlice of a managed Service: Kubernetes' own, or ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceView {
    pub(crate) name: Name,
    pub(crate) version: String,
    pub(crate) uid: String,
    /// The Service that it belongs to.
    pub(crate) service: Option<Name>,
    pub(crate) facts: SliceFacts,
}

impl SliceView {
    /// The slice as its reader takes it.
    pub(crate) fn found(&self) -> FoundSlice<'_> {
        FoundSlice {
            name: &self.name.name,
            uid: &self.uid,
            version: &self.version,
            service: self.service.as_ref().map(|service| &*service.name),
            facts: &self.facts,
        }
    }
}

impl FromObject for SliceView {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let object: EndpointSlice = serde_json::from_value(object)?;
        let facts = SliceFacts::from_object(&object);
        let metadata = object.metadata;
        let name = Name::from_metadata(&metadata);
        let labels = metadata.labels.unwrap_or_default();
        Ok(Self {
            service: labels
                .get(names::SERVICE_NAME_LABEL)
                .map(|service| name.sibling(service.as_str())),
            name,
            version: metadata.resource_version.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            facts,
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A pod that a managed Service selects, or a resolver's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) facts: PodFacts,
}

impl PodView {
    /// Which pod it is, as its reader takes it.
    pub(crate) fn id(&self) -> PodId<'_> {
        PodId {
            name: &self.name.name,
            uid: &self.uid,
            version: &self.version,
        }
    }
}

impl From<core_v1::Pod> for PodView {
    fn from(object: core_v1::Pod) -> Self {
        let facts = PodFacts::from_object(&object);
        let metadata = object.metadata;
        Self {
            name: Name::from_metadata(&metadata),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            facts,
        }
    }
}

impl FromObject for PodView {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value::<core_v1::Pod>(object).map(Self::from)
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A node: only its name matters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeView {
    pub(crate) name: Name,
}

impl FromObject for NodeView {
    fn from_object(mut object: Value) -> Result<Self, serde_json::Error> {
        let metadata = object.get_mut("metadata").map(Value::take);
        let metadata: ObjectMeta = serde_json::from_value(metadata.unwrap_or_default())?;
        Ok(Self {
            name: Name::from_metadata(&metadata),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A workload that can be scaled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetView {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) facts: TargetFacts,
}

impl FromObject for TargetView {
    fn from_object(mut object: Value) -> Result<Self, serde_json::Error> {
        let metadata = object.get_mut("metadata").map(Value::take);
        let metadata: ObjectMeta = serde_json::from_value(metadata.unwrap_or_default())?;
        let facts = TargetFacts::from_object(&metadata, &object);
        Ok(Self {
            name: Name::from_metadata(&metadata),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            facts,
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// An ElastiService with all of this in its spec.
    fn declared(more: &Value) -> Result<Declared, serde_json::Error> {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let mut spec = json!({"service": "web", "scaleTargetRef": target});
        let entries = more.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(entries);
        let metadata = json!({"name": "web", "namespace": "shop", "resourceVersion": "1"});
        Declared::from_object(json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn of_a_spec_of_a_megabyte_a_few_kilobytes_are_kept_with_what_to_do() {
        let large = "x".repeat(1 << 20);
        let metadata = json!({"query": large, "threshold": "1"});
        let noted = json!({"query": "q", "threshold": "1", "note": large});
        for more in [
            json!({"triggers": [{"type": "prometheus", "metadata": metadata}]}),
            json!({"triggers": [{"type": "prometheus", "metadata": noted}]}),
            json!({"probeResponse": [{"response": {"status": 200, "body": large}}]}),
            json!({"enabledPeriod": {"schedule": large, "duration": large}}),
            json!({"enabledPeriods": [{"schedule": large, "duration": large}]}),
        ] {
            let me = declared(&more).unwrap();
            let kept = format!("{:?}", me.spec).len();
            assert!(
                kept < 2048,
                "{kept} bytes of {:?}",
                more.as_object().unwrap().keys()
            );
        }
        let triggers = json!([{"type": "prometheus", "metadata": metadata}]);
        let me = declared(&json!({"triggers": triggers})).unwrap();
        let error = me.spec.triggers[0].prometheus().unwrap_err().to_string();
        assert!(error.ends_with("shorten it, for example with a recording rule"));
        let window = json!({"enabledPeriod": {"schedule": large}});
        let window = declared(&window).unwrap().spec.enabled_period.clone();
        assert_eq!(window.unwrap().schedule, "more than 1024 characters");
    }

    #[test]
    fn a_name_that_no_object_can_have_is_not_kept() {
        let large = "x".repeat(1 << 20);
        assert!(declared(&json!({"service": large})).is_err());
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": large});
        assert!(declared(&json!({"scaleTargetRef": target})).is_err());
        assert!(declared(&json!({"autoscaler": {"type": "hpa", "name": large}})).is_err());
    }

    /// The chart gives an operator 256 MiB.
    #[test]
    fn kept_whole_two_thousand_large_objects_would_not_fit_into_an_operator() {
        let (objects, memory) = (2_000, 256 << 20);
        let more = json!({"probeResponse": [{"response": {"status": 200, "body": "x".repeat(200 << 10)}}]});
        let kept = format!("{:?}", declared(&more).unwrap().spec).len();
        assert!(objects * kept < memory / 16, "{kept}");
        assert!(objects * more.to_string().len() > memory);
    }
}
