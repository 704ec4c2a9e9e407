//! Are all readings quiet, and have they been for the whole cooldown? Doubt is not idle.

use elasti_api::{ElastiServiceSpec, Reason};
use jiff::{SignedDuration, Timestamp};

use crate::groups;
use crate::observed::{Author, Observed, Pod, Reading, Report};
use crate::user_requests;
use crate::waiting_room::Limits;
use crate::why::{Why, clock};

/// How long a request to sleep counts while a source has not been up for the whole cooldown: since when its trigger has
/// been quiet is not known then, and so not whether the request came after that.
const WAIVES_UPTIME: SignedDuration = SignedDuration::from_mins(10);

/// Since when the service has been quiet, or why it is not.
///
/// # Errors
/// If a reading is active or unknown, or a resolver has requests waiting or in flight.
pub fn quiet_since(spec: &ElastiServiceSpec, o: &Observed) -> Result<Timestamp, Why> {
    all_quiet(spec, o)?;
    let remembered = match o.me.remembered.quiet_since {
        // The triggers or thresholds have changed, so the old quiet time does not count.
        Some(_) if o.me.remembered.generation != Some(o.me.generation) => o.now,
        Some(since) if since > o.now => o.now,
        Some(since) if was_unobserved(o) => since.max(o.stable_since.watching_since.min(o.now)),
        Some(since) => since,
        None => o.now,
    };
    Ok(last_use(o).map_or(remembered, |at| remembered.max(at)))
}

/// The last request or connection, or when something else scaled it up, which counts on its pods.
fn last_use(o: &Observed) -> Option<Timestamp> {
    let used = last_connection(o).max(o.stable_since.raised_at);
    used.map(|at| at.min(o.now))
}

/// Quiet for the whole cooldown, and neither created, woken nor ready after a wake within it; or a user requested
/// sleep after it was quiet, created and woken. Gives the reason for sleep.
///
/// # Errors
/// If not, with the reason and the moment from which it could be.
pub fn idle(spec: &ElastiServiceSpec, o: &Observed) -> Result<Why, Why> {
    let quiet = quiet_since(spec, o);
    let cooldown = cooldown(spec);
    let woken = last_wake(o);
    // Times that another clock wrote may be ahead of ours. They count as they are: clamped to `now`
    // they would move with every reconcile, and the status with them.
    let requested = user_requests::wake_requested_at(o);
    let used = quiet.as_ref().ok().copied().or_else(|| last_use(o));
    let starts = [used, Some(o.me.created), woken, requested];
    let start = starts.into_iter().flatten().max().unwrap_or(o.now);
    if let Some(why) = sleep_requested(spec, quiet.is_ok(), start, o) {
        return Ok(why);
    }
    let quiet = quiet?;
    let ready = woken.and_then(|woken| ready_since(o, woken));
    let counted = ready.map_or(start, |ready| ready.max(start));
    let over = counted.checked_add(cooldown).unwrap_or(Timestamp::MAX);
    let seconds = cooldown.as_secs();
    if let Some(until) = woken.and_then(|woken| start_awaited_until(spec, woken, o))
        && o.now < until
        && over < until
    {
        let sentence = format!(
            "No pod has been ready since the service was woken; it may sleep at {} if none is by then.",
            clock(until)
        );
        return Err(Why::new(Reason::CoolingDown, sentence).until(until));
    }
    if o.now >= over {
        let since = clock(start);
        let sentence = format!(
            "Every trigger has been quiet and no request has arrived since {since}, longer than the cooldown of {seconds} s."
        );
        return Ok(Why::new(Reason::Idle, sentence));
    }
    let what = if Some(counted) == ready {
        "has been ready since"
    } else if Some(start) == woken || Some(start) == requested {
        "was woken at"
    } else if start == quiet {
        "has been quiet since"
    } else {
        "was created at"
    };
    let sentence = format!(
        "The service {what} {}; it may sleep at {}, when the cooldown of {seconds} s ends.",
        clock(counted),
        clock(over),
    );
    Err(Why::new(Reason::CoolingDown, sentence).until(over))
}

/// A user requested sleep after the service was last used.
fn sleep_requested(
    spec: &ElastiServiceSpec,
    quiet_for_cooldown: bool,
    used: Timestamp,
    o: &Observed,
) -> Option<Why> {
    all_quiet_now(spec, o).ok()?;
    let at = user_requests::sleep_requested_after(o, used)?;
    let sentence = format!(
        "Sleep was requested at {}; every trigger is quiet and no request has arrived since.",
        clock(at)
    );
    let why = Why::new(Reason::SleepRequested, sentence);
    if quiet_for_cooldown {
        return Some(why);
    }
    let ends = at.checked_add(WAIVES_UPTIME).ok()?;
    (o.now < ends).then(|| why.until(ends))
}

/// When the target was last woken: by the status, by the API server's record of our own scale write
/// (which is there even if every operator died before the status was written), just now,
/// if the status still says that it sleeps, or when this process saw it leave zero.
fn last_wake(o: &Observed) -> Option<Timestamp> {
    let awake = o.target.as_ref().filter(|t| t.replicas > 0);
    let remembered = &o.me.remembered;
    if awake.is_some() && remembered.was_at_zero() {
        return Some(o.now);
    }
    let recorded = awake
        .filter(|t| t.replicas_by == Author::Elasti)
        // The last write was not a wake but part of a drain.
        .filter(|_| groups::to_restore(o).is_none())
        .and_then(|t| t.replicas_at);
    // The status has the same moment in whole seconds.
    let observed = { o.stable_since.left_zero_at }
        .filter(|at| awake.is_some() && Some(*at) > remembered.last_wake.map(end_of_second));
    { remembered.last_wake.max(recorded).max(observed) }.map(|at| at.min(o.now))
}

