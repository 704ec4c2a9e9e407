//! The last day of a service in its status: the states that it was in, for a view that outlives a restart.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// One stay in a state; it ends where the next entry begins.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// `Asleep`, `Waking`, `Awake` or `Failed`.
    #[schemars(with = "String")]
    pub state: HistoryState,
    /// Since when.
    pub since: Time,
}

/// The state of a service, coarser than its phase.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HistoryState {
    /// Scaled to zero.
    Asleep,
    /// Scaled up, and no pod is ready yet.
    Waking,
    /// Pods serve, also while they are about to be put to sleep.
    Awake,
    /// Elasti cannot do its work for it, or its last wake failed.
    Failed,
}

/// An entry that this version does not know is left out: one odd entry must not hide the service.
pub(crate) fn known_entries<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<HistoryEntry>, D::Error> {
    let written = Vec::<Value>::deserialize(deserializer)?;
    let known = written.iter().map(HistoryEntry::deserialize);
    let mut known: Vec<HistoryEntry> = known.filter_map(Result::ok).collect();
    // The operator keeps it for every service.
    known.shrink_to_fit();
    Ok(known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::HistoryState;
    use crate::ElastiServiceStatus;

    #[test]
    fn an_entry_of_a_later_version_is_left_out() {
        let since = "2026-01-02T03:04:05Z";
        let status: ElastiServiceStatus = serde_json::from_value(json!({"history": [
            {"state": "Dreaming", "since": since}, {"state": "Asleep", "since": since}, 7,
        ]}))
        .unwrap();
        let states: Vec<HistoryState> = status.history.iter().map(|one| one.state).collect();
        assert_eq!(states, [HistoryState::Asleep]);
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(
            written,
            json!({"history": [{"state": "Asleep", "since": since}]})
        );
    }
}
