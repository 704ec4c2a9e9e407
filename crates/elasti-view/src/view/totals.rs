//! How long services slept, and the sums of all.

use elasti_api::{ElastiServiceStatus, Phase};
use elasti_core::savings::{Saved, asleep_seconds};
use jiff::Timestamp;
use serde::Serialize;

use super::View;

/// How long a service has slept since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Asleep {
    /// Seconds, the sleep that goes on included.
    pub seconds: i64,
    /// Of the time since its creation, from 0 to 1.
    pub share: f64,
}

/// All services together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// `held` comes from the resolvers themselves, for every service.
    pub held_live: bool,
    /// What sleep has saved.
    pub saved: Saved,
}

impl Totals {
    /// The sums of these views.
    #[must_use]
    pub fn from_views(views: &[View]) -> Self {
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
            saved: sum.saved + &view.saved,
        })
    }
}

impl Asleep {
    pub(super) fn from_status(
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
