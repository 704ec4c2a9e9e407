//! The configuration of one run: how many of everything, what may go wrong, and which mistake is built in.

use elasti_api::{
    Autoscaler, AutoscalerType, ElastiServiceSpec, Handover, ScaleTargetRef, Trigger, TriggerType,
};
use elasti_core::observed::Settings;
use elasti_core::ports::PortAllocator;
use elasti_core::stable_since::StableSince;
use jiff::SignedDuration;

use crate::model::world::{
    ALL_PODS, Age, Budget, Keda, Kubelet, Lease, Op, Order, Pipe, Pod, Res, RouteState, Second,
    Status, Svc, TriggerState, World, now,
};

pub const SETTLE: Age = 2;
pub const COOLDOWN: Age = 3;
pub const LEASE: Age = 3;
pub const HOLD: Age = 4;
pub const GRACE: Age = 3;
pub const TIMEOUT: Age = 5;
/// How long a promise lasts, unless the lease ends first.
pub const PROMISE: Age = 2;
/// How many may wait in the shared part of a resolver's rooms.
pub const SHARED_WAITERS: u32 = 2;

/// A mistake that is built in to see whether the laws catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    None,
    RestoresOnPodReadiness,
    RestoresAtFirstSight,
    NetInsteadOfRedirect,
    UnmarksSickPods,
    UnmarksPodsAboutToStop,
    TickInsideSettle,
    ScalesBeforeRedirect,
    MarksBeforeNodesFollow,
    TrustsStaleCache,
    WakesOnce,
    SleepsOnOpenStreams,
    AsksChosenResolversOnly,
    ForgetsWakes,
    CountsFromTheWake,
    SleepRequestsNeverExpire,
    WakeLowers,
    TakesForeignObjects,
    IgnoresPredecessor,
    AdoptsNothing,
    SendsTwice,
    ForwardsToMarkedPods,
    ForwardsToAnyService,
    ForwardsUnprobed,
    OnePoolForAll,
    UnknownIsQuiet,
    UnknownIsActive,
    OldLeaderGoesOn,
    IgnoresRival,
    RemovesFinalizerAtOnce,
    KeepsKedaPaused,
    StatusFromIntent,
    ZeroUnderPromise,
    PromiseOutlivesLease,
    PromisesVictims,
    FightsAZero,
    RestoresAtFirstPod,
    IgnoresRaises,
    DrainsWhole,
    StopsAboveUnavailablePods,
    CountsUndoneMarks,
    UndoesOthersScaleDowns,
    ForgetsShrink,
    SecondServiceInTheDark,
    DrainsTheFirstServiceOnly,
    // Liveness.
    KeepsNoNet,
    Flaps,
    HoldsForever,
    MissesReadiness,
    NeverIdle,
    WritesAtRest,
    DeletionNeedsTarget,
    NoTakeover,
}

#[derive(Clone, Debug)]
pub struct Config {
    pub name: &'static str,
    pub services: usize,
    pub nodes: usize,
    pub resolvers: usize,
    /// How many of the resolvers serve one Service.
    pub resolvers_per_service: usize,
    pub operators: usize,
    pub keda: bool,
    pub handover: Handover,
    /// The ticks of two nodes leave no gap that fits a drain of both.
    pub dense: bool,
    /// The target is a StatefulSet that stops its pods one after the other.
    pub ordered: bool,
    /// `minReadySeconds` of the target.
    pub min_ready: Age,
    /// The second ElastiService claims the same Service as the first.
    pub rivals: bool,
    /// A second Service selects the same pods.
    pub second: bool,
    /// The Service has `internalTrafficPolicy: Local`: a node sends only to the pod and the resolver on it.
    pub local: bool,
    /// An object with our name existed before.
    pub foreign: bool,
    /// KubeElasti left the service asleep, and its operator ends some time after ours has started.
    pub left: bool,
    /// The API server's record names the writer of the replicas also after a zero. The real one does not, and then one
    /// configuration breaks a law after several faults (docs/guarantees.md).
    pub keeps_record: bool,
    /// Pods of the target never get ready.
    pub broken_image: bool,
    /// The first request is a stream that never ends.
    pub endless_stream: bool,
    /// A crashed operator stays down.
    pub no_restart: bool,
    /// No operator crashes: the next one cannot tell a lower number of others from one that its predecessor wrote
    /// (docs/guarantees.md).
    pub no_crash: bool,
    /// An unknown reading is below the threshold, but its source was not up for the whole cooldown.
    pub restarted_source: bool,
    /// The trigger's reading at the start.
    pub reading: TriggerState,
    pub budget: Budget,
    pub mistake: Mistake,
}

