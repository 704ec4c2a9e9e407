//! The modelled cluster: an API store, nodes with views that lag, pods, kubelets, resolvers, operators, clients.
//! Operators run the real `plan`, resolvers the real waiting rooms.

use elasti_core::laws::{self, NodeView, Snapshot, TraceEvent, Violation};
use elasti_core::ports::PortAllocator;
use elasti_core::stable_since::StableSince;
use jiff::{SignedDuration, Timestamp};

/// A duration in time units. Each saturates where no rule can tell it from a longer one.
pub type Age = u8;
/// Every time is `NOW` minus an age, so that the same situation later is the same state.
pub const NOW_SECOND: i64 = 1_000_000;

pub fn now() -> Timestamp {
    Timestamp::from_second(NOW_SECOND).unwrap()
}

pub fn ago(age: Age) -> Timestamp {
    now() - SignedDuration::from_secs(i64::from(age))
}

/// One unit older, but no older than `most`.
pub fn older(age: Age, most: Age) -> Age {
    (age + 1).min(most)
}

/// Beside the resolvers in our slice: nodes use them only while they know no ready pod.
pub const NET: u8 = 0x80;
/// Beside the ready pods in the Service's own slices: those that terminate, and still count as serving.
pub const TERMINATING: u8 = 4;
/// Every pod of a service.
pub const ALL_PODS: u8 = (1 << TERMINATING) - 1;

/// What is published, and the changes that a follower has not applied yet, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Pipe {
    pub seen: u8,
    pub coming: Vec<(u8, Age)>,
}

impl Pipe {
    /// The source has changed.
    pub fn push(&mut self, value: u8) {
        let last = self.coming.last().map_or(self.seen, |(value, _)| *value);
        if last != value {
            self.coming.push((value, 0));
        }
        // A burst of changes within one unit may be seen as one; three in a row are enough to show every flap.
        if self.coming.len() > 3 {
            self.coming.remove(1);
        }
    }

    /// The follower applies the oldest change; true if there was one.
    pub fn apply(&mut self) -> bool {
        if self.coming.is_empty() {
            return false;
        }
        self.seen = self.coming.remove(0).0;
        true
    }

    /// It shows something, or is about to.
    pub fn has_anything(&self) -> bool {
        self.seen != 0 || self.coming.iter().any(|(mask, _)| *mask != 0)
    }

    /// Time may pass only if no change becomes older than the assumption allows.
    pub fn may_wait(&self, bound: Age) -> bool {
        self.coming.first().is_none_or(|(_, age)| age + 1 < bound)
    }

