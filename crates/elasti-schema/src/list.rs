//! Lists that are sets or maps hold each entry once.

use serde_json::{Map, Value};

use crate::path::Path;
use crate::refusal::{Refusal, RefusalKind};
use crate::{field, sub};

/// Duplicates in `object`; none if the old object had some already.
pub(crate) fn check(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Refusal> {
    let duplicates = |object| {
        let mut refusals = Vec::new();
        walk(schema, object, &Path::default(), &mut refusals);
        refusals
    };
    if old.is_some_and(|old| !duplicates(old).is_empty()) {
        return Vec::new();
    }
    duplicates(object)
}

fn walk(schema: &Value, value: &Value, path: &Path, refusals: &mut Vec<Refusal>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(schema) = field(schema, key) {
                    walk(schema, value, &path.field(key), refusals);
                }
            }
        }
        Value::Array(items) => {
            match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => refuse_repeats(items.clone(), path, refusals),
                Some("map") => {
                    let keys = items.iter().map(|item| map_key(schema, item)).collect();
                    refuse_repeats(keys, path, refusals);
                }
                _ => {}
            }
            if let Some(schema) = sub(schema, "items") {
                for (index, item) in items.iter().enumerate() {
                    walk(schema, item, &path.index(index), refusals);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What makes an entry of a map list unique: its key fields.
pub(crate) fn map_key(schema: &Value, item: &Value) -> Value {
    let names = schema
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array);
    let entries: Map<String, Value> = names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter_map(|name| Some((name.to_owned(), item.get(name)?.clone())))
        .collect();
    Value::Object(entries)
}

/// Each repeated value is named once, at its first repetition.
fn refuse_repeats(values: Vec<Value>, path: &Path, refusals: &mut Vec<Refusal>) {
    let mut seen: Vec<(Value, u32)> = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let Some((_, times)) = seen.iter_mut().find(|(known, _)| *known == value) else {
            seen.push((value, 1));
            continue;
        };
        *times += 1;
        if *times == 2 {
            refusals.push(Refusal::new(
                &path.index(index),
                RefusalKind::Duplicate,
                value,
                "",
            ));
        }
    }
}
