//! What this process has seen of one service since it started: its phases and its wakes.
//! Never longer than its bounds, and never told as if it were the whole history.

use std::collections::VecDeque;

use elasti_core::view::{View, WakeView};
use jiff::Timestamp;
use serde::Serialize;

/// 1,000 services with 120 spans of 40 bytes are 5 MB.
const MOST_SPANS: usize = 120;
/// Enough for a 95th percentile that means something.
const MOST_WAKES: usize = 40;

/// One service's past.
#[derive(Debug, Default)]
pub(crate) struct Memory {
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

impl Memory {
    /// Takes in how the service stands now.
    pub(crate) fn look(&mut self, view: &View, now: Timestamp) {
        let phase = word(view);
        match self.spans.back_mut() {
            Some(last) if last.phase == phase => {}
            Some(last) => {
                last.to = Some(now);
                self.begin(phase, now);
            }
            // The first one began before it was seen, and the service says when.
            None => self.begin(phase, view.since.unwrap_or(now).min(now)),
        }
        if let Some(wake) = &view.last_wake {
            self.remember(wake);
        }
    }

    fn begin(&mut self, phase: &'static str, from: Timestamp) {
        if self.spans.len() == MOST_SPANS {
            self.spans.pop_front();
        }
        let to = None;
        self.spans.push_back(Span { phase, from, to });
    }

    /// A wake grows while it goes on: the same one is told several times, each time with more parts.
    fn remember(&mut self, wake: &WakeView) {
        match self.wakes.front_mut() {
            Some(last) if last.at == wake.at => *last = wake.clone(),
            Some(last) if last.at > wake.at => {}
            _ => {
                self.wakes.push_front(wake.clone());
                self.wakes.truncate(MOST_WAKES);
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
            by: Some("Traffic".into()),
            at: Timestamp::from_second(at).unwrap(),
            parts: Vec::new(),
            cold_start_ms: took,
            finished: took.is_some(),
        }
    }

    #[test]
    fn a_wake_that_grows_is_one_wake_and_the_percentiles_count_what_ended() {
        let mut memory = Memory::default();
        memory.remember(&wake(10, None));
        assert_eq!(memory.cold_starts(), None);
        memory.remember(&wake(10, Some(100)));
        for number in 2..=10 {
            memory.remember(&wake(10 * number, Some(100 * number)));
        }
        memory.remember(&wake(20, Some(7)));
        assert_eq!(memory.wakes().len(), 10, "an old status changes nothing");
        let starts = memory.cold_starts().unwrap();
        assert_eq!(
            (starts.count, starts.p50_millis, starts.p95_millis),
            (10, 500, 1000)
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for at in 0..1000 {
            memory.remember(&wake(at, Some(1)));
            memory.begin("Asleep", Timestamp::from_second(at).unwrap());
        }
        assert_eq!(
            (memory.wakes().len(), memory.spans().len()),
            (MOST_WAKES, MOST_SPANS)
        );
        assert_eq!(memory.wakes()[0].at.as_second(), 999);
    }
}