    pub fn tick(&mut self) {
        for (_, age) in &mut self.coming {
            *age += 1;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pod {
    None,
    Starting,
    /// Its own probe passes, and its kubelet has yet to say so: a resolver that holds requests may know before.
    Passing,
    /// Never gets ready: the obstacle is known.
    Stuck,
    Up {
        /// Condition Ready.
        ready: bool,
        /// Condition ContainersReady: what the application itself says.
        healthy: bool,
        marked: bool,
    },
    /// Got SIGTERM: refuses from now on, and yet counts as serving until it is gone.
    Terminating,
}

impl Pod {
    pub fn ready(self) -> bool {
        matches!(self, Self::Up { ready: true, .. })
    }

    pub fn marked(self) -> bool {
        matches!(self, Self::Up { marked: true, .. })
    }

    pub fn answers(self) -> bool {
        matches!(self, Self::Up { healthy: true, .. })
    }

    pub fn living(self) -> bool {
        matches!(
            self,
            Self::Starting | Self::Passing | Self::Stuck | Self::Up { .. }
        )
    }
}

/// What a node's kubelet will do about marks on its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kubelet {
    /// Nothing to undo.
    Idle,
    /// Its next tick comes at any time within a period; this long it has waited.
    Sometime(Age),
    /// Its next tick comes in exactly this many units.
    In(Age),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TriggerState {
    Quiet,
    Active,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keda {
    Running,
    Held,
    Pinned,
    /// Pinned by KubeElasti, which records nothing beside it.
    Left,
}

impl Keda {
    pub fn is_paused(self) -> bool {
        self != Self::Running
    }
}

/// The part of the status that decisions read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Status {
    pub phase: Option<elasti_api::Phase>,
    pub proxy: bool,
    pub asleep: bool,
    pub ports: bool,
    /// The ports of the second Service are recorded.
    pub second: bool,
    pub observed: bool,
    pub quiet: Option<Age>,
    pub wake: Option<Age>,
    /// Something else has woken it.
    pub woken_by_other: bool,
    pub sleep: Option<Age>,
    /// The replicas before the first scale-down.
    pub before: Option<u8>,
    /// A pause that KubeElasti left is still to be released.
    pub pause_left: bool,
    /// How long something else has contended.
    pub contended: Option<Age>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Svc {
    /// The ElastiService exists.
    pub exists: bool,
    pub created: Age,
    pub deleting: Option<Age>,
    pub finalizer: bool,
    pub status: Status,
    /// `spec.replicas` of the target; `None` if it was deleted.
    pub replicas: Option<u8>,
    pub by_us: bool,
    /// The API server records who writes the replicas: until the first zero, and never again.
    pub recorded: bool,
    pub written: Age,
    /// To what we scaled down and how long ago, if the replica controller has neither acted on that nor seen it undone.
    pub owed: Option<(u8, Age)>,
    /// The replicas before our first scale-down, until the target is at zero, they are restored, or others write them.
    pub lent: Option<u8>,
    /// The true age of the last wake by us.
    pub woken: Option<Age>,
    /// The true age of the first ready pod of that wake.
    pub served: Option<Age>,
    /// How often the target has been written since a scale-down that no reconcile has seen yet.
    pub generation: u8,
    /// The true age of the last scale-up by others from more than zero.
    pub raised: Option<Age>,
    pub pods: Vec<Pod>,
    /// For how long each pod has been ready, as its kubelet has it: a mark that a tick undoes changes nothing.
    pub ready_for: Vec<Age>,
    pub kubelets: Vec<Kubelet>,
    /// Pod readiness -> the Service's own slices.
    pub own: Pipe,
    /// The Service's own slices -> each node.
    pub pods_at: Vec<Pipe>,
    /// Our slice: a set of resolvers, and whether it is a net.
    pub slice: Option<u8>,
    /// Our slice -> each node.
    pub resolvers_at: Vec<Pipe>,
    pub private: bool,
    pub second: Option<Second>,
    /// An object of our name that is not ours.
    pub foreign: bool,
    pub keda: Option<Keda>,
    pub reading: TriggerState,
    /// How long ago a user requested a wake.
    pub wake_request: Option<Age>,
    /// The leader knows that the target was up since the user's wake request.
    pub wake_request_served: bool,
    /// Something else wrote a zero after that.
    pub wake_request_answered: bool,
    /// How long ago a user requested sleep.
    pub sleep_request: Option<Age>,
    /// Something broke the paths that not even a net can catch.
    pub excused: bool,
    /// Something outside Elasti stopped pods: what they refuse is their own, but the net catches the rest.
    pub pods_broken: bool,
    /// The net was removed where it was all that a node had: see `leaves_nothing`.
    pub net_gone: bool,
    /// For each operator: whether the endpoints have changed since its last reconcile, and which pods have.
    pub changed: Vec<(bool, u8)>,
    /// Of a frozen cache: the target has been written since.
    pub target_outdated: bool,
}

/// A second Service of the same pods: what it has of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Second {
    pub own: Pipe,
    pub pods_at: Vec<Pipe>,
    pub slice: Option<u8>,
    pub resolvers_at: Vec<Pipe>,
    pub private: bool,
    pub net_gone: bool,
    /// For each operator: whether the endpoints have changed since its last reconcile.
    pub changed: Vec<bool>,
}

impl Second {
    pub fn pipes(&self) -> impl Iterator<Item = &Pipe> {
        std::iter::once(&self.own)
            .chain(&self.pods_at)
            .chain(&self.resolvers_at)
    }

    pub fn pipes_mut(&mut self) -> impl Iterator<Item = &mut Pipe> {
        std::iter::once(&mut self.own)
            .chain(&mut self.pods_at)
            .chain(&mut self.resolvers_at)
    }

    /// The endpoint-slice controller publishes the oldest change; nodes will follow.
    pub fn publish(&mut self) {
        if self.own.apply() {
            self.changed.iter_mut().for_each(|changed| *changed = true);
            for node in &mut self.pods_at {
                node.push(self.own.seen);
            }
        }
    }

    pub fn set_slice(&mut self, slice: Option<u8>) {
        self.slice = slice;
        for node in &mut self.resolvers_at {
            node.push(slice.unwrap_or(0));
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct RouteState {
    pub listens: bool,
    /// It listens for the second Service, too.
    pub listens_second: bool,
    /// Held requests that no pod has seen a byte of.
    pub held: u8,
    /// Held requests that a pod has seen a byte of: there must be none.
    pub held_again: u8,
    pub held_for: Age,
    pub open: u8,
    pub last: Option<Age>,
    /// A wake was sent since the first of those that wait arrived.
    pub woke: bool,
    /// How long the leader's promise still lasts, and the pods that it covers.
    pub promise: Option<(Age, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Res {
    pub up: bool,
    pub routes: Vec<RouteState>,
}

/// What one operator is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    AddFinalizer,
    EnsurePrivate,
    EnsureSlice(u8),
    Keda(Keda),
    Mark(Vec<usize>),
    Unmark(Vec<usize>),
    Shrink(u8),
    Zero {
        by_redirect: bool,
    },
    Wake(u8),
    RestoreReplicas(u8),
    RemoveSlice,
    DeletePrivate,
    RemoveFinalizer,
    Status(Status),
    /// About the second Service.
    Second(Box<Effect>),
}

/// What was true when a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    pub busy: bool,
    pub silent: bool,
    pub reading: TriggerState,
    pub since_wake: Option<Age>,
    pub since_ready: Option<Age>,
    pub since_raised: Option<Age>,
    pub sleep_requested_since_wake: bool,
    pub wake_justified: bool,
    pub against_younger_zero: bool,
    pub redirected: bool,
    pub zero: bool,
    pub pointless: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub svc: usize,
    /// In order, each with how long it may still be sent.
    pub effects: Vec<(Effect, Option<Age>)>,
    pub target_changed: bool,
    /// The pods as a stale cache showed them, if the plan was made from one.
    pub stale_pods: Option<Vec<Pod>>,
    pub evidence: Evidence,
}

impl Effect {
    pub fn scales_down(&self) -> bool {
        matches!(self, Self::Shrink(_) | Self::Zero { .. })
    }
}

impl Pending {
    pub fn scales_down(&self) -> bool {
        { self.effects.iter() }.any(|(effect, _)| effect.scales_down())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    pub up: bool,
    pub memory: Vec<StableSince>,
    pub port_allocator: PortAllocator,
    /// For each service: how long ago a resolver last requested a wake of it, and whether others wrote a zero since.
    pub wake_requests: Vec<Option<(Age, bool)>>,
    /// For each service: how long ago it scaled it up from zero.
    pub wakes: Vec<Option<Age>>,
    /// For each service: how long what it promised about it still lasts.
    pub promised: Vec<Age>,
    pub pending: Option<Pending>,
    /// A cache that stopped following the store.
    pub frozen: Option<Vec<Svc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub holder: usize,
    pub age: Age,
}

/// What may still happen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    pub faults: u8,
    pub clients: u8,
    pub outside: u8,
    pub readings: u8,
    pub deletions: u8,
    pub user_requests: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub svcs: Vec<Svc>,
    pub ops: Vec<Op>,
    pub res: Vec<Res>,
    pub lease: Lease,
    /// KubeElasti's operator lives.
    pub predecessor: bool,
    /// A node sends only to what is on it; pod `i` and resolver `i` are on node `i`.
    pub local: bool,
    pub budget: Budget,
    pub broken: Vec<Violation>,
}

impl World {
    /// Checks an event against the laws.
    pub fn judge(&mut self, event: &TraceEvent) {
        for violation in laws::check_event(event) {
            self.break_law(violation);
        }
    }

    pub fn break_law(&mut self, violation: Violation) {
        if !self.broken.contains(&violation) {
            self.broken.push(violation);
        }
    }

    /// The true state of one service, for the laws.
    pub fn snapshot(&self, s: usize, model: &crate::model::config::Config) -> Snapshot {
        let svc = &self.svcs[s];
        let holding = |r: &&Res| r.up && r.routes[s].held + r.routes[s].held_again > 0;
        let held = self
            .res
            .iter()
            .filter(holding)
            .map(|r| u32::from(r.routes[s].held))
            .sum();
        Snapshot {
            excused: self.is_excused(s),
            nodes: self.nodes_to_judge(s),
            other_services: self.second_to_judge(s),
            replicas: svc.replicas.map(u32::from),
            held,
            wake_will_come: self
                .res
                .iter()
                .filter(holding)
                .all(|r| model.will_wake(&r.routes[s])),
            held_bound: model.held_bound(),
            at_rest: false,
            keda_paused_by_us: svc.keda.is_some_and(Keda::is_paused),
        }
    }

    /// Where a node still sends connections to pods that something else stopped, what they refuse is their own.
    fn nodes_to_judge(&self, s: usize) -> Vec<NodeView> {
        let mut views = self.node_views(s);
        let svc = &self.svcs[s];
        views.retain(|view| !svc.pods_broken || view.pods.is_empty());
        views.retain(|view| !svc.net_gone || !is_empty(view));
        views
    }

    /// The same for a second Service.
    fn second_to_judge(&self, s: usize) -> Vec<NodeView> {
        let svc = &self.svcs[s];
        let Some(second) = &svc.second else {
            return Vec::new();
        };
        let netless = second.resolvers_at.iter().any(|pipe| pipe.seen == 0);
        let excused = svc.excused || !svc.exists || svc.replicas.is_none();
        if excused || svc.pods_broken && netless {
            return Vec::new();
        }
        let mut views = self.second_views(s);
        views.retain(|view| !svc.pods_broken || view.pods.is_empty());
        views.retain(|view| !second.net_gone || !is_empty(view));
        views
    }

    pub fn second_views(&self, s: usize) -> Vec<NodeView> {
        let svc = &self.svcs[s];
        let listens = |r: usize| self.res[r].up && self.res[r].routes[s].listens_second;
        let second = svc.second.iter();
        let pipes = second.flat_map(|one| one.pods_at.iter().zip(&one.resolvers_at));
        let views = pipes.map(|(pods, resolvers)| {
            let (pods, resolvers) = self.chosen(s, pods.seen, resolvers.seen);
            NodeView {
                pods: pods.into_iter().map(|i| svc.pods[i].answers()).collect(),
                resolvers: resolvers.into_iter().map(listens).collect(),
            }
        });
        views.collect()
    }

    /// A resolver may send requests to this pod because of a promise.
    pub fn is_promised(&self, s: usize, pod: usize) -> bool {
        let covers = |(_, mask): &(Age, u8)| mask & (1 << pod) != 0;
        let living = self.res.iter().filter(|r| r.up);
        living.flat_map(|r| &r.routes[s].promise).any(covers)
    }

    pub fn node_views(&self, s: usize) -> Vec<NodeView> {
        let svc = &self.svcs[s];
        (0..svc.pods_at.len())
            .map(|n| {
                let (pods, resolvers) = self.destinations(s, n);
                let listens = |r: usize| self.res[r].up && self.res[r].routes[s].listens;
                NodeView {
                    pods: pods.into_iter().map(|i| svc.pods[i].answers()).collect(),
                    resolvers: resolvers.into_iter().map(listens).collect(),
                }
            })
            .collect()
    }

    /// The pods and resolvers that node `n` sends new connections to, as kube-proxy's `CategorizeEndpoints` chooses:
    /// the ready ones, or else those that are serving and terminating.
    pub fn destinations(&self, s: usize, n: usize) -> (Vec<usize>, Vec<usize>) {
        let svc = &self.svcs[s];
        let on_node = match self.local {
            true => NET | 1 << n | 1 << (usize::from(TERMINATING) + n),
            false => u8::MAX,
        };
        self.chosen(
            s,
            svc.pods_at[n].seen & on_node,
            svc.resolvers_at[n].seen & on_node,
        )
    }

    fn chosen(&self, s: usize, pods: u8, resolvers: u8) -> (Vec<usize>, Vec<usize>) {
        let svc = &self.svcs[s];
        let bits = |mask: u8, n: usize| (0..n).filter(|i| mask & (1 << i) != 0).collect();
        let net = resolvers & NET != 0;
        let ready = pods & ALL_PODS;
        if ready != 0 || resolvers != 0 && !net {
            let redirected = if net { 0 } else { resolvers };
            return (
                bits(ready, svc.pods.len()),
                bits(redirected, self.res.len()),
            );
        }
        let caught = if net { resolvers & !NET } else { 0 };
        (
            bits(pods >> TERMINATING, svc.pods.len()),
            bits(caught, self.res.len()),
        )
    }

    /// Nothing of ours could have answered there: there is no path, or no net yet.
    pub fn is_excused(&self, s: usize) -> bool {
        let svc = &self.svcs[s];
        let netless = svc.resolvers_at.iter().any(|pipe| pipe.seen == 0);
        svc.excused || !svc.exists || svc.replicas.is_none() || svc.pods_broken && netless
    }
}

/// The node has no endpoint at all.
fn is_empty(view: &NodeView) -> bool {
    view.pods.is_empty() && view.resolvers.is_empty()
}

/// Which pods a target's controller stops.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Those that are not ready first.
    UnreadyFirst,
    /// The highest alone, while every lower one has been ready for longer than `minReadySeconds`.
    HighestAlone { min_ready: Age },
}

impl Svc {
    /// This pod is ready, or a node or the Service's own slices show it as ready, or are about to.
    pub fn in_rotation(&self, i: usize) -> bool {
        let has = |mask: u8| mask & (1 << i) != 0;
        let shown = |pipe: &Pipe| has(pipe.seen) || pipe.coming.iter().any(|(mask, _)| has(*mask));
        let second = self.second.iter();
        let mut second = second.flat_map(|one| std::iter::once(&one.own).chain(&one.pods_at));
        self.pods[i].ready()
            || shown(&self.own)
            || self.pods_at.iter().any(shown)
            || second.any(shown)
    }

    /// The pods that the target's controller stops now for a scale to `wanted`, as Kubernetes chooses them.
    pub fn stops(&self, order: Order, wanted: usize) -> Vec<usize> {
        let mut living: Vec<usize> = (0..self.pods.len())
            .filter(|i| self.pods[*i].living())
            .collect();
        if living.len() <= wanted {
            return Vec::new();
        }
        let Order::HighestAlone { min_ready } = order else {
            // Those that are not ready first, and of the others the youngest.
            living.sort_by_key(|i| (self.pods[*i].ready(), std::cmp::Reverse(*i)));
            living.truncate(living.len() - wanted);
            return living;
        };
        let available = |i: usize| {
            let ready = self.pods[i].ready();
            ready && (min_ready == 0 || self.ready_for[i] > min_ready)
        };
        let stays = (0..wanted).all(available);
        let first_unavailable =
            (0..self.pods.len()).find(|i| self.pods[*i].living() && !available(*i));
        let top = (wanted..self.pods.len()).rfind(|i| self.pods[*i] != Pod::None);
        let stopped = top.filter(|i| {
            let may_go = available(*i) || first_unavailable == Some(*i);
            stays && self.pods[*i].living() && may_go
        });
        stopped.into_iter().collect()
    }

    /// A pod's conditions changed: the endpoint-slice controller will follow.
    pub fn pod_changed(&mut self, i: usize) {
        let mask = self
            .pods
            .iter()
            .enumerate()
            .map(|(i, p)| {
                let terminating = u8::from(*p == Pod::Terminating) << TERMINATING;
                (u8::from(p.ready()) | terminating) << i
            })
            .sum();
        self.own.push(mask);
        self.second.iter_mut().for_each(|one| one.own.push(mask));
        self.changed
            .iter_mut()
            .for_each(|(_, pods)| *pods |= 1 << i);
    }

    /// A deletion removes a net while some node knows no ready pod, and no pod has our mark: that node has no endpoint
    /// then, as it would have none without us. Nothing else is excused by that, neither a connection to a pod nor a pod
    /// that we stop, and it ends when every node has an endpoint again.
    pub fn leaves_nothing(&self, slice: Option<u8>, pods_at: &[Pipe]) -> bool {
        let net = slice.is_some_and(|slice| slice & NET != 0);
        let knows_none = |pipe: &Pipe| pipe.seen & ALL_PODS == 0;
        net && !self.pods.iter().any(|pod| pod.marked()) && pods_at.iter().any(knows_none)
    }

    /// Whatever operator `op` sees next is new to it.
    pub fn forget_seen(&mut self, op: usize) {
        self.changed[op] = (true, ALL_PODS);
        { self.second.iter_mut() }.for_each(|one| one.changed[op] = true);
    }

    /// The endpoint-slice controller publishes the oldest change; nodes will follow.
    pub fn publish(&mut self) {
        if self.own.apply() {
            self.changed
                .iter_mut()
                .for_each(|(endpoints, _)| *endpoints = true);
            for node in &mut self.pods_at {
                node.push(self.own.seen);
            }
        }
    }

    pub fn set_slice(&mut self, slice: Option<u8>) {
        self.slice = slice;
        for node in &mut self.resolvers_at {
            node.push(slice.unwrap_or(0));
        }
    }
}
