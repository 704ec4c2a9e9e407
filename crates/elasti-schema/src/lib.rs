//! What a Kubernetes API server does to a custom object on its way in.
//!
//! Left to the caller: the checks of `apiVersion`, `kind` and `metadata`, and keeping `status` out of
//! writes to the main resource.

mod default;
mod format;
mod list;
mod path;
mod prune;
mod refusal;
mod rule;
mod validate;

pub use refusal::{Refusal, RefusalKind};

use serde_json::Value;

/// Admits `object` by the `openAPIV3Schema` of its version, or says why not.
///
/// Gives back the object as it would be stored: unknown fields gone and defaults in. With `old` it is
/// an update: transition rules apply, and what was wrong before and did not change is let through.
///
/// # Errors
/// Every refusal, worded as Kubernetes words it.
///
/// ```
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": {"spec": {
///         "type": "object",
///         "properties": {"replicas": {"type": "integer", "minimum": 1, "default": 1}},
///     }},
/// });
/// let stored = elasti_schema::admit(&schema, &json!({"spec": {"colour": "red"}}), None);
/// assert_eq!(stored, Ok(json!({"spec": {"replicas": 1}})));
///
/// let refusals = elasti_schema::admit(&schema, &json!({"spec": {"replicas": 0}}), None).unwrap_err();
/// assert_eq!(
///     refusals[0].to_string(),
///     "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1"
/// );
/// ```
pub fn admit(schema: &Value, object: &Value, old: Option<&Value>) -> Result<Value, Vec<Refusal>> {
    let mut object = object.clone();
    prune::prune(schema, &mut object);
    default::fill(schema, &mut object);

    let mut refusals = validate::check(schema, &object, old);
    refusals.extend(list::check(schema, &object, old));
    if !refusals.iter().any(|refusal| refusal.kind.blocks_rules()) {
        refusals.extend(rule::check(schema, &object, old));
    } else if rule::any(schema) {
        refusals.push(Refusal::rules_not_checked());
    }
    if refusals.is_empty() {
        Ok(object)
    } else {
        Err(refusals)
    }
}

/// What `schema` says under `key`, if it is a whole schema.
fn sub<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|sub| sub.is_object())
}

/// Whether an extension or a boolean keyword is set.
fn is_set(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// The schema of one field of an object: its property, else that of a map's values.
fn field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(key))
        .or_else(|| sub(schema, "additionalProperties"))
}
