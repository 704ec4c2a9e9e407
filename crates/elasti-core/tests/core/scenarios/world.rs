//! The cluster around one service: its pods, kubelets, endpoints, resolvers and autoscaler, on a simulated timeline.
//! Nothing is random: the same script gives the same world.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, ListenPort};
use elasti_core::labels::Labels;
use elasti_core::observed::{
    Author, Autoscaler, Endpoint, Family, KedaPause, Obstacle, Owned, PrivateServiceShape, Reading,
    Rival, Service, ServiceKind, ServicePort, SliceRole, SliceShape, StopOrder, UserRequest,
};
use elasti_core::ports::PortAllocator;
use elasti_core::step::{CostChange, PodRef};
use jiff::{SignedDuration, Timestamp};

/// How late the endpoint-slice controller follows a pod.
const SLICE_DELAY: SignedDuration = SignedDuration::from_millis(100);
/// How late a workload's controller follows its replicas.
const REPLICATION_DELAY: SignedDuration = SignedDuration::from_millis(50);
/// How late a resolver follows the ports in the status.
const ROUTE_DELAY: SignedDuration = SignedDuration::from_millis(50);
/// How long a request takes once a pod has it.
const RESPONSE_TIME: SignedDuration = SignedDuration::from_millis(200);
/// How late KEDA follows its ScaledObject.
const KEDA_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// How often a resolver repeats a wake while it holds.
const WAKE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

pub struct Scale {
    pub replicas: u32,
    pub version: u32,
    pub by: Author,
    pub at: Timestamp,
}

#[derive(Clone)]
pub struct Pod {
    pub name: String,
    pub node: String,
    pub version: u32,
    pub ready: bool,
    /// When it last became ready, by the kubelet or because our mark was removed.
    pub ready_since: Option<Timestamp>,
    pub containers_ready: bool,
    pub marked: bool,
    pub obstacle: Option<Obstacle>,
    /// When it will be ready; `None` if it is or never will be.
    pub starts_at: Option<Timestamp>,
    /// When it will be gone; `None` if it is not being stopped.
    pub gone_at: Option<Timestamp>,
}

pub struct Resolver {
    pub name: String,
    pub node: String,
    pub address: IpAddr,
    pub ready: bool,
    /// It responds to the operator.
    pub answers: bool,
    pub listens: Vec<ListenPort>,
    pub held: u32,
    pub open: u32,
    pub last_connection: Option<Timestamp>,
    /// When a pod first answered one that had waited.
    pub first_answer: Option<Timestamp>,
    /// A request has waited there since it started.
    pub waited: bool,
    /// When it next sends a wake request to the operator.
    pub wakes_at: Option<Timestamp>,
    /// When the requests in flight are answered.
    pub done_at: Option<Timestamp>,
    /// When it follows the status.
    pub learns_at: Option<Timestamp>,
}

pub struct World {
    /// True time, which nothing in the world can set.
    pub now: Timestamp,
    /// How far the operator's clock is ahead of true time.
    pub clock_ahead: SignedDuration,
    pub spec: ElastiServiceSpec,
    pub generation: i64,
    pub created: Timestamp,
    pub deleting_since: Option<Timestamp>,
    pub finalizer: bool,
    pub wake_request: UserRequest,
    pub sleep_request: UserRequest,
    pub exists: bool,
    pub status: ElastiServiceStatus,
    pub rival: Option<Rival>,
    /// A pod of KubeElasti's operator.
    pub predecessor: Option<String>,
    pub service: Option<Service>,
    pub target: Option<Scale>,
    /// Which pods the target's controller stops first.
    pub stops: StopOrder,
    pub pods: Vec<Pod>,
    pub pods_made: usize,
    pub replicate_at: Option<Timestamp>,
    pub start_takes: SignedDuration,
    pub stop_takes: SignedDuration,
    /// The nodes that pods are spread over, and when in each period of 10 s each kubelet ticks.
    pub nodes: Vec<(String, SignedDuration)>,
    pub pull_fails: bool,
    pub endpoints: Vec<Endpoint>,
    pub endpoints_version: u32,
    pub slices_follow_at: Option<Timestamp>,
    pub slice: Owned<Vec<SliceShape>>,
    pub private_service: Owned<PrivateServiceShape>,
    pub resolvers: Vec<Resolver>,
    pub ports: PortAllocator,
    pub autoscaler: Autoscaler,
    pub keda_acts_at: Option<Timestamp>,
    /// The trigger's next reading.
    pub trigger: Reading,
    pub may_mark: bool,
}

