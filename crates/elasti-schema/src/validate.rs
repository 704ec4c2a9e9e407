//! The checks of the schema itself: types, limits, closed lists, required fields.

use regex::Regex;
use serde_json::{Map, Value};

use crate::path::Path;
use crate::refusal::{Refusal, RefusalKind};
use crate::{format, is_set, list, sub};

/// Everything wrong with `object`, except what was wrong before and did not change.
pub(crate) fn check(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    node(schema, object, old, &Path::default(), &mut refusals);
    refusals
}

/// Checks one value, in the order in which Kubernetes does.
fn node(schema: &Value, value: &Value, old: Option<&Value>, path: &Path, out: &mut Vec<Refusal>) {
    if old == Some(value) {
        return;
    }
    value_type(schema, value, path, out);
    combinations(schema, value, path, out);
    match value {
        Value::String(text) => string(schema, text, path, out),
        Value::Number(_) => number(schema, value, path, out),
        Value::Array(items) => array(schema, items, old, path, out),
        Value::Null | Value::Bool(_) | Value::Object(_) => {}
    }
    closed_list(schema, value, path, out);
    if let Value::Object(map) = value {
        object(schema, map, old, path, out);
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn value_type(schema: &Value, value: &Value, path: &Path, out: &mut Vec<Refusal>) {
    let wanted: Vec<&str> = if is_set(schema, "x-kubernetes-int-or-string") {
        vec!["integer", "string"]
    } else {
        schema
            .get("type")
            .and_then(Value::as_str)
            .into_iter()
            .collect()
    };
    let found = type_name(value);
    let is_whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    let fits = wanted.is_empty()
        || wanted.contains(&found)
        || (found == "integer" && wanted.contains(&"number"))
        || (found == "number" && wanted.contains(&"integer") && is_whole())
        || (found == "null" && is_set(schema, "nullable"));
    if fits {
        return;
    }
    let format = schema
        .get("format")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // Kubernetes names the format in place of the type where it checks one.
    let (wanted, found) = match value {
        Value::Null | Value::String(_) | Value::Array(_) => (wanted.join(","), found),
        _ if !format::is_known(format) => (wanted.join(","), found),
        Value::Number(number) if number.is_f64() => (format.to_owned(), "float64"),
        Value::Number(_) => (format.to_owned(), "int64"),
        Value::Bool(_) | Value::Object(_) => (format.to_owned(), ""),
    };
    let detail = format!(
        "{path} in body must be of type {wanted}: {}",
        Value::from(found)
    );
    out.push(Refusal::new(
        path,
        RefusalKind::TypeInvalid,
        Value::from(found),
        detail,
    ));
}

fn string(schema: &Value, text: &str, path: &Path, out: &mut Vec<Refusal>) {
    if let Some(refusal) = string_limits(schema, text, path) {
        out.push(refusal);
    }
    if let Some(format) = schema.get("format").and_then(Value::as_str)
        && !format::matches(format, text)
    {
        let detail = format!(
            "{path} in body must be of type {format}: {}",
            Value::from(text)
        );
        out.push(Refusal::new(
            path,
            RefusalKind::TypeInvalid,
            Value::from(text),
            detail,
        ));
    }
}

/// Only the first limit that a text breaks is named.
fn string_limits(schema: &Value, text: &str, path: &Path) -> Option<Refusal> {
    let limit = |key| schema.get(key).and_then(Value::as_u64);
    let length = text.chars().count() as u64;
    if let Some(max) = limit("maxLength").filter(|max| length > *max) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {unit}");
        return Some(Refusal::new(path, RefusalKind::TooLong, None, detail));
    }
    let invalid =
        |detail: String| Refusal::new(path, RefusalKind::Invalid, Value::from(text), detail);
    if let Some(min) = limit("minLength").filter(|min| length < *min) {
        return Some(invalid(format!(
            "{path} in body should be at least {min} chars long"
        )));
    }
    let pattern = schema.get("pattern").and_then(Value::as_str)?;
    match Regex::new(pattern) {
        Ok(regex) if regex.is_match(text) => None,
        Ok(_) => Some(invalid(format!("{path} in body should match '{pattern}'"))),
        Err(error) => Some(invalid(format!(
            "{path} in body should match '{pattern}, but pattern is invalid: {error}'"
        ))),
    }
}

fn number(schema: &Value, value: &Value, path: &Path, out: &mut Vec<Refusal>) {
    let Some(number) = value.as_f64() else {
        return;
    };
    let mut invalid = |detail: String| {
        out.push(Refusal::new(
            path,
            RefusalKind::Invalid,
            value.clone(),
            detail,
        ));
    };
    let limit = |key| schema.get(key).and_then(Value::as_f64);
    if let Some(factor) = limit("multipleOf").filter(|factor| number % factor != 0.0) {
        invalid(format!("{path} in body should be a multiple of {factor}"));
    }
    if let Some(min) = limit("minimum") {
        let exclusive = is_set(schema, "exclusiveMinimum");
        if number < min || (exclusive && number == min) {
            let equal = if exclusive { "" } else { " or equal to" };
            invalid(format!(
                "{path} in body should be greater than{equal} {min}"
            ));
        }
    }
    if let Some(max) = limit("maximum") {
        let exclusive = is_set(schema, "exclusiveMaximum");
        if number > max || (exclusive && number == max) {
            let equal = if exclusive { "" } else { " or equal to" };
            invalid(format!("{path} in body should be less than{equal} {max}"));
        }
    }
}

fn array(
    schema: &Value,
    items: &[Value],
    old: Option<&Value>,
    path: &Path,
    out: &mut Vec<Refusal>,
) {
    if let Some(item_schema) = sub(schema, "items") {
        for (index, item) in items.iter().enumerate() {
            let old_item = old_item(schema, item, old);
            node(item_schema, item, old_item, &path.index(index), out);
        }
    }
    check_size(
        schema,
        ["minItems", "maxItems", "items"],
        items.len(),
        path,
        out,
    );
}

/// The same entry before the update; only entries of map lists can be recognised as the same.
pub(crate) fn old_item<'a>(
    schema: &Value,
    item: &Value,
    old: Option<&'a Value>,
) -> Option<&'a Value> {
    if schema.get("x-kubernetes-list-type") != Some(&Value::from("map")) {
        return None;
    }
    let key = list::map_key(schema, item);
    old?.as_array()?
        .iter()
        .find(|old| list::map_key(schema, old) == key)
}

