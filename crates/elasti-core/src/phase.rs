//! The six phases of a service's life and the moves between them, as one table.
//! It never decides a move: `plan` derives the phase from facts, tests hold it against this table.

pub use elasti_api::Phase;

/// Every move that one plan after another may show, with what causes it.
pub const MOVES: &[(Phase, Phase, &str)] = &[
    (
        Phase::Serving,
        Phase::Redirecting,
        "idle for the whole cooldown",
    ),
    (Phase::Serving, Phase::Asleep, "someone else scaled to zero"),
    (
        Phase::Serving,
        Phase::Waking,
        "someone else scaled to zero, and it is in use",
    ),
    (
        Phase::Redirecting,
        Phase::Draining,
        "every node and resolver has the redirect",
    ),
    (Phase::Redirecting, Phase::Restoring, "activity or doubt"),
    (
        Phase::Redirecting,
        Phase::Serving,
        "activity or doubt before the slice was there",
    ),
    (
        Phase::Redirecting,
        Phase::Waking,
        "activity or doubt while no pod is ready",
    ),
    (
        Phase::Redirecting,
        Phase::Asleep,
        "handover `redirect`, or someone else scaled to zero",
    ),
    (Phase::Draining, Phase::Asleep, "drained"),
    (Phase::Draining, Phase::Restoring, "activity or doubt"),
    (
        Phase::Draining,
        Phase::Waking,
        "activity or doubt while no pod is ready",
    ),
    (
        Phase::Draining,
        Phase::Redirecting,
        "the set of resolvers changed",
    ),
    (Phase::Asleep, Phase::Waking, "a wake"),
    (
        Phase::Asleep,
        Phase::Restoring,
        "a wake, and a pod was ready before the next look",
    ),
    (
        Phase::Asleep,
        Phase::Serving,
        "someone else scaled up before the redirect was there",
    ),
    (Phase::Waking, Phase::Restoring, "a pod is ready"),
    (Phase::Waking, Phase::Asleep, "someone else scaled to zero"),
    (
        Phase::Waking,
        Phase::Serving,
        "deleted, and no pod got ready within the patience",
    ),
    (
        Phase::Waking,
        Phase::Redirecting,
        "nobody waits any more, and no pod ever got ready",
    ),
    (
        Phase::Waking,
        Phase::Draining,
        "nobody waits any more, and no pod ever got ready",
    ),
    (
        Phase::Restoring,
        Phase::Serving,
        "the Service's own slices show a ready pod for the settle time",
    ),
    (
        Phase::Restoring,
        Phase::Waking,
        "the pods stopped being ready",
    ),
    (
        Phase::Restoring,
        Phase::Redirecting,
        "the doubt is gone and the service is still idle",
    ),
    (
        Phase::Restoring,
        Phase::Draining,
        "the doubt is gone and the service is still idle",
    ),
    (
        Phase::Restoring,
        Phase::Asleep,
        "someone else scaled to zero",
    ),
];

/// Whether the table knows the move from one phase to the other.
#[must_use]
pub fn allowed(from: Phase, to: Phase) -> bool {
    from == to || MOVES.iter().any(|(f, t, _)| (*f, *t) == (from, to))
}
