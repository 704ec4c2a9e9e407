//! The last wake and the time asleep, as the status tells them.
//! It never makes a moment up: one that nobody saw is absent.

use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, LastWake, MicroTime, Reason};
use jiff::{Timestamp, TimestampRound, Unit};

use super::{Crossed, crossed};
use crate::desire;
use crate::observed::{Author, Observed, Report};
use crate::user_requests;

/// The last wake: a new one if the target has just left zero, else the one that was told, and that its first pod is
/// ready once it is. All else is told along with other news.
pub(super) fn turned(
    spec: &ElastiServiceSpec,
    o: &Observed,
    previous: &ElastiServiceStatus,
) -> Option<LastWake> {
    if crossed(o) == Some(Crossed::Up) {
        return Some(begun(spec, o));
    }
    let mut wake = previous.last_wake.clone()?;
    if let (None, Some(seen)) = (&wake.ready_at, seen(o, &wake)) {
        wake.ready_at = seen.ready.map(micro);
    }
    Some(wake)
}

/// Fills in what has been seen of the wake since it was told.
pub(super) fn refresh(o: &Observed, wake: &mut Option<LastWake>) {
    let Some(wake) = wake else {
        return;
    };
    let Some(seen) = seen(o, wake) else {
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

/// How long the target has slept in all, up to the last wake.
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

/// What this process has seen of the wake that the status tells of.
fn seen(o: &Observed, told: &LastWake) -> Option<crate::stable_since::WakeSeen> {
    let seen = o.stable_since.wake?;
    (told.scaled_at == Some(micro(seen.scaled))).then_some(seen)
}

/// A wake whose replicas were seen just now.
fn begun(spec: &ElastiServiceSpec, o: &Observed) -> LastWake {
    let recorded = o.target.as_ref().and_then(|t| t.replicas_at);
    let scaled = o.stable_since.wake.map(|seen| seen.scaled).or(recorded);
    let by = by(spec, o);
    // A look that plans a wake is the last one at zero.
    let decided = o.stable_since.zero_at;
    let asked = match by {
        Reason::Traffic => o.wake_requested_at,
        Reason::WakeRequested => user_requests::wake_asked_at(o),
        Reason::Manual => None,
        _ => decided,
    };
    let latest = scaled.unwrap_or(o.now).min(o.now);
    LastWake {
        by: by.as_str().to_owned(),
        asked_at: micro(asked.map_or(latest, |asked| asked.min(latest))),
        scaled_at: scaled.map(micro),
        scheduled_at: None,
        started_at: None,
        ready_at: None,
        answered_at: None,
    }
}

/// What woke it, by what holds a moment later.
fn by(spec: &ElastiServiceSpec, o: &Observed) -> Reason {
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
    // Nothing but a resolver's call to another replica wakes without a reason that this one sees.
    desire::must_be_awake(spec, o).map_or(Reason::Traffic, |why| why.reason)
}

fn fill(told: &mut Option<MicroTime>, seen: Option<Timestamp>) {
    if told.is_none() {
        *told = seen.map(micro);
    }
}

/// A moment as the API server keeps it: in whole microseconds.
fn micro(moment: Timestamp) -> MicroTime {
    let cut = TimestampRound::new()
        .smallest(Unit::Microsecond)
        .mode(jiff::RoundMode::Trunc);
    MicroTime(moment.round(cut).unwrap_or(moment))
}
