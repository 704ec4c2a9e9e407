//! The readings of the triggers that the status records: for people, and for the rules of sleep.

use elasti_api::names::condition;
use elasti_api::{ElastiService, ElastiServiceStatus, Reason, TriggerStatus};
use jiff::Timestamp;
use serde::Serialize;

use super::condition_of;
use elasti_core::observed::Reading;

/// The last reading of one trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerView {
    /// Its type, for example `prometheus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The query, where the type has one.
    pub query: Option<String>,
    /// `active`, `quiet`, `unknown`, or `unread` where the operator has recorded nothing.
    pub reading: String,
    /// The sample.
    pub value: Option<String>,
    /// What the sample is compared with.
    pub threshold: Option<String>,
    /// Why the reading is unknown.
    pub message: Option<String>,
    /// Since when it has read so.
    pub since: Option<Timestamp>,
    /// When the value was read. Later ones on the same side of the threshold are not recorded by themselves.
    pub read_at: Option<Timestamp>,
}

/// The readings that the status records. A status without any is of an operator that did not write them yet: then its
/// reason and its conditions tell.
pub(super) fn readings(me: &ElastiService, status: &ElastiServiceStatus) -> Vec<Reading> {
    let threshold = |index: usize| {
        let trigger = me.spec.triggers.get(index);
        let read = trigger.and_then(|one| one.prometheus().ok());
        read.map_or(f64::NAN, |read| read.threshold)
    };
    if !status.triggers.is_empty() || me.spec.triggers.is_empty() {
        let recorded = status.triggers.iter().enumerate();
        return recorded
            .map(|(at, one)| reading(one, threshold(at)))
            .collect();
    }
    let reason = status.reason.as_deref();
    let active = reason == Some(Reason::TriggerActive.as_str());
    let healthy = condition_of(status, condition::TRIGGERS_HEALTHY);
    let sick = healthy.filter(|c| c.status == "False");
    let numbered = me.spec.triggers.iter().enumerate();
    numbered
        .map(|(at, _)| {
            let (value, threshold) = (f64::NAN, threshold(at));
            match (active, sick) {
                (true, _) => Reading::Active { value, threshold },
                (false, Some(c)) => Reading::unknown(c.message.trim_end_matches('.')),
                (false, None) => Reading::Quiet { value, threshold },
            }
        })
        .collect()
}

fn reading(recorded: &TriggerStatus, written: f64) -> Reading {
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    let value = number(&recorded.value).unwrap_or(f64::NAN);
    let threshold = number(&recorded.threshold).unwrap_or(written);
    match recorded.reading.as_str() {
        "active" => Reading::Active { value, threshold },
        "quiet" => match &recorded.message {
            None => Reading::Quiet { value, threshold },
            Some(why) => Reading::Unknown {
                why: why.trim_end_matches('.').to_owned(),
                quiet_now: true,
            },
        },
        // Unknown for no reason is not read yet: the operator has only just begun.
        _ => recorded.message.as_ref().map_or(Reading::Unread, |why| {
            Reading::unknown(why.trim_end_matches('.'))
        }),
    }
}

fn word(recorded: &TriggerStatus) -> &str {
    match (recorded.reading.as_str(), &recorded.message) {
        ("unknown", None) => "unread",
        (word, _) => word,
    }
}

/// The last reading of each trigger of the spec; a trigger that the status does not list is unread.
pub(super) fn triggers(me: &ElastiService, status: &ElastiServiceStatus) -> Vec<TriggerView> {
    let triggers = me.spec.triggers.iter().enumerate();
    triggers
        .map(|(at, trigger)| {
            let written = trigger.prometheus();
            let recorded = status.triggers.get(at);
            let threshold = recorded.and_then(|one| one.threshold.clone());
            let from_spec = || written.as_ref().ok().map(|one| one.threshold.to_string());
            TriggerView {
                kind: recorded.map_or_else(|| "prometheus".to_owned(), |one| one.kind.clone()),
                query: written.as_ref().ok().map(|one| one.query.clone()),
                reading: recorded.map_or("unread", word).to_owned(),
                value: recorded.and_then(|one| one.value.clone()),
                threshold: threshold.or_else(from_spec),
                message: recorded
                    .and_then(|one| one.message.clone())
                    .or_else(|| written.as_ref().err().map(ToString::to_string)),
                since: recorded.map(|one| one.since.0),
                read_at: recorded.and_then(|one| one.read_at.as_ref().map(|at| at.0)),
            }
        })
        .collect()
}
