//! CustomResourceDefinitions: defaults, validation, conditions, and the resources they add.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api_server::names;
use crate::api_server::object::Object as _;
use crate::api_server::resources::{ALL, Custom, PrinterColumn, Resource, ScalePaths};
use crate::api_server::status::Cause;

pub(crate) fn default(object: &mut Value) {
    let kind = object.text("/spec/names/kind").to_owned();
    object.put_default("/spec/names/singular", kind.to_lowercase());
    object.put_default("/spec/names/listKind", format!("{kind}List"));
    object.put_default("/spec/conversion/strategy", "None");
}

pub(crate) fn validate(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    for field in ["group", "names.plural", "names.kind", "scope"] {
        if object
            .text(&format!("/spec/{}", field.replace('.', "/")))
            .is_empty()
        {
            causes.push(Cause::required(format!("spec.{field}"), ""));
        }
    }
    let scope = object.text("/spec/scope");
    if !scope.is_empty() && !["Cluster", "Namespaced"].contains(&scope) {
        causes.push(Cause::unsupported(
            "spec.scope",
            &json!(scope),
            &["Cluster", "Namespaced"],
        ));
    }
    let versions = object.list("/spec/versions");
    let stored = versions
        .iter()
        .filter(|version| version.at("/storage") == true)
        .count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            object.at("/spec/versions"),
            "must have exactly one version marked as storage version",
        ));
    }
    for (at, version) in versions.iter().enumerate() {
        if let Some(why) = names::label_1035(version.text("/name")) {
            causes.push(Cause::invalid(
                format!("spec.versions[{at}].name"),
                version.at("/name"),
                &why,
            ));
        }
        let schema = version.at("/schema/openAPIV3Schema");
        if schema.is_null() {
            causes.push(Cause::required(
                format!("spec.versions[{at}].schema.openAPIV3Schema"),
                "schemas are required",
            ));
        } else if schema.text("/type") != "object" {
            let field = format!("spec.versions[{at}].schema.openAPIV3Schema.type");
            causes.push(if schema.text("/type").is_empty() {
                Cause::required(field, "must not be empty at the root")
            } else {
                Cause::invalid(field, schema.at("/type"), "must be object at the root")
            });
        }
    }
    let Some(old) = old else { return };
    for field in ["group", "names/plural", "names/kind", "scope"] {
        let pointer = format!("/spec/{field}");
        if old.at(&pointer) != object.at(&pointer) {
            causes.push(Cause::invalid(
                format!("spec.{}", field.replace('/', ".")),
                object.at(&pointer),
                "field is immutable",
            ));
        }
    }
}

/// The status of a definition before its names are accepted.
pub(crate) fn initial_status(object: &Value) -> Value {
    let storage = object
        .list("/spec/versions")
        .iter()
        .find(|version| version.at("/storage") == true);
    let stored: Vec<&str> = storage
        .iter()
        .map(|version| version.text("/name"))
        .collect();
    json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored})
}

/// The status of an accepted definition.
pub(crate) fn established(object: &Value, now: &str) -> Value {
    let mut stored: Vec<Value> = object.list("/status/storedVersions").to_vec();
    let current = object
        .list("/spec/versions")
        .iter()
        .find(|version| version.at("/storage") == true);
    if let Some(name) = current.map(|version| version.at("/name").clone())
        && !stored.contains(&name)
    {
        stored.push(name);
    }
    let condition = |kind: &str, reason: &str, message: &str| {
        let known = object
            .list("/status/conditions")
            .iter()
            .find(|one| one.text("/type") == kind && one.text("/status") == "True");
        let since = known.map_or(now, |one| one.text("/lastTransitionTime"));
        json!({"type": kind, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message})
    };
    let mut conditions: Vec<Value> = object
        .list("/status/conditions")
        .iter()
        .filter(|one| !matches!(one.text("/type"), "NamesAccepted" | "Established"))
        .cloned()
        .collect();
    conditions.insert(
        0,
        condition(
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    );
    conditions.insert(
        0,
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
    );
    json!({"conditions": conditions, "acceptedNames": object.at("/spec/names"), "storedVersions": stored})
}

/// The resources that a definition serves, one a version.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let versions = definition.list("/spec/versions");
    versions
        .iter()
        .filter(|version| version.at("/served") == true)
        .map(|version| resource(definition, version))
        .collect()
}

fn resource(definition: &Value, version: &Value) -> Resource {
    let text = |pointer: &str| definition.text(pointer).to_owned();
    let texts = |pointer: &str| {
        definition
            .list(pointer)
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let scale = version.at("/subresources/scale");
    Resource {
        group: text("/spec/group"),
        version: version.text("/name").to_owned(),
        kind: text("/spec/names/kind"),
        list_kind: text("/spec/names/listKind"),
        plural: text("/spec/names/plural"),
        singular: text("/spec/names/singular"),
        namespaced: definition.text("/spec/scope") == "Namespaced",
        short_names: texts("/spec/names/shortNames"),
        categories: texts("/spec/names/categories"),
        verbs: ALL,
        status: version.at("/subresources/status").is_object(),
        scale: scale.is_object().then(|| ScalePaths {
            spec_replicas: pointer(scale.text("/specReplicasPath")),
            status_replicas: pointer(scale.text("/statusReplicasPath")),
            label_selector: Some(scale.text("/labelSelectorPath"))
                .filter(|path| !path.is_empty())
                .map(pointer),
        }),
        subresources: &[],
        group_resource: (text("/spec/group"), text("/spec/names/plural")),
        definition: "",
        custom: Some(Custom {
            schema: Arc::new(version.at("/schema/openAPIV3Schema").clone()),
            columns: version
                .list("/additionalPrinterColumns")
                .iter()
                .map(column)
                .collect(),
            selectable: version
                .list("/selectableFields")
                .iter()
                .map(|field| field.text("/jsonPath").to_owned())
                .collect(),
        }),
    }
}

fn column(column: &Value) -> PrinterColumn {
    let described = match column.text("/description") {
        "" => format!(
            "Custom resource definition column (in JSONPath format): {}",
            column.text("/jsonPath")
        ),
        text => text.to_owned(),
    };
    PrinterColumn {
        definition: json!({
            "name": column.text("/name"),
            "type": column.text("/type"),
            "format": column.text("/format"),
            "description": described,
            "priority": column.number("/priority").unwrap_or(0),
        }),
        json_path: column.text("/jsonPath").to_owned(),
    }
}

/// `.spec.replicas` as `/spec/replicas`.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}
