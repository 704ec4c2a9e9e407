//! The last wake of a service, by its parts.

use elasti_api::{ElastiServiceStatus, FailedWake, LastWake, MicroTime, Phase, WakeClient};
use jiff::Timestamp;
use serde::Serialize;

use super::stamp;

/// The last wake and what it cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WakeView {
    /// Why it was woken, in one word; absent where only the time is known.
    pub by: Option<String>,
    /// Whom it was woken for; absent unless resolvers are set to tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<WakeClient>,
    /// When the wake was asked for.
    pub at: Timestamp,
    /// Its parts, in order; one that was not observed is left out and counts for the next.
    pub parts: Vec<WakePart>,
    /// From the request to the first response, or to the first ready pod where no request waited.
    pub cold_start_ms: Option<i64>,
    /// A pod has become ready.
    pub finished: bool,
}

/// One part of a wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WakePart {
    /// `scaled`, `scheduled`, `started`, `ready` or `answered`: what ended it.
    pub name: &'static str,
    /// How long it took.
    pub ms: i64,
}

/// A wake that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedWakeView {
    /// When it was first seen to have failed.
    pub at: Timestamp,
    /// Why, in one word.
    pub reason: String,
    /// Why, in one sentence.
    pub sentence: String,
}

pub(super) fn failed_wake(status: &ElastiServiceStatus) -> Option<FailedWakeView> {
    let FailedWake {
        reason,
        message,
        at,
    } = status.failed_wake.clone()?;
    Some(FailedWakeView {
        at: at.0,
        reason,
        sentence: message,
    })
}

pub(super) fn last_wake(status: &ElastiServiceStatus) -> Option<WakeView> {
    let at = stamp(status.last_scaled_up_time.as_ref());
    let Some(wake) = &status.last_wake else {
        return at.map(|at| WakeView {
            by: None,
            client: None,
            at,
            parts: Vec::new(),
            cold_start_ms: None,
            finished: status.phase != Some(Phase::Waking),
        });
    };
    let LastWake {
        by,
        asked_at,
        scaled_at,
        scheduled_at,
        started_at,
        ready_at,
        answered_at,
        client,
    } = wake;
    let mut parts = Vec::new();
    let mut before = asked_at.0;
    for (name, end) in [
        ("scaled", scaled_at),
        ("scheduled", scheduled_at),
        ("started", started_at),
        ("ready", ready_at),
        ("answered", answered_at),
    ] {
        let Some(MicroTime(end)) = end else { continue };
        // Several clocks wrote these: a part never takes less than nothing.
        let ms = millis(before, *end);
        before = before.max(*end);
        parts.push(WakePart { name, ms });
    }
    let last = answered_at.as_ref().or(ready_at.as_ref());
    Some(WakeView {
        by: Some(by.clone()),
        client: client.clone(),
        at: asked_at.0,
        parts,
        cold_start_ms: last.map(|end| millis(asked_at.0, end.0)),
        finished: ready_at.is_some() || answered_at.is_some(),
    })
}

fn millis(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis().max(0)).unwrap_or(i64::MAX)
}
