//! The laws of docs/guarantees.md as code: what must hold in every state and for every event.
//! They judge the true state of the cluster, not plans or phases, so that the model and simulations can share them.

use jiff::SignedDuration;

/// The safety laws, in the order of docs/guarantees.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// No black hole: each node's view of a managed Service holds a live backend.
    S1,
    /// Redirect and drain before a scale-down: no pod is stopped that a node may still send connections to.
    S2,
    /// No wake lost: a request held at zero means that a wake is in flight or will be sent.
    S3,
    /// No sleep under load, nor within a cooldown after a wake, its first ready pod or a scale-up by others, unless a
    /// user requests it.
    S4,
    /// A wake only scales up, from zero; only going to sleep scales down, and undoes that if it is cancelled.
    S5,
    /// Own objects only: a foreign object with our name is not touched.
    S6,
    /// A request is delivered at most once after its first byte.
    S7,
    /// Right destination: bytes go only to pods of the Service they were sent to that are ready, or promised by the
    /// leader.
    S8,
    /// Limits hold, and a flood on one service never causes another's first request to be refused.
    S9,
    /// Doubt is not idle: what is unknown neither sleeps nor wakes anything.
    S10,
    /// One leader scales down: a scale-down by an old leader is refused.
    S11,
    /// One ElastiService for each Service and target has effects: the oldest.
    S12,
    /// Clean exit: after the finalizer nothing of ours is left and the target is awake.
    S13,
    /// KEDA is never left paused by us while the target has replicas.
    S14,
    /// Honest status: what it states held when it was written.
    S15,
    /// Every Service with a cluster IP that selects a pod which we mark, and shows only ready pods, has a live endpoint.
    S16,
    /// No write downwards under a promise: what the leader promised not to stop is not stopped by us.
    S17,
    /// No write of others is fought: a zero that is younger than every reason to be awake stands.
    S18,
}

impl Law {
    /// Every law, for tables and tests.
    pub const ALL: [Self; 18] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S4,
        Self::S5,
        Self::S6,
        Self::S7,
        Self::S8,
        Self::S9,
        Self::S10,
        Self::S11,
        Self::S12,
        Self::S13,
        Self::S14,
        Self::S15,
        Self::S16,
        Self::S17,
        Self::S18,
    ];
}

/// A law that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// What was observed.
    pub seen: &'static str,
}

/// The true state of one managed service.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Something outside Elasti broke it (scaled to zero, killed every resolver), so the laws about paths do not apply.
    pub excused: bool,
    /// What each node would send new connections to.
    pub nodes: Vec<NodeView>,
    /// The same for the other Services of the pods, where nothing outside Elasti broke it.
    pub other_services: Vec<NodeView>,
    /// `spec.replicas` of the target; `None` if there is no target.
    pub replicas: Option<u32>,
    /// Requests held by living resolvers.
    pub held: u32,
    /// A wake is under way, or a resolver that holds requests will send one.
    pub wake_will_come: bool,
    /// How many requests may be held in total.
    pub held_bound: u32,
    /// Nothing is in progress: no plan has a step left.
    pub at_rest: bool,
    /// KEDA is paused, and we did it.
    pub keda_paused_by_us: bool,
}

/// What one node would send a new connection to.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// For each pod in the view: does it accept connections?
    pub pods: Vec<bool>,
    /// For each resolver in the view: does it listen for this service?
    pub resolvers: Vec<bool>,
}

impl NodeView {
    fn alive(&self) -> bool {
        self.pods.iter().chain(&self.resolvers).any(|alive| *alive)
    }
}

