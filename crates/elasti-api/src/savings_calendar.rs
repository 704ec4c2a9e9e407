//! What sleep saved by month and by day, in the status: bounded, and written only along with the end of a sleep.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::SavedSeconds;

/// What the sleeps that have ended saved, by month and by day. Months and days are those of UTC.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavingsCalendar {
    /// Since when it is counted; absent if since the ElastiService was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The months with sleep, oldest first, at most 12.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub months: Vec<SavedMonth>,
    /// The day of the last entry of `podSecondsByDay`, for example `2026-03-14`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_day: String,
    /// Seconds that pods did not run on each day, oldest first, one entry for each of at most 31 days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_seconds_by_day: Vec<i64>,
}

/// What sleep saved in one month.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedMonth {
    /// The month, for example `2026-03`.
    #[serde(default)]
    pub month: String,
    /// For how many seconds of it the target slept.
    #[serde(default)]
    pub asleep_seconds: i64,
    /// What that saved.
    #[serde(default)]
    pub saved: SavedSeconds,
}