fn end_of_second(at: Timestamp) -> Timestamp {
    let end = at.checked_add(SignedDuration::from_millis(999));
    end.unwrap_or(Timestamp::MAX)
}

/// When a pod of the last wake was first ready.
/// A status that was written before the pod was ready, by an operator that died then, leaves only the pods themselves;
/// a drain that was called off after that counts as a new start, because removing a mark changes the condition.
fn ready_since(o: &Observed, woken: Timestamp) -> Option<Timestamp> {
    let written = o.me.remembered.ready_after_wake.filter(|at| *at >= woken);
    let pods = o.pods.iter().filter(|p| !p.terminating);
    let ready = written.or_else(|| pods.filter_map(|p| p.ready_since).min())?;
    Some(ready.min(o.now))
}

/// A wake whose pods may still start goes on for as long as a request would be held for it, whatever the cooldown:
/// otherwise an app that takes longer than its cooldown to start could never be woken without a request.
fn start_awaited_until(
    spec: &ElastiServiceSpec,
    woken: Timestamp,
    o: &Observed,
) -> Option<Timestamp> {
    let living = || o.pods.iter().filter(|pod| !pod.terminating);
    let may_start = |pod: &Pod| pod.obstacle.as_ref().is_some_and(|one| !one.failed);
    let others = |pod: &Pod| pod.ready || pod.marked || pod.obstacle.is_some() && !may_start(pod);
    if ready_since(o, woken).is_some() || !living().any(may_start) || living().any(others) {
        return None;
    }
    let held = Limits::default().room(spec.hold.as_ref()).timeout;
    woken.checked_add(held).ok()
}

/// The target was woken, and no pod has been ready since.
#[must_use]
pub fn wake_is_under_way(o: &Observed) -> bool {
    last_wake(o).is_some_and(|woken| ready_since(o, woken).is_none())
}

/// The cooldown of the spec; 0 means the default.
#[must_use]
pub fn cooldown(spec: &ElastiServiceSpec) -> SignedDuration {
    SignedDuration::from_secs(i64::from(spec.cooldown_seconds()))
}

/// The first active reading, as a reason to be awake.
#[must_use]
pub fn active_trigger(o: &Observed) -> Option<Why> {
    o.readings
        .iter()
        .enumerate()
        .find_map(|(index, reading)| match reading {
            // The value changes with every reading; with it in the sentence the status would be written as often.
            Reading::Active { threshold, .. } => Some(Why::new(
                Reason::TriggerActive,
                format!("Trigger {index} is at or above its threshold of {threshold}."),
            )),
            Reading::Quiet { .. } | Reading::Unknown { .. } | Reading::Unread => None,
        })
}

/// What is said until every trigger has been read; it ends by itself.
pub const UNREAD: &str = "Not every trigger has been read yet.";

/// Not every trigger has been read by this process yet.
#[must_use]
pub fn unread(spec: &ElastiServiceSpec, o: &Observed) -> bool {
    o.readings.len() != spec.triggers.len() || o.readings.contains(&Reading::Unread)
}

/// Every trigger is quiet, from a source that was up for the whole cooldown, and no request is there.
fn all_quiet(spec: &ElastiServiceSpec, o: &Observed) -> Result<(), Why> {
    unused(spec, o, false)
}

/// The same at this moment, which is all that a user's request to sleep needs.
fn all_quiet_now(spec: &ElastiServiceSpec, o: &Observed) -> Result<(), Why> {
    unused(spec, o, true)
}

fn unused(spec: &ElastiServiceSpec, o: &Observed, now_is_enough: bool) -> Result<(), Why> {
    if let Some(active) = active_trigger(o) {
        return Err(active);
    }
    for (index, reading) in o.readings.iter().enumerate() {
        if let Reading::Unknown { why, quiet_now } = reading
            && !(*quiet_now && now_is_enough)
        {
            let sentence = format!("Trigger {index} has no usable reading: {why}.");
            return Err(Why::new(Reason::TriggerUnknown, sentence));
        }
    }
    if spec.triggers.is_empty() {
        let sentence = "The ElastiService has no trigger, so idleness cannot be detected; add one.";
        return Err(Why::new(Reason::TriggerUnknown, sentence));
    }
    if unread(spec, o) {
        return Err(Why::new(Reason::TriggerUnknown, UNREAD));
    }
    traffic(o).map_or(Ok(()), Err)
}

/// Requests that wait or are in flight at a resolver, by the last report of each.
#[must_use]
pub fn traffic(o: &Observed) -> Option<Why> {
    o.resolvers
        .iter()
        .find_map(|resolver| match &resolver.report {
            Report::Seen { held, open, .. } if held + open > 0 => Some(Why::new(
                Reason::Traffic,
                format!(
                    "Resolver {} has requests waiting or in flight.",
                    resolver.name
                ),
            )),
            Report::Seen { .. } | Report::NotAsked | Report::Unreachable => None,
        })
}

/// The last use at any resolver, by the last report of each.
fn last_connection(o: &Observed) -> Option<Timestamp> {
    o.resolvers
        .iter()
        .filter_map(|resolver| match &resolver.report {
            Report::Seen {
                last_connection, ..
            } => *last_connection,
            Report::NotAsked | Report::Unreachable => None,
        })
        .max()
}

/// No operator read the triggers for longer than the limit before this process took over.
fn was_unobserved(o: &Observed) -> bool {
    let Some(until) = o.stable_since.watched_before_until else {
        return true;
    };
    o.stable_since.watching_since.duration_since(until) > o.settings.blind_limit
}
