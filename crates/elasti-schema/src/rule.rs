//! The rules of the schema (`x-kubernetes-validations`), with CEL.

use kube_cel::{ErrorKind, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::path::Path;
use crate::refusal::{Refusal, RefusalKind};
use crate::validate::old_item;
use crate::{field, sub};

const RULES: &str = "x-kubernetes-validations";

/// Whether the schema has rules anywhere.
pub(crate) fn any(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map
            .iter()
            .any(|(key, child)| key == "x-kubernetes-validations" || any(child)),
        Value::Array(items) => items.iter().any(any),
        _ => false,
    }
}

/// Every rule that `object` breaks, except what it broke before where nothing changed.
pub(crate) fn check(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Refusal> {
    let mut walk = Walk {
        engine: Validator::new(),
        refusals: Vec::new(),
    };
    walk.node(schema, object, old, false, &Path::default());
    walk.refusals
}

struct Walk {
    engine: Validator,
    refusals: Vec<Refusal>,
}

impl Walk {
    /// The rules of this node, then those of its children; `unchanged` says that a parent did not change.
    fn node(
        &mut self,
        schema: &Value,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        path: &Path,
    ) {
        if value.is_null() {
            return;
        }
        let unchanged = unchanged || old == Some(value);
        self.rules(schema, value, old, unchanged, path);
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let Some(schema) = field(schema, key) {
                        let old = old.and_then(|old| old.get(key));
                        self.node(schema, value, old, unchanged, &path.field(key));
                    }
                }
            }
            Value::Array(items) => {
                if let Some(item_schema) = sub(schema, "items") {
                    for (index, item) in items.iter().enumerate() {
                        let old = old_item(schema, item, old);
                        self.node(item_schema, item, old, unchanged, &path.index(index));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rules(
        &mut self,
        schema: &Value,
        value: &Value,
        old: Option<&Value>,
        unchanged: bool,
        path: &Path,
    ) {
        if schema.get(RULES).is_none() {
            return;
        }
        let Err(errors) = self
            .engine
            .validate(&without_inner_rules(schema), value, old)
        else {
            return;
        };
        let type_name = schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // What was broken before is let through, but not a transition, nor a rule that cannot be evaluated.
        let counts = |error: &&ValidationError| {
            !unchanged
                || error.rule.contains("oldSelf")
                || error.kind != ErrorKind::ValidationFailure
        };
        let broken = errors.iter().filter(counts);
        self.refusals
            .extend(broken.map(|error| refusal(error, path, type_name)));
    }
}

/// The schema with its own rules only: the walk above visits the children itself, because it knows
/// which old value belongs to each.
fn without_inner_rules(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let strip = |(key, value): (&String, &Value)| {
        let value = if key == RULES {
            value.clone()
        } else {
            without_rules(value)
        };
        (key.clone(), value)
    };
    Value::Object(map.iter().map(strip).collect())
}

fn without_rules(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter(|(key, _)| *key != RULES)
                .map(|(key, value)| (key.clone(), without_rules(value)))
                .collect();
            Value::Object(kept)
        }
        Value::Array(items) => Value::Array(items.iter().map(without_rules).collect()),
        other => other.clone(),
    }
}

/// Kubernetes shows the type of the node in place of its value.
fn refusal(error: &ValidationError, path: &Path, type_name: &str) -> Refusal {
    let path = path.below(error.field_path.trim_start_matches('.'));
    let shown = Some(Value::from(type_name));
    let (kind, value) = match error.reason.as_deref() {
        Some("FieldValueForbidden") => (RefusalKind::Forbidden, None),
        Some("FieldValueRequired") => (RefusalKind::Required, None),
        Some("FieldValueDuplicate") => (RefusalKind::Duplicate, shown),
        _ => (RefusalKind::Invalid, shown),
    };
    Refusal::new(&path, kind, value, error.message.clone())
}
