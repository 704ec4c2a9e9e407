//! Workloads of any kind: their scale, who wrote it last, what refuses their pods, what a pod requests.

use std::collections::BTreeMap;

use elasti_api::names;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use super::obstacle::{Stall, refusal};
use super::requests::Requests;
use super::selector::PodSelector;
use crate::labels::Labels;
use crate::observed::{Author, StopOrder, Target};

const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// What is kept of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetFacts {
    /// `spec.replicas`, and after `for_kind` what it asks for: `None` if only its `/scale` tells.
    pub replicas: Option<u32>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Who wrote them last.
    pub replicas_by: Author,
    /// When.
    pub replicas_at: Option<Timestamp>,
    /// What refuses its pods, in the workload's own words.
    pub refused: Option<Stall>,
    /// What one of its pods requests.
    pub requests: Requests,
    /// The labels of its pod template; `None` if it has no template where workloads keep it.
    pub pod_labels: Option<Labels>,
    /// Which pods it counts as its own, where it says so.
    pub selector: Option<PodSelector>,
    /// Which pods its controller stops first; known after `for_kind`.
    pub stops: StopOrder,
    /// For how long a pod must have been `Ready` to count as available.
    pub min_ready_seconds: u32,
    /// Which they are if it is a Deployment, or a StatefulSet.
    as_deployment: StopOrder,
    as_stateful_set: StopOrder,
}

impl TargetFacts {
    /// Reads a workload of any kind.
    #[must_use]
    pub fn from_object(metadata: &ObjectMeta, object: &Value) -> Self {
        let record = metadata.managed_fields.as_deref().unwrap_or_default();
        let (replicas_by, replicas_at) = author(record);
        let pod = object.pointer("/spec/template/spec");
        Self {
            replicas: number(object, "/spec/replicas"),
            generation: metadata.generation,
            replicas_by,
            replicas_at,
            refused: refused(object),
            requests: pod.map(Requests::from_pod_spec).unwrap_or_default(),
            pod_labels: object.pointer("/spec/template").map(pod_labels),
            selector: PodSelector::from_object(object),
            stops: StopOrder::Unknown,
            min_ready_seconds: number(object, "/spec/minReadySeconds").unwrap_or(0),
            as_deployment: of_deployment(metadata, object),
            as_stateful_set: of_stateful_set(object),
        }
    }

    /// Workloads of some groups keep their replicas in `spec.replicas`, where nothing means 1. Where another kind keeps
    /// them only its `/scale` tells.
    #[must_use]
    pub fn for_kind(mut self, group: &str, kind: &str) -> Self {
        self.replicas = match group {
            "apps" | "argoproj.io" | "" => self.replicas.or(Some(1)),
            _ => None,
        };
        self.stops = match (group, kind) {
            ("apps", "Deployment") => self.as_deployment,
            ("apps", "ReplicaSet") => StopOrder::UnreadyFirst,
            ("apps", "StatefulSet") => self.as_stateful_set,
            _ => StopOrder::Unknown,
        };
        self
    }

    /// One of its pods can have this label, beside those of its template: a StatefulSet's controller tells them apart so.
    #[must_use]
    pub fn labels_one_pod(&self, name: &str, key: &str, value: &str) -> bool {
        let number = match key {
            POD_NAME_LABEL => { value.strip_prefix(name) }.and_then(|rest| rest.strip_prefix('-')),
            POD_INDEX_LABEL => Some(value),
            _ => None,
        };
        let is_stateful_set = matches!(
            self.stops,
            StopOrder::HighestAlone | StopOrder::HighestFirst
        );
        is_stateful_set && number.is_some_and(|n| n.parse::<u32>().is_ok())
    }

    /// The target after our own write to its scale, before a watch tells of it.
    #[must_use]
    pub fn scaled_by_us(mut self, replicas: u32, now: Timestamp) -> Self {
        self.replicas = Some(replicas);
        self.generation = self.generation.map(|before| before + 1);
        // Kubernetes drops the ownership of a number that becomes zero through `/scale`.
        (self.replicas_by, self.replicas_at) = match replicas {
            0 => (Author::Unknown, None),
            _ => (Author::Elasti, Some(now)),
        };
        self
    }

