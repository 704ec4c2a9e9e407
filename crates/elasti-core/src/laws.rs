//! The laws of guarantees.md as code: what must hold in every state, and for every deed.
//! It never looks at plans or phases: it judges the world as it truly is, so the model, simulations and `why` can share it.

use jiff::SignedDuration;

/// The safety laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each law's sentence is its documentation")]
pub enum Law {
    S1,
    S2,
    S3,
    S4,
    S5,
    S6,
    S7,
    S8,
    S9,
    S10,
    S11,
    S12,
    S13,
    S14,
    S15,
}

impl Law {
    /// The law in one sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::S1 => "no black hole: each node's view of a managed Service holds a live backend",
            Self::S2 => {
                "redirect before zero: nothing is scaled down that a node may still send connections to"
            }
            Self::S3 => {
                "no wake lost: held at zero means that a wake is on its way or will be sent"
            }
            Self::S4 => {
                "no sleep under load, nor within a cooldown after a wake unless someone asks for it"
            }
            Self::S5 => "wakes only go up from zero; only the way to zero goes down",
            Self::S6 => "own objects only: a foreign object of our name is not touched",
            Self::S7 => "a request is delivered at most once after its first byte",
            Self::S8 => {
                "right place: bytes go only to ready, living pods of the Service they were sent to"
            }
            Self::S9 => {
                "bounds hold, and one service's flood never refuses another's first request"
            }
            Self::S10 => "doubt is not idle: what is unknown neither sleeps nor wakes anything",
            Self::S11 => "one sleeper: a downward step of an old leader is refused",
            Self::S12 => "one ElastiService for each Service and target has effects: the oldest",
            Self::S13 => {
                "clean exit: after the finalizer nothing of ours is left and the target is awake"
            }
            Self::S14 => "KEDA is never left paused by us while replicas are asked for",
            Self::S15 => "honest status: what it states held when it was written",
        }
    }
}

/// A law that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// What was seen.
    pub seen: &'static str,
}

/// The true state of one managed service.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// A hand that is not ours broke it (scaled to zero, killed every resolver); nothing about paths can be asked then.
    pub excused: bool,
    /// What each node would send new connections to.
    pub nodes: Vec<NodeView>,
    /// What the target asks for; `None` if there is no target.
    pub replicas: Option<u32>,
    /// Requests held by living resolvers.
    pub held: u32,
    /// A wake is on its way, or a resolver that holds will send one.
    pub wake_will_come: bool,
    /// How many may be held in all, and how many are.
    pub held_bound: u32,
    /// Nothing is under way: no plan has a step left.
    pub at_rest: bool,
    /// KEDA is paused, and we did it.
    pub keda_paused_by_us: bool,
}

/// What one node would send a new connection to.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// For each pod in the view: does it answer?
    pub pods: Vec<bool>,
    /// For each resolver in the view: does it listen for this service?
    pub resolvers: Vec<bool>,
}

impl NodeView {
    fn alive(&self) -> bool {
        self.pods.iter().chain(&self.resolvers).any(|alive| *alive)
    }
}

/// Something that was done, with what was true when it was decided or done.
#[derive(Clone, Debug)]
pub enum Deed {
    /// The target was asked for zero replicas, by us.
    ScaledToZero(ScaledToZero),
    /// The target was asked for replicas, by us.
    Woke {
        /// What it asked for before.
        from: u32,
        /// What it asks for now.
        to: u32,
        /// Someone waits, a trigger is active, the window is closed, no resolver is ready, or it is deleted.
        justified: bool,
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
        /// Something took it.
        answered: bool,
        /// A hand that is not ours broke the path.
        excused: bool,
    },
    /// A request's first byte went to a pod.
    Delivered {
        /// How often, this time included.
        times: u32,
        /// The pod belongs to the Service that the client dialled.
        right_service: bool,
        /// The pod was ready, unmarked, and not terminating.
        pod_usable: bool,
    },
    /// Our mark was taken off a pod, which puts it back into rotation.
    Unmarked {
        /// The pod's own containers are ready.
        ready_by_itself: bool,
    },
    /// A request was refused because a room was full.
    RefusedFull {
        /// No other request of this service was held there.
        first_of_its_service: bool,
    },
    /// The finalizer was removed.
    LetGo {
        /// Our slice or private Service is still there.
        leftovers: bool,
        /// The target is asked for replicas, or cannot be any more.
        awake_or_pointless: bool,
        /// KEDA is still paused by us.
        keda_paused_by_us: bool,
    },
    /// A status was written.
    Stated {
        /// It says `mode: proxy`.
        proxy: bool,
        /// Our slice was there when the facts were read.
        slice_was_there: bool,
        /// It says `Asleep=True`.
        asleep: bool,
        /// The target asked for zero when the facts were read.
        was_zero: bool,
    },
}

