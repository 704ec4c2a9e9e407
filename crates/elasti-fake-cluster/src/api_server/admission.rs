//! The schema checks of custom resources: defaults, pruning, validation, rules.

use elasti_schema::{Refusal, RefusalKind};
use serde_json::Value;

use super::object::Object as _;
use super::status::Cause;

/// Makes `object` what its schema stores, or says what is wrong with it.
pub(crate) fn admit(
    schema: &Value,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Vec<Cause>> {
    let envelope =
        ["/apiVersion", "/kind", "/metadata"].map(|field| (field, object.at(field).clone()));
    let admitted = elasti_schema::admit(schema, object, old);
    *object = admitted.map_err(|refusals| refusals.iter().map(cause).collect::<Vec<_>>())?;
    for (field, value) in envelope {
        object.put(field, value);
    }
    Ok(())
}

fn cause(refusal: &Refusal) -> Cause {
    let reason = match refusal.kind {
        RefusalKind::Required => "FieldValueRequired",
        RefusalKind::Invalid => "FieldValueInvalid",
        RefusalKind::TypeInvalid => "FieldValueTypeInvalid",
        RefusalKind::NotSupported => "FieldValueNotSupported",
        RefusalKind::TooLong => "FieldValueTooLong",
        RefusalKind::TooMany => "FieldValueTooMany",
        RefusalKind::Duplicate => "FieldValueDuplicate",
        RefusalKind::Forbidden => "FieldValueForbidden",
    };
    let text = refusal.to_string();
    let field = if refusal.field.is_empty() {
        "<nil>"
    } else {
        refusal.field.as_str()
    };
    let message = text.strip_prefix(&format!("{field}: ")).unwrap_or(&text);
    Cause::new(reason, field, message)
}

/// Fields of `before` that are not in `after`: what pruning dropped.
pub(crate) fn dropped_fields(before: &Value, after: &Value) -> Vec<String> {
    fn walk(before: &Value, after: &Value, path: &str, all: &mut Vec<String>) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => {
                for (name, value) in before {
                    let here = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    match after.get(name) {
                        Some(kept) => walk(value, kept, &here, all),
                        None if value.is_null() => {}
                        None => all.push(here),
                    }
                }
            }
            (Value::Array(before), Value::Array(after)) => {
                for (at, (value, kept)) in before.iter().zip(after).enumerate() {
                    walk(value, kept, &format!("{path}[{at}]"), all);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    walk(before, after, "", &mut all);
    all
}
