//! The `status` of an ElastiService: the phase that it is in, and why.
//! No field is an enum in the schema, so that the status of another version is never rejected.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::history::{HistoryEntry, known_entries};
use crate::savings_calendar::SavingsCalendar;
use crate::wake_client::WakeClient;

/// What Elasti observed and did. Users read it; Elasti writes it.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::structural::kubernetes_style)]
pub struct ElastiServiceStatus {
    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_time: Option<Time>,
    /// When the target was last woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scaled_up_time: Option<Time>,
    /// `proxy` while requests to the Service go to the resolver, else `serve`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_or_absent"
    )]
    #[schemars(with = "Option<String>")]
    pub mode: Option<Mode>,
    /// The phase of the service's life: `Serving`, `Redirecting`, `Draining`, `Asleep`, `Waking` or
    /// `Restoring`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_or_absent"
    )]
    #[schemars(with = "Option<String>")]
    pub phase: Option<Phase>,
    /// Why, in one word, for example `CoolingDown`, `TriggerActive` or `Idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Conditions by the Kubernetes conventions: `Ready` is the summary; `TargetFound`, `TriggersHealthy`,
    /// `TrafficRedirected`, `Asleep`, `Conflict` and `Contended` give the details. `UnmanagedServices`, if present,
    /// names Services that lose their endpoints while the target sleeps. `StepFailed`, if present, says what the API
    /// server refuses to write: a webhook, a quota or a missing permission. `MetricsMissing`, if present, names metrics
    /// of triggers that have no series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The replicas in the spec of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The replicas before a drain by groups lowered them; restored if the drain is cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_before_drain: Option<i32>,
    /// A pause of KEDA that KubeElasti left has outlived its sleep and is to be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_left: Option<bool>,
    /// How many requests waited for a pod when this status was last written: a recent count, not a
    /// live one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u32>,
    /// Where the resolvers listen for each port of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ListenPort>,
    /// The other Services of the target's pods that Elasti holds requests for, and where the resolvers listen for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub services: Vec<ServicePorts>,
    /// Since when every trigger has been quiet; absent while the service is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<Time>,
    /// When the service was last seen in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_active_time: Option<Time>,
    /// When the target was last put to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sleep_time: Option<Time>,
    /// The reading of each trigger, in the order of the spec, when it last changed or this status was last
    /// written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub triggers: Vec<TriggerStatus>,
    /// The last wake: what requested it, and how long each part of it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_wake: Option<LastWake>,
    /// The last wake that failed; absent as soon as one has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_wake: Option<FailedWake>,
    /// For how many seconds the target has slept, up to the last wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep_seconds: Option<i64>,
    /// What each second of the current sleep saves; absent while the target is awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_sleep: Option<CurrentSleep>,
    /// What all earlier sleeps saved: added up at the end of each, with the requests that its pods had as it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedSeconds>,
    /// The same by month and by day, for the last 12 months and 31 days.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_or_absent"
    )]
    #[schemars(with = "Option<SavingsCalendar>")]
    pub savings_calendar: Option<SavingsCalendar>,
    /// The states of the last 24 hours, oldest first, at most 24: where there were more, short ones are left out.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "known_entries"
    )]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<HistoryEntry>,
}

/// What each second of a sleep saves: the pods that do not run, and what each of them requested as the sleep began.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentSleep {
    /// Since when it is counted: since the sleep began, or since this version of the operator first saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// How many pods do not run: `minTargetReplicas` as the sleep began.
    #[serde(default)]
    pub pods: u32,
    /// The CPU that each of them requested, in thousandths of a core.
    #[serde(default)]
    pub cpu_millicores: i64,
    /// The bytes of memory that each of them requested.
    #[serde(default)]
    pub memory_bytes: i64,
    /// Extended resources that each of them requested, for example `nvidia.com/gpu`; at most 8.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, i64>,
}

/// What sleep has saved: requests times seconds asleep.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedSeconds {
    /// Seconds that pods did not run.
    #[serde(default)]
    pub pod_seconds: i64,
    /// Thousandths of CPU cores that were not requested, times seconds.
    #[serde(default)]
    pub cpu_millicore_seconds: i64,
    /// MiB of memory that were not requested, times seconds.
    #[serde(default)]
    pub memory_mebibyte_seconds: i64,
    /// Extended resources that were not requested, times seconds, for example of `nvidia.com/gpu`; at most 8.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_seconds: BTreeMap<String, i64>,
}

