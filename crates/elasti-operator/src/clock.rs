//! Wall time derived from tokio's clock, so that it never jumps and a paused runtime pauses every deadline. The
//! system's time is read once, at the start.

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

    /// The time of a decision.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed =
            SignedDuration::try_from(self.started_at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// The same moment for tokio's timers; one in the past is now.
    #[must_use]
    pub fn instant(&self, moment: Timestamp) -> Instant {
        let ahead = moment.duration_since(self.now());
        let ahead = std::time::Duration::try_from(ahead).unwrap_or_default();
        let now = Instant::now();
        now.checked_add(ahead).unwrap_or(now)
    }
}