/// What was true about a step to zero.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one clause of the law"
)]
pub struct ScaledToZero {
    /// Each node's view when it was written.
    pub nodes: Vec<NodeView>,
    /// The Service's own slices showed a ready pod when it was written.
    pub pods_in_slices: bool,
    /// A resolver held or carried a request when it was decided.
    pub busy_when_decided: bool,
    /// A ready resolver did not answer or did not know the route when it was decided.
    pub resolver_silent_when_decided: bool,
    /// Every trigger was truly quiet when it was decided.
    pub quiet_when_decided: bool,
    /// How long ago the last wake was when it was decided.
    pub since_wake: Option<SignedDuration>,
    /// A person asked for sleep after that wake.
    pub asked_since_wake: bool,
    /// The cooldown.
    pub cooldown: SignedDuration,
    /// The writer held the lease when it was written.
    pub writer_leads: bool,
    /// The user chose the handover without a drain.
    pub by_redirect: bool,
}

/// The laws that this state breaks.
#[must_use]
pub fn check(snapshot: &Snapshot) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut law = |holds: bool, law: Law, seen: &'static str| {
        if !holds {
            broken.push(Violation { law, seen });
        }
    };
    let hole = snapshot.nodes.iter().any(|view| !view.alive());
    law(
        snapshot.excused || !hole,
        Law::S1,
        "a node has nowhere to send a new connection",
    );
    let forgotten = snapshot.held > 0 && snapshot.replicas == Some(0) && !snapshot.wake_will_come;
    law(
        !forgotten,
        Law::S3,
        "requests are held at zero and nobody will send a wake",
    );
    law(
        snapshot.held <= snapshot.held_bound,
        Law::S9,
        "more requests are held than the bound allows",
    );
    let keda_stuck =
        snapshot.at_rest && snapshot.keda_paused_by_us && snapshot.replicas.is_some_and(|n| n > 0);
    law(
        !keda_stuck,
        Law::S14,
        "KEDA is paused by us at rest while replicas are asked for",
    );
    broken
}

/// The laws that this deed breaks.
#[must_use]
pub fn check_deed(deed: &Deed) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut law = |holds: bool, law: Law, seen: &'static str| {
        if !holds {
            broken.push(Violation { law, seen });
        }
    };
    match deed {
        Deed::ScaledToZero(facts) => return check_zero(facts),
        Deed::Woke {
            from,
            to,
            justified,
        } => {
            law(
                *from == 0 && to > from,
                Law::S5,
                "a wake did not go up from zero",
            );
            law(*justified, Law::S10, "something was woken without a reason");
        }
        Deed::Wrote { foreign, in_charge } => {
            law(!foreign, Law::S6, "a foreign object was touched");
            law(
                *in_charge,
                Law::S12,
                "an ElastiService that is not in charge had an effect",
            );
        }
        Deed::Connected { answered, excused } => {
            law(
                *answered || *excused,
                Law::S1,
                "a new connection was refused",
            );
        }
        Deed::Delivered {
            times,
            right_service,
            pod_usable,
        } => {
            law(*times <= 1, Law::S7, "a request was delivered twice");
            law(
                *right_service && *pod_usable,
                Law::S8,
                "a request went to the wrong place",
            );
        }
        Deed::Unmarked { ready_by_itself } => {
            law(
                *ready_by_itself,
                Law::S8,
                "a pod was put into rotation that is not ready by itself",
            );
        }
        Deed::RefusedFull {
            first_of_its_service,
        } => {
            law(
                !first_of_its_service,
                Law::S9,
                "a service's first request was refused",
            );
        }
        Deed::LetGo {
            leftovers,
            awake_or_pointless,
            keda_paused_by_us,
        } => {
            law(!leftovers, Law::S13, "objects of ours were left behind");
            law(*awake_or_pointless, Law::S13, "the target was left asleep");
            law(!keda_paused_by_us, Law::S13, "KEDA was left paused");
        }
        Deed::Stated {
            proxy,
            slice_was_there,
            asleep,
            was_zero,
        } => {
            law(
                proxy == slice_was_there,
                Law::S15,
                "the mode in the status is not what was read",
            );
            law(
                asleep == was_zero,
                Law::S15,
                "the status says asleep, or awake, against what was read",
            );
        }
    }
    broken
}

fn check_zero(facts: &ScaledToZero) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut law = |holds: bool, law: Law, seen: &'static str| {
        if !holds {
            broken.push(Violation { law, seen });
        }
    };
    let redirected = facts
        .nodes
        .iter()
        .all(|view| view.resolvers.iter().any(|alive| *alive));
    law(
        redirected,
        Law::S2,
        "a node does not send new connections to a living resolver",
    );
    let pod_seen = facts.pods_in_slices || facts.nodes.iter().any(|view| !view.pods.is_empty());
    law(
        facts.by_redirect || !pod_seen,
        Law::S2,
        "a node may still send connections to a pod",
    );
    law(
        !facts.resolver_silent_when_decided,
        Law::S2,
        "a ready resolver had not confirmed the route",
    );
    law(
        !facts.busy_when_decided,
        Law::S4,
        "a resolver held or carried a request",
    );
    let young = facts.since_wake.is_some_and(|since| since < facts.cooldown);
    law(
        !young || facts.asked_since_wake,
        Law::S4,
        "the last wake was less than a cooldown ago",
    );
    law(
        facts.quiet_when_decided,
        Law::S10,
        "a trigger was not quiet",
    );
    law(
        facts.writer_leads,
        Law::S11,
        "the writer did not hold the lease",
    );
    broken
}