/// Something that happened, with what was true when it was decided or done.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// Elasti scaled the target down.
    ScaledDown(ScaledDown),
    /// A pod got SIGTERM because Elasti scaled down after a drain.
    PodStopped {
        /// It was ready, or a node's view or the Service's own slices showed it as ready.
        in_rotation: bool,
        /// The leader's promise to a resolver covered it.
        promised: bool,
    },
    /// Elasti undid the scale-downs of a sleep that was cancelled.
    ReplicasRestored {
        /// The replicas before.
        from: u32,
        /// The replicas after.
        to: u32,
        /// The replicas before the first scale-down, if nothing else has written them since.
        had: Option<u32>,
    },
    /// Elasti scaled the target up.
    Woke {
        /// The replicas before.
        from: u32,
        /// The replicas after.
        to: u32,
        /// A request waits, a trigger is active, the window is closed, no resolver is ready, or it is deleted.
        justified: bool,
        /// Something else wrote the zero, and after it nothing has asked for a wake.
        against_younger_zero: bool,
    },
    /// An object was written or deleted.
    Wrote {
        /// It belonged to someone else.
        foreign: bool,
        /// The ElastiService is the oldest that claims the Service and the target.
        in_charge: bool,
    },
    /// A client opened a new connection to the Service.
    Connected {
        /// Something accepted it.
        answered: bool,
        /// Something outside Elasti broke the path.
        excused: bool,
    },
    /// A request's first byte went to a pod.
    Delivered {
        /// How often, this time included.
        times: u32,
        /// The pod belongs to the Service that the client dialled.
        right_service: bool,
        /// The pod was ready, unmarked, and not terminating; or the leader's promise covered it; or it was unmarked, not
        /// terminating, with its readiness gates true, and every container's probe had passed at the resolver just now.
        pod_usable: bool,
    },
    /// Our mark was taken off a pod, which puts it back into rotation.
    Unmarked {
        /// The pod's own containers are ready, and its readiness gates are true.
        ready_by_itself: bool,
    },
    /// A request was refused because a waiting room was full.
    RefusedFull {
        /// No other request of this service was held there.
        first_of_service: bool,
    },
    /// The finalizer was removed.
    FinalizerRemoved {
        /// Our slice or private Service still exists.
        leftovers: bool,
        /// The target is scaled up, or cannot be any more.
        awake_or_pointless: bool,
        /// KEDA is still paused by us.
        keda_paused_by_us: bool,
    },
    /// A status was written.
    StatusWritten {
        /// It says `mode: proxy`.
        proxy: bool,
        /// Our slice sent every new connection to the resolvers when the facts were read.
        redirected: bool,
        /// It says `Asleep=True`.
        asleep: bool,
        /// The target was scaled to zero when the facts were read.
        was_zero: bool,
    },
}

/// What was true about a scale-down.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one clause of the law"
)]
pub struct ScaledDown {
    /// Each node's view when it was written; of the pods only those that it stops.
    pub nodes: Vec<NodeView>,
    /// The Service's own slices showed a pod that it stops as ready when it was written.
    pub pods_in_slices: bool,
    /// A resolver had a request waiting or in flight when it was decided.
    pub busy_when_decided: bool,
    /// A ready resolver did not respond or did not have the route when it was decided.
    pub resolver_silent_when_decided: bool,
    /// Every trigger was truly quiet when it was decided, for as long as its source was up at least if a user requested
    /// sleep, else for the whole cooldown.
    pub quiet_when_decided: bool,
    /// How long ago the last wake was when it was decided.
    pub since_wake: Option<SignedDuration>,
    /// How long ago its first pod was ready when it was decided.
    pub since_ready: Option<SignedDuration>,
    /// How long ago something else last scaled it up from more than zero when it was decided.
    pub since_raised: Option<SignedDuration>,
    /// A user requested sleep after that wake, and after that write.
    pub sleep_requested_since_wake: bool,
    /// The cooldown.
    pub cooldown: SignedDuration,
    /// The writer held the lease when it was written.
    pub writer_leads: bool,
    /// The user chose the handover without a drain.
    pub by_redirect: bool,
    /// A resolver held a promise that had not ended when it was written.
    pub promised: bool,
}

/// The laws that this state breaks.
#[must_use]
pub fn check(snapshot: &Snapshot) -> Vec<Violation> {
    let hole = snapshot.nodes.iter().any(|view| !view.alive());
    let asleep = snapshot.replicas == Some(0);
    let forgotten = snapshot.held > 0 && asleep && !snapshot.wake_will_come;
    let awake = snapshot.replicas.is_some_and(|n| n > 0);
    let keda_stuck = snapshot.at_rest && snapshot.keda_paused_by_us && awake;
    broken(&[
        (
            snapshot.excused || !hole,
            Law::S1,
            "a node has nowhere to send a new connection",
        ),
        (
            snapshot.other_services.iter().all(NodeView::alive),
            Law::S16,
            "a node has nowhere to send a new connection to another Service of the pods",
        ),
        (
            !forgotten,
            Law::S3,
            "requests are held at zero and no wake will be sent",
        ),
        (
            snapshot.held <= snapshot.held_bound,
            Law::S9,
            "more requests are held than the limit allows",
        ),
        (
            !keda_stuck,
            Law::S14,
            "KEDA is paused by us at rest while the target has replicas",
        ),
    ])
}

