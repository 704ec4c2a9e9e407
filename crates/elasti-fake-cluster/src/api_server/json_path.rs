//! The subset of Kubernetes' JSONPath that printer columns use: fields, indices, wildcards, equality filters.
//! Never fails: what does not parse or match gives nothing.

use serde_json::Value;

/// All values that `path` (`.spec.a`, `.status.conditions[?(@.type=="Ready")].status`, …) reaches.
pub(crate) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![root];
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() && !found.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let Some(end) = closing(bracket) else {
                return Vec::new();
            };
            let (inside, after) = bracket.split_at(end);
            found = found
                .into_iter()
                .flat_map(|value| select(value, inside))
                .collect();
            rest = after.trim_start_matches(']');
        } else {
            let field = rest.trim_start_matches('.');
            let (name, after) = split_field(field);
            found = found
                .into_iter()
                .flat_map(|value| step(value, &name))
                .collect();
            rest = after;
        }
    }
    found
}

fn closing(text: &str) -> Option<usize> {
    let mut quoted: Option<char> = None;
    for (at, letter) in text.char_indices() {
        match (quoted, letter) {
            (Some(quote), letter) if letter == quote => quoted = None,
            (None, '\'' | '"') => quoted = Some(letter),
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

/// A field name up to the next `.` or `[`; `\.` belongs to the name.
fn split_field(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, text.get(at..).unwrap_or_default()),
            _ => {
                name.push(letter);
                escaped = false;
            }
        }
    }
    (name, "")
}

fn step<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match name {
        "" => vec![value],
        "*" => children(value),
        name => value.get(name).into_iter().collect(),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn select<'a>(value: &'a Value, inside: &str) -> Vec<&'a Value> {
    let inside = inside.trim();
    if let Some(filter) = inside
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
    {
        return children(value)
            .into_iter()
            .filter(|item| passes(item, filter))
            .collect();
    }
    if inside == "*" {
        return children(value);
    }
    if let Ok(at) = inside.parse::<i64>() {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let at = if at < 0 {
            at + i64::try_from(items.len()).unwrap_or(0)
        } else {
            at
        };
        return usize::try_from(at)
            .ok()
            .and_then(|at| items.get(at))
            .into_iter()
            .collect();
    }
    step(
        value,
        inside.trim_matches(|letter| letter == '\'' || letter == '"'),
    )
}

/// `@.type=="Ready"`
fn passes(item: &Value, filter: &str) -> bool {
    let (left, right, equal) = if let Some((left, right)) = filter.split_once("==") {
        (left, right, true)
    } else if let Some((left, right)) = filter.split_once("!=") {
        (left, right, false)
    } else {
        return !find(item, filter.trim().trim_start_matches('@')).is_empty();
    };
    let wanted = right
        .trim()
        .trim_matches(|letter| letter == '\'' || letter == '"');
    let found = find(item, left.trim().trim_start_matches('@'));
    let hit = found.iter().any(|value| match value.as_str() {
        Some(text) => text == wanted,
        None => format!("{value}") == wanted,
    });
    hit == equal
}
