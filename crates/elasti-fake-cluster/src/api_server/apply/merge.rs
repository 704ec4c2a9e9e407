//! Structured merge: lays an applied configuration over the live object, and removes what was dropped from it.

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

/// Shared items in the applied order; items of one side alone keep their place, live ones first.
fn merge_items(live: &[Value], applied: &[Value], shape: Shape<'_>) -> Vec<Value> {
    let list_type = shape.list_type();
    let step = |item: &Value| Step::to_item(&list_type, shape, item);
    let find =
        |list: &'_ [Value], item: &Value| list.iter().position(|one| step(one) == step(item));
    let mut shared = applied
        .iter()
        .filter(|item| find(live, item).is_some())
        .map(step)
        .peekable();
    let mut left = live.iter().peekable();
    let mut merged = Vec::with_capacity(live.len() + applied.len());
    for item in applied {
        // Live items up to the next shared one: those of the live side alone stay, the others come later.
        while let Some(old) = left.next_if(|old| Some(&step(old)) != shared.peek()) {
            if find(applied, old).is_none() {
                merged.push(old.clone());
            }
        }
        match live.iter().find(|old| step(old) == step(item)) {
            None => merged.push(item.clone()),
            Some(old) => {
                merged.push(merge(old, item, shape.item()));
                shared.next();
                left.next_if(|next| step(next) == step(item));
            }
        }
    }
    merged.extend(left.filter(|old| find(applied, old).is_none()).cloned());
    merged
}

/// Removes from `value` what `dropped` holds and no manager in `kept` owns any part of.
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
