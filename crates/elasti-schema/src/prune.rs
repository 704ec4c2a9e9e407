//! Drops what the schema does not know, and `null` where it is not allowed.

use serde_json::{Map, Value};

use crate::{field, is_set, sub};

/// Fields that the root and embedded resources have whatever their schema says.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole resource.
pub(crate) fn prune(schema: &Value, object: &mut Value) {
    drop_unknown(Some(schema), object, true, false);
    drop_nulls(Some(schema), object);
}

/// `keeps_unknown` says that this is an entry of a list whose contents are kept.
fn drop_unknown(schema: Option<&Value>, value: &mut Value, is_resource: bool, keeps_unknown: bool) {
    let says = |key| schema.is_some_and(|schema| is_set(schema, key));
    let keeps_unknown = keeps_unknown || says("x-kubernetes-preserve-unknown-fields");
    let is_resource = is_resource || says("x-kubernetes-embedded-resource");
    match value {
        Value::Object(map) => drop_unknown_fields(schema, map, keeps_unknown, is_resource),
        Value::Array(items) => {
            let item_schema = schema.and_then(|schema| sub(schema, "items"));
            for item in items {
                drop_unknown(item_schema, item, false, keeps_unknown);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn drop_unknown_fields(
    schema: Option<&Value>,
    map: &mut Map<String, Value>,
    keeps_unknown: bool,
    is_resource: bool,
) {
    let is_meta = |key: &str| is_resource && META_FIELDS.contains(&key);
    let known = |key: &str| schema.and_then(|schema| field(schema, key));
    // A map whose values may be anything has `additionalProperties: true`: names stay, contents do not.
    let any_name = schema.is_some_and(|schema| is_set(schema, "additionalProperties"));
    map.retain(|key, _| keeps_unknown || any_name || is_meta(key) || known(key).is_some());
    for (key, value) in map.iter_mut().filter(|(key, _)| !is_meta(key)) {
        match known(key) {
            Some(schema) => drop_unknown(Some(schema), value, false, false),
            None if keeps_unknown => {}
            None => drop_unknown(None, value, false, false),
        }
    }
}

/// A `null` that is not allowed counts as absent; one with a default is replaced later.
fn drop_nulls(schema: Option<&Value>, value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let is_stray = |s: &Value| !is_set(s, "nullable") && s.get("default").is_none();
                !(value.is_null() && schema.and_then(|s| field(s, key)).is_some_and(is_stray))
            });
            for (key, value) in map.iter_mut() {
                drop_nulls(schema.and_then(|schema| field(schema, key)), value);
            }
        }
        Value::Array(items) => {
            let item_schema = schema.and_then(|schema| sub(schema, "items"));
            for item in items {
                drop_nulls(item_schema, item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
