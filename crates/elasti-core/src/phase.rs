//! The phases of a service's life and the transitions between them, one row a phase.
//! The planner derives the phase from facts; tests check its plans against this table.

pub use elasti_api::Phase;

use Phase::{Asleep, Draining, Redirecting, Restoring, Serving, Waking};

/// Every phase that may follow `from` from one plan to the next, with the cause.
#[must_use]
pub fn transitions(from: Phase) -> &'static [(Phase, &'static str)] {
    match from {
        Serving => &[
            (Redirecting, "idle for the whole cooldown"),
            (Asleep, "someone else scaled to zero"),
            (
                Waking,
                "someone else scaled to zero, and it should be awake",
            ),
        ],
        Redirecting => &[
            (Draining, "every node and resolver has the redirect"),
            (Restoring, "activity or doubt"),
            (Serving, "activity or doubt before the slice existed"),
            (Waking, "activity or doubt while no pod is ready"),
            (
                Asleep,
                "handover `redirect`, or someone else scaled to zero",
            ),
        ],
        Draining => &[
            (Asleep, "drained"),
            (Restoring, "activity or doubt"),
            (Waking, "activity or doubt while no pod is ready"),
            (Redirecting, "the set of resolvers changed"),
        ],
        Asleep => &[
            (Waking, "a wake"),
            (
                Restoring,
                "a wake, and a pod was ready before the next reconcile",
            ),
            (
                Serving,
                "someone else scaled up before the redirect existed",
            ),
        ],
        Waking => &[
            (Restoring, "a pod is ready"),
            (Asleep, "someone else scaled to zero"),
            (
                Serving,
                "deleted, and no pod got ready before the deletion timeout",
            ),
            (
                Redirecting,
                "no request waits any more, and no pod ever got ready",
            ),
            (
                Draining,
                "no request waits any more, and no pod ever got ready",
            ),
        ],
        Restoring => &[
            (
                Serving,
                "the Service's own slices show a ready pod for the settle time",
            ),
            (Waking, "the pods stopped being ready"),
            (
                Redirecting,
                "no doubt is left and the service is still idle",
            ),
            (Draining, "no doubt is left and the service is still idle"),
            (Asleep, "someone else scaled to zero"),
        ],
    }
}

/// Whether a plan in phase `to` may follow one in phase `from`.
#[must_use]
pub fn allowed(from: Phase, to: Phase) -> bool {
    from == to || transitions(from).iter().any(|(next, _)| *next == to)
}
