//! The rules of `metadata` that all kinds share, and each kind's rule for names.

use serde_json::{Value, json};

use crate::api_server::names;
use crate::api_server::object::Object as _;
use crate::api_server::resources::Resource;
use crate::api_server::status::Cause;

pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    causes: &mut Vec<Cause>,
) {
    let name = object.text("/metadata/name");
    if old.is_none() {
        validate_name(resource, name, causes);
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            let wanted = format!(
                "{}.{}",
                object.text("/spec/names/plural"),
                object.text("/spec/group")
            );
            if name != wanted {
                causes.push(Cause::invalid(
                    "metadata.name",
                    &json!(name),
                    "must be spec.names.plural+\".\"+spec.group",
                ));
            }
        }
    }
    for (key, value) in object.strings("/metadata/labels") {
        if let Some(why) = names::qualified_name(&key) {
            causes.push(Cause::invalid("metadata.labels", &json!(key), &why));
        }
        if let Some(why) = names::label_value(&value) {
            causes.push(Cause::invalid("metadata.labels", &json!(value), &why));
        }
    }
    for (key, _) in object.strings("/metadata/annotations") {
        if let Some(why) = names::qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), &why));
        }
    }
    validate_finalizers(object, old, causes);
    for (at, owner) in object.list("/metadata/ownerReferences").iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner.text(&format!("/{field}")).is_empty() {
                let why = if field == "apiVersion" {
                    "version must not be empty"
                } else {
                    "must not be empty"
                };
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences[{at}].{field}"),
                    &json!(""),
                    why,
                ));
            }
        }
    }
}

fn validate_name(resource: &Resource, name: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
        return;
    }
    let wrong = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") if name.contains('.') => Some("must not contain dots".to_owned()),
        ("", "namespaces") => names::label(name),
        ("", "services") => names::label_1035(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        _ => names::subdomain(name),
    };
    if let Some(why) = wrong {
        causes.push(Cause::invalid("metadata.name", &json!(name), &why));
    }
}

fn validate_finalizers(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    for finalizer in object.list("/metadata/finalizers") {
        let text = finalizer.as_str().unwrap_or_default();
        if let Some(why) = names::qualified_name(text) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, &why));
        } else if !text.contains('/')
            && !matches!(text, "foregroundDeletion" | "orphan" | "kubernetes")
        {
            causes.push(Cause::invalid(
                "metadata.finalizers",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    let Some(old) = old.filter(|old| !old.at("/metadata/deletionTimestamp").is_null()) else {
        return;
    };
    let known = old.list("/metadata/finalizers");
    let added: Vec<&Value> = object
        .list("/metadata/finalizers")
        .iter()
        .filter(|one| !known.contains(one))
        .collect();
    if !added.is_empty() {
        let names: Vec<&str> = added.iter().filter_map(|one| one.as_str()).collect();
        let shown: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            shown.join(", ")
        );
        causes.push(Cause::forbidden("metadata.finalizers", &why));
    }
}
