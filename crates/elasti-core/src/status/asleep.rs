//! The time asleep in the status, and what it saved: added up at the end of each sleep.

use elasti_api::{
    CurrentSleep, ElastiServiceSpec, ElastiServiceStatus, SavedSeconds, SavingsCalendar, Time,
};
use jiff::Timestamp;

use super::conditions::in_conflict;
use super::{Crossed, crossed, whole_seconds};
use crate::observed::Observed;
use crate::savings;

/// The target has just begun to sleep by the doing of this ElastiService: it was zeroed, or what took precedence over
/// it is gone and has left it at zero.
pub(super) fn begins(o: &Observed, previous: &ElastiServiceStatus) -> bool {
    let takes_over = savings::in_conflict(previous) && o.replicas() == Some(0);
    !in_conflict(o) && (takes_over || crossed(o) == Some(Crossed::Down))
}

/// A sleep of this ElastiService's own doing has just ended: the target was woken, or something else takes precedence.
fn ends(o: &Observed, previous: &ElastiServiceStatus) -> bool {
    let slept = o.me.remembered.was_at_zero() && !savings::in_conflict(previous);
    slept && (in_conflict(o) || crossed(o) == Some(Crossed::Up))
}

/// For how long the target has slept in total, up to the last wake.
pub(super) fn asleep_seconds(o: &Observed, previous: &ElastiServiceStatus) -> Option<i64> {
    let before = previous.asleep_seconds;
    match o.me.remembered.last_sleep {
        Some(slept) if ends(o, previous) => {
            let seconds = o.since(slept).as_secs();
            Some(before.unwrap_or(0).saturating_add(seconds))
        }
        _ => before,
    }
}

/// What all sleeps up to the last wake saved.
pub(super) fn saved(o: &Observed, previous: &ElastiServiceStatus) -> Option<SavedSeconds> {
    let before = previous.saved.clone();
    match known(o, previous) {
        Some(sleep) if ends(o, previous) => {
            let more = savings::saved_by(sleep, o.now);
            Some(savings::plus(before.unwrap_or_default(), &more))
        }
        _ => before,
    }
}

/// The same by month and by day.
pub(super) fn calendar(o: &Observed, previous: &ElastiServiceStatus) -> Option<SavingsCalendar> {
    match known(o, previous) {
        Some(sleep) if ends(o, previous) => Some(savings::with_sleep(previous, sleep, o.now)),
        _ => previous.savings_calendar.clone(),
    }
}

/// The sleep that goes on, with the requests that its pods had as it began. One that began before this version of the
/// operator counts from when it is first seen: what its pods requested before is not known.
pub(super) fn current(
    spec: &ElastiServiceSpec,
    o: &Observed,
    previous: &ElastiServiceStatus,
) -> Option<CurrentSleep> {
    let Some(target) = &o.target else {
        return previous.current_sleep.clone();
    };
    if target.replicas > 0 || in_conflict(o) {
        return None;
    }
    let known = known(o, previous).filter(|_| !begins(o, previous));
    let Some(known) = known.cloned() else {
        let since = whole_seconds(o.now).0;
        let pods = spec.min_target_replicas;
        return Some(savings::begin(pods, &target.requests, since));
    };
    let since = known.since.map(|since| Time(since.0.min(o.now)));
    Some(CurrentSleep { since, ..known })
}

/// The sleep in the status, unless an operator that knows nothing of it has recorded a later one since.
fn known<'a>(o: &Observed, previous: &'a ElastiServiceStatus) -> Option<&'a CurrentSleep> {
    let slept: Option<Timestamp> = o.me.remembered.last_sleep;
    let since = |sleep: &CurrentSleep| sleep.since.as_ref().map(|since| since.0);
    { previous.current_sleep.as_ref() }.filter(|sleep| since(sleep) >= slept)
}
