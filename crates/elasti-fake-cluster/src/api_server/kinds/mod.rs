//! The rules of the built-in kinds: defaults, validation, status, generation; one file a family.

pub(crate) mod cluster;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod metadata;
pub(crate) mod pods;
pub(crate) mod services;
pub(crate) mod workloads;

use serde_json::{Value, json};

use super::object::Object as _;
use super::resources::Resource;
use super::status::Cause;

/// Fills in what Kubernetes fills in.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pods::default(object),
        ("", "services") => services::default(object),
        ("", "secrets") => object.put_default("/type", "Opaque"),
        ("", "namespaces") => cluster::default_namespace(object),
        ("", "endpoints") => services::default_endpoints(object),
        ("apps", _) => workloads::default(&resource.plural, object),
        ("discovery.k8s.io", _) => services::default_slice(object),
        ("autoscaling", _) => workloads::default_autoscaler(object),
        ("networking.k8s.io", _) => cluster::default_network_policy(object),
        ("rbac.authorization.k8s.io", _) => cluster::default_rbac(object),
        ("apiextensions.k8s.io", _) => definitions::default(object),
        _ => {}
    }
}

/// The empty fields that Go writes although no request set them, and so no manager owns them.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("" | "events.k8s.io", "events") => events::default(object),
        ("coordination.k8s.io", _) => object.put_default("/spec", json!({})),
        ("discovery.k8s.io", _) => services::complete_slice(object),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            object.put_default("/rules", Value::Null)
        }
        _ => {}
    }
}

/// What is wrong with an object; `old` is there on updates.
pub(crate) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    metadata::validate(resource, object, old, &mut causes);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pods::validate(object, old, &mut causes),
        ("", "services") => services::validate(object, old, &mut causes),
        ("", "configmaps" | "secrets") => cluster::validate_map(object, old, &mut causes),
        ("apps", _) => workloads::validate(&resource.plural, object, old, &mut causes),
        ("discovery.k8s.io", _) => services::validate_slice(object, old, &mut causes),
        ("autoscaling", _) => workloads::validate_autoscaler(object, &mut causes),
        ("rbac.authorization.k8s.io", _) => {
            cluster::validate_rbac(resource, object, old, &mut causes)
        }
        ("apiextensions.k8s.io", _) => definitions::validate(object, old, &mut causes),
        ("coordination.k8s.io", _) => cluster::validate_lease(object, &mut causes),
        _ => {}
    }
    causes
}

/// The status of a new object; `None` keeps what the client sent.
pub(crate) fn initial_status(resource: &Resource, object: &Value) -> Option<Value> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            Some(json!({"phase": "Pending", "qosClass": pods::quality_of_service(object)}))
        }
        ("", "services") => Some(json!({"loadBalancer": {}})),
        ("", "namespaces") => Some(json!({"phase": "Active"})),
        ("apps", "replicasets") => Some(json!({"replicas": 0})),
        ("apps", "statefulsets") => Some(json!({"replicas": 0, "availableReplicas": 0})),
        ("apps", "daemonsets") => Some(json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0
        })),
        ("autoscaling", _) => Some(json!({"desiredReplicas": 0, "currentMetrics": null})),
        ("policy", _) => Some(json!({
            "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0
        })),
        ("apps", _) => Some(json!({})),
        ("apiextensions.k8s.io", _) => Some(definitions::initial_status(object)),
        _ => None,
    }
}

/// The part of an object whose change raises `metadata.generation`; `None`: the kind has no generation.
pub(crate) fn generation_source(resource: &Resource, object: &Value) -> Option<Value> {
    if resource.custom.is_some() {
        let mut rest = object.clone();
        for gone in ["/metadata", "/apiVersion", "/kind"] {
            rest.drop_at(gone);
        }
        if resource.status {
            rest.drop_at("/status");
        }
        return Some(rest);
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        // Of the workloads only Deployments count annotations.
        ("apps", "deployments") => Some(json!([
            object.at("/spec"),
            object.at("/metadata/annotations")
        ])),
        ("apps" | "policy" | "networking.k8s.io" | "apiextensions.k8s.io", _) | ("", "pods") => {
            Some(object.at("/spec").clone())
        }
        ("discovery.k8s.io", _) => Some(json!([
            object.list("/endpoints"),
            object.list("/ports"),
            object.at("/metadata/labels")
        ])),
        _ => None,
    }
}

/// May a PUT create the object?
pub(crate) fn creates_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "services" | "endpoints" | "events")
            | (
                "coordination.k8s.io" | "rbac.authorization.k8s.io" | "events.k8s.io",
                _
            )
    )
}

/// May a PUT omit the resourceVersion?
pub(crate) fn updates_unconditionally(resource: &Resource) -> bool {
    resource.custom.is_none()
        && !matches!(
            resource.group.as_str(),
            "apiextensions.k8s.io" | "coordination.k8s.io" | "policy"
        )
}

/// Does deleting answer with the object instead of a Status?
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    resource.group.is_empty()
        && matches!(
            resource.plural.as_str(),
            "pods" | "services" | "serviceaccounts"
        )
}