/// The limits of a list or a map; the words are the two keys of the schema and what is counted.
fn check_size(
    schema: &Value,
    [min, max, counted]: [&str; 3],
    size: usize,
    path: &Path,
    out: &mut Vec<Refusal>,
) {
    let size = size as u64;
    let limit = |key| schema.get(key).and_then(Value::as_u64);
    if let Some(min) = limit(min).filter(|min| size < *min) {
        let detail = format!("{path} in body should have at least {min} {counted}");
        let size = Value::from(size);
        out.push(Refusal::new(path, RefusalKind::Invalid, size, detail));
    }
    if let Some(max) = limit(max).filter(|max| size > *max) {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        let size = Value::from(size);
        out.push(Refusal::new(path, RefusalKind::TooMany, size, detail));
    }
}

fn closed_list(schema: &Value, value: &Value, path: &Path, out: &mut Vec<Refusal>) {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
        return;
    };
    let equal = |one: &Value| one == value || (one.is_number() && one.as_f64() == value.as_f64());
    if allowed.iter().any(equal) {
        return;
    }
    let names: Vec<String> = allowed
        .iter()
        .map(|value| match value {
            Value::String(_) => value.to_string(),
            other => format!("\"{other}\""),
        })
        .collect();
    let detail = format!("supported values: {}", names.join(", "));
    out.push(Refusal::new(
        path,
        RefusalKind::NotSupported,
        value.clone(),
        detail,
    ));
}

fn object(
    schema: &Value,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &Path,
    out: &mut Vec<Refusal>,
) {
    let words = ["minProperties", "maxProperties", "properties"];
    check_size(schema, words, map.len(), path, out);
    for (key, value) in map {
        if let Some(schema) = crate::field(schema, key) {
            let old = old.and_then(|old| old.get(key));
            node(schema, value, old, &path.field(key), out);
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    for key in required.into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(key) {
            out.push(Refusal::new(
                &path.field(key),
                RefusalKind::Required,
                None,
                "",
            ));
        }
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`. Kubernetes reports the last three without a field.
fn combinations(schema: &Value, value: &Value, path: &Path, out: &mut Vec<Refusal>) {
    let branches = |key| schema.get(key).and_then(Value::as_array);
    let accepted_by = |branch: &Value| {
        let mut refusals = Vec::new();
        node(branch, value, None, path, &mut refusals);
        refusals.is_empty()
    };
    for branch in branches("allOf").into_iter().flatten() {
        node(branch, value, None, path, out);
    }
    let mut refuse = |detail: &str| {
        let detail = format!("\"{path}\" {detail}");
        let root = Path::default();
        out.push(Refusal::new(
            &root,
            RefusalKind::Invalid,
            Value::from(""),
            detail,
        ));
    };
    if branches("anyOf").is_some_and(|any| !any.iter().any(accepted_by)) {
        refuse("must validate at least one schema (anyOf)");
    }
    if let Some(one) = branches("oneOf") {
        match one.iter().filter(|branch| accepted_by(branch)).count() {
            1 => {}
            0 => refuse("must validate one and only one schema (oneOf). Found none valid"),
            n => refuse(&format!(
                "must validate one and only one schema (oneOf). Found {n} valid alternatives"
            )),
        }
    }
    if sub(schema, "not").is_some_and(accepted_by) {
        refuse("must not validate the schema (not)");
    }
}
