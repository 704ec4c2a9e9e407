//! Structured merge: lays an applied configuration over the live object, and removes what was dropped from it.
//! Never decides about conflicts.

use serde_json::{Map, Value};

use super::fields::{FieldSet, Step};
use crate::api_server::schema::{Form, ListType, Shape};

/// `live` with everything that `applied` states.
pub(crate) fn merge(live: &Value, applied: &Value, shape: Shape<'_>) -> Value {
    match (live, applied, shape.form()) {
        (Value::Object(live), Value::Object(applied), Form::Struct | Form::Map | Form::Any)
            if !shape.is_atomic_map() =>
        {
            let mut merged = live.clone();
            for (name, value) in applied {
                let inner = shape.field(name).unwrap_or_else(Shape::any);
                let next = live
                    .get(name)
                    .map_or_else(|| value.clone(), |old| merge(old, value, inner));
                merged.insert(name.clone(), next);
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(applied), Form::List)
            if shape.list_type() != ListType::Atomic =>
        {
            Value::Array(merge_items(live, applied, shape))
        }
        _ => applied.clone(),
    }
}

/// The applied items in their order, with live-only items kept where they stood before them.
fn merge_items(live: &[Value], applied: &[Value], shape: Shape<'_>) -> Vec<Value> {
    let list_type = shape.list_type();
    let step = |item: &Value| Step::to_item(&list_type, shape, item);
    let mut merged = Vec::new();
    let mut pending = live.iter();
    for item in applied {
        let found = live.iter().find(|old| step(old) == step(item));
        if found.is_some() {
            // Everything before the match that is not applied keeps its place.
            for old in pending.by_ref() {
                if step(old) == step(item) {
                    break;
                }
                if !applied.iter().any(|one| step(one) == step(old)) {
                    merged.push(old.clone());
                }
            }
        }
        merged.push(found.map_or_else(|| item.clone(), |old| merge(old, item, shape.item())));
    }
    let rest = live
        .iter()
        .filter(|old| !applied.iter().any(|one| step(one) == step(old)));
    for old in rest {
        if !merged.iter().any(|one| step(one) == step(old)) {
            merged.push(old.clone());
        }
    }
    merged
}

/// Removes from `value` what `dropped` holds and nobody in `kept` owns any part of.
pub(crate) fn prune(value: &mut Value, dropped: &FieldSet, kept: &FieldSet, shape: Shape<'_>) {
    match value {
        Value::Object(map) => {
            for (step, child) in &dropped.children {
                let Step::Field(name) = step else { continue };
                let keep = kept.children.get(step);
                let inner = shape.field(name).unwrap_or_else(Shape::any);
                prune_entry(map, name, child, keep, inner);
            }
        }
        Value::Array(items) => {
            let list_type = shape.list_type();
            items.retain_mut(|item| {
                let Some(step) = Step::to_item(&list_type, shape, item) else {
                    return true;
                };
                let Some(child) = dropped.children.get(&step) else {
                    return true;
                };
                match kept.children.get(&step) {
                    None if child.member => false,
                    keep => {
                        prune(
                            item,
                            child,
                            keep.unwrap_or(&FieldSet::default()),
                            shape.item(),
                        );
                        true
                    }
                }
            });
        }
        _ => {}
    }
}

fn prune_entry(
    map: &mut Map<String, Value>,
    name: &str,
    dropped: &FieldSet,
    kept: Option<&FieldSet>,
    shape: Shape<'_>,
) {
    if kept.is_none() && dropped.member {
        map.remove(name);
        return;
    }
    let Some(child) = map.get_mut(name) else {
        return;
    };
    let had_content = !crate::api_server::object::is_empty(child);
    prune(child, dropped, kept.unwrap_or(&FieldSet::default()), shape);
    let emptied = had_content && crate::api_server::object::is_empty(child);
    if emptied && !kept.is_some_and(|kept| kept.member) {
        map.remove(name);
    }
}
