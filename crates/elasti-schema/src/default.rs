//! Fills in the defaults of the schema.

use serde_json::Value;

use crate::{field, is_set, sub};

/// Fills in defaults at every depth; a default may itself be completed.
pub(crate) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (key, property) in properties {
                    if map
                        .get(key)
                        .is_none_or(|value| is_stray_null(property, value))
                        && let Some(default) = property.get("default")
                    {
                        map.insert(key.clone(), default.clone());
                    }
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(schema) = field(schema, key) {
                    replace_stray_null(schema, value);
                    fill(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = sub(schema, "items") {
                for item in items {
                    replace_stray_null(schema, item);
                    fill(schema, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_stray_null(schema: &Value, value: &Value) -> bool {
    value.is_null() && !is_set(schema, "nullable")
}

fn replace_stray_null(schema: &Value, value: &mut Value) {
    if is_stray_null(schema, value)
        && let Some(default) = schema.get("default")
    {
        *value = default.clone();
    }
}
