//! Triggers: what tells Elasti that a service is in use.
//! It never asks a source for a reading; a new trigger is one arm here and one file in the operator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The uptime filter used where a Prometheus trigger names none.
pub const DEFAULT_UPTIME_FILTER: &str = r#"container="prometheus""#;

/// One source of readings.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct Trigger {
    /// The kind of source.
    #[serde(rename = "type")]
    pub type_: TriggerType,
    /// Settings of the source.
    #[serde(default)]
    pub metadata: BTreeMap<String, serde_json::Value>,
}

/// The kinds of source.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TriggerType {
    /// An instant query to a Prometheus server.
    Prometheus,
}

/// A Prometheus trigger's settings, read from its free-form metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusTrigger {
    /// The server, where the trigger names one; else the operator's default.
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
