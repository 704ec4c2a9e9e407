//! The ElastiService custom resource: what a user writes (`spec`) and what Elasti answers (`status`).
//! It never interprets a value: reading schedules, readings and replicas is the brain's work.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ProbeResponse, ScaleTargetRef, Trigger};

/// What `cooldownPeriod: 0` and a missing `cooldownPeriod` mean.
pub const DEFAULT_COOLDOWN_SECONDS: u32 = 900;

/// Puts one workload to sleep while nobody uses its Service, and wakes it with the first request.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "elasti.truefoundry.com",
    version = "v1alpha1",
    kind = "ElastiService",
    plural = "elastiservices",
    namespaced,
    status = "ElastiServiceStatus",
    derive = "PartialEq",
    shortname = "els",
    category = "elasti"
)]
#[serde(rename_all = "camelCase")]
pub struct ElastiServiceSpec {
    /// The workload to scale.
    pub scale_target_ref: ScaleTargetRef,
    /// Name of the Service, in the same namespace, whose requests wake the target.
    pub service: String,
    /// Replicas to wake to.
    #[serde(default = "one")]
    pub min_target_replicas: u32,
    /// Seconds of quiet before sleep.
    #[serde(default = "default_cooldown")]
    pub cooldown_period: u32,
    /// What tells that the service is in use.
    pub triggers: Vec<Trigger>,
    /// An autoscaler of the same target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<Autoscaler>,
    /// When sleep is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled_period: Option<EnabledPeriod>,
    /// Requests answered by the resolver while asleep, without waking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probe_response: Vec<ProbeResponse>,
    /// While true the service is not put to sleep; a sleeping one still wakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Bounds for requests that wait for a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// How traffic moves away from the pods before they are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
}

fn one() -> u32 {
    1
}

fn default_cooldown() -> u32 {
    DEFAULT_COOLDOWN_SECONDS
}

/// An autoscaler of the same target.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct Autoscaler {
    /// `hpa` or `keda`.
    #[serde(rename = "type")]
    pub type_: AutoscalerType,
    /// Name of the object.
    pub name: String,
}

/// The kinds of autoscaler that Elasti works with.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoscalerType {
    /// A HorizontalPodAutoscaler.
    Hpa,
    /// A KEDA ScaledObject.
    Keda,
}

/// The active window: sleep is allowed only inside it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub struct EnabledPeriod {
    /// Five-field cron expression in UTC.
    #[serde(default = "EnabledPeriod::default_schedule")]
    pub schedule: String,
    /// Go duration.
    #[serde(default = "EnabledPeriod::default_duration")]
    pub duration: String,
}

impl EnabledPeriod {
    fn default_schedule() -> String {
        "0 0 * * *".into()
    }

    fn default_duration() -> String {
        "24h".into()
    }
}

/// Bounds for requests that wait for a pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Longest wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Most requests waiting at one resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u32>,
    /// Most bytes waiting at one resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// How traffic moves away from the pods before they are stopped.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Handover {
    /// Take the pods out of rotation first, while they still answer: no request is lost.
    #[default]
    Drain,
    /// Redirect and watch only.
    Redirect,
}

/// What Elasti observed and did.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElastiServiceStatus {
    /// When this status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled_time: Option<Time>,
    /// When the target was last woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scaled_up_time: Option<Time>,
    /// `proxy` while requests go to the resolver, else `serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Where the service is in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// One word for why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Conditions by the Kubernetes conventions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Replicas that the target asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The resolver's port for each port of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ListenPort>,
    /// Since when every reading has been quiet; absent while the service is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_since: Option<Time>,
    /// When the service was last seen in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_active_time: Option<Time>,
    /// When the target was last put to sleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sleep_time: Option<Time>,
}

/// The resolver's port for one port of the Service.
#[derive(
    Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ListenPort {
    /// Name of the Service port; empty where the Service has one unnamed port.
    #[serde(default)]
    pub name: String,
    /// The Service's port.
    pub port: u16,
    /// Where every resolver listens for it.
    pub listen_port: u16,
}

/// Who answers new connections to the Service.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The resolver.
    Proxy,
    /// The pods, directly.
    Serve,
}

/// Where a service is in its life.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema,
)]
pub enum Phase {
    /// Pods answer directly.
    Serving,
    /// New connections may go to the resolver as well as to the pods.
    Redirecting,
    /// The pods are alive but out of rotation.
    Draining,
    /// Zero replicas; the resolver answers.
    Asleep,
    /// Replicas are asked for, no pod is ready yet.
    Waking,
    /// Pods are ready and go back into rotation.
    Restoring,
}