    /// The target as a decision takes it. Where only `/scale` tells the replicas, it must have been read before; if
    /// not, one counts as asked for: that neither wakes it nor lets it count as asleep.
    #[must_use]
    pub fn target(&self, version: &str) -> Target {
        Target {
            replicas: self.replicas.unwrap_or(1),
            version: version.to_owned(),
            generation: self.generation,
            replicas_by: self.replicas_by.clone(),
            replicas_at: self.replicas_at,
            stops: self.stops,
            min_ready_seconds: self.min_ready_seconds,
            requests: self.requests.clone(),
        }
    }
}

/// The status tells whether all pods of a Deployment belong to the ReplicaSet of its current template, unless it lags
/// behind the spec.
fn of_deployment(metadata: &ObjectMeta, object: &Value) -> StopOrder {
    let count = |path: &str| number(object, path).unwrap_or(0);
    let observed = object.pointer("/status/observedGeneration");
    match observed.and_then(Value::as_i64) {
        seen if seen != metadata.generation => StopOrder::Unsettled,
        _ if count("/status/replicas") != count("/status/updatedReplicas") => StopOrder::Unknown,
        _ => StopOrder::UnreadyFirst,
    }
}

fn pod_labels(template: &Value) -> Labels {
    let labels = template.pointer("/metadata/labels");
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    labels.collect::<BTreeMap<String, String>>().into()
}

fn of_stateful_set(object: &Value) -> StopOrder {
    let policy = object.pointer("/spec/podManagementPolicy");
    match policy.and_then(Value::as_str) {
        Some("Parallel") => StopOrder::HighestFirst,
        _ => StopOrder::HighestAlone,
    }
}

/// What a Scale asks for: one of zero leaves the number out.
#[must_use]
pub fn replicas_of_scale(scale: &Value) -> u32 {
    number(scale, "/spec/replicas").unwrap_or(0)
}

fn number(object: &Value, path: &str) -> Option<u32> {
    let number = object.pointer(path).and_then(Value::as_u64);
    number.and_then(|n| u32::try_from(n).ok())
}

/// What refuses a workload's pods.
fn refused(workload: &Value) -> Option<Stall> {
    let conditions = workload.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array);
    let text = |c: &Value, key: &str| c.get(key).and_then(Value::as_str).map(str::to_owned);
    let failed = |c: &&Value| {
        text(c, "type").as_deref() == Some("ReplicaFailure")
            && text(c, "status").as_deref() == Some("True")
    };
    { conditions.into_iter().flatten() }.find(failed).map(|c| {
        let since = text(c, "lastTransitionTime").and_then(|at| at.parse().ok());
        refusal(&text(c, "message").unwrap_or_default(), since)
    })
}

/// Who wrote `spec.replicas` last, and when, by the API server's record. After a write of zero no manager owns the
/// field.
fn author(record: &[ManagedFieldsEntry]) -> (Author, Option<Timestamp>) {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|f| f.0.pointer("/f:spec/f:replicas").is_some())
    };
    let owners = record.iter().filter(owns);
    let last = owners.max_by_key(|entry| entry.time.as_ref().map(|t| t.0));
    let Some(entry) = last else {
        return (Author::Unknown, None);
    };
    let by = match entry.manager.as_deref() {
        Some(names::FIELD_MANAGER) => Author::Elasti,
        Some(other) => Author::Other(other.to_owned()),
        None => Author::Unknown,
    };
    (by, entry.time.as_ref().map(|t| t.0))
}

/// A controller may give this label a value of its own on each pod of one workload.
#[must_use]
pub fn tells_pods_apart(key: &str) -> bool {
    matches!(key, POD_NAME_LABEL | POD_INDEX_LABEL)
}
