//! The last day in the status. An entry is written along with the change that it tells of, so it costs no write.

use elasti_api::names::condition;
use elasti_api::{ElastiServiceStatus, HistoryEntry, HistoryState, Phase};
use jiff::{SignedDuration, Timestamp};

use super::whole_seconds;

/// How far back it goes.
pub const HISTORY_SPAN: SignedDuration = SignedDuration::from_hours(24);

/// 24 bytes each in an operator: at most 0.6 KiB of its 12 KiB for a service.
pub const MAX_HISTORY: usize = 24;

/// The state that a status tells; `None` before an operator has reconciled the service.
#[must_use]
pub fn state(status: &ElastiServiceStatus) -> Option<HistoryState> {
    let unready = |c: &elasti_api::Condition| c.type_ == condition::READY && c.status == "False";
    let failed = status.failed_wake.is_some() || status.conditions.iter().any(unready);
    match status.phase {
        _ if failed => Some(HistoryState::Failed),
        phase => phase.map(phase_state),
    }
}

/// The state of a service in this phase, as long as nothing is wrong.
#[must_use]
pub fn phase_state(phase: Phase) -> HistoryState {
    match phase {
        Phase::Asleep => HistoryState::Asleep,
        Phase::Waking => HistoryState::Waking,
        Phase::Serving | Phase::Redirecting | Phase::Draining | Phase::Restoring => {
            HistoryState::Awake
        }
    }
}

/// Adds the state of a status that is about to be written, where it is another one, and forgets what is older than a day.
pub(super) fn record(status: &mut ElastiServiceStatus, now: Timestamp) {
    let Some(state) = state(status) else { return };
    let since = whole_seconds(now);
    let history = &mut status.history;
    // The clock was set back.
    for entry in history.iter_mut().filter(|entry| entry.since.0 > since.0) {
        entry.since.clone_from(&since);
    }
    if history.last().is_none_or(|last| last.state != state) {
        history.push(HistoryEntry { state, since });
    }
    forget_older(history, now);
    while history.len() > MAX_HISTORY
        && let Some(shortest) = shortest_stay(history)
    {
        // It counts for the one before it, so that the day stays covered.
        history.remove(shortest);
        history.dedup_by_key(|entry| entry.state);
    }
    history.shrink_to_fit();
}

/// Forgets what ended more than a day ago; the entry that covers the start of the day stays.
pub fn forget_older(history: &mut Vec<HistoryEntry>, now: Timestamp) {
    let start = now.checked_sub(HISTORY_SPAN).unwrap_or(Timestamp::MIN);
    let begun = history.partition_point(|entry| entry.since.0 <= start);
    history.drain(..begun.saturating_sub(1));
}

/// The shortest stay between two others; a failure only where there is nothing else.
fn shortest_stay(history: &[HistoryEntry]) -> Option<usize> {
    let stays = history.windows(3).enumerate().filter_map(|(at, stays)| {
        let [_, stay, next] = stays else { return None };
        let length = next.since.0.duration_since(stay.since.0);
        Some((stay.state == HistoryState::Failed, length, at + 1))
    });
    stays.min().map(|(.., shortest)| shortest)
}
