//! Wakes and sleeps that users request by annotation, and whether they still count.
//! A request only waives waiting times: held requests, triggers, windows and every law still apply.

use jiff::{SignedDuration, Timestamp};

use elasti_api::names::{SLEEP_REQUESTED_ANNOTATION, WAKE_REQUESTED_ANNOTATION};

use crate::observed::{Observed, UserRequest};

/// A user's clock may be ahead of ours by this much; a request from farther ahead is ignored.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// When a wake was last requested, by a resolver or by a user.
pub(crate) fn wake_requested_at(o: &Observed) -> Option<Timestamp> {
    o.wake_requested_at.max(accepted(o.me.wake_request, o.now))
}

/// Who requested a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requester {
    Resolver,
    User,
}

/// The last request for a wake, unless the target has been up since and is at zero again: something else put it there,
/// and was the last to write.
pub(crate) fn unanswered_wake(o: &Observed) -> Option<(Timestamp, Requester)> {
    let undone = |at: &Timestamp| o.replicas() == Some(0) && was_up_since(*at, o);
    // A resolver's request that did not find the zero of others came before it.
    let zero = o.stable_since.zero.filter(|zero| zero.by_other);
    let before_zero = |at: &Timestamp| zero.is_some_and(|zero| *at <= zero.since);
    let by_resolver = { o.wake_requested_at }.filter(|at| !undone(at) && !before_zero(at));
    let by_user = accepted(o.me.wake_request, o.now).filter(|at| !undone(at));
    let by_resolver = by_resolver.map(|at| (at, Requester::Resolver));
    by_resolver.max(by_user.map(|at| (at, Requester::User)))
}

/// The target has been above zero since then: as this process saw or wrote it, or as the status says.
fn was_up_since(requested: Timestamp, o: &Observed) -> bool {
    let remembered = &o.me.remembered;
    let recorded = remembered.last_wake.filter(|_| !remembered.was_at_zero());
    let up = o.stable_since.served_wake.max(o.woken_at).max(recorded);
    up >= Some(requested)
}

/// When sleep was requested, if that was after `moment`.
///
/// Times in a status are truncated to whole seconds, so this one is too: a request within the same second is
/// ignored, rather than counted against something that came after it.
pub(crate) fn sleep_requested_after(o: &Observed, moment: Timestamp) -> Option<Timestamp> {
    let at = accepted(o.me.sleep_request, o.now).filter(|at| *at <= o.now)?;
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    (whole > moment).then_some(at)
}

/// When a request for sleep from a clock ahead of ours begins to count.
pub(crate) fn sleep_due(o: &Observed) -> Option<Timestamp> {
    accepted(o.me.sleep_request, o.now).filter(|at| *at > o.now)
}

/// Why a request is ignored, as a sentence for its author.
pub(crate) fn ignored(o: &Observed) -> Option<String> {
    let user_requests = [
        (WAKE_REQUESTED_ANNOTATION, o.me.wake_request),
        (SLEEP_REQUESTED_ANNOTATION, o.me.sleep_request),
    ];
    user_requests.into_iter().find_map(|(annotation, user_request)| match user_request {
        UserRequest::Unreadable => Some(format!(
            "The annotation {annotation} is ignored: it is not a time like 2026-01-31T08:00:00Z."
        )),
        UserRequest::At(_) if accepted(user_request, o.now).is_none() => Some(format!(
            "The annotation {annotation} is ignored: its time is in the future yet."
        )),
        UserRequest::At(_) | UserRequest::None => None,
    })
}

fn accepted(user_request: UserRequest, now: Timestamp) -> Option<Timestamp> {
    match user_request {
        UserRequest::At(at) if at.duration_since(now) <= MAX_CLOCK_SKEW => Some(at),
        UserRequest::At(_) | UserRequest::None | UserRequest::Unreadable => None,
    }
}
