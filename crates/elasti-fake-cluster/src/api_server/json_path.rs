//! Kubernetes' JSONPath in printer columns, by a library that knows the standard's spelling (RFC 9535).

use jsonpath_rust::JsonPath as _;
use serde_json::Value;

/// All values that `path` (`.spec.a`, `.status.conditions[?(@.type=="Ready")].status`, …) reaches; none if it is wrong.
pub(crate) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    root.query(&standard(path)).unwrap_or_default()
}

/// Names in brackets and quotes: the standard allows neither `-` nor Kubernetes' `\.` in a plain one.
fn standard(path: &str) -> String {
    let mut query = String::from("$");
    let mut rest = path.trim().trim_start_matches('$');
    while !rest.is_empty() {
        if rest.starts_with('[') {
            let end = rest.find(']').map_or(rest.len(), |at| at + 1);
            let (bracket, after) = rest.split_at(end);
            query.push_str(bracket);
            rest = after;
        } else {
            let (name, after) = split_name(rest.trim_start_matches('.'));
            match name.as_str() {
                "" => {}
                "*" => query.push_str("[*]"),
                name => query.push_str(&format!("['{name}']")),
            }
            rest = after;
        }
    }
    query
}

/// A name up to the next `.` or `[`; `\.` belongs to the name.
fn split_name(text: &str) -> (String, &str) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printer_columns_reach_fields_filters_and_names_with_dots() {
        let object = serde_json::json!({
            "metadata": {"annotations": {"example.io/a-b": "x"}},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        for (path, expected) in [
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                vec!["True"],
            ),
            ("{.status.nothing}", vec![]),
            (".status.conditions[*].type", vec!["Other", "Ready"]),
            (".status.conditions[0].type", vec!["Other"]),
            (".metadata.annotations.example\\.io/a-b", vec!["x"]),
            (".metadata.annotations['example.io/a-b']", vec!["x"]),
            (".status.conditions[", vec![]),
        ] {
            let found: Vec<&str> = find(&object, path)
                .into_iter()
                .filter_map(Value::as_str)
                .collect();
            assert_eq!(found, expected, "{path}");
        }
    }
}
