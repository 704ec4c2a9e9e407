//! Writes an object as YAML: blocks, and quotes only where they are needed.
//! A YAML crate would be large, and the image needs no parser.

use std::fmt::Write as _;

use serde_json::Value;

/// The object as YAML, with a line break at its end.
pub(crate) fn write(object: &Value) -> String {
    let mut text = String::new();
    match object {
        Value::Object(map) if !map.is_empty() => block(object, 0, &mut text),
        Value::Array(list) if !list.is_empty() => block(object, 0, &mut text),
        other => {
            let _ = writeln!(text, "{}", scalar(other));
        }
    }
    text
}

/// A map or a list that has something in it, each entry on lines of its own.
fn block(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let _ = write!(text, "{indent}{}:", scalar(&Value::String(key.clone())));
                entry(value, depth + 1, text);
            }
        }
        Value::Array(list) => {
            for value in list {
                let _ = write!(text, "{indent}-");
                // A map in a list begins on the line of its dash.
                let mut inner = String::new();
                match value {
                    Value::Object(map) if !map.is_empty() => {
                        block(value, depth + 1, &mut inner);
                        let _ = write!(text, " {}", inner.trim_start());
                    }
                    other => entry(other, depth + 1, text),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn entry(value: &Value, depth: usize, text: &mut String) {
    let is_empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    if is_empty {
        let _ = writeln!(text, " {}", scalar(value));
    } else {
        text.push('\n');
        block(value, depth, text);
    }
}

/// JSON is YAML too, so what is not plain is quoted as in JSON.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(plain) if is_plain(plain) => plain.clone(),
        other => other.to_string(),
    }
}

/// Text that YAML does not parse as something else.
fn is_plain(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '(' | '_');
    let later = |c: char| c.is_ascii_alphanumeric() || " _-./()+<>=;".contains(c);
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    text.starts_with(first)
        && text.chars().all(later)
        && !text.ends_with(' ')
        && !words.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::write;

    #[test]
    fn what_is_written_reads_back_the_same() {
        let object = json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1",
            "spec": {
                "triggers": [{"type": "prometheus", "metadata": {"query": "sum(rate(x{a=\"b: c\"}[5m])) or vector(0)", "threshold": "0.5", "headers": {}}}],
                "lists": [[1, 2], [], ["a", null]],
                "odd": ["yes", "null", "- a", "a: b", "a #b", " a", "a ", "", "0x1", "1e3", "12:30:00", "line\nbreak", "~", "*a", "&a", "!a", "%a", "@a", "`a", "é", "2026-01-01"],
                "plain": {"true": true, "n": 1.5, "empty": "", "none": null, "0": 0},
            },
        });
        let text = write(&object);
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, object, "{text}");
        for line in [
            "apiVersion: elasti.truefoundry.com/v1alpha1",
            "  triggers:",
            "    - metadata:",
            "      type: prometheus",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line} is not in {text}"
            );
        }
    }
}
