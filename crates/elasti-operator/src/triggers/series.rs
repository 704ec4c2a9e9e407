//! Whether a trigger's metrics have series: when that is to be found out, and what was found. A reading is never changed by
//! it; it is a warning for people.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two checks of a trigger whose metrics have no series yet.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The check of one trigger. Another spec begins it anew.
#[derive(Debug, Default)]
pub(crate) struct SeriesCheck(Mutex<Checked>);

#[derive(Debug, Default)]
struct Checked {
    last: Option<Instant>,
    /// Every metric had series once: one that ends later, because its pods sleep, is no mistake in the query.
    is_settled: bool,
    without_series: Option<Vec<String>>,
}

impl SeriesCheck {
    /// Begins a check if one is due.
    pub(crate) fn begin(&self) -> bool {
        let mut checked = self.0.lock();
        let is_recent = |last: Instant| last.elapsed() < CHECK_INTERVAL;
        if checked.is_settled || checked.last.is_some_and(is_recent) {
            return false;
        }
        checked.last = Some(Instant::now());
        true
    }

    /// Keeps what was found; gives whether that is something else than before.
    pub(crate) fn set_without_series(&self, metrics: Vec<String>) -> bool {
        let mut checked = self.0.lock();
        checked.is_settled = metrics.is_empty();
        // The first time that it is known is a change, too: something may have been said of before.
        let changed = checked.without_series.as_ref() != Some(&metrics);
        checked.without_series = Some(metrics);
        changed
    }

    /// What was found; `None` before that.
    pub(super) fn without_series(&self) -> Option<Vec<String>> {
        self.0.lock().without_series.clone()
    }
}
