//! What people asked for by annotation, and whether it still counts.
//! A wish never waives more than waiting times: held requests, triggers, windows and every law stay.

use jiff::{SignedDuration, Timestamp};

use elasti_api::names::{SLEEP_REQUESTED_ANNOTATION, WAKE_REQUESTED_ANNOTATION};

use crate::observed::{Observed, UserRequest};

/// A person's clock may be ahead of ours by this much; a wish from farther ahead is a mistake.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// When a wake was last asked for, by a resolver or by a person.
pub(crate) fn wake_asked_at(o: &Observed) -> Option<Timestamp> {
    o.wake_requested_at.max(heard(o.me.wake_request, o.now))
}

/// When sleep was asked for, if that was after `moment`.
///
/// Moments in a status are cut to whole seconds, so the wish is cut too: one within the same second counts for
/// nothing, rather than against something that came after it.
pub(crate) fn sleep_asked_after(o: &Observed, moment: Timestamp) -> Option<Timestamp> {
    let at = heard(o.me.sleep_request, o.now).filter(|at| *at <= o.now)?;
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    (whole > moment).then_some(at)
}

/// When a wish for sleep that a clock ahead of ours wrote begins to count.
pub(crate) fn sleep_due(o: &Observed) -> Option<Timestamp> {
    heard(o.me.sleep_request, o.now).filter(|at| *at > o.now)
}

/// Why a wish is not followed, as a sentence for its owner.
pub(crate) fn ignored(o: &Observed) -> Option<String> {
    let user_requests = [
        (WAKE_REQUESTED_ANNOTATION, o.me.wake_request),
        (SLEEP_REQUESTED_ANNOTATION, o.me.sleep_request),
    ];
    user_requests.into_iter().find_map(|(annotation, user_request)| match user_request {
        UserRequest::Unreadable => Some(format!(
            "The annotation {annotation} is ignored: it is not a time like 2026-01-31T08:00:00Z."
        )),
        UserRequest::At(_) if heard(user_request, o.now).is_none() => Some(format!(
            "The annotation {annotation} is ignored: its time has not come yet."
        )),
        UserRequest::At(_) | UserRequest::None => None,
    })
}

fn heard(user_request: UserRequest, now: Timestamp) -> Option<Timestamp> {
    match user_request {
        UserRequest::At(at) if at.duration_since(now) <= AHEAD => Some(at),
        UserRequest::At(_) | UserRequest::None | UserRequest::Unreadable => None,
    }
}