/// Something that happened in the world by itself.
pub enum WorldEvent {
    Described(String),
    /// A resolver requests a wake.
    WakeRequested(String),
}

impl World {
    pub fn new(now: Timestamp, spec: ElastiServiceSpec) -> Self {
        Self {
            now,
            clock_ahead: SignedDuration::ZERO,
            spec,
            generation: 1,
            created: now,
            deleting_since: None,
            finalizer: false,
            wake_request: UserRequest::None,
            sleep_request: UserRequest::None,
            exists: true,
            status: ElastiServiceStatus::default(),
            rival: None,
            predecessor: None,
            service: Some(web_service()),
            target: None,
            stops: StopOrder::UnreadyFirst,
            pods: Vec::new(),
            pods_made: 0,
            replicate_at: None,
            start_takes: SignedDuration::from_secs(3),
            stop_takes: SignedDuration::from_secs(1),
            nodes: vec![("node-a".into(), SignedDuration::from_secs(7))],
            pull_fails: false,
            endpoints: Vec::new(),
            endpoints_version: 0,
            slices_follow_at: None,
            slice: Owned::Missing,
            private_service: Owned::Missing,
            resolvers: (1..=2).map(resolver).collect(),
            ports: PortAllocator::new(20_000..=20_999, elasti_core::ports::DEFAULT_QUARANTINE),
            autoscaler: Autoscaler::None,
            keda_acts_at: None,
            trigger: active(),
            may_mark: true,
        }
    }

    /// The operator's clock.
    pub fn clock(&self) -> Timestamp {
        self.now + self.clock_ahead
    }

    pub fn replicas(&self) -> Option<u32> {
        self.target.as_ref().map(|t| t.replicas)
    }

    pub fn scale(&mut self, replicas: u32, by: Author) {
        let now = self.now;
        let target = self.target.get_or_insert(Scale {
            replicas: 0,
            version: 0,
            by: Author::Unknown,
            at: now,
        });
        target.replicas = replicas;
        target.version += 1;
        target.by = by;
        target.at = now;
        self.replicate_at = Some(now + REPLICATION_DELAY);
        self.keda_notices();
    }

    /// The workload's controller makes pods or stops them.
    pub fn replicate(&mut self) {
        self.replicate_at = None;
        let wanted = usize::try_from(self.replicas().unwrap_or(0)).unwrap();
        let living = self.pods.iter().filter(|p| p.gone_at.is_none()).count();
        for _ in living..wanted {
            let node = self.nodes[self.pods_made % self.nodes.len()].0.clone();
            self.pods_made += 1;
            self.pods.push(Pod {
                name: format!("web-{}", self.pods_made),
                node,
                version: 1,
                ready: false,
                ready_since: None,
                containers_ready: false,
                marked: false,
                obstacle: None,
                starts_at: Some(self.now + self.start_takes),
                gone_at: None,
            });
        }
        let gone_at = self.now + self.stop_takes;
        let mut living: Vec<&mut Pod> = { self.pods.iter_mut() }
            .filter(|p| p.gone_at.is_none())
            .collect();
        match self.stops {
            // Those that stay come first.
            StopOrder::UnreadyFirst => living.sort_by_key(|p| !p.ready),
            _ => living.sort_by_key(|p| p.name.clone()),
        }
        for pod in living.into_iter().skip(wanted) {
            pod.gone_at = Some(gone_at);
            pod.version += 1;
        }
        self.pods_changed();
    }

    pub fn delete_target(&mut self) {
        self.target = None;
        self.replicate();
    }

    /// The endpoint-slice controller will follow, if there is anything to follow.
    pub fn pods_changed(&mut self) {
        if self.endpoints != self.due_endpoints() && self.slices_follow_at.is_none() {
            self.slices_follow_at = Some(self.now + SLICE_DELAY);
        }
    }

    fn due_endpoints(&self) -> Vec<Endpoint> {
        let known = self.pods.iter().filter(|p| p.starts_at.is_none());
        let endpoint = |p: &Pod| Endpoint {
            pod: p.name.clone(),
            ready: p.ready && p.gone_at.is_none(),
            terminating: p.gone_at.is_some(),
        };
        known.map(endpoint).collect()
    }

    pub fn in_rotation(&self) -> bool {
        self.endpoints.iter().any(|e| e.ready)
    }

