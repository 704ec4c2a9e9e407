//! The last wake and the time asleep in the status. A time that no operator observed is absent.

use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, LastWake, MicroTime, Reason};
use jiff::{Timestamp, TimestampRound, Unit};

use super::{Crossed, crossed};
use crate::desire;
use crate::observed::{Author, Observed, Report};
use crate::stable_since::WakeTimeline;
use crate::user_requests;

/// The last wake: a new one if the target has just been scaled up from zero, else the previous one, with the time at
/// which its first pod became ready. All else is written along with other changes.
pub(super) fn changed(
    spec: &ElastiServiceSpec,
    o: &Observed,
    previous: &ElastiServiceStatus,
) -> Option<LastWake> {
    if crossed(o) == Some(Crossed::Up) {
        return Some(new_wake(spec, o));
    }
    let mut wake = previous.last_wake.clone()?;
    if let (None, Some(seen)) = (&wake.ready_at, observed_wake(o, &wake)) {
        wake.ready_at = seen.ready.map(whole_micros);
    }
    Some(wake)
}

/// Fills in what has been observed of the wake since it was written.
pub(super) fn refresh(o: &Observed, wake: &mut Option<LastWake>) {
    let Some(wake) = wake else {
        return;
    };
    let Some(seen) = observed_wake(o, wake) else {
        return;
    };
    fill(&mut wake.scheduled_at, seen.scheduled);
    fill(&mut wake.started_at, seen.started);
    fill(&mut wake.ready_at, seen.ready);
    let answers = o
        .resolvers
        .iter()
        .filter_map(|resolver| match &resolver.report {
            Report::Seen { first_answer, .. } => *first_answer,
            Report::NotAsked | Report::Unreachable => None,
        });
    let first = answers.filter(|at| *at >= seen.scaled).min();
    fill(&mut wake.answered_at, first);
}

/// For how long the target has slept in total, up to the last wake.
pub(super) fn asleep_seconds(o: &Observed, previous: &ElastiServiceStatus) -> Option<i64> {
    let before = previous.asleep_seconds;
    let slept = o.me.remembered.last_sleep;
    match (crossed(o), slept) {
        (Some(Crossed::Up), Some(slept)) => {
            let seconds = o.since(slept).as_secs();
            Some(before.unwrap_or(0).saturating_add(seconds))
        }
        _ => before,
    }
}

/// What this process has observed of the wake in the status.
fn observed_wake(o: &Observed, written: &LastWake) -> Option<WakeTimeline> {
    let seen = o.stable_since.wake?;
    (written.scaled_at == Some(whole_micros(seen.scaled))).then_some(seen)
}

/// A wake that was observed just now.
fn new_wake(spec: &ElastiServiceSpec, o: &Observed) -> LastWake {
    let recorded = o.target.as_ref().and_then(|t| t.replicas_at);
    let scaled = o.stable_since.wake.map(|seen| seen.scaled).or(recorded);
    let by = woken_by(spec, o);
    // The reconcile that plans a wake is the last one at zero.
    let decided = o.stable_since.zero_at;
    let requested = match by {
        Reason::Traffic => o.wake_requested_at,
        Reason::WakeRequested => user_requests::wake_requested_at(o),
        Reason::Manual => None,
        _ => decided,
    };
    let latest = scaled.unwrap_or(o.now).min(o.now);
    LastWake {
        by: by.as_str().to_owned(),
        asked_at: whole_micros(requested.map_or(latest, |at| at.min(latest))),
        scaled_at: scaled.map(whole_micros),
        scheduled_at: None,
        started_at: None,
        ready_at: None,
        answered_at: None,
    }
}

/// What woke it, as far as the facts a moment later show.
fn woken_by(spec: &ElastiServiceSpec, o: &Observed) -> Reason {
    let slept = o.me.remembered.last_sleep;
    if o.wake_requested_at.is_some_and(|at| Some(at) > slept) {
        return Reason::Traffic;
    }
    let ours = o.target.as_ref().map(|t| &t.replicas_by) == Some(&Author::Elasti);
    if !ours {
        return Reason::Manual;
    }
    if o.me.deleting_since.is_some() {
        return Reason::Deleting;
    }
    // Without a reason that this replica knows, it was a wake request to another replica.
    desire::must_be_awake(spec, o).map_or(Reason::Traffic, |why| why.reason)
}

fn fill(field: &mut Option<MicroTime>, seen: Option<Timestamp>) {
    if field.is_none() {
        *field = seen.map(whole_micros);
    }
}

/// A time as the API server stores it: in whole microseconds.
fn whole_micros(moment: Timestamp) -> MicroTime {
    let cut = TimestampRound::new()
        .smallest(Unit::Microsecond)
        .mode(jiff::RoundMode::Trunc);
    MicroTime(moment.round(cut).unwrap_or(moment))
}
