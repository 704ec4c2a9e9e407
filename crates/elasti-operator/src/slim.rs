//! What is cached of each watched object: its identity and the facts that `elasti_core::facts` reads from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use elasti_api::{ElastiService, ElastiServiceSpec, ElastiServiceStatus, ListenPort, names};
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
            spec,
            status,
        } = serde_json::from_value(object)?;
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

impl FromObject for PodView {
    fn from_object(object: Value) -> Result<Self, serde_json::Error> {
        let object: core_v1::Pod = serde_json::from_value(object)?;
        let facts = PodFacts::from_object(&object);
        let metadata = object.metadata;
        Ok(Self {
            name: Name::from_metadata(&metadata),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            facts,
        })
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
