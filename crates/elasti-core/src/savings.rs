//! How long a service slept, and what that saved.
//! Each second counts with the requests that the pods had as its sleep began: a later change of the requests, and a new
//! leader, change nothing of the past.

mod calendar;

use std::collections::BTreeMap;
use std::ops::Add;

use elasti_api::names::condition;
use elasti_api::{CurrentSleep, ElastiServiceStatus, Reason, SavedSeconds};
use jiff::Timestamp;
use serde::Serialize;

use crate::facts::{MAX_RESOURCES, Requests};

pub use calendar::{MAX_DAYS, MAX_MONTHS, calendar, days, with_sleep};

const HOUR_SECONDS: f64 = 3600.0;
const MILLICORES_PER_CORE: f64 = 1000.0;
const MEBIBYTES_PER_GIB: f64 = 1024.0;
const BYTES_PER_MEBIBYTE: i128 = 1 << 20;

/// The largest sum: beyond it, programs that keep numbers as JavaScript does lose the last digits.
const MAX_SUM: i64 = (1 << 53) - 1;

/// The most that the schema's `int32` takes.
const MAX_PODS: u32 = i32::MAX.cast_unsigned();

/// What sleep has saved, in the units that people read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Hours that pods did not run.
    pub pod_hours: f64,
    /// Hours of CPU cores that were not requested.
    pub cpu_hours: f64,
    /// Hours of GiB of memory that were not requested.
    pub gib_hours: f64,
    /// Hours of each extended resource that was not requested, for example of `nvidia.com/gpu`.
    pub resource_hours: BTreeMap<String, f64>,
}

/// How long a service has slept, the sleep that goes on included: its target asks for no replica.
#[must_use]
pub fn asleep_seconds(status: &ElastiServiceStatus, replicas: Option<u32>, now: Timestamp) -> i64 {
    let since = { status.last_sleep_time.as_ref() }.filter(|_| goes_on(status, replicas));
    let goes_on = since.map_or(0, |from| seconds(from.0, now));
    status.asleep_seconds.unwrap_or(0).max(0) + goes_on
}

/// What a service has saved, the sleep that goes on included.
#[must_use]
pub fn saved_seconds(
    status: &ElastiServiceStatus,
    replicas: Option<u32>,
    now: Timestamp,
) -> SavedSeconds {
    let ended = status.saved.clone().unwrap_or_default();
    match &status.current_sleep {
        Some(sleep) if goes_on(status, replicas) => plus(ended, &saved_by(sleep, now)),
        _ => ended,
    }
}

/// The target sleeps, and by the doing of this ElastiService: of one in conflict, another one scales the target.
fn goes_on(status: &ElastiServiceStatus, replicas: Option<u32>) -> bool {
    replicas == Some(0) && !in_conflict(status)
}

/// Something else takes precedence, by the status.
#[must_use]
pub fn in_conflict(status: &ElastiServiceStatus) -> bool {
    let mut conditions = status.conditions.iter();
    match conditions.find(|c| c.type_ == condition::CONFLICT) {
        Some(conflict) => conflict.status == "True",
        None => status.reason.as_deref() == Some(Reason::Conflict.as_str()),
    }
}

/// A sleep of so many pods that begins, or is first seen, at this time.
#[must_use]
pub fn begin(pods: u32, requests: &Requests, since: Timestamp) -> CurrentSleep {
    CurrentSleep {
        since: Some(elasti_api::Time(since)),
        pods: pods.clamp(1, MAX_PODS),
        cpu_millicores: requests.cpu_millicores,
        memory_bytes: requests.memory_bytes,
        resources: requests.resources.clone(),
    }
}

/// What a sleep has saved so far.
#[must_use]
pub fn saved_by(sleep: &CurrentSleep, now: Timestamp) -> SavedSeconds {
    let asleep = sleep.since.as_ref().map_or(0, |from| seconds(from.0, now));
    let pod_seconds = i128::from(asleep) * i128::from(sleep.pods);
    let of = |each: i64| pod_seconds.saturating_mul(i128::from(each.max(0)));
    let resources = sleep.resources.iter().take(MAX_RESOURCES);
    SavedSeconds {
        pod_seconds: bounded(pod_seconds),
        cpu_millicore_seconds: bounded(of(sleep.cpu_millicores)),
        memory_mebibyte_seconds: bounded(of(sleep.memory_bytes) / BYTES_PER_MEBIBYTE),
        resource_seconds: resources
            .map(|(name, each)| (name.clone(), bounded(of(*each))))
            .collect(),
    }
}

/// The sum of both. A resource beyond the first [`MAX_RESOURCES`] is not counted.
#[must_use]
pub fn plus(mut sum: SavedSeconds, more: &SavedSeconds) -> SavedSeconds {
    let add = |to: &mut i64, more: i64| *to = bounded(i128::from(*to) + i128::from(more));
    add(&mut sum.pod_seconds, more.pod_seconds);
    add(&mut sum.cpu_millicore_seconds, more.cpu_millicore_seconds);
    let memory = more.memory_mebibyte_seconds;
    add(&mut sum.memory_mebibyte_seconds, memory);
    for (name, seconds) in &more.resource_seconds {
        let known = sum.resource_seconds.contains_key(name);
        if known || sum.resource_seconds.len() < MAX_RESOURCES {
            let entry = sum.resource_seconds.entry(name.clone()).or_default();
            add(entry, *seconds);
        }
    }
    sum
}

fn seconds(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).as_secs().max(0)
}

fn bounded(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(MAX_SUM).clamp(0, MAX_SUM)
}

impl From<&SavedSeconds> for Saved {
    fn from(sums: &SavedSeconds) -> Self {
        #[allow(
            clippy::cast_precision_loss,
            reason = "sums are bounded by what a double keeps exactly"
        )]
        let hours = |seconds: i64| seconds as f64 / HOUR_SECONDS;
        let resources = sums.resource_seconds.iter();
        Self {
            pod_hours: hours(sums.pod_seconds),
            cpu_hours: hours(sums.cpu_millicore_seconds) / MILLICORES_PER_CORE,
            gib_hours: hours(sums.memory_mebibyte_seconds) / MEBIBYTES_PER_GIB,
            resource_hours: resources
                .map(|(name, seconds)| (name.clone(), hours(*seconds)))
                .collect(),
        }
    }
}

impl Add<&Self> for Saved {
    type Output = Self;

    fn add(mut self, more: &Self) -> Self {
        self.pod_hours += more.pod_hours;
        self.cpu_hours += more.cpu_hours;
        self.gib_hours += more.gib_hours;
        for (name, hours) in &more.resource_hours {
            *self.resource_hours.entry(name.clone()).or_default() += hours;
        }
        self
    }
}
