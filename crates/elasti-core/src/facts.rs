//! Kubernetes' objects as facts: what a pod, a Service or a workload says that a decision needs.
//! It never asks for an object and never judges one: it only reads what was brought.

use std::collections::BTreeSet;

use elasti_api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::observed::{
    Author, Family, Obstacle, ObstacleKind, Service, ServiceKind, ServicePort, UserRequest,
};

/// A pod that runs and is not ready for this long will not become so by waiting.
pub const NEVER_READY: SignedDuration = SignedDuration::from_secs(60);
/// The longest message of someone else's that goes into a status.
const LONGEST_MESSAGE: usize = 200;

/// A Service, as far as redirecting cares.
#[must_use]
pub fn service(spec: core_v1::ServiceSpec) -> Service {
    let kind = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
        (Some("ExternalName"), _) => ServiceKind::ExternalName,
        (_, Some("None")) => ServiceKind::Headless,
        _ => ServiceKind::ClusterIp,
    };
    let families = spec.ip_families.unwrap_or_default();
    let families: BTreeSet<Family> = families
        .iter()
        .map(|family| match family.as_str() {
            "IPv6" => Family::V6,
            _ => Family::V4,
        })
        .collect();
    let families = match families.is_empty() {
        true => BTreeSet::from([Family::V4]),
        false => families,
    };
    let ports = spec.ports.unwrap_or_default();
    Service {
        kind,
        selector: spec.selector.unwrap_or_default(),
        ports: ports.into_iter().map(port).collect(),
        families,
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        publishes_unready: spec.publish_not_ready_addresses == Some(true),
    }
}

fn port(port: core_v1::ServicePort) -> ServicePort {
    let number = u16::try_from(port.port).unwrap_or_default();
    ServicePort {
        name: port.name.unwrap_or_default(),
        port: number,
        target_port: match port.target_port {
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(name)) => name,
            None => number.to_string(),
        },
        tcp: port.protocol.as_deref().is_none_or(|p| p == "TCP"),
        app_protocol: port.app_protocol,
    }
}

/// Someone else's words as a clause of ours.
fn clause(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    text.chars().take(LONGEST_MESSAGE).collect()
}

/// What keeps a pod from starting. The words must not change while the obstacle stays: each change is a write.
#[must_use]
pub fn obstacle(status: &core_v1::PodStatus) -> Option<Obstacle> {
    let unschedulable = status.conditions.iter().flatten().find(|c| {
        c.type_ == "PodScheduled"
            && c.status == "False"
            && c.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unschedulable {
        let said = condition.message.as_deref();
        return Some(Obstacle {
            kind: ObstacleKind::Unschedulable,
            message: clause(said.unwrap_or("no node takes it")),
        });
    }
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    init.chain(main).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        match waiting.reason.as_deref()? {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError" => Some(Obstacle {
                kind: ObstacleKind::ImagePull,
                message: format!("image {} cannot be pulled", clause(&container.image)),
            }),
            "CrashLoopBackOff" => Some(Obstacle {
                kind: ObstacleKind::CrashLoop,
                message: format!("container {} starts and dies", container.name),
            }),
            "CreateContainerConfigError" | "CreateContainerError" => Some(Obstacle {
                kind: ObstacleKind::Refused,
                message: clause(waiting.message.as_deref().unwrap_or("it cannot be created")),
            }),
            _ => None,
        }
    })
}

/// Every container that is told of runs, and one is.
#[must_use]
pub fn started(status: &core_v1::PodStatus) -> bool {
    let mut containers = status.container_statuses.iter().flatten().peekable();
    let runs = |one: &core_v1::ContainerStatus| {
        one.state
            .as_ref()
            .is_some_and(|state| state.running.is_some())
    };
    containers.peek().is_some() && containers.all(runs)
}

/// What a person asked for by an annotation.
#[must_use]
pub fn user_request(annotation: Option<&String>) -> UserRequest {
    match annotation.map(|text| text.trim()) {
        None | Some("") => UserRequest::None,
        Some(text) => text
            .parse()
            .map_or(UserRequest::Unreadable, UserRequest::At),
    }
}

/// Since when a pod has run without being ready; `None` if it is ready or does not run.
#[must_use]
pub fn unready_since(status: &core_v1::PodStatus) -> Option<Timestamp> {
    let ready = status.conditions.iter().flatten();
    ready
        .filter(|c| c.type_ == "Ready" && c.status != "True")
        .filter(|_| status.phase.as_deref() == Some("Running"))
        .find_map(|c| c.last_transition_time.as_ref())
        .map(|t| t.0)
}

/// What a pod that has run without being ready for too long is told to suffer from.
#[must_use]
pub fn never_ready() -> Obstacle {
    Obstacle {
        kind: ObstacleKind::NeverReady,
        message: format!("it has not become ready for {} s", NEVER_READY.as_secs()),
    }
}

/// What refuses a workload's pods, in the workload's own words.
#[must_use]
pub fn refused(workload: &Value) -> Option<String> {
    let conditions = workload.pointer("/status/conditions");
    conditions
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|c| {
            c.get("type").and_then(Value::as_str) == Some("ReplicaFailure")
                && c.get("status").and_then(Value::as_str) == Some("True")
        })
        .map(|c| clause(c.get("message").and_then(Value::as_str).unwrap_or_default()))
}

/// Who wrote `spec.replicas` last, and when, by the API server's record.
/// After a write of zero nobody owns the field, so nobody says.
#[must_use]
pub fn author(record: &[ManagedFieldsEntry]) -> (Author, Option<Timestamp>) {
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|f| f.0.pointer("/f:spec/f:replicas").is_some())
    };
    let last = record
        .iter()
        .filter(owns)
        .max_by_key(|entry| entry.time.as_ref().map(|t| t.0));
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
