//! Triggers: what shows that a service is in use. A new one is one variant here and one file in the operator.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The uptime filter of a Prometheus trigger that has none.
pub const DEFAULT_UPTIME_FILTER: &str = r#"container="prometheus""#;

/// Longest query, in characters; one that is longer belongs into a recording rule.
const MAX_QUERY_CHARS: usize = 16 * 1024;
const MAX_THRESHOLD_CHARS: usize = 64;
const MAX_ADDRESS_CHARS: usize = 2048;
const MAX_FILTER_CHARS: usize = 1024;
const MAX_HEADERS: usize = 32;
const MAX_HEADER_CHARS: usize = 8192;
/// A schema cannot limit it.
const MAX_HEADER_NAME_CHARS: usize = 256;
/// Settings of one trigger, those that are ignored included.
const MAX_SETTINGS: usize = 64;
/// Triggers of one ElastiService.
const MAX_TRIGGERS: usize = 32;
/// What the triggers of one ElastiService may take in memory; the limits of each would allow a megabyte and more.
const MAX_TRIGGERS_BYTES: usize = 32 * 1024;
/// The settings that a source reads, with the longest text of each.
const SETTINGS: [(&str, usize); 5] = [
    ("query", MAX_QUERY_CHARS),
    ("threshold", MAX_THRESHOLD_CHARS),
    ("serverAddress", MAX_ADDRESS_CHARS),
    ("uptimeFilter", MAX_FILTER_CHARS),
    ("headers", usize::MAX),
];
/// As much of what a user wrote is repeated in a sentence.
const MAX_SHOWN_CHARS: usize = 80;

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
    /// Why the settings are not kept; see [`reduce_triggers`].
    #[serde(skip)]
    #[schemars(skip)]
    pub dropped: Option<TriggerError>,
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
        "maxProperties": MAX_SETTINGS,
        "required": ["query", "threshold"],
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
                "description": "PromQL instant query that returns one number, for example `sum(rate(http_requests_total{service=\"my-api\"}[1m])) or vector(0)`. Anything but exactly one finite number counts as unknown, and unknown never puts a service to sleep.",
            },
            "threshold": {
                "x-kubernetes-preserve-unknown-fields": true,
                "maxLength": MAX_THRESHOLD_CHARS,
                "pattern": r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$",
                "description": "A number, usually in quotes, for example `\"0.5\"`. Below it the service is quiet; at or above it the service is in use, and a sleeping one is woken.",
            },
            "serverAddress": {
                "type": "string",
                "maxLength": MAX_ADDRESS_CHARS,
                "pattern": "^(https?://.*)?$",
                "description": "Address of the Prometheus server, for example `http://prometheus.monitoring:9090`. Default: the server that the operator was installed with.",
            },
            "uptimeFilter": {
                "type": "string",
                "maxLength": MAX_FILTER_CHARS,
                "description": "Label filter that finds the `up` series of the Prometheus server itself; the service sleeps only if that server was up for the whole cooldown. Default: `container=\"prometheus\"`.",
            },
            "headers": {
                "type": "object",
                "maxProperties": MAX_HEADERS,
                "additionalProperties": { "type": "string", "maxLength": MAX_HEADER_CHARS },
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
        if let Some(error) = &self.dropped {
            return Err(error.clone());
        }
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
            Some(Value::String(text)) => (format!("\"{}\"", shown(text)), text.trim().parse().ok()),
            Some(other) => (shown(&other.to_string()), other.as_f64()),
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
            "metadata.serverAddress is \"{}\"; it must start with http:// or https://, for example http://prometheus.monitoring:9090",
            shown(address)
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
                    "metadata.headers.{} must be text; put the value in quotes",
                    shown(name)
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

impl Trigger {
    /// Keeps only the settings that the source reads, or why they cannot be used.
    fn reduce(&mut self) {
        let usable = self.check_sizes().and_then(|()| self.prometheus());
        match usable {
            Ok(_) => {
                let is_read = |key: &str| SETTINGS.iter().any(|(setting, _)| *setting == key);
                self.metadata.retain(|key, _| is_read(key));
            }
            Err(error) => self.drop_settings(error),
        }
    }

    fn drop_settings(&mut self, error: TriggerError) {
        self.metadata = BTreeMap::new();
        self.dropped = Some(error);
    }

    fn check_sizes(&self) -> Result<(), TriggerError> {
        for (key, max) in SETTINGS {
            if let Some(Value::String(text)) = self.metadata.get(key)
                && text.chars().count() > max
            {
                let help = match key {
                    "query" => "shorten it, for example with a recording rule",
                    _ => "shorten it",
                };
                let error = format!("metadata.{key} has more than {max} characters; {help}");
                return Err(TriggerError(error));
            }
        }
        let Some(Value::Object(headers)) = self.metadata.get("headers") else {
            return Ok(());
        };
        let is_longer = |text: &str, max| text.chars().count() > max;
        let is_long = |(name, value): (&String, &Value)| {
            is_longer(name, MAX_HEADER_NAME_CHARS)
                || is_longer(value.as_str().unwrap_or_default(), MAX_HEADER_CHARS)
        };
        if headers.len() > MAX_HEADERS || headers.iter().any(is_long) {
            return Err(TriggerError(format!(
                "metadata.headers is too large; write at most {MAX_HEADERS} headers of {MAX_HEADER_CHARS} characters"
            )));
        }
        Ok(())
    }

    /// The bytes of its text.
    fn size(&self) -> usize {
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let one = |(key, value): (&String, &Value)| key.len() + text(value);
        let all = self.metadata.iter();
        all.map(|(key, value)| {
            let inner = value.as_object().into_iter().flatten().map(one);
            one((key, value)) + inner.sum::<usize>()
        })
        .sum()
    }
}

/// Reduces the triggers of one ElastiService to what their sources read, within bounds. Stored objects may contain anything,
/// and one who may create them must not fill the memory of the process that reads all of them. What is too large
/// stays as the sentence that says so: its reading is unknown, so that the service does not sleep.
pub fn reduce_triggers(triggers: &mut Vec<Trigger>) {
    let count = triggers.len();
    triggers.truncate(MAX_TRIGGERS);
    let mut left = MAX_TRIGGERS_BYTES;
    for trigger in &mut *triggers {
        trigger.reduce();
        match left.checked_sub(trigger.size()) {
            Some(rest) => left = rest,
            None => trigger.drop_settings(TriggerError(format!(
                "all triggers together have more than {} KiB of text; shorten the queries, for example with recording rules",
                MAX_TRIGGERS_BYTES / 1024
            ))),
        }
    }
    if count > MAX_TRIGGERS
        && let Some(last) = triggers.last_mut()
    {
        last.drop_settings(TriggerError(format!(
            "spec.triggers has {count} entries; write at most {MAX_TRIGGERS}"
        )));
    }
    triggers.shrink_to_fit();
}

/// The beginning of what a user wrote, for a sentence.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DEFAULT_UPTIME_FILTER, Trigger, reduce_triggers};

    fn reduced(metadata: &[Value]) -> Vec<Trigger> {
        let mut triggers = metadata.iter().map(trigger).collect();
        reduce_triggers(&mut triggers);
        triggers
    }

    /// The bytes of everything that is kept, by what it would take as JSON.
    fn kept(triggers: &[Trigger]) -> usize {
        serde_json::to_string(triggers).unwrap().len()
    }

    #[test]
    fn settings_that_no_source_reads_are_not_kept() {
        let triggers = reduced(&[json!({
            "query": "q", "threshold": "1", "uptimeFilter": "a", "headers": {"X": "y"}, "note": "n".repeat(1 << 20),
        })]);
        let keys: Vec<&str> = triggers[0].metadata.keys().map(String::as_str).collect();
        assert_eq!(keys, ["headers", "query", "threshold", "uptimeFilter"]);
        assert_eq!(triggers[0].prometheus().unwrap().query, "q");
    }

    #[test]
    fn settings_that_are_too_large_are_kept_as_the_sentence_that_says_so() {
        let large = "x".repeat(1 << 20);
        let many: serde_json::Map<String, Value> =
            (0..33).map(|at| (format!("X-{at}"), json!("a"))).collect();
        for (metadata, sentence) in [
            (
                json!({"query": large, "threshold": "1"}),
                "metadata.query has more than 16384 characters; shorten it, for example with a recording rule",
            ),
            (
                json!({"query": "q", "threshold": format!("1{}", " ".repeat(1 << 20))}),
                "metadata.threshold has more than 64 characters; shorten it",
            ),
            (
                json!({"query": "q", "threshold": [large]}),
                "metadata.threshold is [\"xxx",
            ),
            (
                json!({"query": [large], "threshold": "1"}),
                "metadata.query must be text",
            ),
            (
                json!({"query": "q", "threshold": "1", "serverAddress": format!("http://{large}")}),
                "metadata.serverAddress has more than 2048 characters; shorten it",
            ),
            (
                json!({"query": "q", "threshold": "1", "uptimeFilter": large}),
                "metadata.uptimeFilter has more than 1024 characters; shorten it",
            ),
            (
                json!({"query": "q", "threshold": "1", "headers": {"X": large}}),
                "metadata.headers is too large; write at most 32 headers of 8192 characters",
            ),
            (
                json!({"query": "q", "threshold": "1", "headers": {large: "x"}}),
                "metadata.headers is too large; write at most 32 headers of 8192 characters",
            ),
            (
                json!({"query": "q", "threshold": "1", "headers": many}),
                "metadata.headers is too large; write at most 32 headers of 8192 characters",
            ),
        ] {
            let triggers = reduced(&[metadata]);
            let usable = triggers[0].prometheus().map(|_| ());
            let error = usable.unwrap_err().to_string();
            assert!(error.starts_with(sentence), "{error}");
            assert!(error.len() < 400 && kept(&triggers) < 400, "{error}");
        }
    }

    #[test]
    fn all_triggers_together_are_bounded_and_none_is_read_in_place_of_another() {
        let one = json!({"query": "x".repeat(16_384), "threshold": "1"});
        let triggers = reduced(&vec![one; 40]);
        assert_eq!(triggers.len(), 32);
        assert!(kept(&triggers) < 35_000, "{}", kept(&triggers));
        let usable = triggers.iter().filter(|one| one.prometheus().is_ok());
        assert_eq!(usable.count(), 1);
        let error = |at: usize| triggers[at].prometheus().unwrap_err().to_string();
        let sentence = "all triggers together have more than 32 KiB of text; shorten";
        assert!(error(1).starts_with(sentence), "{}", error(1));
        assert_eq!(error(31), "spec.triggers has 40 entries; write at most 32");
    }

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
