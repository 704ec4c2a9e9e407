//! How far a user request is, a wake or a sleep, as one view after another shows it.

use elasti_api::{Phase, Reason};
use elasti_core::idle::UNREAD;
use jiff::{SignedDuration, Timestamp};

use crate::view::{Blocker, View};

/// No request is dated farther ahead than this.
const MAX_AHEAD: SignedDuration = SignedDuration::from_secs(30);

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is fulfilled.
    Done,
    /// It is under way.
    Going,
    /// It will not be fulfilled as things are, in one sentence.
    Failed(String),
}

/// Waiting does not end these: a person must act, or traffic must stop, before the service may sleep.
const HARD: [Reason; 16] = [
    Reason::TriggerActive,
    Reason::TriggerUnknown,
    Reason::Traffic,
    Reason::OutsideWindow,
    Reason::InvalidWindow,
    Reason::Paused,
    Reason::NoResolver,
    Reason::NodesWithoutResolver,
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
const UNMANAGEABLE: [Reason; 4] = [
    Reason::Conflict,
    Reason::ServiceNotFound,
    Reason::TargetNotFound,
    Reason::Unsupported,
];

fn among(reasons: &[Reason], word: &str) -> bool {
    reasons.iter().any(|reason| reason.as_str() == word)
}

/// How far a wake is; `went_up` says whether it was seen waking before. Only a service that serves is awake: until then
/// it may fall back.
#[must_use]
pub fn of_wake(view: &View, went_up: bool) -> Progress {
    if among(&UNMANAGEABLE, &view.reason) {
        return Progress::Failed(view.sentence.clone());
    }
    match view.phase {
        Some(Phase::Serving) if view.replicas != Some(0) => Progress::Done,
        Some(Phase::Waking) if Reason::from_word(&view.reason).is_some_and(Reason::is_obstacle) => {
            Progress::Failed(view.sentence.clone())
        }
        Some(Phase::Asleep | Phase::Redirecting | Phase::Draining) if went_up => {
            Progress::Failed(fell_back(view))
        }
        _ => Progress::Going,
    }
}

/// Why it sleeps again without having served: its wake failed, or what the view tells.
fn fell_back(view: &View) -> String {
    let woken = view.last_wake.as_ref().map(|wake| wake.at.as_second());
    // The time of a failure is a whole second.
    let failed = { view.failed_wake.as_ref() }.filter(|one| Some(one.at.as_second()) >= woken);
    match failed {
        Some(failed) => failed.sentence.clone(),
        None => format!("it went back to sleep: {}", view.sentence),
    }
}

/// What keeps a service from sleeping even if a user requests it.
#[must_use]
pub fn forbids_sleep(view: &View) -> Option<&Blocker> {
    // A service that was made a moment ago: its first readings come by themselves.
    let passes = |one: &Blocker| one.sentence == UNREAD;
    { view.blockers.iter() }.find(|one| among(&HARD, &one.reason) && !passes(one))
}

/// How far a sleep is; `went_down` says whether it was seen going to sleep before.
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

/// When to say that sleep was asked for: now, but in a later second than anything that it must come after. Moments in a
/// status are whole seconds, and a request of the same second counts for nothing.
#[must_use]
pub fn sleep_asked_at(view: &View, now: Timestamp) -> Timestamp {
    let woken = view.last_wake.as_ref().map(|wake| wake.at);
    let last = [view.created, view.quiet_since, woken].into_iter().max();
    let next = last.flatten().and_then(|at| {
        let second = at.as_second().checked_add(1)?;
        Timestamp::from_second(second).ok()
    });
    // A clock that is far ahead wrote that moment: a request for then would be taken for a mistake.
    let limit = now.checked_add(MAX_AHEAD).unwrap_or(now);
    next.map_or(now, |next| next.clamp(now, limit))
}

/// Whether the service is waking up.
#[must_use]
pub fn goes_up(view: &View) -> bool {
    matches!(view.phase, Some(Phase::Waking | Phase::Restoring))
}

/// Whether the service is going to sleep.
#[must_use]
pub fn goes_down(view: &View) -> bool {
    matches!(view.phase, Some(Phase::Redirecting | Phase::Draining))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::Timestamp;
    use serde_json::json;

    use super::{Progress, forbids_sleep, of_sleep, of_wake, sleep_asked_at};
    use crate::view::{Facts, FailedWakeView, Lookup, View, WakeView, view};

    fn now() -> Timestamp {
        "2026-03-02T08:00:00.5Z".parse().unwrap()
    }

    fn shown(phase: &str, reason: &str, reading: &str, paused: bool) -> View {
        let me = serde_json::from_value(json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web", "creationTimestamp": "2026-03-01T08:00:00Z", "generation": 1},
            "spec": {
                "service": "web", "paused": paused,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "triggers": [{"type": "prometheus", "metadata": {"query": "q", "threshold": "1"}}],
            },
            "status": {
                "phase": phase, "reason": reason, "replicas": i32::from(phase != "Asleep"), "observedGeneration": 1,
                "quietSince": "2026-03-02T08:00:00Z",
                "triggers": [{"type": "prometheus", "reading": reading, "since": "2026-03-02T07:00:00Z"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": reason, "message": "It is so.", "lastTransitionTime": "2026-03-02T07:00:00Z"}],
            },
        }))
        .unwrap();
        let (target, now) = (&Lookup::Unknown, now());
        view(Facts {
            me: &me,
            target,
            held: None,
            now,
        })
    }

    #[test]
    fn a_wake_is_done_when_it_serves_and_fails_when_it_falls_back() {
        let failed = Progress::Failed("It is so.".into());
        for (phase, reason, progress) in [
            ("Asleep", "Idle", Progress::Going),
            ("Draining", "Draining", Progress::Going),
            ("Waking", "Starting", Progress::Going),
            ("Waking", "CrashLoop", failed.clone()),
            ("Restoring", "WakeRequested", Progress::Going),
            ("Serving", "CoolingDown", Progress::Done),
            ("Serving", "Conflict", failed),
        ] {
            assert_eq!(
                of_wake(&shown(phase, reason, "quiet", false), false),
                progress,
                "{phase} {reason}"
            );
        }
        for phase in ["Asleep", "Redirecting", "Draining"] {
            let back = of_wake(&shown(phase, "Idle", "quiet", false), true);
            let sentence = "it went back to sleep: It is so.".to_owned();
            assert_eq!(back, Progress::Failed(sentence), "{phase}");
        }
    }

    #[test]
    fn a_wake_that_failed_before_it_fell_back_says_so_and_an_older_failure_does_not() {
        let mut view = shown("Asleep", "Idle", "quiet", false);
        for (failed_at, sentence) in [
            ("2026-03-02T08:00:00Z", "No node takes it."),
            ("2026-03-02T07:59:59Z", "it went back to sleep: It is so."),
        ] {
            view.last_wake = Some(woken_at("2026-03-02T08:00:00.4Z"));
            view.failed_wake = Some(FailedWakeView {
                at: failed_at.parse().unwrap(),
                reason: "Unschedulable".into(),
                sentence: "No node takes it.".into(),
            });
            let failed = Progress::Failed(sentence.into());
            assert_eq!(of_wake(&view, true), failed, "{failed_at}");
            assert_eq!(of_wake(&view, false), Progress::Going, "not tried yet");
        }
    }

    fn woken_at(at: &str) -> WakeView {
        WakeView {
            by: None,
            client: None,
            at: at.parse().unwrap(),
            parts: Vec::new(),
            cold_start_ms: None,
            finished: false,
        }
    }

    #[test]
    fn a_sleep_waits_for_what_passes_and_not_for_what_does_not() {
        let cooling = shown("Serving", "CoolingDown", "quiet", false);
        assert_eq!(forbids_sleep(&cooling), None);
        assert_eq!(of_sleep(&cooling, false), Progress::Going);
        assert!(
            matches!(of_sleep(&cooling, true), Progress::Failed(_)),
            "called off"
        );
        let busy = shown("Serving", "TriggerActive", "active", false);
        assert!(matches!(of_sleep(&busy, false), Progress::Failed(_)));
        let paused = shown("Serving", "Paused", "quiet", true);
        assert!(matches!(of_sleep(&paused, false), Progress::Failed(_)));
        let new = shown("Serving", "TriggerUnknown", "unknown", false);
        assert_eq!(of_sleep(&new, false), Progress::Going, "not read yet");
        let draining = shown("Draining", "Draining", "quiet", false);
        assert_eq!(of_sleep(&draining, true), Progress::Going);
        assert_eq!(
            of_sleep(&shown("Asleep", "Idle", "quiet", false), true),
            Progress::Done
        );
    }

    #[test]
    fn a_request_for_sleep_is_of_a_later_second_than_the_last_use() {
        let view = shown("Serving", "CoolingDown", "quiet", false);
        let at = sleep_asked_at(&view, now());
        assert_eq!(at, "2026-03-02T08:00:01Z".parse().unwrap());
        let later: Timestamp = "2026-03-02T08:00:07.25Z".parse().unwrap();
        assert_eq!(sleep_asked_at(&view, later), later);
        let behind: Timestamp = "2026-03-02T07:00:00Z".parse().unwrap();
        assert_eq!(sleep_asked_at(&view, behind), behind + super::MAX_AHEAD);
    }
}
