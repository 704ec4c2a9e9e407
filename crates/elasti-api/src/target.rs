//! The reference to the workload that is scaled.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The workload to scale, in the same namespace as the ElastiService.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, KubeSchema,
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::structural::kubernetes_style)]
#[x_kube(
    validation = Rule::new(
        "!self.apiVersion.startsWith('apps/') || self.kind in ['Deployment', 'deployments', 'StatefulSet', 'statefulsets', 'ReplicaSet']"
    ).message("apps/v1 goes only with kind Deployment, StatefulSet or ReplicaSet; for a Rollout write apiVersion: argoproj.io/v1alpha1").reason(kube::core::Reason::FieldValueForbidden),
    validation = Rule::new(
        "!self.apiVersion.startsWith('argoproj.io/') || self.kind in ['Rollout', 'rollouts']"
    ).message("argoproj.io goes only with kind Rollout; for a Deployment or a StatefulSet write apiVersion: apps/v1").reason(kube::core::Reason::FieldValueForbidden),
    validation = Rule::new(
        "self.apiVersion.contains('/') || self.kind == 'ReplicationController'"
    ).message("v1 goes only with kind ReplicationController; for a Deployment or a StatefulSet write apiVersion: apps/v1").reason(kube::core::Reason::FieldValueForbidden),
    validation = Rule::new(
        "!(self.kind in ['deployments', 'statefulsets', 'rollouts']) || self.apiVersion.startsWith('apps/') || self.apiVersion.startsWith('argoproj.io/')"
    ).message("the old spellings deployments, statefulsets and rollouts go only with apps/v1 and argoproj.io/v1alpha1; write the kind as Kubernetes spells it, for example Deployment").reason(kube::core::Reason::FieldValueForbidden),
    // The version of a group may move on and an old spelling may be corrected: it is still the same workload.
    validation = Rule::new(
        "self.name == oldSelf.name && self.apiVersion.split('/')[0] == oldSelf.apiVersion.split('/')[0] && (self.kind == oldSelf.kind || ['Deployment', 'StatefulSet', 'Rollout'].exists(k, self.kind in [k, k.lowerAscii() + 's'] && oldSelf.kind in [k, k.lowerAscii() + 's']))"
    ).message("scaleTargetRef cannot be changed: delete this ElastiService and create a new one; deleting wakes the target first").reason(kube::core::Reason::FieldValueForbidden)
)]
pub struct ScaleTargetRef {
    /// API version of the workload: `apps/v1` for a Deployment or a StatefulSet,
    /// `argoproj.io/v1alpha1` for an Argo Rollout, or the group and version of any other kind
    /// that has a `/scale` subresource.
    #[schemars(length(max = 317))]
    #[x_kube(
        validation = Rule::new(
            r"self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$')"
        ).message("write the group and version of the workload, for example apps/v1 or argoproj.io/v1alpha1").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub api_version: String,
    /// Kind of the workload: `Deployment`, `StatefulSet`, `Rollout`, or any other kind that has a
    /// `/scale` subresource. The old spellings `deployments` and `rollouts` are understood.
    #[schemars(length(max = 63))]
    #[x_kube(
        validation = Rule::new(
            "self.matches('^[A-Z][A-Za-z0-9]*$') || self in ['deployments', 'statefulsets', 'rollouts']"
        ).message("write the kind as Kubernetes spells it, for example Deployment, StatefulSet or Rollout").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub kind: String,
    /// Name of the workload, for example `my-api`.
    #[schemars(length(max = 253))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
            .message("write the name of a workload in the same namespace: lower-case letters, digits, '-' and '.', for example my-api").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub name: String,
}

impl ScaleTargetRef {
    /// The kind as Kubernetes spells it: the old spellings `deployments` and `rollouts` are understood.
    #[must_use]
    pub fn canonical_kind(&self) -> &str {
        match self.kind.as_str() {
            "deployments" => "Deployment",
            "statefulsets" => "StatefulSet",
            "rollouts" => "Rollout",
            other => other,
        }
    }

    /// The same reference with the kind as Kubernetes spells it, so that two spellings compare equal.
    #[must_use]
    pub fn canonical(&self) -> Self {
        Self {
            kind: self.canonical_kind().to_owned(),
            ..self.clone()
        }
    }

    /// Both name the same workload of a namespace: the version of a group may differ, and a kind's spelling.
    #[must_use]
    pub fn is_same_workload(&self, other: &Self) -> bool {
        self.group() == other.group()
            && self.canonical_kind() == other.canonical_kind()
            && self.name == other.name
    }

    /// The API group: empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The version within the group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or(self.api_version.as_str(), |(_, version)| version)
    }
}

#[cfg(test)]
mod tests {
    use super::ScaleTargetRef;

    fn target(api_version: &str, kind: &str) -> ScaleTargetRef {
        ScaleTargetRef {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "my-api".into(),
        }
    }

    #[test]
    fn old_spellings_are_mapped_to_kinds() {
        for (written, meant) in [
            ("deployments", "Deployment"),
            ("statefulsets", "StatefulSet"),
            ("rollouts", "Rollout"),
            ("Deployment", "Deployment"),
            ("CloneSet", "CloneSet"),
        ] {
            assert_eq!(target("apps/v1", written).canonical_kind(), meant);
        }
        assert_eq!(
            target("apps/v1", "deployments").canonical(),
            target("apps/v1", "Deployment").canonical()
        );
    }

    #[test]
    fn group_and_version_are_parsed_from_the_api_version() {
        let rollout = target("argoproj.io/v1alpha1", "Rollout");
        assert_eq!(
            (rollout.group(), rollout.version()),
            ("argoproj.io", "v1alpha1")
        );
        let core = target("v1", "ReplicationController");
        assert_eq!((core.group(), core.version()), ("", "v1"));
    }
}