/// The laws that this event breaks.
#[must_use]
pub fn check_event(event: &TraceEvent) -> Vec<Violation> {
    match event {
        TraceEvent::ScaledDown(facts) => check_scale_down(facts),
        TraceEvent::PodStopped {
            in_rotation,
            promised,
        } => check_stop(*in_rotation, *promised),
        TraceEvent::ReplicasRestored { from, to, had } => {
            let seen = "a cancelled sleep did not restore what it took away";
            broken(&[(from < to && Some(*to) == *had, Law::S5, seen)])
        }
        TraceEvent::Woke {
            from,
            to,
            justified,
            against_younger_zero,
        } => check_wake(*from, *to, *justified, *against_younger_zero),
        TraceEvent::Wrote { foreign, in_charge } => broken(&[
            (!foreign, Law::S6, "a foreign object was written"),
            (
                *in_charge,
                Law::S12,
                "an ElastiService without precedence had an effect",
            ),
        ]),
        TraceEvent::Connected { answered, excused } => {
            let seen = "a new connection was refused";
            broken(&[(*answered || *excused, Law::S1, seen)])
        }
        TraceEvent::Delivered {
            times,
            right_service,
            pod_usable,
        } => check_delivered(*times, *right_service && *pod_usable),
        TraceEvent::Unmarked { ready_by_itself } => broken(&[(
            *ready_by_itself,
            Law::S8,
            "a pod was put into rotation that is not ready by itself",
        )]),
        TraceEvent::RefusedFull { first_of_service } => {
            broken(&[(!first_of_service, Law::S9, "a first request was refused")])
        }
        TraceEvent::FinalizerRemoved {
            leftovers,
            awake_or_pointless,
            keda_paused_by_us,
        } => broken(&[
            (!leftovers, Law::S13, "objects of ours were left behind"),
            (*awake_or_pointless, Law::S13, "the target was left asleep"),
            (!keda_paused_by_us, Law::S13, "KEDA was left paused"),
        ]),
        TraceEvent::StatusWritten {
            proxy,
            redirected,
            asleep,
            was_zero,
        } => check_status(proxy == redirected, asleep == was_zero),
    }
}

fn check_stop(in_rotation: bool, promised: bool) -> Vec<Violation> {
    broken(&[
        (
            !in_rotation,
            Law::S2,
            "a pod was stopped while it was in rotation",
        ),
        (
            !promised,
            Law::S17,
            "a pod was stopped although the leader had promised it",
        ),
    ])
}

fn check_delivered(times: u32, right_place: bool) -> Vec<Violation> {
    broken(&[
        (times <= 1, Law::S7, "a request was delivered twice"),
        (right_place, Law::S8, "a request went to the wrong place"),
    ])
}

fn check_wake(from: u32, to: u32, justified: bool, against_younger_zero: bool) -> Vec<Violation> {
    broken(&[
        (
            from == 0 && to > from,
            Law::S5,
            "a wake did not go up from zero",
        ),
        (justified, Law::S10, "the target was woken without a reason"),
        (
            !against_younger_zero,
            Law::S18,
            "the target was woken against a zero that answered every reason",
        ),
    ])
}

fn check_status(mode_is_true: bool, asleep_is_true: bool) -> Vec<Violation> {
    broken(&[
        (
            mode_is_true,
            Law::S15,
            "the mode in the status is not what was read",
        ),
        (
            asleep_is_true,
            Law::S15,
            "the status says asleep, or awake, against what was read",
        ),
    ])
}

fn check_scale_down(facts: &ScaledDown) -> Vec<Violation> {
    let to_resolver = |view: &NodeView| view.resolvers.iter().any(|alive| *alive);
    let to_pod = |view: &NodeView| !view.pods.is_empty();
    let pod_seen = facts.pods_in_slices || facts.nodes.iter().any(to_pod);
    let recent = |since: Option<SignedDuration>| since.is_some_and(|since| since < facts.cooldown);
    broken(&[
        (
            facts.nodes.iter().all(to_resolver),
            Law::S2,
            "a node does not send new connections to a living resolver",
        ),
        (
            facts.by_redirect || !pod_seen,
            Law::S2,
            "a node may still send connections to a pod",
        ),
        (
            !facts.resolver_silent_when_decided,
            Law::S2,
            "a ready resolver had not confirmed the route",
        ),
        (
            !facts.busy_when_decided,
            Law::S4,
            "a resolver had a request waiting or in flight",
        ),
        (
            !recent(facts.since_wake) || facts.sleep_requested_since_wake,
            Law::S4,
            "the last wake was less than a cooldown ago",
        ),
        (
            !recent(facts.since_ready) || facts.sleep_requested_since_wake,
            Law::S4,
            "the pods of the last wake have been ready for less than a cooldown",
        ),
        (
            !recent(facts.since_raised) || facts.sleep_requested_since_wake,
            Law::S4,
            "something else scaled it up less than a cooldown ago",
        ),
        (
            facts.quiet_when_decided,
            Law::S10,
            "a trigger was not quiet",
        ),
        (
            facts.writer_leads,
            Law::S11,
            "the writer did not hold the lease",
        ),
        (
            !facts.promised,
            Law::S17,
            "the target was scaled down under a promise",
        ),
    ])
}

/// A violation for each check that does not hold.
fn broken(checks: &[(bool, Law, &'static str)]) -> Vec<Violation> {
    let failed = checks.iter().filter(|(holds, ..)| !holds);
    let violation = |(_, law, seen): &(bool, Law, &'static str)| Violation { law: *law, seen };
    failed.map(violation).collect()
}
