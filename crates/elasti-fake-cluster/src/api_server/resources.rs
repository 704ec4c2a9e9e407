//! The registry of served resources: the built-in table and whatever CRDs add.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::schema::Shape;

/// Where `/scale` reads and writes in a kind.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: Option<String>,
}

/// A printer column of a custom resource.
#[derive(Clone, Debug)]
pub(crate) struct PrinterColumn {
    pub(crate) definition: Value,
    pub(crate) json_path: String,
}

/// What only custom resources have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    pub(crate) schema: Arc<Value>,
    pub(crate) columns: Vec<PrinterColumn>,
    pub(crate) selectable: Vec<String>,
}

/// One served resource in one version.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Further subresources with their kind and verbs.
    pub(crate) subresources: &'static [(&'static str, &'static str, &'static [&'static str])],
    /// The group_resource in the store; both event groups share one.
    pub(crate) group_resource: GroupResource,
    pub(crate) definition: &'static str,
    pub(crate) custom: Option<Custom>,
}

/// The storage identity of a resource: group and plural.
pub(crate) type GroupResource = (String, String);

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The schema of the kind.
    pub(crate) fn shape(&self) -> Shape<'_> {
        match &self.custom {
            Some(custom) => Shape::custom(&custom.schema),
            None => Shape::builtin(self.definition),
        }
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

pub(crate) const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const NO_COLLECTION_DELETE: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const CREATE: &[&str] = &["create"];

/// One line of the built-in table: group, version, kind, plural, short names, what it has, definition prefix.
struct Builtin(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [Trait],
    &'static str,
);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    Cluster,
    Status,
    Scale,
    InAll,
    CreateOnly,
    Extension,
}

use Trait::{Cluster, CreateOnly, Extension, InAll, Scale, Status};

#[rustfmt::skip]
const BUILTINS: &[Builtin] = &[
    Builtin("", "v1", "ConfigMap", "configmaps", "cm", &[], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Endpoints", "endpoints", "ep", &[], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Event", "events", "ev", &[], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Namespace", "namespaces", "ns", &[Cluster, Status], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Node", "nodes", "no", &[Cluster, Status], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Pod", "pods", "po", &[Status, InAll], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Secret", "secrets", "", &[], "io.k8s.api.core.v1"),
    Builtin("", "v1", "ServiceAccount", "serviceaccounts", "sa", &[], "io.k8s.api.core.v1"),
    Builtin("", "v1", "Service", "services", "svc", &[Status, InAll], "io.k8s.api.core.v1"),
    Builtin("apps", "v1", "DaemonSet", "daemonsets", "ds", &[Status, InAll], "io.k8s.api.apps.v1"),
    Builtin("apps", "v1", "Deployment", "deployments", "deploy", &[Status, Scale, InAll], "io.k8s.api.apps.v1"),
    Builtin("apps", "v1", "ReplicaSet", "replicasets", "rs", &[Status, Scale, InAll], "io.k8s.api.apps.v1"),
    Builtin("apps", "v1", "StatefulSet", "statefulsets", "sts", &[Status, Scale, InAll], "io.k8s.api.apps.v1"),
    Builtin("events.k8s.io", "v1", "Event", "events", "ev", &[], "io.k8s.api.events.v1"),
    Builtin("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", &[Cluster, CreateOnly], "io.k8s.api.authentication.v1"),
    Builtin("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", "", &[CreateOnly], "io.k8s.api.authorization.v1"),
    Builtin("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", &[Cluster, CreateOnly], "io.k8s.api.authorization.v1"),
    Builtin("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", &[Cluster, CreateOnly], "io.k8s.api.authorization.v1"),
    Builtin("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", &[Status, InAll], "io.k8s.api.autoscaling.v2"),
    Builtin("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", &[], "io.k8s.api.networking.v1"),
    Builtin("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", &[Status], "io.k8s.api.policy.v1"),
    Builtin("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", &[Cluster], "io.k8s.api.rbac.v1"),
    Builtin("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", &[Cluster], "io.k8s.api.rbac.v1"),
    Builtin("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", &[], "io.k8s.api.rbac.v1"),
    Builtin("rbac.authorization.k8s.io", "v1", "Role", "roles", "", &[], "io.k8s.api.rbac.v1"),
    Builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd,crds", &[Cluster, Status, Extension], "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"),
    Builtin("coordination.k8s.io", "v1", "Lease", "leases", "", &[], "io.k8s.api.coordination.v1"),
    Builtin("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", &[], "io.k8s.api.discovery.v1"),
];

