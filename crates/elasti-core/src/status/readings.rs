//! What each trigger says, as the status tells it.
//! It never takes a value that moves on the same side of its threshold for news.

use elasti_api::{ElastiServiceSpec, Trigger, TriggerStatus, TriggerType};

use super::whole;
use crate::observed::{Observed, Reading};

/// One entry for each trigger, in the order of the spec. An entry whose reading has not turned stays as it is.
pub(super) fn turned(
    spec: &ElastiServiceSpec,
    o: &Observed,
    previous: &[TriggerStatus],
) -> Vec<TriggerStatus> {
    let all = spec.triggers.iter().enumerate();
    all.map(|(index, trigger)| {
        let kind = kind(trigger);
        let reading = o.readings.get(index).unwrap_or(&Reading::Unread);
        let before = previous.get(index).filter(|entry| entry.kind == kind);
        let word = match (word(reading), before) {
            (Some(word), _) => word,
            // Not read yet says nothing new of a trigger that was read before.
            (None, Some(before)) => return before.clone(),
            (None, None) => UNKNOWN,
        };
        match before.filter(|entry| entry.reading == word) {
            Some(before) => before.clone(),
            None => TriggerStatus {
                kind: kind.to_owned(),
                reading: word.to_owned(),
                value: None,
                threshold: None,
                message: None,
                since: whole(o.now),
            },
        }
    })
    .collect()
}

/// The numbers and words that are told along with other news.
pub(super) fn refresh(spec: &ElastiServiceSpec, o: &Observed, entries: &mut [TriggerStatus]) {
    let readings = spec.triggers.iter().zip(&o.readings);
    for (entry, (trigger, reading)) in entries.iter_mut().zip(readings) {
        (entry.value, entry.threshold, entry.message) = match reading {
            Reading::Active { value, threshold } | Reading::Quiet { value, threshold } => {
                (Some(value.to_string()), Some(threshold.to_string()), None)
            }
            Reading::Unknown { why } => (None, threshold(trigger), Some(format!("{why}."))),
            Reading::Unread => continue,
        };
    }
}

const UNKNOWN: &str = "unknown";

fn word(reading: &Reading) -> Option<&'static str> {
    match reading {
        Reading::Active { .. } => Some("active"),
        Reading::Quiet { .. } => Some("quiet"),
        Reading::Unknown { .. } => Some(UNKNOWN),
        Reading::Unread => None,
    }
}

fn kind(trigger: &Trigger) -> &'static str {
    match trigger.type_ {
        TriggerType::Prometheus => "prometheus",
    }
}

fn threshold(trigger: &Trigger) -> Option<String> {
    match trigger.type_ {
        TriggerType::Prometheus => trigger.prometheus().ok().map(|t| t.threshold.to_string()),
    }
}
