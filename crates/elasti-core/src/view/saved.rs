//! How long services slept, what that saved, and the sums of all.
//! Never counts what nobody requested.

use elasti_api::{ElastiServiceStatus, Phase};
use jiff::Timestamp;
use serde::Serialize;

use super::{View, Workload, stamp};

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
            saved: Saved {
                pod_hours: sum.saved.pod_hours + view.saved.pod_hours,
                cpu_hours: sum.saved.cpu_hours + view.saved.cpu_hours,
                gib_hours: sum.saved.gib_hours + view.saved.gib_hours,
            },
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
        let fell = stamp(status.last_sleep_time.as_ref()).filter(|_| replicas == Some(0));
        let spans = |from: Timestamp| now.duration_since(from).as_secs().max(0);
        let seconds = status.asleep_seconds.unwrap_or(0).max(0) + fell.map_or(0, spans);
        let age = created.map_or(0, spans);
        // A service that slept before it was declared has not slept longer than it has been there.
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let share = match age {
            0 => 0.0,
            age => (seconds as f64 / age as f64).min(1.0),
        };
        Self { seconds, share }
    }
}

impl Saved {
    pub(super) fn of(asleep: &Asleep, replicas: u32, target: Option<&Workload>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let hours = asleep.seconds as f64 / HOUR_SECONDS;
        let pod_hours = hours * f64::from(replicas.max(1));
        let requests = target.map(|one| one.requests).unwrap_or_default();
        Self {
            pod_hours,
            cpu_hours: pod_hours * requests.cpu_cores,
            gib_hours: pod_hours * requests.memory_bytes / GIB,
        }
    }
}
