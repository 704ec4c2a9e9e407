//! The ElastiService custom resource: what a user writes in `spec`. `elasti-core` interprets it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ElastiServiceStatus, ProbeResponse, ScaleTargetRef, Trigger};

/// What `cooldownPeriod: 0` and a missing `cooldownPeriod` mean.
pub const DEFAULT_COOLDOWN_SECONDS: u32 = 900;
/// Longest `schedule` of a window.
pub const MAX_SCHEDULE_CHARS: usize = 1024;
/// Longest `duration` of a window.
pub const MAX_DURATION_CHARS: usize = 64;

/// What a user writes: which workload sleeps, which Service wakes it, and what shows that it is in use.
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
    category = "elasti",
    doc = "Scales one workload to zero while its Service is not in use, and wakes it with the first request. While asleep, requests to the Service are held until a pod is ready; while awake they go straight to the pods.",
    printcolumn = r#"{"name":"Mode", "type":"string", "jsonPath":".status.mode", "description":"serve: the pods answer; proxy: the resolver answers"}"#,
    printcolumn = r#"{"name":"Phase", "type":"string", "jsonPath":".status.phase", "description":"Where the service is in its life"}"#,
    printcolumn = r#"{"name":"Target", "type":"string", "jsonPath":".spec.scaleTargetRef.name", "description":"The workload that is scaled"}"#,
    printcolumn = r#"{"name":"Replicas", "type":"integer", "jsonPath":".status.replicas", "description":"Replicas in the spec of the target"}"#,
    printcolumn = r#"{"name":"Ready", "type":"string", "jsonPath":".status.conditions[?(@.type==\"Ready\")].status", "description":"Whether Elasti can manage this service"}"#,
    printcolumn = r#"{"name":"Reason", "type":"string", "jsonPath":".status.reason", "description":"Why, in one word"}"#,
    printcolumn = r#"{"name":"Last-Wake", "type":"date", "jsonPath":".status.lastScaledUpTime", "description":"When the target was last woken"}"#,
    printcolumn = r#"{"name":"Age", "type":"date", "jsonPath":".metadata.creationTimestamp", "description":"When the ElastiService was created"}"#,
    printcolumn = r#"{"name":"Service", "type":"string", "jsonPath":".spec.service", "description":"The Service whose requests wake the target", "priority":1}"#,
    printcolumn = r#"{"name":"Cooldown", "type":"integer", "jsonPath":".spec.cooldownPeriod", "description":"Seconds of quiet before sleep", "priority":1}"#,
    printcolumn = r#"{"name":"Held", "type":"integer", "jsonPath":".status.held", "description":"Requests that waited for a pod when the status was last written", "priority":1}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = crate::structural::kubernetes_style)]
pub struct ElastiServiceSpec {
    /// The workload to scale, in the same namespace. It cannot be changed later: to manage another
    /// workload, delete this ElastiService (that wakes the target first) and create a new one.
    pub scale_target_ref: ScaleTargetRef,
    /// Name of the Service, in the same namespace, whose requests wake the target. Every port of it
    /// works. It cannot be changed later. Example: `my-api`.
    #[schemars(length(max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
            .message("write the name of a Service in the same namespace: lower-case letters, digits and '-', for example my-api").reason(kube::core::Reason::FieldValueForbidden),
        validation = Rule::new("self == oldSelf")
            .message("service cannot be changed: delete this ElastiService and create a new one; deleting wakes the target first").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub service: String,
    /// How many replicas a wake scales to, unless an autoscaler has a higher minimum. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub min_target_replicas: u32,
    /// How many seconds every trigger must be quiet before the target is put to sleep; also the
    /// shortest time between a wake and the next sleep. At most 604800 (7 days). Default: 900
    /// (15 minutes), and 0 means the default too.
    #[serde(default = "default_cooldown")]
    #[schemars(range(min = 0, max = 604_800))]
    pub cooldown_period: u32,
    /// What shows whether the service is in use. It sleeps when every trigger is quiet and wakes when
    /// one is not. Without triggers Elasti never puts the target to sleep by itself, but holds
    /// requests and wakes it whenever something else has scaled it to 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub triggers: Vec<Trigger>,
    /// An autoscaler of the same target. A KEDA ScaledObject must be named here, because it is paused
    /// while the target sleeps; a HorizontalPodAutoscaler is inactive at 0 replicas anyway, and naming it
    /// lets a wake scale to its `minReplicas` at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<Autoscaler>,
    /// When sleep is allowed. Outside this window the target is kept at `minTargetReplicas`. If omitted,
    /// sleep is allowed at any time. With an invalid window the target never sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled_period: Option<EnabledPeriod>,
    /// More windows like `enabledPeriod`: sleep is allowed in any of them, so that nights and weekends fit
    /// into one ElastiService. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub enabled_periods: Vec<EnabledPeriod>,
    /// Requests that the resolver answers itself while the target sleeps, without waking it: health
    /// checks of load balancers, uptime monitors, bots. The first rule that matches answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub probe_response: Vec<ProbeResponse>,
    /// While true the target is not put to sleep; a sleeping one still wakes with the first request.
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Limits for requests that wait for a pod. Those that are omitted default to the resolver's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// How the target is woken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Wake>,
    /// How traffic leaves the pods before they are stopped. `drain` takes them out of rotation first,
    /// while they still serve, so that no request is lost; `redirect` only adds the resolver beside
    /// them and watches. Default: `drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "drain"))]
    pub handover: Option<Handover>,
    /// Whether a browser (a GET that accepts `text/html`) that comes while the target sleeps sees a page that says so
    /// and refreshes itself, instead of a tab that loads until a pod is ready. The page wakes the target like any
    /// request. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_page: Option<bool>,
    /// Services that select the target's pods and for which requests cannot be held: headless ones, those that publish
    /// pods that are not ready, those without a TCP port. They have no endpoints while the target sleeps. With `allow`
    /// a condition names them; with `block` the target does not sleep while there are any. Default: `allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged_services: Option<UnmanagedServices>,
}

