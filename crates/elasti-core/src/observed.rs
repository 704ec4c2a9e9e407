//! The facts that one decision needs, and `now`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use elasti_api::names::condition;
use elasti_api::{
    ElastiServiceStatus, ListenPort, Reason, RouteGeneration, ServicePorts, Time, WakeClient,
};
use jiff::{SignedDuration, Timestamp};

use crate::labels::Labels;

use crate::facts::{Requests, patience};
use crate::services::Unmanaged;
use crate::stable_since::StableSince;

/// Everything `plan` may look at.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The time of this decision.
    pub now: Timestamp,
    /// The ElastiService itself.
    pub me: Me,
    /// Whether this process may take downward steps, and until when.
    pub leadership: Leadership,
    /// An older ElastiService that claims the same Service or target.
    pub rival: Option<Rival>,
    /// The pod of a living operator of KubeElasti that manages the same namespace.
    pub predecessor: Option<String>,
    /// The namespace is going away: nothing may be created in it.
    pub namespace_terminating: bool,
    /// The public Service; `None` if it does not exist.
    pub service: Option<Service>,
    /// The target's scale; `None` if it does not exist.
    pub target: Option<Target>,
    /// The pods of the target.
    pub pods: Vec<Pod>,
    /// The Service's own endpoints, as the endpoint-slice controller published them, but for pods of other owners.
    pub endpoints: Vec<Endpoint>,
    /// Opaque version of those endpoints: it differs whenever they changed, even if they changed back.
    pub endpoints_version: String,
    /// Our EndpointSlices that point the Service at the resolvers.
    pub slice: Owned<Vec<SliceShape>>,
    /// Our private Service.
    pub private_service: Owned<PrivateServiceShape>,
    /// How the Service stands to the target; the one that the spec names is always its own.
    pub standing: Standing,
    /// The other Services with a cluster IP that select the target's pods, in the order of their names.
    pub others: Vec<OtherService>,
    /// What cannot be managed of the pods' Services.
    pub unmanaged: Unmanaged,
    /// Every resolver pod.
    pub resolvers: Vec<Resolver>,
    /// The names of all nodes, each of which may send to the Service; `None` if they cannot be read.
    pub nodes: Option<BTreeSet<String>>,
    /// The listen ports that the port allocator gave this service.
    pub ports: PortsGiven,
    /// The autoscaler that the spec names.
    pub autoscaler: Autoscaler,
    /// One reading for each trigger, in the spec's order.
    pub readings: Vec<Reading>,
    /// What is told beside each of them.
    pub reading_details: Vec<ReadingDetails>,
    /// When a resolver last asked this process for a wake.
    pub wake_requested_at: Option<Timestamp>,
    /// Whom this process was asked to wake it for, first since it slept; told by resolvers that are set to.
    pub wake_client: Option<SeenClient>,
    /// When this process last scaled the target up from zero.
    pub woken_at: Option<Timestamp>,
    /// Until when the last promise to a resolver lasts, or lasted: no write downwards before.
    pub promised_until: Option<Timestamp>,
    /// The operator may patch `pods/status`.
    pub may_mark: bool,
    /// What this process has seen over time.
    pub stable_since: StableSince,
    /// Times that the operator's settings fix.
    pub settings: Settings,
}

/// A client that a resolver named, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClient {
    /// When the wake was requested.
    pub at: Timestamp,
    /// Who.
    pub client: WakeClient,
}

impl Observed {
    /// How long ago `moment` was; never negative, so that a clock that jumps back reads as "just now".
    #[must_use]
    pub fn since(&self, moment: Timestamp) -> SignedDuration {
        self.now.duration_since(moment).max(SignedDuration::ZERO)
    }

    /// The resolvers that may get traffic.
    pub fn ready_resolvers(&self) -> impl Iterator<Item = &Resolver> {
        self.resolvers.iter().filter(|r| r.usable())
    }

    /// The replicas that the target asks for; `None` if there is no target.
    #[must_use]
    pub fn replicas(&self) -> Option<u32> {
        self.target.as_ref().map(|t| t.replicas)
    }

