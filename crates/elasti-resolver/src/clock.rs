//! Wall time derived from tokio's clock, so that a paused runtime pauses every deadline.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall time that moves exactly as fast as tokio's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started_at: Instant,
    epoch: Timestamp,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            started_at: Instant::now(),
            epoch: Timestamp::now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let passed =
            SignedDuration::try_from(self.started_at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Milliseconds since the start, for atomics; 0 means never, so the first millisecond counts as 1.
    pub(crate) fn millis(&self) -> u64 {
        let passed = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        passed.saturating_add(1)
    }
}

/// A duration of core's for tokio; a negative one has passed.
pub(crate) fn to_std(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or_default()
}
