//! What a program behind a pipe is given, against what it expects: the fields of a jq filter are in the data.

use serde_json::Value;

use super::commands::stages;

/// Whether a stranger can do something with a text.
pub(crate) fn given(stranger: &[String], text: &str) -> Result<(), String> {
    let words: Vec<&str> = stranger.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["jq", filter] => {
            let data =
                serde_json::from_str(text).map_err(|error| format!("no JSON: {error}\n{text}"))?;
            filtered(filter, data).map(drop)
        }
        ["man", "-l", "-"] if text.contains(".TH ") => Ok(()),
        ["Out-String", ..] if text.contains("Register-ArgumentCompleter") => Ok(()),
        _ => Err(format!(
            "{} can do nothing with this: {text}",
            words.join(" ")
        )),
    }
}

/// A filter as docs write it: paths, `select(path)`, `[path, …]` and `add`, joined by pipes.
fn filtered(filter: &str, data: Value) -> Result<Vec<Value>, String> {
    let mut values = vec![data];
    for stage in stages(filter) {
        let stage = stage.trim();
        let select = stage
            .strip_prefix("select(")
            .and_then(|rest| rest.strip_suffix(')'));
        let list = stage
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let mut next = Vec::new();
        for value in values {
            if let Some(path) = select {
                let kept = at(&value, path)?
                    .iter()
                    .any(|one| *one != Value::Null && *one != false);
                next.extend(kept.then_some(value));
            } else if let Some(paths) = list {
                let mut parts = Vec::new();
                for path in paths.split(',') {
                    parts.extend(at(&value, path.trim())?);
                }
                next.push(Value::Array(parts));
            } else if stage == "add" {
                value.as_array().ok_or("add needs a list")?;
                next.push(value);
            } else {
                next.extend(at(&value, stage)?);
            }
        }
        values = next;
    }
    Ok(values)
}

/// What a path like `.items[].saved.cpuHours` leads to.
fn at(value: &Value, path: &str) -> Result<Vec<Value>, String> {
    let rest = path
        .strip_prefix('.')
        .ok_or_else(|| format!("no path that is understood here: {path}"))?;
    let mut values = vec![value.clone()];
    for part in rest.split('.') {
        let name = part.trim_end_matches("[]");
        let mut next = Vec::new();
        for value in values {
            // jq gives null for a field of null.
            if value.is_null() {
                continue;
            }
            let field = value
                .get(name)
                .ok_or_else(|| format!("the data has no {name} for {path}: {value}"))?;
            match part.ends_with("[]") {
                true => next.extend(
                    field
                        .as_array()
                        .ok_or_else(|| format!("{name} is no list"))?
                        .clone(),
                ),
                false => next.push(field.clone()),
            }
        }
        values = next;
    }
    Ok(values)
}

#[test]
fn a_filter_with_a_field_that_is_not_there_is_found() {
    let data =
        serde_json::json!({"items": [{"name": "web", "trouble": true, "saved": {"cpuHours": 1}}]});
    let given = |filter: &str| filtered(filter, data.clone());
    assert_eq!(
        given(".items[] | select(.trouble) | .name").unwrap(),
        ["web"]
    );
    assert_eq!(
        given("[.items[].saved.cpuHours] | add").unwrap(),
        [serde_json::json!([1])]
    );
    for wrong in [
        ".things[]",
        ".items[].nmae",
        ".items[] | select(.troubled)",
        ".items[] | [.name, .fase]",
        "length",
    ] {
        given(wrong).unwrap_err();
    }
}