fn builtin(line: &Builtin) -> Resource {
    let Builtin(group, version, kind, plural, short, has, prefix) = *line;
    let has = |one| has.contains(&one);
    let verbs = match plural {
        _ if has(CreateOnly) => CREATE,
        "namespaces" => NO_COLLECTION_DELETE,
        _ => ALL,
    };
    let categories = if has(InAll) {
        vec!["all".to_owned()]
    } else {
        vec![]
    };
    let group_of_shelf = if plural == "events" { "" } else { group };
    let wanted = format!("{prefix}.{kind}");
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        namespaced: !has(Cluster),
        short_names: short
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        categories: if has(Extension) {
            vec!["api-extensions".to_owned()]
        } else {
            categories
        },
        verbs,
        status: has(Status),
        scale: has(Scale).then(|| ScalePaths {
            spec_replicas: "/spec/replicas".to_owned(),
            status_replicas: "/status/replicas".to_owned(),
            label_selector: None,
        }),
        subresources: subresources(group, plural),
        group_resource: (group_of_shelf.to_owned(), plural.to_owned()),
        definition: super::schema::definitions()
            .keys()
            .find(|name| **name == wanted)
            .map_or("", String::as_str),
        custom: None,
    }
}

fn subresources(
    group: &str,
    plural: &str,
) -> &'static [(&'static str, &'static str, &'static [&'static str])] {
    match (group, plural) {
        ("", "namespaces") => &[("finalize", "Namespace", &["update"])],
        ("", "pods") => &[
            ("binding", "Binding", CREATE),
            ("eviction", "Eviction", CREATE),
            // Kubernetes carries every method; nothing here needs more than to read.
            ("proxy", "PodProxyOptions", &["get"]),
        ],
        ("", "serviceaccounts") => &[("token", "TokenRequest", CREATE)],
        _ => &[],
    }
}

/// Every served resource, by group, version and plural.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub(crate) fn builtins() -> Self {
        let mut registry = Self {
            resources: BTreeMap::new(),
        };
        for line in BUILTINS {
            registry.insert(builtin(line));
        }
        registry
    }

    fn insert(&mut self, resource: Resource) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.resources.insert(key, Arc::new(resource));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Replaces all versions of one custom resource.
    pub(crate) fn set_custom(&mut self, group: &str, plural: &str, versions: Vec<Resource>) {
        self.resources
            .retain(|_, one| !(one.custom.is_some() && one.is(group, plural)));
        for version in versions {
            self.insert(version);
        }
    }

    /// Groups in a stable order with their versions, best first.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for resource in self.resources.values() {
            let versions = groups.entry(&resource.group).or_default();
            if !versions.contains(&resource.version.as_str()) {
                versions.push(&resource.version);
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| version_rank(version));
        }
        groups
    }
}

/// Kubernetes' order of versions: stable, beta, alpha, each with the highest number first.
fn version_rank(version: &str) -> (u8, i64, i64, String) {
    let parse = |text: &str| text.parse::<i64>().ok();
    let body = version.strip_prefix('v').unwrap_or(version);
    for (rank, word) in [(1, "beta"), (2, "alpha")] {
        if let Some((major, minor)) = body.split_once(word)
            && let (Some(major), Some(minor)) = (parse(major), parse(minor))
        {
            return (rank, -major, -minor, String::new());
        }
    }
    parse(body).map_or((3, 0, 0, version.to_owned()), |major| {
        (0, -major, 0, String::new())
    })
}
