//! Namespaces, config maps, secrets, RBAC, leases, network policies: defaults and validation.

use serde_json::{Value, json};

use crate::api_server::object::Object as _;
use crate::api_server::resources::Resource;
use crate::api_server::status::Cause;

pub(crate) fn default_namespace(object: &mut Value) {
    let name = object.text("/metadata/name").to_owned();
    if !name.is_empty() {
        object.put("/metadata/labels/kubernetes.io~1metadata.name", name);
    }
}

pub(crate) fn default_network_policy(object: &mut Value) {
    let mut types = vec!["Ingress"];
    if !object.list("/spec/egress").is_empty() {
        types.push("Egress");
    }
    object.put_default("/spec/podSelector", json!({}));
    object.put_default("/spec/policyTypes", json!(types));
}

pub(crate) fn default_rbac(object: &mut Value) {
    if object.at("/roleRef").is_object() {
        object.put_default("/roleRef/apiGroup", "rbac.authorization.k8s.io");
    }
    for subject in object.list_mut("/subjects") {
        if subject.text("/kind") != "ServiceAccount" {
            subject.put_default("/apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

pub(crate) fn validate_rbac(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    causes: &mut Vec<Cause>,
) {
    if resource.plural.ends_with("bindings") {
        let kind = object.text("/roleRef/kind");
        let allowed: &[&str] = if resource.namespaced {
            &["Role", "ClusterRole"]
        } else {
            &["ClusterRole"]
        };
        if !allowed.contains(&kind) {
            causes.push(Cause::unsupported("roleRef.kind", &json!(kind), allowed));
        }
        if object.text("/roleRef/name").is_empty() {
            causes.push(Cause::required("roleRef.name", ""));
        }
        if let Some(old) = old
            && old.at("/roleRef") != object.at("/roleRef")
        {
            causes.push(Cause::invalid(
                "roleRef",
                object.at("/roleRef"),
                "cannot change roleRef",
            ));
        }
        return;
    }
    for (at, rule) in object.list("/rules").iter().enumerate() {
        if rule.list("/verbs").is_empty() {
            causes.push(Cause::required(
                format!("rules[{at}].verbs"),
                "verbs must contain at least one value",
            ));
        }
    }
}

pub(crate) fn validate_map(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let legal = |key: &str| {
        !key.is_empty()
            && key
                .bytes()
                .all(|letter| letter.is_ascii_alphanumeric() || b"-_.".contains(&letter))
    };
    for key in object
        .at("/data")
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
        if !legal(key) {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            causes.push(Cause::invalid(format!("data[{key}]"), &json!(key), why));
        }
    }
    let Some(old) = old else { return };
    let frozen = old.at("/immutable") == true;
    for field in ["immutable", "data", "binaryData", "stringData"] {
        let pointer = format!("/{field}");
        if frozen && old.at(&pointer) != object.at(&pointer) {
            causes.push(Cause::forbidden(
                field,
                "field is immutable when `immutable` is set",
            ));
        }
    }
    if old.at("/type") != object.at("/type") {
        causes.push(Cause::invalid(
            "type",
            object.at("/type"),
            "field is immutable",
        ));
    }
}

pub(crate) fn validate_lease(object: &Value, causes: &mut Vec<Cause>) {
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        if let Some(number) = object
            .number(&format!("/spec/{field}"))
            .filter(|number| *number < least)
        {
            let why = if least == 1 {
                "must be greater than 0"
            } else {
                "must be greater than or equal to 0"
            };
            causes.push(Cause::invalid(format!("spec.{field}"), &json!(number), why));
        }
    }
}
