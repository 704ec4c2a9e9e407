//! OpenAPI v3 documents: the published schemas of built-in kinds, and one document per custom group version.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::object::Object as _;
use super::resources::{Registry, Resource};
use super::schema;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// `/openapi/v3` and the documents it names; `None` for other paths.
pub(crate) fn answer(path: &str, registry: &Registry) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["openapi", "v3"] => Some(index(registry)),
        ["openapi", "v3", "api", version] => document(registry, "", version),
        ["openapi", "v3", "apis", group, version] => document(registry, group, version),
        _ => None,
    }
}

fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let name = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            // The hash lets clients cache a document until it changes.
            let text = document(registry, group, version)
                .unwrap_or_default()
                .to_string();
            let hash: String = Sha256::digest(text)
                .iter()
                .take(16)
                .map(|byte| format!("{byte:02X}"))
                .collect();
            paths.insert(
                name.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={hash}")}),
            );
        }
    }
    json!({"paths": paths})
}

fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in registry
        .all()
        .filter(|one| one.group == group && one.version == version)
    {
        paths.insert(item_path(resource), operations(resource));
        match &resource.custom {
            Some(custom) => {
                let name = custom_name(resource);
                schemas.insert(name, custom_schema(resource, &custom.schema));
                include(OBJECT_META, &mut schemas);
            }
            None => include(resource.definition, &mut schemas),
        }
    }
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": super::GIT_VERSION},
            "paths": paths, "components": {"schemas": schemas},
        })
    })
}

fn item_path(resource: &Resource) -> String {
    let root = if resource.group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", resource.group)
    };
    let namespace = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    format!(
        "{root}/{}{namespace}/{}/{{name}}",
        resource.version, resource.plural
    )
}

/// What kubectl looks for: does PATCH of this kind know `fieldValidation` and `dryRun`?
fn operations(resource: &Resource) -> Value {
    let gvk = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
        .map(parameter)
        .into();
    json!({
        "get": {"x-kubernetes-action": "get", "x-kubernetes-group-version-kind": gvk},
        "patch": {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvk, "parameters": parameters},
        "put": {"x-kubernetes-action": "put", "x-kubernetes-group-version-kind": gvk, "parameters": parameters},
    })
}

/// A definition and everything that it refers to.
fn include(name: &str, schemas: &mut Map<String, Value>) {
    let mut open: BTreeSet<String> = BTreeSet::from([name.to_owned()]);
    while let Some(name) = open.pop_first() {
        let Some(definition) = schema::definitions()
            .get(&name)
            .filter(|_| !schemas.contains_key(&name))
        else {
            continue;
        };
        collect_references(definition, &mut open);
        schemas.insert(name, definition.clone());
    }
}

fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|path| path.rsplit('/').next())
            {
                found.insert(name.to_owned());
            }
            map.values()
                .for_each(|child| collect_references(child, found));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|child| collect_references(child, found)),
        _ => {}
    }
}

/// `io.truefoundry.elasti.v1alpha1.ElastiService`
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

fn custom_schema(resource: &Resource, schema: &Value) -> Value {
    let mut schema = schema.clone();
    let text = |description: &str| json!({"type": "string", "description": description});
    schema.put(
        "/properties/apiVersion",
        text("APIVersion defines the versioned schema of this representation of an object."),
    );
    schema.put(
        "/properties/kind",
        text("Kind is a string value representing the REST resource this object represents."),
    );
    schema.put("/properties/metadata", json!({"description": "Standard object's metadata.", "allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]}));
    schema.put(
        "/x-kubernetes-group-version-kind",
        json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]),
    );
    schema
}