pub const NO_BUDGET: Budget = Budget {
    faults: 0,
    clients: 0,
    outside: 0,
    readings: 0,
    deletions: 0,
    user_requests: 0,
};

impl Config {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            services: 1,
            nodes: 1,
            resolvers: 2,
            resolvers_per_service: 3,
            operators: 1,
            keda: false,
            handover: Handover::Drain,
            dense: false,
            ordered: false,
            min_ready: 0,
            rivals: false,
            second: false,
            local: false,
            foreign: false,
            left: false,
            keeps_record: false,
            broken_image: false,
            endless_stream: false,
            no_restart: false,
            no_crash: false,
            restarted_source: false,
            reading: TriggerState::Quiet,
            budget: NO_BUDGET,
            mistake: Mistake::None,
        }
    }

    pub fn with(mut self, mistake: Mistake) -> Self {
        self.mistake = mistake;
        self
    }

    pub fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// A resolver that holds requests sends wakes until a pod is ready.
    pub fn will_wake(&self, route: &RouteState) -> bool {
        !(self.is(Mistake::WakesOnce) && route.woke)
    }

    /// One slot for each service, and the shared ones, at every resolver.
    pub fn held_bound(&self) -> u32 {
        let resolvers = u32::try_from(self.resolvers).unwrap();
        resolvers * (SHARED_WAITERS + u32::try_from(self.services).unwrap())
    }

    /// Long enough that the widest gap between the ticks of one node, or of all, holds a margin, the settle time and a
    /// margin, and one unit more, because a fair operator reconciles once in a unit and knows a tick only that precisely.
    pub fn tick_period(&self) -> Age {
        let gap = 1 + SETTLE + 1 + 1;
        let nodes = if self.dense { 1 } else { self.nodes };
        gap * u8::try_from(nodes).unwrap()
    }

    /// Which pods the target's controller stops.
    pub fn order(&self) -> Order {
        match self.ordered {
            true => Order::HighestAlone {
                min_ready: self.min_ready,
            },
            false => Order::UnreadyFirst,
        }
    }

    /// The age at which nothing tells any more for how long a pod has been ready. Without `minReadySeconds` nothing does.
    pub fn most_ready(&self) -> Age {
        match self.min_ready {
            0 => 0,
            needed => (needed + 1).max(SETTLE + COOLDOWN),
        }
    }

    pub fn settings(&self) -> Settings {
        let seconds = |n: Age| SignedDuration::from_secs(i64::from(n));
        Settings {
            settle: seconds(SETTLE),
            tick_period: seconds(self.tick_period()),
            tick_timeout: seconds(self.tick_period() + 1),
            margin: seconds(1),
            resolver_grace: seconds(GRACE),
            report_fresh: seconds(1),
            deletion_timeout: seconds(TIMEOUT),
            blind_limit: SignedDuration::from_hours(1),
            contention_pause: seconds(1),
            promise: seconds(PROMISE),
            resolvers_per_service: self.resolvers_per_service,
        }
    }

    pub fn spec(&self) -> ElastiServiceSpec {
        ElastiServiceSpec {
            scale_target_ref: ScaleTargetRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: "target".into(),
            },
            service: "service".into(),
            min_target_replicas: u32::try_from(self.nodes).unwrap(),
            cooldown_period: u32::from(COOLDOWN),
            triggers: vec![Trigger {
                type_: TriggerType::Prometheus,
                metadata: std::collections::BTreeMap::default(),
                dropped: None,
            }],
            autoscaler: self.keda.then(|| Autoscaler {
                type_: AutoscalerType::Keda,
                name: "scaled".into(),
            }),
            enabled_period: None,
            enabled_periods: Vec::new(),
            probe_response: Vec::new(),
            paused: None,
            hold: None,
            wake: None,
            handover: Some(self.handover),
            waiting_page: None,
            unmanaged_services: None,
        }
    }

    fn second_service(&self) -> Second {
        Second {
            own: full(self.nodes),
            pods_at: vec![full(self.nodes); self.nodes],
            slice: None,
            resolvers_at: vec![Pipe::default(); self.nodes],
            private: false,
            net_gone: false,
            changed: vec![true; self.operators],
        }
    }

    /// Everything serves, or sleeps by KubeElasti, and Elasti has changed nothing yet.
    pub fn start(&self) -> World {
        let mut svc = Svc {
            exists: true,
            created: 0,
            deleting: None,
            finalizer: false,
            status: Status::default(),
            replicas: Some(u8::try_from(self.nodes).unwrap()),
            by_us: false,
            recorded: true,
            written: COOLDOWN,
            owed: None,
            lent: None,
            woken: None,
            served: None,
            generation: 0,
            raised: None,
            pods: vec![
                Pod::Up {
                    ready: true,
                    healthy: true,
                    marked: false
                };
                self.nodes
            ],
            ready_for: vec![self.most_ready(); self.nodes],
            kubelets: vec![Kubelet::Idle; self.nodes],
            own: full(self.nodes),
            pods_at: vec![full(self.nodes); self.nodes],
            slice: None,
            resolvers_at: vec![Pipe::default(); self.nodes],
            private: false,
            second: self.second.then(|| self.second_service()),
            foreign: self.foreign,
            keda: self.keda.then_some(match self.left {
                true => Keda::Left,
                false => Keda::Running,
            }),
            reading: self.reading,
            wake_request: None,
            wake_request_served: false,
            wake_request_answered: false,
            sleep_request: None,
            excused: false,
            pods_broken: false,
            net_gone: false,
            changed: vec![(true, ALL_PODS); self.operators],
            target_outdated: false,
        };
        if self.left {
            left_asleep(&mut svc);
        }
        let route = RouteState::default();
        World {
            ops: (0..self.operators).map(|_| self.operator()).collect(),
            res: vec![
                Res {
                    up: true,
                    routes: vec![route; self.services]
                };
                self.resolvers
            ],
            svcs: vec![svc; self.services],
            lease: Lease { holder: 0, age: 0 },
            predecessor: self.left,
            local: self.local,
            budget: self.budget.clone(),
            broken: Vec::new(),
        }
    }

    /// An operator that has just started.
    pub fn operator(&self) -> Op {
        Op {
            up: true,
            memory: vec![StableSince::fresh(now(), Some(now())); self.services],
            port_allocator: PortAllocator::new(20_000..=20_009, SignedDuration::from_secs(60)),
            wake_requests: vec![None; self.services],
            wakes: vec![None; self.services],
            promised: vec![0; self.services],
            pending: None,
            frozen: None,
        }
    }
}

/// As KubeElasti leaves a service: its slice leads to its own resolver, which no law of ours judges.
fn left_asleep(svc: &mut Svc) {
    (svc.replicas, svc.recorded) = (Some(0), false);
    svc.pods.fill(Pod::None);
    svc.own = full(0);
    svc.pods_at.fill(full(0));
    svc.slice = Some(0);
    svc.private = true;
    svc.finalizer = true;
    svc.excused = true;
}

fn full(pods: usize) -> Pipe {
    Pipe {
        seen: (1 << pods) - 1,
        coming: Vec::new(),
    }
}
