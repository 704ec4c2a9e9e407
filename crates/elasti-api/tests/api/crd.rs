//! The CRD as users see it: in `kubectl get`, in `kubectl explain`, and in the API server's own checks.

use elasti_api::{ElastiService, names};
use kube::CustomResourceExt;
use serde_json::Value;

fn crd() -> Value {
    serde_json::to_value(ElastiService::crd()).unwrap()
}

/// Every property below `node`, with the path to it.
fn properties<'a>(node: &'a Value, path: &str, found: &mut Vec<(String, &'a Value)>) {
    let fields = node.get("properties").and_then(Value::as_object);
    for (name, property) in fields.into_iter().flatten() {
        let path = format!("{path}.{name}");
        properties(property, &path, found);
        found.push((path, property));
    }
    if let Some(items) = node.get("items") {
        properties(items, &format!("{path}[]"), found);
    }
}

fn all_properties(crd: &Value) -> Vec<(String, &Value)> {
    let schema = crd
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap();
    let mut found = Vec::new();
    properties(schema, "", &mut found);
    assert!(
        found.len() > 60,
        "only {} properties were found",
        found.len()
    );
    found
}

#[test]
fn the_resource_has_its_documented_names() {
    let crd = crd();
    let at = |pointer: &str| crd.pointer(pointer).unwrap().clone();
    assert_eq!(at("/metadata/name"), names::CRD);
    assert_eq!(at("/spec/group"), names::GROUP);
    assert_eq!(at("/spec/scope"), "Namespaced");
    assert_eq!(at("/spec/names/shortNames/0"), "els");
    assert_eq!(at("/spec/names/categories/0"), "elasti");
    assert_eq!(at("/spec/versions/0/name"), "v1alpha1");
    assert!(at("/spec/versions/0/subresources/status").is_object());
}

#[test]
fn kubectl_get_shows_the_documented_columns() {
    let crd = crd();
    let columns = crd
        .pointer("/spec/versions/0/additionalPrinterColumns")
        .unwrap();
    let named = |priority: i64| -> Vec<String> {
        let columns = columns.as_array().unwrap().iter();
        columns
            .filter(|c| c.get("priority").and_then(Value::as_i64).unwrap_or(0) == priority)
            .map(|c| c.get("name").unwrap().as_str().unwrap().to_uppercase())
            .collect()
    };
    assert_eq!(
        named(0),
        [
            "MODE",
            "PHASE",
            "TARGET",
            "REPLICAS",
            "READY",
            "REASON",
            "LAST-WAKE",
            "AGE"
        ]
    );
    assert_eq!(named(1), ["SERVICE", "COOLDOWN", "HELD"]);
}

#[test]
fn every_field_explains_itself_in_whole_sentences() {
    let crd = crd();
    for (path, property) in all_properties(&crd) {
        // These descriptions are Kubernetes' own.
        if path.starts_with(".status.conditions[]") {
            continue;
        }
        let text = property
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        assert!(text.len() > 10 && text.ends_with('.'), "{path}: {text:?}");
        assert!(
            !text.contains('\n'),
            "{path}: {text:?} breaks lines of `kubectl explain`"
        );
        for jargon in ["Option", "Vec<", "None", "struct", "enum"] {
            assert!(!text.contains(jargon), "{path}: {text:?} is Rust jargon");
        }
    }
}

#[test]
fn no_field_may_be_null_and_every_format_is_known_to_kubernetes() {
    let crd = crd();
    for (path, property) in all_properties(&crd) {
        // The derive makes the whole status optional in its own way.
        assert!(
            path == ".status" || property.get("nullable").is_none(),
            "{path} may be null"
        );
        if let Some(format) = property.get("format").and_then(Value::as_str) {
            assert!(
                ["int32", "int64", "date-time"].contains(&format),
                "{path}: {format}"
            );
        }
    }
}

#[test]
fn no_field_of_the_status_is_an_enum() {
    let crd = crd();
    for (path, property) in all_properties(&crd) {
        if path.starts_with(".status") {
            assert!(
                property.get("enum").is_none(),
                "{path} refuses values of later versions"
            );
        }
    }
}
