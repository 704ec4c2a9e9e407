//! The recent history of one service, since this process started: its phases and its wakes.

use std::collections::VecDeque;

use elasti_view::view::{View, WakeView};
use jiff::Timestamp;
use serde::Serialize;

/// 1,000 services with 120 spans of 40 bytes are 5 MB.
const MAX_SPANS: usize = 120;
/// Enough for a 95th percentile that means something.
const MAX_WAKES: usize = 40;

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
                self.begin(phase, now);
            }
            // The first one began before this process: the status has the time.
            None => self.begin(phase, view.since.unwrap_or(now).min(now)),
        }
        if let Some(wake) = &view.last_wake {
            self.record_wake(wake);
        }
    }

    fn begin(&mut self, phase: &'static str, from: Timestamp) {
        if self.spans.len() == MAX_SPANS {
            self.spans.pop_front();
        }
        let to = None;
        self.spans.push_back(Span { phase, from, to });
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

/// The phase as a word.
pub(crate) fn word(view: &View) -> &'static str {
    use elasti_api::Phase;
    match view.phase {
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
            history.begin("Asleep", Timestamp::from_second(at).unwrap());
        }
        assert_eq!(
            (history.wakes().len(), history.spans().len()),
            (MAX_WAKES, MAX_SPANS)
        );
        assert_eq!(history.wakes()[0].at.as_second(), 999);
    }
}
