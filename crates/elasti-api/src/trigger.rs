//! Triggers: what shows that a service is in use. A new one is one variant here and one file in the operator.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The uptime filter of a Prometheus trigger that has none.
pub const DEFAULT_UPTIME_FILTER: &str = r#"container="prometheus""#;

/// One source of readings that show whether the service is in use.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(extend("required" = ["type", "metadata"]))]
pub struct Trigger {
    /// The kind of source. `prometheus` sends an instant query to a Prometheus server.
    #[serde(rename = "type")]
    pub type_: TriggerType,
    /// Settings of the source; other keys than those listed are kept and ignored.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "object_or_empty"
    )]
    #[schemars(schema_with = "metadata_schema")]
    pub metadata: BTreeMap<String, Value>,
}

/// The kinds of source.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TriggerType {
    /// An instant query to a Prometheus server.
    Prometheus,
}

/// Free-form, with the known keys typed as far as all existing manifests allow.
///
/// `threshold` has no type because both `"0.5"` and `0.5` are written in practice; its pattern applies
/// only to strings. Nothing here, and nothing above, is checked by a rule: KubeElasti accepted any value, a rule
/// fails on a value of another type, and Kubernetes then rejects every later write to the object, even the
/// removal of its finalizer. Limits of the schema are not applied to what did not change.
fn metadata_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "Settings of the source; other keys than those listed are kept and ignored.",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["query", "threshold"],
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "description": "PromQL instant query that returns one number, for example `sum(rate(http_requests_total{service=\"my-api\"}[1m])) or vector(0)`. Anything but exactly one finite number counts as unknown, and unknown never puts a service to sleep.",
            },
            "threshold": {
                "x-kubernetes-preserve-unknown-fields": true,
                "pattern": r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$",
                "description": "A number, usually in quotes, for example `\"0.5\"`. Below it the service is quiet; at or above it the service is in use, and a sleeping one is woken.",
            },
            "serverAddress": {
                "type": "string",
                "maxLength": 2048,
                "pattern": "^(https?://.*)?$",
                "description": "Address of the Prometheus server, for example `http://prometheus.monitoring:9090`. Default: the server that the operator was installed with.",
            },
            "uptimeFilter": {
                "type": "string",
                "description": "Label filter that finds the `up` series of the Prometheus server itself; the service sleeps only if that server was up for the whole cooldown. Default: `container=\"prometheus\"`.",
            },
            "headers": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Extra headers of the query, for example `X-Scope-OrgID: my-tenant`.",
            },
        },
    })
}

/// Objects stored before this schema may have anything here; they must still deserialize.
fn object_or_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Object(map) => map.into_iter().collect(),
        _ => BTreeMap::new(),
    })
}

/// A Prometheus trigger's settings, parsed from its free-form metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusTrigger {
    /// The server; `None` means the operator's default.
    pub server_address: Option<String>,
    /// The instant query.
    pub query: String,
    /// At or above this the service is active.
    pub threshold: f64,
    /// Label filter that finds the server's own `up` series.
    pub uptime_filter: String,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
}

/// Why a trigger's metadata cannot be used; each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerError(pub String);

impl std::fmt::Display for TriggerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TriggerError {}

impl Trigger {
    /// Parses the settings of a Prometheus trigger.
    ///
    /// # Errors
    /// A sentence that says what to write where a setting is missing or of the wrong shape.
    pub fn prometheus(&self) -> Result<PrometheusTrigger, TriggerError> {
        let TriggerType::Prometheus = self.type_;
        Ok(PrometheusTrigger {
            query: self.query()?,
            threshold: self.threshold()?,
            server_address: self.server_address()?,
            uptime_filter: self
                .text("uptimeFilter")?
                .unwrap_or(DEFAULT_UPTIME_FILTER)
                .to_owned(),
            headers: self.headers()?,
        })
    }

    fn query(&self) -> Result<String, TriggerError> {
        match self.text("query")? {
            Some(query) if !query.trim().is_empty() => Ok(query.to_owned()),
            _ => Err(TriggerError(
                "metadata.query is missing; write a query that returns one number, for example query: sum(rate(http_requests_total[1m])) or vector(0)".into(),
            )),
        }
    }

    fn threshold(&self) -> Result<f64, TriggerError> {
        let (written, number) = match self.metadata.get("threshold") {
            None | Some(Value::Null) => {
                return Err(TriggerError(
                    "metadata.threshold is missing; write a number in quotes, for example threshold: \"0.5\"".into(),
                ));
            }
            Some(Value::String(text)) => (format!("\"{text}\""), text.trim().parse().ok()),
            Some(other) => (other.to_string(), other.as_f64()),
        };
        // Rust also parses "NaN" and "infinity" as numbers, which cannot be compared with.
        number.filter(|n: &f64| n.is_finite()).ok_or_else(|| {
            TriggerError(format!(
                "metadata.threshold is {written}, which is not a number; write a number in quotes, for example threshold: \"0.5\""
            ))
        })
    }

    fn server_address(&self) -> Result<Option<String>, TriggerError> {
        let Some(address) = self.text("serverAddress")? else {
            return Ok(None);
        };
        if address.starts_with("http://") || address.starts_with("https://") {
            return Ok(Some(address.to_owned()));
        }
        Err(TriggerError(format!(
            "metadata.serverAddress is \"{address}\"; it must start with http:// or https://, for example http://prometheus.monitoring:9090"
        )))
    }

