//! The reference to the workload that is scaled.
//! It never looks the workload up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The workload to scale, in the ElastiService's namespace.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// `apps/v1`, `argoproj.io/v1alpha1`, or any group whose kind has a `/scale` subresource.
    pub api_version: String,
    /// `Deployment`, `StatefulSet`, `Rollout`, or any kind with a `/scale` subresource.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

impl ScaleTargetRef {
    /// The kind as Kubernetes spells it: the old spellings `deployments` and `rollouts` are read here.
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
}
