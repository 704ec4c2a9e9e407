//! How far the wish of a person is, a wake or a sleep, as one view after another shows it.
//! It never grants a wish: the plan does.

use elasti_api::{Phase, Reason};

use crate::view::{Blocker, View};

/// How far a wish is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is granted.
    Done,
    /// It is on its way.
    Going,
    /// It will not be granted as things are, in one sentence.
    Failed(String),
}

/// Nothing that waiting ends: somebody must act, or traffic must stop, before the service may sleep.
const HARD: [Reason; 15] = [
    Reason::TriggerActive,
    Reason::TriggerUnknown,
    Reason::Traffic,
    Reason::OutsideWindow,
    Reason::InvalidWindow,
    Reason::Paused,
    Reason::NoResolver,
    Reason::TicksTooDense,
    Reason::Conflict,
    Reason::Unsupported,
    Reason::ServiceNotFound,
    Reason::TargetNotFound,
    Reason::AutoscalerNotFound,
    Reason::PortsExhausted,
    Reason::Deleting,
];

/// What keeps the operator from touching the target at all.
const LOOSE: [Reason; 4] = [
    Reason::Conflict,
    Reason::ServiceNotFound,
    Reason::TargetNotFound,
    Reason::Unsupported,
];

/// What keeps pods from starting.
const STUCK: [Reason; 5] = [
    Reason::ImagePull,
    Reason::CrashLoop,
    Reason::Unschedulable,
    Reason::PodRefused,
    Reason::NeverReady,
];

fn among(reasons: &[Reason], word: &str) -> bool {
    reasons.iter().any(|reason| reason.as_str() == word)
}

/// How far a wake is.
#[must_use]
pub fn of_wake(view: &View) -> Progress {
    if among(&LOOSE, &view.reason) {
        return Progress::Failed(view.sentence.clone());
    }
    match view.phase {
        Some(Phase::Serving | Phase::Restoring) if view.replicas != Some(0) => Progress::Done,
        Some(Phase::Waking) if among(&STUCK, &view.reason) => {
            Progress::Failed(view.sentence.clone())
        }
        _ => Progress::Going,
    }
}

/// What keeps a service from sleeping even if a person asks for it.
#[must_use]
pub fn forbids_sleep(view: &View) -> Option<&Blocker> {
    view.blockers.iter().find(|one| among(&HARD, &one.reason))
}

/// How far a sleep is; `went_down` says whether its way down was seen before.
#[must_use]
pub fn of_sleep(view: &View, went_down: bool) -> Progress {
    match view.phase {
        Some(Phase::Asleep) => Progress::Done,
        Some(Phase::Redirecting | Phase::Draining) => Progress::Going,
        Some(Phase::Serving | Phase::Restoring | Phase::Waking) if went_down => {
            Progress::Failed(format!("sleep was called off: {}", view.sentence))
        }
        _ => match forbids_sleep(view) {
            Some(blocker) => Progress::Failed(blocker.sentence.clone()),
            None => Progress::Going,
        },
    }
}

/// Whether the service is on its way to sleep.
#[must_use]
pub fn goes_down(view: &View) -> bool {
    matches!(view.phase, Some(Phase::Redirecting | Phase::Draining))
}
