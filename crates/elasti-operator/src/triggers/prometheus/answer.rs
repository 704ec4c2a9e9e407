//! What a Prometheus server's answer says: exactly one finite sample, or why not.
//! Never guesses: an answer that is not exactly as documented is a doubt. Nothing of one answer survives into the next.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Doubt;

/// The documented shape; keys that Prometheus may add are ignored.
#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Option<Data>,
    /// Other servers than Prometheus say so that part of the data was missing.
    #[serde(default)]
    warnings: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

/// The one sample of an answer with code 200.
pub(super) fn sample(body: &[u8]) -> Result<f64, Doubt> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| Doubt::NotAnAnswer)?;
    if answer.status != "success" {
        return Err(Doubt::Failed);
    }
    let data = answer.data.ok_or(Doubt::NotAnAnswer)?;
    if answer.warnings.is_some_and(|warnings| !warnings.is_empty()) {
        return Err(Doubt::Warned);
    }
    if data.result_type != "vector" {
        return Err(Doubt::NotAVector);
    }
    let Value::Array(series) = data.result else {
        return Err(Doubt::NotAnAnswer);
    };
    match series.as_slice() {
        [] => Err(Doubt::Empty),
        [one] => value(one),
        _ => Err(Doubt::Several),
    }
}

/// `{"metric": {…}, "value": [1700000000.5, "0.25"]}`
fn value(series: &Value) -> Result<f64, Doubt> {
    let pair = series.get("value").and_then(Value::as_array);
    let Some([Value::Number(_), Value::String(text)]) = pair.map(Vec::as_slice) else {
        return Err(Doubt::NotAnAnswer);
    };
    let value: f64 = text.parse().map_err(|_| Doubt::NotAnAnswer)?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(Doubt::NotFinite)
    }
}
