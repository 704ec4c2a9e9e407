//! Parses the acceptance table: which specs are accepted or refused, and how.
//! The test runs it against our own admission, `cargo xtask crd-conformance` against a real API server.

use std::error::Error;

use serde_json::{Map, Value, json};

const ACCEPTED: &str = include_str!("accepted.yaml");
const REFUSED: &str = include_str!("refused.yaml");

/// One case of the table.
pub(crate) struct Case {
    pub(crate) name: String,
    /// Whether KubeElasti accepts it too.
    pub(crate) predecessor: bool,
    /// The object before, if this is an update.
    pub(crate) old: Option<Value>,
    /// The object to admit.
    pub(crate) new: Value,
    pub(crate) outcome: Outcome,
}

/// The expected outcome.
pub(crate) enum Outcome {
    /// It is accepted and this spec is stored.
    Stored(Value),
    /// It is refused with a message that contains this.
    Says(String),
}

/// The whole table.
pub(crate) fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let mut cases = Vec::new();
    for row in rows(ACCEPTED)? {
        let spec = expand(at(&row, "spec")?);
        let stored = merge(spec.clone(), &expand(at(&row, "adds")?));
        cases.push(Case {
            name: text(&row, "name")?,
            predecessor: row.get("predecessor") == Some(&Value::Bool(true)),
            old: row.get("from").map(|old| object(&expand(old))),
            new: object(&spec),
            outcome: Outcome::Stored(stored),
        });
    }
    for row in rows(REFUSED)? {
        let spec = |with: &Value| object(&merge(good_spec(), &expand(with)));
        cases.push(Case {
            name: text(&row, "name")?,
            predecessor: false,
            old: row.get("from").map(spec),
            new: spec(at(&row, "with")?),
            outcome: Outcome::Says(text(&row, "says")?),
        });
    }
    Ok(cases)
}

/// What every refused case starts from.
fn good_spec() -> Value {
    json!({
        "service": "my-api",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "my-api"},
        "triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "0.5"}}],
    })
}

fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1",
        "kind": "ElastiService",
        "metadata": {"name": "case", "namespace": "default"},
        "spec": spec,
    })
}

fn rows(yaml: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    Ok(serde_saphyr::from_str(yaml)?)
}

fn at<'a>(row: &'a Value, key: &str) -> Result<&'a Value, String> {
    row.get(key).ok_or_else(|| format!("no {key} in {row}"))
}

fn text(row: &Value, key: &str) -> Result<String, String> {
    let value = at(row, key)?
        .as_str()
        .ok_or_else(|| format!("{key} is no text in {row}"))?;
    Ok(value.to_owned())
}

/// Writes out `{repeat: n, of: x}`.
fn expand(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(expand).collect(),
        Value::Object(map) => match (map.get("repeat").and_then(Value::as_u64), map.get("of")) {
            (Some(times), Some(Value::String(text))) => {
                (0..times).map(|_| text.as_str()).collect::<String>().into()
            }
            (Some(times), Some(item)) => (0..times).map(|_| expand(item)).collect(),
            _ => map.iter().map(|(k, v)| (k.clone(), expand(v))).collect(),
        },
        other => other.clone(),
    }
}

/// A JSON merge patch (RFC 7396).
fn merge(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut merged = match target {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, value) in patch {
        let before = merged.remove(key).unwrap_or(Value::Null);
        if !value.is_null() {
            merged.insert(key.clone(), merge(before, value));
        }
    }
    Value::Object(merged)
}
