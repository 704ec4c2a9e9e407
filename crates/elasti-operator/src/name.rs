//! Names of objects and kinds, cheap to clone.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

/// Namespaces and kinds that are in use: few, and each in the names of thousands of objects.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);
/// The fewest texts among which those without use are looked for.
const SHARED_MIN: usize = 64;

#[derive(Debug, Default)]
struct Shared {
    texts: HashSet<Arc<str>>,
    /// So many were in use when that was last looked at.
    used: usize,
}

impl Shared {
    fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(found) = self.texts.get(text) {
            return found.clone();
        }
        if self.texts.len() >= (2 * self.used).max(SHARED_MIN) {
            self.texts.retain(|one| Arc::strong_count(one) > 1);
            self.used = self.texts.len();
        }
        let text = Arc::<str>::from(text);
        self.texts.insert(text.clone());
        text
    }
}

/// The one copy of this text.
fn shared(text: &str) -> Arc<str> {
    SHARED.lock().get(text)
}

/// A namespaced object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Name {
    pub(crate) fn new(namespace: impl AsRef<str>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: shared(namespace.as_ref()),
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
            group: shared(group),
            version: shared(version),
            kind: shared(kind),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shared_while_they_are_used_and_forgotten_after_it() {
        let mut all = Shared::default();
        let kept = all.get("shop");
        assert!(Arc::ptr_eq(&kept, &all.get("shop")));
        for number in 0..10_000 {
            let _unused = all.get(&format!("pr-{number}"));
        }
        assert!(all.texts.len() <= SHARED_MIN, "{}", all.texts.len());
        assert!(Arc::ptr_eq(&kept, &all.get("shop")));
        let used: Vec<Arc<str>> = (0..1_000)
            .map(|number| all.get(&number.to_string()))
            .collect();
        assert!(used.iter().all(|one| Arc::ptr_eq(one, &all.get(one))));
    }
}
