//! Strategic merge patches of built-in kinds, driven by the patch annotations of the published schemas.
//! Custom resources have none: those answer 415.

use serde_json::{Map, Value};

use super::schema::Shape;

/// `target` with `patch` laid over it.
pub(crate) fn patch(target: &mut Value, patch: &Value, shape: Shape<'_>) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = strip_directives(patch);
        return;
    };
    patch_object(target, patch, shape);
}

fn patch_object(target: &mut Map<String, Value>, patch: &Map<String, Value>, shape: Shape<'_>) {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = patch
                .iter()
                .filter(|(key, _)| *key != "$patch")
                .map(|(key, value)| (key.clone(), strip_directives(value)))
                .collect();
            return;
        }
        Some("delete") => return target.clear(),
        _ => {}
    }
    if let Some(keys) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| keys.iter().any(|kept| kept == key));
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        if value.is_null() {
            target.remove(key);
            continue;
        }
        let inner = shape.field(key).unwrap_or_else(Shape::any);
        let order = patch
            .get(&format!("$setElementOrder/{key}"))
            .and_then(Value::as_array);
        match (target.get_mut(key), value) {
            (Some(Value::Array(old)), Value::Array(new)) => patch_list(old, new, order, inner),
            (Some(old), _) => self::patch(old, value, inner),
            (None, Value::Array(new)) => {
                let mut fresh = Vec::new();
                patch_list(&mut fresh, new, order, inner);
                target.insert(key.clone(), Value::Array(fresh));
            }
            (None, _) => {
                target.insert(key.clone(), strip_directives(value));
            }
        }
    }
    for (directive, values) in patch.iter().filter(|(key, _)| key.starts_with('$')) {
        apply_directive(target, directive, values, patch, shape);
    }
}

/// `$deleteFromPrimitiveList/x`, and `$setElementOrder/x` where the patch does not touch `x` itself.
fn apply_directive(
    target: &mut Map<String, Value>,
    directive: &str,
    values: &Value,
    patch: &Map<String, Value>,
    shape: Shape<'_>,
) {
    let Some(values) = values.as_array() else {
        return;
    };
    if let Some(key) = directive.strip_prefix("$deleteFromPrimitiveList/")
        && let Some(list) = target.get_mut(key).and_then(Value::as_array_mut)
    {
        list.retain(|item| !values.contains(item));
    }
    if let Some(key) = directive.strip_prefix("$setElementOrder/")
        && !patch.contains_key(key)
        && let Some(list) = target.get_mut(key).and_then(Value::as_array_mut)
    {
        let merge_key = shape
            .field(key)
            .and_then(|inner| inner.patch_strategy().merge_key);
        let before = list.clone();
        reorder(list, values, &before, merge_key);
    }
}

fn patch_list(old: &mut Vec<Value>, new: &[Value], order: Option<&Vec<Value>>, shape: Shape<'_>) {
    let strategy = shape.patch_strategy();
    let replace = new
        .iter()
        .any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace"));
    if !strategy.merge || replace {
        *old = new
            .iter()
            .filter(|item| item.get("$patch").is_none())
            .map(strip_directives)
            .collect();
        return;
    }
    let before = old.clone();
    match strategy.merge_key {
        None => {
            for item in new {
                if !old.contains(item) {
                    old.push(item.clone());
                }
            }
        }
        Some(key) => new
            .iter()
            .for_each(|item| patch_item(old, item, key, shape)),
    }
    reorder(
        old,
        order.map_or(new, Vec::as_slice),
        &before,
        strategy.merge_key,
    );
}

fn patch_item(old: &mut Vec<Value>, item: &Value, key: &str, shape: Shape<'_>) {
    let same = |other: &Value| other.get(key).is_some() && other.get(key) == item.get(key);
    if item.get("$patch").and_then(Value::as_str) == Some("delete") {
        old.retain(|other| !same(other));
    } else if let Some(found) = old.iter_mut().find(|other| same(other)) {
        patch(found, item, shape.item());
    } else {
        old.push(strip_directives(item));
    }
}

/// The items that `order` names in its order; the others go before the first named item that they stood
/// before in the list as it was.
fn reorder(list: &mut Vec<Value>, order: &[Value], before: &[Value], merge_key: Option<&str>) {
    let same = |one: &Value, other: &Value| match merge_key {
        Some(key) => one.get(key) == other.get(key),
        None => one == other,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|one| same(one, item));
    let (mut named, rest): (Vec<Value>, Vec<Value>) = std::mem::take(list)
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut rest = rest.into_iter().peekable();
    for item in named {
        let stood = place(before, &item);
        while let Some(other) = rest.next_if(|other| {
            stood.is_some() && place(before, other).is_some_and(|at| Some(at) < stood)
        }) {
            list.push(other);
        }
        list.push(item);
    }
    list.extend(rest);
}

/// New values must not carry directives or nulls into the object.
fn strip_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map
                .iter()
                .filter(|(key, value)| !key.starts_with('$') && !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key.clone(), strip_directives(value)))
                    .collect(),
            )
        }
        Value::Array(items) => {
            let deleted =
                |item: &&Value| item.get("$patch").and_then(Value::as_str) != Some("delete");
            Value::Array(items.iter().filter(deleted).map(strip_directives).collect())
        }
        other => other.clone(),
    }
}