    /// The Service's own endpoints show a pod that takes traffic.
    #[must_use]
    pub fn in_rotation(&self) -> bool {
        self.endpoints.iter().any(|e| e.ready && !e.terminating)
    }

    /// The Service's own endpoints show this pod, and that it takes traffic.
    #[must_use]
    pub fn shows_ready(&self, pod: &str) -> bool {
        let mut endpoints = self.endpoints.iter();
        endpoints.any(|e| e.ready && !e.terminating && e.pod == pod)
    }

    /// Pods that carry our mark.
    pub fn marked_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|p| p.marked)
    }

    /// Our slice sends every new connection to the resolvers; a net does not.
    #[must_use]
    pub fn is_redirected(&self) -> bool {
        let slices = self.slice.ours().into_iter().flatten();
        slices.into_iter().any(|s| s.role == SliceRole::Redirect)
    }

    /// A pod would take traffic if it were in rotation.
    #[must_use]
    pub fn any_pod_ready(&self) -> bool {
        self.pods.iter().any(|p| p.ready && !p.terminating)
    }
}

/// The ElastiService's own metadata and what its status remembers.
#[derive(Clone, Debug)]
pub struct Me {
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.deletionTimestamp`.
    pub deleting_since: Option<Timestamp>,
    /// Our finalizer is there.
    pub finalizer: bool,
    /// A person asked for a wake.
    pub wake_request: UserRequest,
    /// A person asked for sleep.
    pub sleep_request: UserRequest,
    /// What the status remembers across restarts.
    pub remembered: Remembered,
}

/// What a person asked for by an annotation, as it stands there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UserRequest {
    /// Nothing.
    #[default]
    None,
    /// It was asked for then.
    At(Timestamp),
    /// What stands there is not a time.
    Unreadable,
}

/// What survives a restart of the operator, because it stands in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// `status.observedGeneration`.
    pub generation: Option<i64>,
    /// `status.ports`.
    pub ports: Vec<ListenPort>,
    /// `status.services`.
    pub services: Vec<ServicePorts>,
    /// `status.quietSince`.
    pub quiet_since: Option<Timestamp>,
    /// `status.lastActiveTime`.
    pub last_active: Option<Timestamp>,
    /// `status.lastScaledUpTime`.
    pub last_wake: Option<Timestamp>,
    /// `status.lastWake.by` is `Manual`: something else scaled it up from zero.
    pub woken_by_other: bool,
    /// `status.lastWake.readyAt`: when a pod of the last wake was first ready.
    pub ready_after_wake: Option<Timestamp>,
    /// `status.lastSleepTime`.
    pub last_sleep: Option<Timestamp>,
    /// `status.replicas`.
    pub replicas: Option<u32>,
    /// `status.replicasBeforeDrain`.
    pub replicas_before_drain: Option<u32>,
    /// `status.pauseLeft`.
    pub pause_left: bool,
    /// Since when the condition `Contended` has been true.
    pub contended_since: Option<Timestamp>,
}

impl From<&ElastiServiceStatus> for Remembered {
    fn from(status: &ElastiServiceStatus) -> Self {
        let stamp = |time: &Option<Time>| time.as_ref().map(|t| t.0);
        Self {
            generation: status.observed_generation,
            ports: status.ports.clone(),
            services: status.services.clone(),
            quiet_since: stamp(&status.quiet_since),
            last_active: stamp(&status.last_active_time),
            last_wake: stamp(&status.last_scaled_up_time),
            woken_by_other: { status.last_wake.as_ref() }
                .is_some_and(|wake| wake.by == Reason::Manual.as_str()),
            ready_after_wake: status
                .last_wake
                .as_ref()
                .and_then(|wake| wake.ready_at.as_ref())
                .map(|at| at.0),
            last_sleep: stamp(&status.last_sleep_time),
            replicas: status.replicas.and_then(|n| u32::try_from(n).ok()),
            replicas_before_drain: status
                .replicas_before_drain
                .and_then(|n| u32::try_from(n).ok()),
            pause_left: status.pause_left == Some(true),
            contended_since: { status.conditions.iter() }
                .find(|c| c.type_ == condition::CONTENDED && c.status == "True")
                .map(|c| c.last_transition_time.0),
        }
    }
}

impl Remembered {
    /// The target was at zero when the status was written.
    /// Both stamps can lie within one second, so the recorded replicas take precedence over their order.
    #[must_use]
    pub fn was_at_zero(&self) -> bool {
        let stamped = self.last_sleep > self.last_wake;
        self.last_sleep.is_some() && self.replicas.map_or(stamped, |n| n == 0)
    }
}

/// Whether this process may take downward steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leadership {
    /// It holds the lease until then.
    Leader {
        /// When the lease ends unless it is renewed.
        until: Timestamp,
    },
    /// Another process leads.
    Follower,
}

/// An older ElastiService that claims the same Service or target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rival {
    /// Its name.
    pub name: String,
    /// What both claim.
    pub claim: Claim,
}

/// What two ElastiServices can both claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// The same Service.
    Service,
    /// The same target.
    Target,
}

/// The public Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// What kind of Service it is, as far as redirecting cares.
    pub kind: ServiceKind,
    /// Its pod selector.
    pub selector: Labels,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// The address families it serves.
    pub families: BTreeSet<Family>,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `publishNotReadyAddresses`: its pods are in rotation whether they are ready or not.
    pub publishes_unready: bool,
}

impl Service {
    /// Resolvers may stand by as a net. With a `Local` policy every node without a pod would use it all the time.
    #[must_use]
    pub fn allows_net(&self) -> bool {
        !self.external_local && !self.internal_local
    }
}

/// Another Service of the target's pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherService {
    /// Its name.
    pub name: String,
    /// The Service; `None` if it does not exist any more.
    pub service: Option<Service>,
    /// How it stands to the target.
    pub standing: Standing,
    /// Its own endpoints, but for pods of other owners.
    pub endpoints: Vec<Endpoint>,
    /// Opaque version of those endpoints.
    pub endpoints_version: String,
    /// Our EndpointSlices that point it at the resolvers.
    pub slice: Owned<Vec<SliceShape>>,
    /// Our private Service for it.
    pub private_service: Owned<PrivateServiceShape>,
    /// The listen ports that the port allocator gave it.
    pub ports: PortsGiven,
}

/// How a Service stands to the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// No pod of another owner is ready behind it: it goes to the resolvers with the target.
    #[default]
    Own,
    /// Pods of other owners are ready behind it: it keeps the net only.
    Shared,
    /// It does not select the target's pods any more, or belongs to another ElastiService: what is ours goes.
    Left,
}

/// What kind of Service it is, as far as redirecting cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceKind {
    /// Clients dial a cluster IP: ClusterIP, NodePort, LoadBalancer.
    ClusterIp,
    /// `clusterIP: None`: clients dial pods.
    Headless,
    /// A DNS alias.
    ExternalName,
}

/// One port of the public Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServicePort {
    /// Its name; empty where there is only one.
    pub name: String,
    /// The port that clients dial.
    pub port: u16,
    /// The pod's port: a number or a name.
    pub target_port: String,
    /// TCP, or something that cannot be carried.
    pub tcp: bool,
    /// `appProtocol`, if set.
    pub app_protocol: Option<String>,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn from_address(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The target's scale.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `spec.replicas`: what is asked for. Never `status.replicas`, which lags.
    pub replicas: u32,
    /// Opaque version of the object; a downward write is refused if it changed.
    pub version: String,
    /// `metadata.generation`: one more with each change of its spec.
    pub generation: Option<i64>,
    /// Who wrote `spec.replicas` last.
    pub replicas_by: Author,
    /// When, by the API server's record of field managers.
    pub replicas_at: Option<Timestamp>,
    /// Which pods its controller stops when it is scaled down.
    pub stops: StopOrder,
    /// `spec.minReadySeconds`: for so long a pod must have been `Ready` to count as available.
    pub min_ready_seconds: u32,
    /// What each pod of its template requests.
    pub requests: Requests,
}

/// Which pods the target's controller stops when it is scaled down, as Kubernetes 1.34 does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopOrder {
    /// Not known: an unknown kind, or a Deployment with pods of several templates. Only a scale to zero is safe.
    #[default]
    Unknown,
    /// Its controller has not seen its latest change yet, so it may be about to become any other.
    Unsettled,
    /// Pods that are not ready first: a Deployment whose pods all belong to one ReplicaSet, or a ReplicaSet.
    UnreadyFirst,
    /// The highest ordinal, alone, and only while every lower pod is available and none terminates: a StatefulSet whose
    /// `podManagementPolicy` is `OrderedReady`.
    HighestAlone,
    /// The highest ordinals at once, ready or not: a StatefulSet whose `podManagementPolicy` is `Parallel`.
    HighestFirst,
}

/// Who wrote a field last, by its field manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Author {
    /// We did.
    Elasti,
    /// Someone else, by the name of its field manager.
    Other(String),
    /// The API server's record names no one.
    Unknown,
}

/// A pod of the target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its uid: a new pod of the same name is another pod.
    pub uid: String,
    /// Opaque version: it differs whenever the pod changed, even if it changed back.
    pub version: String,
    /// The node it runs on; empty while unscheduled.
    pub node: String,
    /// Its containers run.
    pub started: bool,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// Since when condition `Ready` is true, by the condition itself: it survives a restart of the operator.
    pub ready_since: Option<Timestamp>,
    /// Condition `ContainersReady` is true, and so is each readiness gate: only such a pod may be un-marked.
    pub containers_ready: bool,
    /// `Ready` is false because of our mark.
    pub marked: bool,
    /// How readily a ReplicaSet stops it.
    pub deletion_cost: DeletionCost,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// What keeps it from starting.
    pub obstacle: Option<Obstacle>,
}

/// The annotation `pod-deletion-cost` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeletionCost {
    /// It has none.
    #[default]
    Unset,
    /// The lowest, as we set it.
    Lowest,
    /// Someone else's: it is left as it is.
    Other,
}

impl Pod {
    /// A pod that was never created: the API server refuses those of `target`.
    #[must_use]
    pub fn refused(target: &str, obstacle: Obstacle) -> Self {
        Self {
            name: format!("of {target}"),
            uid: String::new(),
            version: String::new(),
            node: String::new(),
            started: false,
            ready: false,
            ready_since: None,
            containers_ready: false,
            marked: false,
            deletion_cost: DeletionCost::Unset,
            terminating: false,
            obstacle: Some(obstacle),
        }
    }
}

/// What keeps a pod from starting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Obstacle {
    /// The closed category.
    pub kind: ObstacleKind,
    /// What the node or the scheduler said.
    pub message: String,
    /// It is not waited for any more: a wake has failed by it.
    pub failed: bool,
}

impl Obstacle {
    /// The word for it: one while it may pass, another when a wake has failed by it.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let row = patience(self.kind);
        if self.failed { row.fails } else { row.waits }
    }

    /// What it means for the pod of this name.
    #[must_use]
    pub fn sentence(&self, pod: &str) -> String {
        let message = &self.message;
        match self.failed {
            true => format!("Pod {pod} cannot start: {message}."),
            false => format!("Pod {pod} has not started yet: {message}; requests are held."),
        }
    }
}

/// The closed list of obstacles; `facts::patience` says how long each is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObstacleKind {
    /// No node takes the pod.
    Unschedulable,
    /// Its containers are being created: images pulled, volumes attached.
    Creating,
    /// Its init containers run.
    Initializing,
    /// The registry does not give the image now.
    ImagePull,
    /// The registry does not have the image, or not for us.
    ImageMissing,
    /// The image cannot be pulled by its name or its policy.
    ImageInvalid,
    /// Something that a container needs is missing, such as a ConfigMap.
    Config,
    /// The container keeps crashing.
    CrashLoop,
    /// It runs, but its readiness probe has not passed.
    NeverReady,
    /// A quota leaves no room for the pod.
    Quota,
    /// An admission webhook does not answer.
    Webhook,
    /// Admission refuses the pod.
    Refused,
}

impl ObstacleKind {
    /// Each of them.
    pub const ALL: [Self; 12] = [
        Self::Unschedulable,
        Self::Creating,
        Self::Initializing,
        Self::ImagePull,
        Self::ImageMissing,
        Self::ImageInvalid,
        Self::Config,
        Self::CrashLoop,
        Self::NeverReady,
        Self::Quota,
        Self::Webhook,
        Self::Refused,
    ];
}

/// One endpoint in the Service's own slices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Name of the pod behind it.
    pub pod: String,
    /// Its `ready` condition.
    pub ready: bool,
    /// Its `terminating` condition.
    pub terminating: bool,
}

/// An object of ours, by name, as found in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owned<T> {
    /// Not there.
    Missing,
    /// There and ours.
    Ours(T),
    /// There, but it belongs to someone else.
    Foreign,
}

impl<T> Owned<T> {
    /// The content, if the object is ours.
    pub fn ours(&self) -> Option<&T> {
        match self {
            Self::Ours(content) => Some(content),
            Self::Missing | Self::Foreign => None,
        }
    }
}

/// What matters of one EndpointSlice that points the Service at the resolvers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceShape {
    /// The family of its addresses.
    pub family: Family,
    /// When nodes use it.
    pub role: SliceRole,
    /// Its ports.
    pub ports: Vec<ListenPort>,
    /// The resolvers' addresses, each with its node; empty if unknown.
    pub endpoints: BTreeMap<IpAddr, String>,
}

/// When nodes send connections to the resolvers in our slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SliceRole {
    /// Only while the Service has no ready endpoint: its endpoints are serving and terminating, and not ready.
    Net,
    /// Always: its endpoints are ready.
    Redirect,
}

/// What matters of the private Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PrivateServiceShape {
    /// Follows the public Service.
    pub selector: Labels,
    /// Follows the public Service.
    pub ports: Vec<ServicePort>,
    /// Follows the public Service.
    pub families: BTreeSet<Family>,
}

impl From<&Service> for PrivateServiceShape {
    fn from(service: &Service) -> Self {
        Self {
            selector: service.selector.clone(),
            ports: service.ports.clone(),
            families: service.families.clone(),
        }
    }
}

/// One resolver pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resolver {
    /// Its pod's name.
    pub name: String,
    /// The node it runs on.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its pod is ready.
    pub ready: bool,
    /// Its pod has a deletion timestamp.
    pub terminating: bool,
    /// What it last said about this service.
    pub report: Report,
}

impl Resolver {
    /// It may get traffic.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.ready && !self.terminating
    }
}

/// What a resolver last said about this service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    /// It was not asked yet.
    NotAsked,
    /// It was asked and did not answer.
    Unreachable,
    /// It answered.
    Seen {
        /// When.
        at: Timestamp,
        /// The route that it listens for; `None` if it knows none.
        route: Option<RouteGeneration>,
        /// The routes that it listens for of the other Services, by their names.
        other_routes: BTreeMap<String, RouteGeneration>,
        /// Requests that wait, of all Services.
        held: u32,
        /// Requests and streams being carried.
        open: u32,
        /// When the last request or connection came that is use of it; what a probe rule matches is not.
        last_connection: Option<Timestamp>,
        /// When a pod first answered a request that had waited, since requests last began to wait.
        first_answer: Option<Timestamp>,
    },
}

/// What the port allocator gave this service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortsGiven {
    /// One listen port for each TCP port of the Service.
    Given(Vec<ListenPort>),
    /// The range is used up.
    Exhausted,
}

/// The autoscaler that the spec names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Autoscaler {
    /// The spec names none.
    None,
    /// The spec names one that does not exist.
    Missing,
    /// A HorizontalPodAutoscaler.
    Hpa {
        /// Its lower bound.
        min_replicas: u32,
    },
    /// A KEDA ScaledObject.
    Keda(KedaPause),
}

/// The pause annotations of a ScaledObject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KedaPause {
    /// `autoscaling.keda.sh/paused`.
    pub paused: Option<String>,
    /// `autoscaling.keda.sh/paused-replicas`.
    pub paused_replicas: Option<String>,
    /// What stood there before we paused it; present exactly while the pause is ours.
    pub before: Option<KedaBefore>,
}

/// The pause annotations as they stood before ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KedaBefore {
    /// `autoscaling.keda.sh/paused`.
    pub paused: Option<String>,
    /// `autoscaling.keda.sh/paused-replicas`.
    pub paused_replicas: Option<String>,
}

/// One trigger's reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// At or above the threshold.
    Active {
        /// The sample; not a number where it must not be shown.
        value: f64,
        /// The spec's threshold.
        threshold: f64,
    },
    /// Below the threshold, from a source that was healthy for the whole cooldown.
    Quiet {
        /// The sample; not a number where it must not be shown.
        value: f64,
        /// The spec's threshold.
        threshold: f64,
    },
    /// No usable reading.
    Unknown {
        /// One clause that says why.
        why: String,
        /// The sample is below the threshold, but its source was not up for the whole cooldown. That is enough for a
        /// user's request to sleep, which waives waiting times, and for nothing else.
        quiet_now: bool,
    },
    /// This process has not read it yet: no sleep, but nothing to report either.
    Unread,
}

/// What is told beside a trigger's reading. Nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadingDetails {
    /// When the reading was requested from its source: it was true no earlier.
    pub read_at: Option<Timestamp>,
    /// Metrics of the query that have had no series for a week, while it falls back on a value that is always there;
    /// `None` if that is not known.
    pub without_series: Option<Vec<String>>,
}

impl Reading {
    /// No usable reading, with one clause that says why.
    pub fn unknown(why: impl Into<String>) -> Self {
        let (why, quiet_now) = (why.into(), false);
        Self::Unknown { why, quiet_now }
    }
}

/// Times that the operator's settings fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Within this every node has applied an EndpointSlice change.
    pub settle: SignedDuration,
    /// How often a kubelet restores pod conditions that were changed from outside.
    pub tick_period: SignedDuration,
    /// A kubelet that has not undone a mark after this long does not tick.
    pub tick_timeout: SignedDuration,
    /// A downward write keeps this distance from the next tick and from the end of the lease.
    pub margin: SignedDuration,
    /// With no ready resolver for this long, everything wakes.
    pub resolver_grace: SignedDuration,
    /// A report older than this proves nothing about now.
    pub report_fresh: SignedDuration,
    /// How long a deletion waits for a ready pod.
    pub deletion_timeout: SignedDuration,
    /// After a longer gap without readings the quiet time starts anew.
    pub blind_limit: SignedDuration,
    /// How long to wait before waking again a target that someone else put back to zero.
    pub contention_pause: SignedDuration,
    /// How long a promise to a resolver lasts, unless the lease ends first: long enough to remove the marks, and for a
    /// request to be seen in a resolver's report; a shutdown waits for it.
    pub promise: SignedDuration,
    /// How many resolvers serve one Service at most, unless its traffic policy is `Local`.
    pub resolvers_per_service: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            settle: SignedDuration::from_secs(2),
            tick_period: SignedDuration::from_secs(10),
            tick_timeout: SignedDuration::from_secs(15),
            margin: SignedDuration::from_secs(1),
            resolver_grace: SignedDuration::from_secs(30),
            report_fresh: SignedDuration::from_secs(1),
            deletion_timeout: SignedDuration::from_mins(5),
            blind_limit: SignedDuration::from_mins(2),
            contention_pause: SignedDuration::from_secs(10),
            promise: SignedDuration::from_secs(5),
            resolvers_per_service: 3,
        }
    }
}
