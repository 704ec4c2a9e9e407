//! How long a service slept, and what that saved.

use std::ops::Add;

use elasti_api::ElastiServiceStatus;
use jiff::Timestamp;
use serde::Serialize;

use crate::facts::Requests;

const HOUR_SECONDS: f64 = 3600.0;
const GIB: f64 = 1_073_741_824.0;

/// What sleep has saved: requests of the pod template x replicas of a wake x time asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Hours that pods did not run.
    pub pod_hours: f64,
    /// Hours of CPU cores that were not requested.
    pub cpu_hours: f64,
    /// Hours of GiB of memory that were not requested.
    pub gib_hours: f64,
}

/// How long a service has slept, the sleep that goes on included: its target asks for no replica.
#[must_use]
pub fn asleep_seconds(status: &ElastiServiceStatus, replicas: Option<u32>, now: Timestamp) -> i64 {
    let since = status
        .last_sleep_time
        .as_ref()
        .filter(|_| replicas == Some(0));
    let goes_on = since.map_or(0, |from| now.duration_since(from.0).as_secs().max(0));
    status.asleep_seconds.unwrap_or(0).max(0) + goes_on
}

impl Saved {
    /// What pods that request this save in so many seconds.
    #[must_use]
    pub fn within(seconds: i64, replicas: u32, requests: Requests) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let hours = seconds as f64 / HOUR_SECONDS;
        let pod_hours = hours * f64::from(replicas.max(1));
        Self {
            pod_hours,
            cpu_hours: pod_hours * requests.cpu_cores,
            gib_hours: pod_hours * requests.memory_bytes / GIB,
        }
    }
}

impl Add for Saved {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            pod_hours: self.pod_hours + more.pod_hours,
            cpu_hours: self.cpu_hours + more.cpu_hours,
            gib_hours: self.gib_hours + more.gib_hours,
        }
    }
}

/// What one service has saved, for counters. It begins with what a view shows and never shrinks: other requests count
/// from their change on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Seconds asleep.
    pub seconds: i64,
    /// What they have saved.
    pub saved: Saved,
}

impl Tally {
    /// Counts up to this many seconds asleep in all.
    pub fn grow(&mut self, asleep_seconds: i64, replicas: u32, requests: Requests) {
        // Between a wake and the status that records it, the status has less than was counted.
        let more = asleep_seconds.saturating_sub(self.seconds).max(0);
        self.seconds += more;
        self.saved = self.saved + Saved::within(more, replicas, requests);
    }
}
