//! Wall time derived from tokio's clock: it never jumps, but by the time for which the machine was suspended, and a
//! paused runtime pauses every deadline.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// A shorter suspend cannot be told from the time between the reads of two clocks.
const SUSPEND_MIN: Duration = Duration::from_millis(100);

/// Wall time that moves exactly as fast as tokio's clock. That one stands still while the machine is suspended, and a
/// lease or a proof from before would seem to hold; so the time of a suspend is added.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Instant,
    epoch: Timestamp,
    /// For how long the machine had been suspended since its boot when this clock was started.
    suspended_before: Duration,
    suspended: fn() -> Duration,
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
        Self::with_suspends(epoch, suspended)
    }

    fn with_suspends(epoch: Timestamp, suspended: fn() -> Duration) -> Self {
        Self {
            started_at: Instant::now(),
            epoch,
            suspended_before: suspended(),
            suspended,
        }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let suspended = (self.suspended)().saturating_sub(self.suspended_before);
        let suspended = Some(suspended).filter(|span| *span >= SUSPEND_MIN);
        let passed = { self.started_at.elapsed() }.saturating_add(suspended.unwrap_or_default());
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
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

/// For how long the machine has been suspended since its boot: what one clock counts and the other does not.
fn suspended() -> Duration {
    let [with, without] = [ClockId::Boottime, ClockId::Monotonic].map(|id| {
        let time = clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(seconds, nanos)
    });
    with.saturating_sub(without)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_suspend_counts_although_the_clock_of_timers_stands_still() {
        static SECONDS: AtomicU64 = AtomicU64::new(40);
        let suspended = || Duration::from_secs(SECONDS.load(Ordering::Relaxed));
        let clock = Clock::with_suspends(Timestamp::UNIX_EPOCH, suspended);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(
            clock.now().as_second(),
            5,
            "an earlier suspend does not count"
        );
        let deadline = clock.now() + SignedDuration::from_secs(30);
        SECONDS.store(60, Ordering::Relaxed);
        assert_eq!(clock.now().as_second(), 25);
        let left = clock.instant(deadline).duration_since(Instant::now());
        assert_eq!(left, Duration::from_secs(10));
    }

    #[test]
    fn this_machine_tells_its_suspends() {
        let before = suspended();
        assert!(suspended().abs_diff(before) < SUSPEND_MIN);
    }
}