/// The reading of one trigger.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerStatus {
    /// The trigger's type, for example `prometheus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `active`, `quiet` or `unknown`.
    pub reading: String,
    /// The value, as text; absent if there is none, or if only the operator may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The threshold that the value is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// Why the reading is unknown, or why a quiet one says nothing about the whole cooldown, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when the trigger has had this reading. Until the operator says otherwise it still has: at most 90 s pass
    /// between two reads, then it is unknown, by default.
    pub since: Time,
    /// When `value` was read. Later values on the same side of the threshold are not written by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Time>,
}

/// One wake, from the first request to the first response. A time that was not observed is absent.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastWake {
    /// Why it was woken, in one word, for example `Traffic`, `TriggerActive` or `WakeRequested`.
    pub by: String,
    /// When the wake was requested.
    pub asked_at: MicroTime,
    /// When the API server accepted the new number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_at: Option<MicroTime>,
    /// When the first pod was scheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_at: Option<MicroTime>,
    /// When its containers had started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<MicroTime>,
    /// When it was ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<MicroTime>,
    /// When the first held request was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<MicroTime>,
    /// The request that it was woken for; only if the resolvers are set to tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<WakeClient>,
}

/// A wake whose pods did not start.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedWake {
    /// Why, in one word, for example `ImagePull`.
    pub reason: String,
    /// Why, in one sentence.
    pub message: String,
    /// When it was first seen to have failed.
    pub at: Time,
}

/// A value that this version does not know counts as absent: one odd status must not hide all services.
fn known_or_absent<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let written = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(written).ok())
}

/// The resolver's port for one port of the Service.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ListenPort {
    /// Name of the Service's port; empty where the Service has one unnamed port.
    #[serde(default)]
    pub name: String,
    /// The Service's port.
    pub port: u16,
    /// The port on which every resolver listens for it.
    pub listen_port: u16,
}

/// Another Service of the target's pods.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ServicePorts {
    /// Name of the Service.
    pub name: String,
    /// Where the resolvers listen for each of its ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ports: Vec<ListenPort>,
}

/// What answers new connections to the Service.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The resolver.
    Proxy,
    /// The pods, directly.
    Serve,
}

/// The phases of a service's life.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Pods serve directly.
    Serving,
    /// New connections may go to the resolver as well as to the pods.
    Redirecting,
    /// The pods are alive but out of rotation.
    Draining,
    /// Scaled to zero; the resolver answers.
    Asleep,
    /// Scaled up, but no pod is ready yet.
    Waking,
    /// Pods are ready and return to rotation.
    Restoring,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ElastiServiceStatus, Mode, Phase};

    #[test]
    fn a_status_of_the_predecessor_is_read() {
        let status: ElastiServiceStatus = serde_json::from_value(json!({
            "lastReconciledTime": null,
            "lastScaledUpTime": "2026-01-02T03:04:05Z",
            "mode": "proxy",
        }))
        .unwrap();
        assert_eq!(status.mode, Some(Mode::Proxy));
        assert!(status.last_scaled_up_time.is_some());
    }

    #[test]
    fn a_status_of_a_later_version_is_read_as_far_as_it_is_known() {
        let status: ElastiServiceStatus = serde_json::from_value(json!({
            "mode": "mirror",
            "phase": "Dreaming",
            "reason": "Later",
            "savingsCalendar": {"months": "all"},
            "somethingNew": {"a": 1},
        }))
        .unwrap();
        assert_eq!((status.mode, status.phase), (None, None));
        assert_eq!(status.savings_calendar, None);
        assert_eq!(status.reason.as_deref(), Some("Later"));
    }

    #[test]
    fn phases_and_modes_are_written_as_documented() {
        let status = ElastiServiceStatus {
            mode: Some(Mode::Serve),
            phase: Some(Phase::Redirecting),
            ..ElastiServiceStatus::default()
        };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({"mode": "serve", "phase": "Redirecting"})
        );
    }
}
