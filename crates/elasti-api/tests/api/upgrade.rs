//! Upgrades of the CRD: what a cluster has stored under the first one is accepted by today's, and loses nothing.
//! `cargo xtask crd-conformance` does the same on a real API server.

use elasti_api::ElastiService;
use elasti_schema::admit;
use serde_json::Value;

use crate::acceptance::schema;

const FIRST_CRD: &str = include_str!("upgrade/first-crd.yaml");
const FIRST_OBJECTS: &str = include_str!("upgrade/first-objects.yaml");

fn first_schema() -> Value {
    let crd: Value = serde_saphyr::from_str(FIRST_CRD).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
        .clone()
}

/// What the first CRD stored, with its defaults.
fn stored() -> Vec<Value> {
    let written: Vec<Value> = serde_saphyr::from_multiple(FIRST_OBJECTS).unwrap();
    let first = first_schema();
    let stored = written.iter().map(|one| admit(&first, one, None).unwrap());
    stored.collect()
}

/// Every field of a schema and every required one, by its path.
fn fields(node: &Value, path: &str, all: &mut Vec<String>, required: &mut Vec<String>) {
    let named = node.get("required").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str);
    required.extend(named.map(|name| format!("{path}.{name}")));
    let properties = node.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        fields(property, &path, all, required);
        all.push(path);
    }
    if let Some(items) = node.get("items") {
        fields(items, &format!("{path}[]"), all, required);
    }
}

/// Every field that an object has, by its path.
fn used(node: &Value, path: &str, found: &mut Vec<String>) {
    match node {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                used(value, &path, found);
                found.push(path);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| used(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// Whether everything in `old` is in `new` as it was; new fields may have been added.
fn kept(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(name, value)| new.get(name).is_some_and(|now| kept(value, now))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| kept(old, new))
        }
        (old, new) => old == new,
    }
}

#[test]
fn the_stored_objects_use_every_field_of_the_first_crd() {
    let (mut all, mut found) = (Vec::new(), Vec::new());
    fields(&first_schema(), "", &mut all, &mut Vec::new());
    stored().iter().for_each(|one| used(one, "", &mut found));
    all.retain(|field| !found.contains(field));
    assert!(all.is_empty(), "not used: {all:?}");
}

#[test]
fn what_the_first_crd_stored_is_accepted_and_keeps_every_field() {
    let today = schema();
    for old in stored() {
        let name = old.pointer("/metadata/name").unwrap();
        for before in [None, Some(&old)] {
            let new = admit(&today, &old, before).unwrap_or_else(|why| panic!("{name}: {why:?}"));
            assert!(kept(&old, &new), "{name}: {old:#}\nbecame {new:#}");
        }
        let read: ElastiService = serde_json::from_value(old.clone()).unwrap();
        let written = serde_json::to_value(&read).unwrap();
        admit(&today, &written, Some(&old)).unwrap_or_else(|why| panic!("{name}: {why:?}"));
    }
}

#[test]
fn no_field_of_the_first_crd_is_gone_and_nothing_in_it_has_become_required() {
    let (mut fields_then, mut required_then) = (Vec::new(), Vec::new());
    fields(&first_schema(), "", &mut fields_then, &mut required_then);
    let (mut fields_now, mut required_now) = (Vec::new(), Vec::new());
    fields(&schema(), "", &mut fields_now, &mut required_now);
    fields_then.push(String::new());
    let gone = fields_then.iter().filter(|one| !one.is_empty());
    let gone: Vec<&String> = gone.filter(|one| !fields_now.contains(one)).collect();
    assert!(gone.is_empty(), "gone: {gone:?}");
    // A new object may require its own fields; one that was there may not require more.
    required_now.retain(|one| {
        let parent = one.rsplit_once('.').map_or("", |(parent, _)| parent);
        let parent = parent.trim_end_matches("[]");
        fields_then.iter().any(|then| then == parent) && !required_then.contains(one)
    });
    assert!(required_now.is_empty(), "required now: {required_now:?}");
}

#[test]
fn a_field_that_is_lost_or_changed_is_noticed() {
    let old = serde_json::json!({"a": [{"b": 1}], "c": {"d": true}});
    assert!(kept(
        &old,
        &serde_json::json!({"a": [{"b": 1, "new": 2}], "c": {"d": true}})
    ));
    for new in [
        serde_json::json!({"a": [{"b": 1}]}),
        serde_json::json!({"a": [{"b": 2}], "c": {"d": true}}),
        serde_json::json!({"a": [], "c": {"d": true}}),
    ] {
        assert!(!kept(&old, &new), "{new}");
    }
}
