//! Parses a Prometheus server's answer: exactly one finite sample, or why not.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::QueryError;

/// The documented shape; keys that Prometheus may add are ignored.
#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Option<Data>,
    /// Other servers than Prometheus report here that part of the data was missing.
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
pub(super) fn sample(body: &[u8]) -> Result<f64, QueryError> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| QueryError::NotAnAnswer)?;
    if answer.status != "success" {
        return Err(QueryError::Failed);
    }
    let data = answer.data.ok_or(QueryError::NotAnAnswer)?;
    if answer.warnings.is_some_and(|warnings| !warnings.is_empty()) {
        return Err(QueryError::Warned);
    }
    if data.result_type != "vector" {
        return Err(QueryError::NotAVector);
    }
    let Value::Array(series) = data.result else {
        return Err(QueryError::NotAnAnswer);
    };
    match series.as_slice() {
        [] => Err(QueryError::Empty),
        [one] => value(one),
        _ => Err(QueryError::Several),
    }
}

/// `{"metric": {…}, "value": [1700000000.5, "0.25"]}`
fn value(series: &Value) -> Result<f64, QueryError> {
    let pair = series.get("value").and_then(Value::as_array);
    let Some([Value::Number(_), Value::String(text)]) = pair.map(Vec::as_slice) else {
        return Err(QueryError::NotAnAnswer);
    };
    let value: f64 = text.parse().map_err(|_| QueryError::NotAnAnswer)?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err(QueryError::NotFinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared as it is, it would let everything sleep that reads this server.
    #[test]
    fn a_sample_of_nan_would_be_below_every_threshold() {
        let series = |value: &str| serde_json::json!({"value": [1, value]});
        assert!(matches!(value(&series("NaN")), Err(QueryError::NotFinite)));
        let unchecked: Option<f64> = "NaN".parse().ok();
        assert_eq!(unchecked.map(|value| value >= f64::MIN), Some(false));
    }
}
