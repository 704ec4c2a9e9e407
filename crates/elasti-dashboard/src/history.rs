//! The recent history of one service: its phases and its wakes since this process started, and the last day.

use std::collections::VecDeque;

use elasti_api::{HistoryEntry, HistoryState, Time};
use elasti_core::status::forget_older;
use elasti_view::view::{View, WakeView};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// 1,000 services with 120 spans of 40 bytes are 5 MB.
const MAX_SPANS: usize = 120;
/// Enough for a 95th percentile that means something.
const MAX_WAKES: usize = 40;
/// A page draws a day on a few hundred points.
const MAX_DAY: usize = 48;
/// A change is observed later than the operator records it.
const OBSERVED_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// Recent phases and wakes.
#[derive(Debug, Default)]
pub(crate) struct History {
    spans: VecDeque<Span>,
    /// Newest first.
    wakes: VecDeque<WakeView>,
}

/// One stay in a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Span {
    phase: &'static str,
    #[serde(skip)]
    state: Option<HistoryState>,
    from: Timestamp,
    /// Absent while it lasts.
    to: Option<Timestamp>,
}

/// How long wakes took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ColdStarts {
    count: usize,
    p50_millis: i64,
    p95_millis: i64,
}

impl History {
    /// Records the current state.
    pub(crate) fn record(&mut self, view: &View, now: Timestamp) {
        let phase = word(view);
        match self.spans.back_mut() {
            Some(last) if last.phase == phase => {}
            Some(last) => {
                last.to = Some(now);
                self.begin(phase, view.state(), now);
            }
            // The first one began before this process: the status has the time.
            None => {
                let failed = view.failed_wake.as_ref().map(|failed| failed.at);
                let since = failed.or(view.since).unwrap_or(now);
                self.begin(phase, view.state(), since.min(now));
            }
        }
        if let Some(wake) = &view.last_wake {
            self.record_wake(wake);
        }
    }

    fn begin(&mut self, phase: &'static str, state: Option<HistoryState>, from: Timestamp) {
        if self.spans.len() == MAX_SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(Span {
            phase,
            state,
            from,
            to: None,
        });
    }

    /// The last day: as the status has recorded it, before that as this process observed it, and at its end what only
    /// this process sees, for example that the target is gone.
    pub(crate) fn day(&self, recorded: &[HistoryEntry], now: Timestamp) -> Vec<HistoryEntry> {
        let entry = |span: &Span| {
            let since = Time(span.from);
            span.state.map(|state| HistoryEntry { state, since })
        };
        let first = recorded.first().map(|first| first.since.0);
        let before = self.spans.iter().filter(|span| match (first, span.to) {
            (None, _) => true,
            (Some(first), Some(to)) => to.duration_since(first) <= OBSERVED_WITHIN,
            (Some(_), None) => false,
        });
        let mut day: Vec<HistoryEntry> = before.filter_map(entry).collect();
        day.extend_from_slice(recorded);
        if let Some(current) = self.spans.back().and_then(entry) {
            day.push(current);
        }
        // An operator's clock and ours may differ.
        let mut latest = Timestamp::MIN;
        for entry in &mut day {
            latest = latest.max(entry.since.0);
            entry.since.0 = latest;
        }
        day.dedup_by_key(|entry| entry.state);
        forget_older(&mut day, now);
        day.drain(..day.len().saturating_sub(MAX_DAY));
        day
    }

    /// A wake in progress is recorded several times, each time with more parts.
    fn record_wake(&mut self, wake: &WakeView) {
        match self.wakes.front_mut() {
            Some(last) if last.at == wake.at => *last = wake.clone(),
            Some(last) if last.at > wake.at => {}
            _ => {
                self.wakes.push_front(wake.clone());
                self.wakes.truncate(MAX_WAKES);
            }
        }
    }

    /// The phases, oldest first.
    pub(crate) fn spans(&self) -> &VecDeque<Span> {
        &self.spans
    }

    /// The wakes, newest first.
    pub(crate) fn wakes(&self) -> &VecDeque<WakeView> {
        &self.wakes
    }

    /// The percentiles of the wakes that ended, by the nearest rank.
    pub(crate) fn cold_starts(&self) -> Option<ColdStarts> {
        let mut took: Vec<i64> = self
            .wakes
            .iter()
            .filter_map(|one| one.cold_start_ms)
            .collect();
        took.sort_unstable();
        let rank = |percent: usize| {
            let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
            took.get(at).copied()
        };
        Some(ColdStarts {
            count: took.len(),
            p50_millis: rank(50)?,
            p95_millis: rank(95)?,
        })
    }
}

