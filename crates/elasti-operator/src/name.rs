//! Names of objects and kinds, cheap to clone.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A namespaced object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Name {
    pub(crate) fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    pub(crate) fn from_metadata(metadata: &ObjectMeta) -> Self {
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }

    /// Another object in the same namespace.
    pub(crate) fn sibling(&self, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A workload that can be scaled, as an ElastiService names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TargetName {
    pub(crate) kind: KindName,
    pub(crate) name: Name,
}

impl TargetName {
    /// The same workload, whichever version it is named by.
    pub(crate) fn workload(&self) -> Workload {
        Workload {
            group: self.kind.group.clone(),
            kind: self.kind.kind.clone(),
            name: self.name.clone(),
        }
    }
}

/// A workload, in whichever version of its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Workload {
    group: Arc<str>,
    kind: Arc<str>,
    name: Name,
}

/// A kind of object, in one version. One version may be absent while another is served, so each is followed by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindName {
    pub(crate) group: Arc<str>,
    pub(crate) version: Arc<str>,
    pub(crate) kind: Arc<str>,
}

/// Kinds that most clusters have, and of which there are only so many.
const WELL_KNOWN: [(&str, &str, &str); 7] = [
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "ReplicaSet"),
    ("", "v1", "ReplicationController"),
    ("argoproj.io", "v1alpha1", "Rollout"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("keda.sh", "v1alpha1", "ScaledObject"),
];

impl KindName {
    pub(crate) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// No bound keeps it from being followed, and once it is followed it stays so.
    pub(crate) fn is_well_known(&self) -> bool {
        WELL_KNOWN.contains(&(&*self.group, &*self.version, &*self.kind))
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.kind, self.version, self.group)
    }
}
