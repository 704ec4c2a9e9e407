//! Corrections that make derived schemas structural in the Kubernetes sense.
//! Limits and rules do not belong here but on the fields that they apply to.

use schemars::Schema;
use schemars::transform::{Transform, transform_subschemas};
use serde_json::Value;

/// An optional field may be left out but is not `null`, integers have formats that Kubernetes knows, and
/// descriptions have no line breaks.
///
/// A field that may be `null` keeps an explicit `null`, which an `enum` then refuses with a puzzling
/// message; a field that may not has its `null` dropped or replaced by the default, as users expect.
pub(crate) fn kubernetes_style(schema: &mut Schema) {
    KubernetesStyle.transform(schema);
}

struct KubernetesStyle;

impl Transform for KubernetesStyle {
    fn transform(&mut self, schema: &mut Schema) {
        forbid_null_type(schema);
        forbid_null_value(schema);
        forbid_null_alternative(schema);
        use_known_integer_format(schema);
        join_description_lines(schema);
        transform_subschemas(self, schema);
    }
}

/// `type: [T, null]` becomes `type: T`.
fn forbid_null_type(schema: &mut Schema) {
    let Some(Value::Array(types)) = schema.get("type") else {
        return;
    };
    let mut kept = types.iter().filter(|t| *t != "null").cloned();
    if let (Some(only), None) = (kept.next(), kept.next()) {
        schema.insert("type".into(), only);
    }
}

/// `enum: [a, b, null]` becomes `enum: [a, b]`.
fn forbid_null_value(schema: &mut Schema) {
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
}

/// `anyOf: [T, null]` becomes `T`; what the field itself says, its description for one, stays.
fn forbid_null_alternative(schema: &mut Schema) {
    let Some(Value::Array(alternatives)) = schema.get("anyOf") else {
        return;
    };
    let is_null = |s: &Value| s.get("type").is_some_and(|t| t == "null");
    let [Value::Object(inner), null] = alternatives.as_slice() else {
        return;
    };
    if !is_null(null) {
        return;
    }
    let inner = inner.clone();
    schema.remove("anyOf");
    for (key, value) in inner {
        if schema.get(&key).is_none() {
            schema.insert(key, value);
        }
    }
}

/// Kubernetes knows no unsigned formats: the limits are in `minimum` and `maximum` instead.
fn use_known_integer_format(schema: &mut Schema) {
    let format = match schema.get("format").and_then(Value::as_str) {
        Some("uint8" | "uint16" | "int8" | "int16" | "uint32") => "int32",
        Some("uint64") => "int64",
        _ => return,
    };
    schema.insert("format".into(), format.into());
}

/// Line breaks of the source would break `kubectl explain`, which wraps by itself, in odd places.
fn join_description_lines(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs: Vec<String> = text
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect();
        *text = paragraphs.join("\n\n");
    }
}
