//! The last wake in the status. A time that no operator observed is absent.

use elasti_api::{
    ElastiServiceSpec, ElastiServiceStatus, FailedWake, LastWake, MicroTime, Phase, Reason,
    WakeClient,
};
use jiff::{SignedDuration, Timestamp, TimestampRound, Unit};

use super::{Crossed, crossed, whole_seconds};
use crate::desire;
use crate::idle;
use crate::observed::{Author, Observed, Report};
use crate::plan::{self, Plan};
use crate::stable_since::WakeTimeline;
use crate::user_requests;
use crate::why::Why;

/// Another replica passes a wake on at once; one that comes later was asked for when the target was scaled up already.
const PASSED_ON_WITHIN: SignedDuration = SignedDuration::from_secs(1);

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
    if let Some(seen) = observed_wake(o, &wake) {
        if wake.ready_at.is_none() {
            wake.ready_at = seen.ready.map(whole_micros);
        }
        // Another replica may have got the wake, and tells that, and who it was for, a moment later.
        if let Some(asked) = passed_on(o, &wake, seen) {
            wake.by = Reason::Traffic.as_str().to_owned();
            wake.asked_at = whole_micros(asked.min(seen.scaled));
        }
        if wake.client.is_none() && wake.by == Reason::Traffic.as_str() {
            wake.client = client(o, o.me.remembered.last_sleep);
        }
    }
    Some(wake)
}

/// When it was asked for a wake that looked manual until the replica that got it had passed it on.
fn passed_on(o: &Observed, wake: &LastWake, seen: WakeTimeline) -> Option<Timestamp> {
    let asked = o.wake_requested_at?;
    let in_time = seen.scaled.checked_add(PASSED_ON_WITHIN).ok()?;
    let manual = wake.by == Reason::Manual.as_str();
    (manual && Some(asked) > o.me.remembered.last_sleep && asked <= in_time).then_some(asked)
}

/// Whom it was woken for, if a resolver told it since it slept.
fn client(o: &Observed, slept: Option<Timestamp>) -> Option<WakeClient> {
    let seen = o.wake_client.as_ref()?;
    (Some(seen.at) >= slept).then(|| seen.client.clone())
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

/// The last wake that failed: remembered, also while the target sleeps again, until a pod is ready.
pub(super) fn failed(
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
) -> Option<FailedWake> {
    let before = previous.failed_wake.clone();
    let Some(why) = failure(o, plan) else {
        let ready = { o.pods.iter() }.any(|p| !p.terminating && p.containers_ready);
        return before.filter(|_| !ready);
    };
    let reason = why.reason.as_str().to_owned();
    let woken = o.me.remembered.last_wake;
    // The same wake, failing for the same reason.
    let same = before.filter(|one| one.reason == reason && Some(one.at.0) >= woken);
    Some(FailedWake {
        reason,
        message: why.sentence,
        at: same.map_or_else(|| whole_seconds(o.now), |one| one.at),
    })
}

/// Why the wake has failed, if it has. Where no client waits and the cooldown is over by then, it is given up at once, so
/// its service may be on its way to sleep already.
fn failure(o: &Observed, plan: &Plan) -> Option<Why> {
    let why = match plan.phase {
        Phase::Waking => Some(plan.why.clone()),
        Phase::Redirecting | Phase::Draining if idle::wake_is_under_way(o) => plan::obstacle(o),
        _ => None,
    };
    why.filter(|why| why.reason.is_obstacle())
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
        client: match by {
            Reason::Traffic => client(o, o.me.remembered.last_sleep),
            _ => None,
        },
    }
}

/// What woke it, as far as the facts a moment later show.
fn woken_by(spec: &ElastiServiceSpec, o: &Observed) -> Reason {
    let slept = o.me.remembered.last_sleep;
    if o.wake_requested_at.is_some_and(|at| Some(at) > slept) {
        return Reason::Traffic;
    }
    let author = author(o);
    let by_other = matches!(author, Author::Other(_));
    if !by_other && o.me.deleting_since.is_some() {
        return Reason::Deleting;
    }
    let reason = desire::must_be_awake(spec, o).map(|why| why.reason);
    match (author, reason) {
        (Author::Elasti | Author::Unknown, Some(Reason::WokenByRequest)) => Reason::Traffic,
        (Author::Elasti | Author::Unknown, Some(reason)) => reason,
        // Without a reason that this replica knows, it was a wake request to another replica.
        (Author::Elasti, None) => Reason::Traffic,
        // Another replica may have been asked for a wake, or an autoscaler may have followed one.
        (Author::Unknown | Author::Other(_), _) if waited_since(slept, o) => Reason::Traffic,
        (Author::Unknown | Author::Other(_), _) => Reason::Manual,
    }
}

/// Who scaled it up. After a zero through `/scale` the API server records no writer of the replicas any more, so what
/// this process did itself counts too.
fn author(o: &Observed) -> Author {
    let recorded = o.target.as_ref().map(|t| t.replicas_by.clone());
    match recorded.unwrap_or(Author::Unknown) {
        Author::Unknown if o.woken_at.is_some() && o.woken_at >= last_zero(o) => Author::Elasti,
        recorded => recorded,
    }
}

/// When it was last known to be at zero; the status knows only the second.
fn last_zero(o: &Observed) -> Option<Timestamp> {
    o.stable_since.zero_at.max(o.me.remembered.last_sleep)
}

/// Only the resolvers may know what woke it.
pub(crate) fn needs_reports(o: &Observed) -> bool {
    let woken = crossed(o) == Some(Crossed::Up) && o.wake_requested_at.is_none();
    let zero = last_zero(o);
    let asked = |report: &Report| matches!(report, Report::Seen { at, .. } if Some(*at) > zero);
    woken && author(o) != Author::Elasti && o.ready_resolvers().any(|r| !asked(&r.report))
}

/// A resolver has requests that came after the service was put to sleep.
fn waited_since(slept: Option<Timestamp>, o: &Observed) -> bool {
    o.resolvers.iter().any(|resolver| match &resolver.report {
        Report::Seen {
            held,
            last_connection,
            ..
        } => *held > 0 || last_connection.is_some_and(|at| Some(at) > slept),
        Report::NotAsked | Report::Unreachable => false,
    })
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
