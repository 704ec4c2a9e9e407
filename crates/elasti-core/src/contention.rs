//! Another writer of the target's replicas: who zeroed it, how long the next wake waits for that, and whether it goes on.

use elasti_api::Reason;
use jiff::{SignedDuration, Timestamp};

use crate::observed::{Author, Observed, Report};
use crate::why::{Why, clock};

/// The longest pause, in first ones.
const MAX_PAUSE: i32 = 64;

/// Who wrote the zero that the target is at, if that was something else. The API server's record names nothing for a zero
/// that came through `/scale`; then only this process may know that it was not ours.
pub(crate) fn zeroed_by(o: &Observed) -> Option<&str> {
    let target = o.target.as_ref().filter(|target| target.replicas == 0)?;
    match &target.replicas_by {
        Author::Other(writer) => Some(writer),
        Author::Elasti | Author::Unknown => { o.stable_since.zero }
            .filter(|zero| zero.by_other)
            .map(|_| "Something else"),
    }
}

/// Who wrote the replicas above zero that the target has, if that was something else.
pub(crate) fn written_by(o: &Observed) -> Option<&str> {
    let target = o.target.as_ref().filter(|target| target.replicas > 0)?;
    match &target.replicas_by {
        Author::Other(writer) => Some(writer),
        Author::Elasti => None,
        Author::Unknown => o.stable_since.by_other.then_some("Something else"),
    }
}

/// A request that is still held is a reason to wake it again, and no event tells of it.
pub(crate) fn needs_reports(o: &Observed) -> bool {
    let Some(zero) = o.stable_since.zero.filter(|zero| zero.by_other) else {
        return false;
    };
    let asked = |report: &Report| matches!(report, Report::Seen { at, .. } if *at >= zero.since);
    o.ready_resolvers().any(|resolver| !asked(&resolver.report))
}

/// Something else scaled the target to zero just after we woke it: wait before the next wake instead of fighting, longer
/// each time. By the status, so that every replica and the next leader wait as long.
pub(crate) fn pause(o: &Observed) -> Option<Why> {
    let writer = zeroed_by(o);
    let contended = o.me.remembered.contended_since.or(writer.map(|_| o.now));
    let until = pause_ends(contended?, o)?;
    (o.replicas() == Some(0) && o.now < until).then(|| {
        let sentence = format!(
            "{} set replicas to 0 right after a wake; the next wake waits until {}.",
            writer.unwrap_or("Something else"),
            clock(until)
        );
        Why::new(Reason::Contended, sentence).until(until)
    })
}

/// When a wake that still stands ends the contention, unless something else is known to have woken it. What changes the
/// replicas of an awake target, an HPA for example, leaves the wake standing.
pub(crate) fn ends_at(o: &Observed) -> Option<Timestamp> {
    let ends = pause_ends(o.me.remembered.contended_since?, o)?;
    let woken_by_other = o.me.remembered.woken_by_other && written_by(o).is_some();
    (!woken_by_other && o.replicas()? > 0).then_some(ends)
}

/// Our wake follows a zero of others closely: if that comes again, it is the same contention.
pub(crate) fn goes_on(o: &Observed) -> bool {
    let before = &o.me.remembered;
    let length = before.contended_since.map(|since| length(since, o));
    length
        .zip(before.last_sleep)
        .is_some_and(|(length, zero)| o.since(zero) <= length.saturating_mul(2))
}

/// Counted from the last wake.
fn pause_ends(contended_since: Timestamp, o: &Observed) -> Option<Timestamp> {
    let woken = o.me.remembered.last_wake.max(o.woken_at)?;
    let ends = woken.checked_add(length(contended_since, o));
    Some(ends.unwrap_or(Timestamp::MAX))
}

/// As long as the contention had lasted at the last wake, so that it about doubles each time.
fn length(contended_since: Timestamp, o: &Observed) -> SignedDuration {
    let first = o.settings.contention_pause;
    let woken = o.me.remembered.last_wake.unwrap_or(contended_since);
    let lasted = woken.duration_since(contended_since);
    lasted.clamp(first, first.saturating_mul(MAX_PAUSE))
}
