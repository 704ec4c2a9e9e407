//! Wall time derived from tokio's clock: it never jumps, and a paused runtime pauses every deadline.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall time that moves exactly as fast as tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Instant,
    epoch: Timestamp,
}

impl Clock {
    /// A clock that shows the system's time now, and moves with tokio's clock from here on.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// A clock that shows `epoch` now.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self {
            started_at: Instant::now(),
            epoch,
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed =
            SignedDuration::try_from(self.started_at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// The same moment for tokio's timers; one in the past is now.
    #[must_use]
    pub fn instant(&self, moment: Timestamp) -> Instant {
        let now = Instant::now();
        let ahead = to_std(moment.duration_since(self.now()));
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Milliseconds since the start, for atomics; 0 means never, so the first millisecond counts as 1.
    #[must_use]
    pub fn millis(&self) -> u64 {
        let passed = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        passed.saturating_add(1)
    }
}

/// A duration for tokio; a negative one has passed.
#[must_use]
pub fn to_std(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or_default()
}
