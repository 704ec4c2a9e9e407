//! The simulated cluster's one clock: wall time derived from tokio's clock, so that a paused runtime pauses the simulated cluster.
//! Never reads the system's time after the simulated cluster has started.

use jiff::{Timestamp, ToSpan as _};
use tokio::time::Instant;

/// Wall time that moves exactly as fast as tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Instant,
    epoch: Timestamp,
}

impl Clock {
    /// A clock that shows `epoch` now.
    #[must_use]
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self {
            started_at: Instant::now(),
            epoch,
        }
    }

    /// The simulated cluster's wall time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.epoch
            .checked_add(passed.microseconds())
            .unwrap_or(Timestamp::MAX)
    }

    /// Now as Kubernetes' `metav1.Time`: whole seconds.
    #[must_use]
    pub fn time(&self) -> String {
        rfc3339(self.now())
    }

    /// Now as Kubernetes' `metav1.MicroTime`.
    #[must_use]
    pub fn micro_time(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }

    /// The instant `seconds` from now as `metav1.Time`.
    pub(crate) fn time_after(&self, seconds: i64) -> String {
        rfc3339(
            self.now()
                .checked_add(seconds.seconds())
                .unwrap_or(Timestamp::MAX),
        )
    }
}

/// `metav1.Time` on the wire.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
