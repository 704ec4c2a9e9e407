//! How long services slept, what that saved, and the sums of all.
//! Never counts what nobody requested.

use std::ops::Add;

use elasti_api::{ElastiServiceStatus, Phase};
use jiff::Timestamp;
use serde::Serialize;

use super::{View, stamp};
use crate::facts::Requests;

const HOUR_SECONDS: f64 = 3600.0;
pub(super) const GIB: f64 = 1_073_741_824.0;

/// How long a service has slept since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Asleep {
    /// Seconds, the sleep that goes on included.
    pub seconds: i64,
    /// Of the time since its creation, from 0 to 1.
    pub share: f64,
}

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

/// All services together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many there are.
    pub services: usize,
    /// How many sleep.
    pub asleep: usize,
    /// How many are being woken.
    pub waking: usize,
    /// How many are in trouble.
    pub trouble: usize,
    /// How many requests wait.
    pub held: u32,
    /// The resolvers themselves tell how many, of every service.
    pub held_live: bool,
    /// What sleep has saved.
    pub saved: Saved,
}

impl Totals {
    /// The sums of these views.
    #[must_use]
    pub fn of(views: &[View]) -> Self {
        let none = Self {
            held_live: true,
            ..Self::default()
        };
        views.iter().fold(none, |sum, view| Self {
            services: sum.services + 1,
            asleep: sum.asleep + usize::from(view.phase == Some(Phase::Asleep)),
            waking: sum.waking + usize::from(view.phase == Some(Phase::Waking)),
            trouble: sum.trouble + usize::from(view.trouble),
            held: sum.held.saturating_add(view.held),
            held_live: sum.held_live && view.held_live,
            saved: sum.saved + view.saved,
        })
    }
}

impl Asleep {
    pub(super) fn of(
        status: &ElastiServiceStatus,
        replicas: Option<u32>,
        created: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let seconds = asleep_seconds(status, replicas, now);
        let age = created.map_or(0, |from| now.duration_since(from).as_secs().max(0));
        // A service that slept before it was declared has not slept longer than it has been there.
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let share = match age {
            0 => 0.0,
            age => (seconds as f64 / age as f64).min(1.0),
        };
        Self { seconds, share }
    }
}

/// How long a service has slept, the sleep that goes on included: its target asks for no replica.
#[must_use]
pub fn asleep_seconds(status: &ElastiServiceStatus, replicas: Option<u32>, now: Timestamp) -> i64 {
    let fell = stamp(status.last_sleep_time.as_ref()).filter(|_| replicas == Some(0));
    let goes_on = fell.map_or(0, |from| now.duration_since(from).as_secs().max(0));
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
    /// It has slept for so long by now.
    pub fn grow(&mut self, asleep_seconds: i64, replicas: u32, requests: Requests) {
        // Between a wake and the status that tells of it, less is told than was counted.
        let more = asleep_seconds.saturating_sub(self.seconds).max(0);
        self.seconds += more;
        self.saved = self.saved + Saved::within(more, replicas, requests);
    }
}