    pub fn mark(&mut self, pods: &[PodRef], mark: bool) {
        let as_observed = |p: &&mut Pod| {
            pods.iter()
                .any(|o| o.name == p.name && o.version == p.version.to_string())
        };
        for pod in self.pods.iter_mut().filter(as_observed) {
            pod.marked = mark;
            pod.ready = !mark && pod.containers_ready;
            pod.version += 1;
        }
        self.pods_changed();
    }

    pub fn status_written(&mut self) {
        let at = self.now + ROUTE_DELAY;
        for r in &mut self.resolvers {
            if r.listens != self.status.ports {
                r.learns_at = Some(at);
            }
        }
    }

    pub fn keda_notices(&mut self) {
        if matches!(self.autoscaler, Autoscaler::Keda(_)) {
            self.keda_acts_at = Some(self.now + KEDA_DELAY);
        }
    }

    /// When the world next does something by itself.
    pub fn next_event(&self) -> Option<Timestamp> {
        let pods = self.pods.iter().flat_map(|p| [p.starts_at, p.gone_at]);
        let resolvers = self
            .resolvers
            .iter()
            .flat_map(|r| [r.wakes_at, r.done_at, r.learns_at]);
        pods.chain(resolvers)
            .chain([self.replicate_at, self.slices_follow_at])
            .chain([self.keda_acts_at, self.next_tick()])
            .flatten()
            .min()
    }

    /// When a kubelet next undoes a mark.
    fn next_tick(&self) -> Option<Timestamp> {
        let marked = self.pods.iter().filter(|p| p.marked && p.gone_at.is_none());
        marked.map(|p| self.tick_after(&p.node, self.now)).min()
    }

    fn tick_after(&self, node: &str, moment: Timestamp) -> Timestamp {
        let phase = self.nodes.iter().find(|(name, _)| name == node).unwrap().1;
        let period = 10_000;
        let into = (moment.as_millisecond() - i64::try_from(phase.as_millis()).unwrap())
            .rem_euclid(period);
        moment + SignedDuration::from_millis(period - into)
    }

    /// Everything that is due happens.
    pub fn advance(&mut self) -> Vec<WorldEvent> {
        let mut events = Vec::new();
        if self.replicate_at.is_some_and(|at| at <= self.now) {
            self.replicate();
        }
        self.pods_happen(&mut events);
        self.kubelets_happen(&mut events);
        if self.slices_follow_at.is_some_and(|at| at <= self.now) {
            self.slices_follow_at = None;
            self.endpoints = self.due_endpoints();
            self.endpoints_version += 1;
        }
        if self.keda_acts_at.is_some_and(|at| at <= self.now) {
            self.keda_acts_at = None;
            self.keda_acts(&mut events);
        }
        self.resolvers_happen(&mut events);
        events
    }

    fn pods_happen(&mut self, events: &mut Vec<WorldEvent>) {
        let (now, pull_fails) = (self.now, self.pull_fails);
        for pod in &mut self.pods {
            if pod.starts_at.is_some_and(|at| at <= now) {
                pod.starts_at = None;
                pod.version += 1;
                if pull_fails {
                    pod.obstacle = Some(Obstacle {
                        kind: elasti_core::observed::ObstacleKind::ImageMissing,
                        message: "image registry/web:9 cannot be pulled".into(),
                        failed: true,
                    });
                    events.push(WorldEvent::Described(format!(
                        "{} cannot pull its image",
                        pod.name
                    )));
                } else {
                    (pod.ready, pod.containers_ready, pod.obstacle) = (true, true, None);
                    pod.ready_since = Some(now);
                    events.push(WorldEvent::Described(format!("{} is ready", pod.name)));
                }
            }
        }
        self.pods.retain(|p| p.gone_at.is_none_or(|at| at > now));
        self.pods_changed();
    }

    fn kubelets_happen(&mut self, events: &mut Vec<WorldEvent>) {
        let before = self.now - SignedDuration::from_millis(1);
        let undone: Vec<PodRef> = self
            .pods
            .iter()
            .filter(|p| p.marked && p.gone_at.is_none())
            .filter(|p| self.tick_after(&p.node, before) == self.now)
            .map(|p| PodRef {
                name: p.name.clone(),
                version: p.version.to_string(),
                cost: CostChange::Keep,
            })
            .collect();
        if !undone.is_empty() {
            self.mark(&undone, false);
            let names = crate::scenarios::transcript::names(&undone);
            events.push(WorldEvent::Described(format!(
                "a kubelet tick undoes the mark of {names}"
            )));
        }
    }

