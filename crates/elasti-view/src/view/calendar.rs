//! What sleep saved by month and by day of UTC, in hours.

use elasti_api::{ElastiServiceStatus, SavedMonth, SavingsCalendar};
use elasti_core::savings::{Saved, calendar, days};
use jiff::Timestamp;
use serde::Serialize;

const HOUR_SECONDS: f64 = 3600.0;

/// The months and days of one service, the sleep that goes on included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calendar {
    /// Since when sleep is counted by month; absent if since the service was created.
    pub since: Option<Timestamp>,
    /// Months with sleep, oldest first.
    pub months: Vec<Month>,
    /// The day of the last entry of `pod_hours_by_day`.
    pub last_day: Option<String>,
    /// Hours that pods did not run on each day, oldest first.
    pub pod_hours_by_day: Vec<f64>,
}

/// What sleep saved in one month.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Month {
    /// The month, for example `2026-03`.
    pub month: String,
    /// For how many seconds of it the service slept.
    pub asleep_seconds: i64,
    /// What that saved.
    pub saved: Saved,
}

impl Calendar {
    /// `None` if its sleep is not known by month.
    #[must_use]
    pub fn from_status(
        status: &ElastiServiceStatus,
        replicas: Option<u32>,
        now: Timestamp,
    ) -> Option<Self> {
        calendar(status, replicas, now).map(Self::from)
    }
}

impl From<SavingsCalendar> for Calendar {
    fn from(written: SavingsCalendar) -> Self {
        let days = days(&written);
        #[allow(
            clippy::cast_precision_loss,
            reason = "sums are bounded by what a double keeps exactly"
        )]
        let hours = |seconds: i64| seconds as f64 / HOUR_SECONDS;
        Self {
            since: written.since.map(|since| since.0),
            months: written.months.into_iter().map(Month::from).collect(),
            last_day: days.last().map(|(day, _)| day.to_string()),
            pod_hours_by_day: days.iter().map(|(_, seconds)| hours(*seconds)).collect(),
        }
    }
}

impl From<SavedMonth> for Month {
    fn from(written: SavedMonth) -> Self {
        Self {
            saved: Saved::from(&written.saved),
            month: written.month,
            asleep_seconds: written.asleep_seconds.max(0),
        }
    }
}
