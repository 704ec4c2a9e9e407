//! How near the process is to its memory limit, by the cgroup: sheds load before the kernel kills the process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elasti_core::waiting_room::Admission;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::hold::Hold;
use crate::metrics::Metrics;

/// Often enough: at 10,000 new waiters a second of 4 KiB each, one second is 40 MiB, a tenth of 410 MiB.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How near the limit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Below 80 %.
    #[default]
    Low,
    /// From 80 % on: only what each service owns may wait.
    High,
    /// From 90 % on: nothing new is accepted; it waits in the kernel.
    Critical,
}

impl Pressure {
    /// Pages of files that the kernel can drop at once do not count, as for the kubelet's working set.
    fn from_usage(current: u64, droppable: u64, limit: u64) -> Self {
        let used = current.saturating_sub(droppable);
        let percent = used.saturating_mul(100).checked_div(limit).unwrap_or(0);
        match percent {
            0..80 => Self::Low,
            80..90 => Self::High,
            _ => Self::Critical,
        }
    }

    /// From the files of a cgroup (version 2).
    fn from_cgroup(group: &Path) -> Self {
        let text = |file: &str| std::fs::read_to_string(group.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let statistics = text("memory.stat").unwrap_or_default();
        let line = statistics
            .lines()
            .find_map(|line| line.strip_prefix("inactive_file "));
        let droppable = line
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(0);
        match (number("memory.current"), number("memory.max")) {
            (Some(current), Some(limit)) => Self::from_usage(current, droppable, limit),
            // No limit reads "max".
            _ => Self::Low,
        }
    }
}

/// Follows the memory limit for ever; adjusts the waiting rooms and the listeners.
pub(crate) async fn follow(
    cgroup: PathBuf,
    hold: Arc<Hold>,
    pressure: watch::Sender<Pressure>,
    metrics: Arc<Metrics>,
) {
    loop {
        let now = Pressure::from_cgroup(&cgroup);
        let changed = pressure.send_if_modified(|before| std::mem::replace(before, now) != now);
        if changed {
            tracing::warn!(pressure = ?now, "memory pressure changed");
            metrics.limits.set_memory_pressure(now);
            hold.set_admission(if now == Pressure::Low {
                Admission::Open
            } else {
                Admission::ReservedOnly
            });
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Ends when something new may be accepted.
pub(crate) async fn may_accept(pressure: &mut watch::Receiver<Pressure>) {
    if pressure
        .wait_for(|pressure| *pressure < Pressure::Critical)
        .await
        .is_err()
    {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_at_80_and_at_90_percent_of_what_the_kernel_cannot_drop() {
        for (current, droppable, expected) in [
            (799, 0, Pressure::Low),
            (800, 0, Pressure::High),
            (899, 0, Pressure::High),
            (900, 0, Pressure::Critical),
            (2000, 0, Pressure::Critical),
            (950, 200, Pressure::Low),
        ] {
            assert_eq!(
                Pressure::from_usage(current, droppable, 1000),
                expected,
                "{current} - {droppable}"
            );
        }
        assert_eq!(
            Pressure::from_usage(5, 0, 0),
            Pressure::Low,
            "a limit of nothing is none"
        );
    }

    #[test]
    fn without_a_limit_there_is_no_pressure() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(Pressure::from_cgroup(group.path()), Pressure::Low);
        std::fs::write(group.path().join("memory.current"), "1000\n").unwrap();
        std::fs::write(group.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(Pressure::from_cgroup(group.path()), Pressure::Low);
        std::fs::write(group.path().join("memory.max"), "1000\n").unwrap();
        assert_eq!(Pressure::from_cgroup(group.path()), Pressure::Critical);
        std::fs::write(
            group.path().join("memory.stat"),
            "anon 5\ninactive_file 150\n",
        )
        .unwrap();
        assert_eq!(Pressure::from_cgroup(group.path()), Pressure::High);
    }
}