/// The phase as a word; a service that fails is in none.
pub(crate) fn word(view: &View) -> &'static str {
    use elasti_api::Phase;
    match view.phase {
        _ if view.state() == Some(HistoryState::Failed) => "Failed",
        None => "Unknown",
        Some(Phase::Serving) => "Serving",
        Some(Phase::Redirecting) => "Redirecting",
        Some(Phase::Draining) => "Draining",
        Some(Phase::Asleep) => "Asleep",
        Some(Phase::Waking) => "Waking",
        Some(Phase::Restoring) => "Restoring",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(at: i64, took: Option<i64>) -> WakeView {
        WakeView {
            client: None,
            by: Some("Traffic".into()),
            at: Timestamp::from_second(at).unwrap(),
            parts: Vec::new(),
            cold_start_ms: took,
            finished: took.is_some(),
        }
    }

    #[test]
    fn a_wake_that_grows_is_one_wake_and_the_percentiles_count_what_ended() {
        let mut history = History::default();
        history.record_wake(&wake(10, None));
        assert_eq!(history.cold_starts(), None);
        history.record_wake(&wake(10, Some(100)));
        for number in 2..=10 {
            history.record_wake(&wake(10 * number, Some(100 * number)));
        }
        history.record_wake(&wake(20, Some(7)));
        assert_eq!(history.wakes().len(), 10, "an old status changes nothing");
        let starts = history.cold_starts().unwrap();
        assert_eq!(
            (starts.count, starts.p50_millis, starts.p95_millis),
            (10, 500, 1000)
        );
    }

    #[test]
    fn history_is_bounded() {
        let mut history = History::default();
        for at in 0..1000 {
            history.record_wake(&wake(at, Some(1)));
            let at = Timestamp::from_second(at).unwrap();
            history.begin("Asleep", Some(HistoryState::Asleep), at);
        }
        assert_eq!(
            (history.wakes().len(), history.spans().len()),
            (MAX_WAKES, MAX_SPANS)
        );
        assert_eq!(history.wakes()[0].at.as_second(), 999);
    }
    fn entry(state: HistoryState, second: i64) -> HistoryEntry {
        let since = Time(Timestamp::from_second(second).unwrap());
        HistoryEntry { state, since }
    }

    /// States with their starts, observed one after the other.
    fn observed(spans: &[(HistoryState, i64)]) -> History {
        let mut history = History::default();
        for (state, from) in spans {
            let from = Timestamp::from_second(*from).unwrap();
            if let Some(last) = history.spans.back_mut() {
                last.to = Some(from);
            }
            history.begin("", Some(*state), from);
        }
        history
    }

    #[test]
    fn a_day_is_what_the_status_recorded_around_it_what_was_observed() {
        use HistoryState::{Asleep, Awake, Failed, Waking};
        const DAY: i64 = 24 * 3600;
        let day = |observations: &[(HistoryState, i64)], recorded: &[HistoryEntry], now| {
            let now = Timestamp::from_second(now).unwrap();
            let day = observed(observations).day(recorded, now);
            let day = day.iter().map(|one| (one.state, one.since.0.as_second()));
            day.collect::<Vec<_>>()
        };
        let recorded = [entry(Waking, 1000), entry(Awake, 1010)];
        let told = [(Waking, 1000), (Awake, 1010)];
        assert_eq!(day(&[], &recorded, 2000), told, "a restart");
        assert_eq!(day(&[(Awake, 1010)], &recorded, 2000), told, "the same");
        let only = [(Asleep, 500), (Waking, 1001)];
        assert_eq!(day(&only, &[], 2000), only, "no operator records it");
        let longer = [(Asleep, 500), (Waking, 1001), (Awake, 1012)];
        assert_eq!(
            day(&longer, &recorded, 2000),
            [(Asleep, 500), told[0], told[1]]
        );
        let gone = [(Awake, 1012), (Failed, 1500)];
        assert_eq!(
            day(&gone, &recorded, 2000),
            [told[0], told[1], (Failed, 1500)]
        );
        // Its traffic was never redirected, so by its conditions it serves since the beginning.
        assert_eq!(day(&[(Awake, 0)], &recorded, 2000), told);
        assert_eq!(day(&[], &recorded, 1005 + DAY), told, "it covers the start");
        assert_eq!(day(&[], &recorded, 1010 + DAY), [told[1]]);
    }
}