    fn keda_acts(&mut self, events: &mut Vec<WorldEvent>) {
        let Autoscaler::Keda(pause) = &self.autoscaler else {
            return;
        };
        let held = pause.paused.as_deref() == Some("true");
        let pinned = pause
            .paused_replicas
            .as_deref()
            .and_then(|n| n.parse().ok());
        match (held, pinned, self.replicas()) {
            (true, Some(n), Some(now)) if n != now => {
                events.push(WorldEvent::Described(format!(
                    "KEDA follows its pause and sets replicas to {n}"
                )));
                self.scale(n, Author::Other("keda-operator".into()));
            }
            _ => {}
        }
    }

    fn resolvers_happen(&mut self, events: &mut Vec<WorldEvent>) {
        let pod_ready = self.pods.iter().any(|p| p.ready && p.gone_at.is_none());
        let (now, ports) = (self.now, self.status.ports.clone());
        for r in &mut self.resolvers {
            let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
            if due(r.learns_at) {
                r.learns_at = None;
                r.listens.clone_from(&ports);
            }
            if due(r.done_at) {
                (r.done_at, r.open) = (None, 0);
                r.first_answer = r.first_answer.or(r.waited.then_some(now));
            }
            if r.held > 0 && pod_ready {
                events.push(WorldEvent::Described(format!(
                    "{} forwards {} held",
                    r.name, r.held
                )));
                (r.open, r.held, r.wakes_at) = (r.open + r.held, 0, None);
                (r.waited, r.first_answer) = (true, None);
                r.done_at = Some(now + RESPONSE_TIME);
            }
            if due(r.wakes_at) {
                r.wakes_at = Some(now + WAKE_INTERVAL);
                events.push(WorldEvent::WakeRequested(r.name.clone()));
            }
        }
    }

    /// A request from a client, as the nodes would send it now; says where it went.
    pub fn request(&mut self) -> String {
        let pod_ready = self.in_rotation();
        let slices = self.slice.ours().into_iter().flatten();
        // A net is used only while there is no ready pod.
        let through: BTreeSet<IpAddr> = slices
            .filter(|s| s.role == SliceRole::Redirect || !pod_ready)
            .flat_map(|s| s.endpoints.keys().copied())
            .collect();
        let taken = |r: &&mut Resolver| r.ready && through.contains(&r.address);
        let Some(r) = self.resolvers.iter_mut().find(taken) else {
            return match pod_ready {
                true => "a request goes straight to a pod".into(),
                false => "a request is LOST: the Service has no endpoint".into(),
            };
        };
        r.last_connection = Some(self.now);
        if pod_ready {
            r.open += 1;
            r.done_at = Some(self.now + RESPONSE_TIME);
            return format!("a request goes through {}", r.name);
        }
        r.held += 1;
        r.wakes_at = Some(self.now);
        format!("a request is held at {}", r.name)
    }
}

fn resolver(n: u8) -> Resolver {
    Resolver {
        name: format!("resolver-{n}"),
        node: ["node-a", "node-b"][usize::from(n - 1)].into(),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 9, n)),
        ready: true,
        answers: true,
        listens: Vec::new(),
        held: 0,
        open: 0,
        last_connection: None,
        first_answer: None,
        waited: false,
        wakes_at: None,
        done_at: None,
        learns_at: None,
    }
}

pub fn web_service() -> Service {
    Service {
        kind: ServiceKind::ClusterIp,
        selector: Labels::from([("app", "web")]),
        ports: vec![ServicePort {
            name: "http".into(),
            port: 80,
            target_port: "8080".into(),
            tcp: true,
            app_protocol: None,
        }],
        families: BTreeSet::from([Family::V4]),
        external_local: false,
        internal_local: false,
        publishes_unready: false,
    }
}

pub fn active() -> Reading {
    Reading::Active {
        value: 12.0,
        threshold: 5.0,
    }
}

pub fn quiet() -> Reading {
    Reading::Quiet {
        value: 0.0,
        threshold: 5.0,
    }
}

pub fn unknown() -> Reading {
    Reading::Unknown {
        why: "Prometheus did not answer within 5 s".into(),
        quiet_now: false,
    }
}

pub fn keda(paused: Option<&str>, paused_replicas: Option<&str>) -> Autoscaler {
    Autoscaler::Keda(KedaPause {
        paused: paused.map(Into::into),
        paused_replicas: paused_replicas.map(Into::into),
        before: None,
    })
}