impl ElastiServiceSpec {
    /// Seconds of quiet before sleep, where 0 means the default.
    #[must_use]
    pub fn cooldown_seconds(&self) -> u32 {
        match self.cooldown_period {
            0 => DEFAULT_COOLDOWN_SECONDS,
            seconds => seconds,
        }
    }
}

fn one() -> u32 {
    1
}

fn default_cooldown() -> u32 {
    DEFAULT_COOLDOWN_SECONDS
}

/// An autoscaler of the same target.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, KubeSchema)]
pub struct Autoscaler {
    /// `hpa` for a HorizontalPodAutoscaler, `keda` for a KEDA ScaledObject.
    #[serde(rename = "type")]
    pub type_: AutoscalerType,
    /// Name of the HorizontalPodAutoscaler or ScaledObject, in the same namespace.
    #[schemars(length(max = 253))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
            .message("write the name of the autoscaler: lower-case letters, digits, '-' and '.', for example my-api-scaler").reason(kube::core::Reason::FieldValueForbidden)
    )]
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

/// When sleep is allowed.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnabledPeriod {
    /// When the window opens: minute, hour, day of month, month, day of week, by the clock of `timeZone`.
    /// Example: `0 20 * * 1-5` for eight in the evening from Monday to Friday. Default: `0 0 * * *`, every
    /// midnight.
    #[serde(default = "EnabledPeriod::default_schedule")]
    #[schemars(length(max = MAX_SCHEDULE_CHARS))]
    pub schedule: String,
    /// How long the window stays open, in hours, minutes and seconds by the clock of `timeZone`. Examples: `8h`,
    /// `1h30m`. Default: `24h`.
    #[serde(default = "EnabledPeriod::default_duration")]
    #[schemars(length(max = MAX_DURATION_CHARS))]
    pub duration: String,
    /// Time zone of `schedule`, as the IANA database names it; daylight saving time is followed. Default: UTC.
    /// Example: `Europe/Berlin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
            .message("write a time zone of the IANA database, for example Europe/Berlin").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub time_zone: Option<String>,
}

impl EnabledPeriod {
    fn default_schedule() -> String {
        "0 0 * * *".into()
    }

    fn default_duration() -> String {
        "24h".into()
    }
}

/// Limits for requests that wait for a pod.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Longest time in seconds that a request waits for a pod; after it the client gets 503 with
    /// `Retry-After`. From 1 to 3600. Default: the resolver's setting, 600. Example: `120`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<u32>,
    /// Most requests that wait at one resolver at a time; the next one gets 503 with `Retry-After`.
    /// Default: the resolver's setting. Example: `500`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: Option<u32>,
    /// Most bytes of waiting requests that one resolver keeps in memory; at least 65536, so that the
    /// head of any request fits. Default: the resolver's setting. Example: `10485760` (10 MiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 65_536, max = 17_179_869_184_u64))]
    pub max_bytes: Option<u64>,
    /// Whether requests also wait while the service is awake and none of its pods is ready, as after a crash.
    /// With `false` they get 503 at once. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_down: Option<bool>,
    /// After how many seconds a wake counts as failed whose pods have not started, whatever keeps them: requests that
    /// wait then get 503 with the reason. Counted from when the pod could have started; for one that runs and is not
    /// ready, from the start of its containers and after the time that its startup probe allows. From 1 to 3600.
    /// Default: by cause; what may pass by itself is waited for until `timeoutSeconds`. Example: `60`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub fail_fast_seconds: Option<u32>,
    /// Who may reach the Service through a resolver, asleep or awake: others get 403 (`SourceNotAllowed`), or a closed
    /// connection if it is not HTTP, and wake nothing. Only the address that a connection comes from decides. An empty
    /// one allows no client. Default: the resolver's setting, everybody. Example: `{sameNamespace: true}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_from: Option<AllowFrom>,
}

/// The sources that are allowed: a client that matches one of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowFrom {
    /// Whether the pods of the ElastiService's own namespace are allowed. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_namespace: Option<bool>,
    /// Names of namespaces whose pods are allowed, at most 8. Pods on their node's network have its address: allow
    /// them by `cidrs`. Example: `[ingress-nginx]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// Blocks of addresses that are allowed, at most 32. Example: `[10.0.0.0/8, "fd00::/8"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 49)))]
    #[x_kube(
        validation = Rule::new("self.all(block, block.matches('^[0-9a-fA-F:.]+/[0-9]{1,3}$'))")
            .message("write each block as an address, '/' and its number of leading bits, for example 10.0.0.0/8, or 192.0.2.7/32 for one address").reason(kube::core::Reason::FieldValueForbidden)
    )]
    pub cidrs: Vec<String>,
}

/// How a sleeping target is woken.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// Whether the resolver itself runs the readiness probe of a starting pod while requests wait for it, and forwards
    /// to it as soon as the probe passes, instead of waiting for the kubelet's next probe. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_ahead: Option<bool>,
}

/// What happens if Services lose their endpoints while the target sleeps.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnmanagedServices {
    /// It sleeps, and a condition names them.
    #[default]
    Allow,
    /// It does not sleep.
    Block,
}

/// How traffic moves away from the pods before they are stopped.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Handover {
    /// Take the pods out of rotation first, while they still serve: no request is lost.
    #[default]
    Drain,
    /// Redirect and watch only.
    Redirect,
}