    fn headers(&self) -> Result<BTreeMap<String, String>, TriggerError> {
        let entries = match self.metadata.get("headers") {
            None | Some(Value::Null) => return Ok(BTreeMap::new()),
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                return Err(TriggerError(
                    "metadata.headers must be a map, for example headers: {X-Scope-OrgID: my-tenant}".into(),
                ));
            }
        };
        entries
            .iter()
            .map(|(name, value)| match value {
                Value::String(text) => Ok((name.clone(), text.clone())),
                // The value may be a secret, so it is not repeated.
                _ => Err(TriggerError(format!(
                    "metadata.headers.{name} must be text; put the value in quotes"
                ))),
            })
            .collect()
    }

    /// A text setting; one that is absent, `null` or empty is not set.
    fn text(&self, key: &str) -> Result<Option<&str>, TriggerError> {
        match self.metadata.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(TriggerError(format!(
                "metadata.{key} must be text; put the value in quotes"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DEFAULT_UPTIME_FILTER, Trigger};

    fn trigger(metadata: &Value) -> Trigger {
        serde_json::from_value(json!({"type": "prometheus", "metadata": metadata})).unwrap()
    }

    fn error(metadata: &Value) -> String {
        trigger(metadata).prometheus().unwrap_err().to_string()
    }

    #[test]
    fn a_complete_trigger_is_parsed() {
        let read = trigger(&json!({
            "query": "vector(1)",
            "threshold": "0.01",
            "serverAddress": "http://prometheus.monitoring:9090",
            "uptimeFilter": "container=\"foo\"",
            "headers": {"X-Scope-OrgID": "one"},
            "somethingElse": [1, 2],
        }))
        .prometheus()
        .unwrap();
        assert_eq!(read.query, "vector(1)");
        assert_eq!(read.threshold, 0.01);
        assert_eq!(
            read.server_address.as_deref(),
            Some("http://prometheus.monitoring:9090")
        );
        assert_eq!(read.uptime_filter, "container=\"foo\"");
        assert_eq!(read.headers["X-Scope-OrgID"], "one");
    }

    #[test]
    fn what_is_omitted_or_empty_has_its_default() {
        for metadata in [
            json!({"query": "q", "threshold": "1"}),
            json!({"query": "q", "threshold": "1", "serverAddress": "", "uptimeFilter": ""}),
            json!({"query": "q", "threshold": "1", "serverAddress": null, "uptimeFilter": null, "headers": null}),
        ] {
            let read = trigger(&metadata).prometheus().unwrap();
            assert_eq!(read.server_address, None);
            assert_eq!(read.uptime_filter, DEFAULT_UPTIME_FILTER);
            assert!(read.headers.is_empty());
        }
    }

    #[test]
    fn a_threshold_is_a_number_with_or_without_quotes() {
        for (written, meant) in [
            (json!("0.5"), 0.5),
            (json!(" 2 "), 2.0),
            (json!("-1e3"), -1000.0),
            (json!("0"), 0.0),
            (json!(0.5), 0.5),
            (json!(7), 7.0),
        ] {
            let read = trigger(&json!({"query": "q", "threshold": written})).prometheus();
            assert_eq!(read.unwrap().threshold, meant);
        }
    }

    #[test]
    fn a_threshold_that_is_not_a_finite_number_is_refused_with_a_sentence() {
        for written in ["", "abc", "NaN", "inf", "-Infinity", "1e999", "0,5"] {
            assert_eq!(
                error(&json!({"query": "q", "threshold": written})),
                format!(
                    "metadata.threshold is \"{written}\", which is not a number; write a number in quotes, for example threshold: \"0.5\""
                )
            );
        }
        assert!(error(&json!({"query": "q", "threshold": true})).contains("is true, which is not"));
        assert!(error(&json!({"query": "q"})).starts_with("metadata.threshold is missing"));
    }

    #[test]
    fn each_setting_of_the_wrong_shape_is_named() {
        for (metadata, sentence) in [
            (json!({"threshold": "1"}), "metadata.query is missing"),
            (
                json!({"query": " ", "threshold": "1"}),
                "metadata.query is missing",
            ),
            (
                json!({"query": 5, "threshold": "1"}),
                "metadata.query must be text",
            ),
            (
                json!({"query": "q", "threshold": "1", "serverAddress": "prometheus:9090"}),
                "metadata.serverAddress is \"prometheus:9090\"; it must start with http",
            ),
            (
                json!({"query": "q", "threshold": "1", "uptimeFilter": {}}),
                "metadata.uptimeFilter must be text",
            ),
            (
                json!({"query": "q", "threshold": "1", "headers": "a: b"}),
                "metadata.headers must be a map",
            ),
            (
                json!({"query": "q", "threshold": "1", "headers": {"X-Key": 12345}}),
                "metadata.headers.X-Key must be text",
            ),
        ] {
            let error = error(&metadata);
            assert!(error.starts_with(sentence), "{error}");
            assert!(!error.contains("12345"), "a header's value may be a secret");
        }
    }

    #[test]
    fn metadata_of_any_shape_deserializes() {
        for stored in [json!(null), json!("text"), json!([1]), json!({})] {
            assert!(trigger(&stored).metadata.is_empty());
        }
        let bare: Trigger = serde_json::from_value(json!({"type": "prometheus"})).unwrap();
        assert!(bare.prometheus().is_err());
    }
}
