//! What people asked for by annotation, and whether it still counts.
//! A wish never waives more than waiting times: held requests, triggers, windows and every law stay.

use jiff::{SignedDuration, Timestamp};

use elasti_api::names::{SLEEP_REQUESTED_ANNOTATION, WAKE_REQUESTED_ANNOTATION};

use crate::observed::{Observed, Wish};

/// A person's clock may be ahead of ours by this much; a wish from farther ahead is a mistake.
const AHEAD: SignedDuration = SignedDuration::from_mins(1);

/// When a wake was last asked for, by a resolver or by a person.
pub(crate) fn wake_asked_at(o: &Observed) -> Option<Timestamp> {
    o.wake_requested_at.max(heard(o.me.wake_wish, o.now))
}

/// When sleep was asked for, if that was after `moment`.
///
/// Moments in a status are cut to whole seconds, so the wish is cut too: one within the same second counts for
/// nothing, rather than against something that came after it.
pub(crate) fn sleep_asked_after(o: &Observed, moment: Timestamp) -> Option<Timestamp> {
    let at = heard(o.me.sleep_wish, o.now).filter(|at| *at <= o.now)?;
    let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
    (whole > moment).then_some(at)
}

/// When a wish for sleep that a clock ahead of ours wrote begins to count.
pub(crate) fn sleep_due(o: &Observed) -> Option<Timestamp> {
    heard(o.me.sleep_wish, o.now).filter(|at| *at > o.now)
}

/// Why a wish is not followed, as a sentence for its owner.
pub(crate) fn ignored(o: &Observed) -> Option<String> {
    let wishes = [
        (WAKE_REQUESTED_ANNOTATION, o.me.wake_wish),
        (SLEEP_REQUESTED_ANNOTATION, o.me.sleep_wish),
    ];
    wishes.into_iter().find_map(|(annotation, wish)| match wish {
        Wish::Unreadable => Some(format!(
            "The annotation {annotation} is ignored: it is not a time like 2026-01-31T08:00:00Z."
        )),
        Wish::At(_) if heard(wish, o.now).is_none() => Some(format!(
            "The annotation {annotation} is ignored: its time has not come yet."
        )),
        Wish::At(_) | Wish::None => None,
    })
}

fn heard(wish: Wish, now: Timestamp) -> Option<Timestamp> {
    match wish {
        Wish::At(at) if at.duration_since(now) <= AHEAD => Some(at),
        Wish::At(_) | Wish::None | Wish::Unreadable => None,
    }
}
