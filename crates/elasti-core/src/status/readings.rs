//! The readings of the triggers in the status. A value that moves on the same side of its threshold is no reason to write.

use elasti_api::{ElastiServiceSpec, Trigger, TriggerStatus, TriggerType};

use super::whole_seconds;
use crate::observed::{Observed, Reading};

/// One entry for each trigger, in the order of the spec. An entry whose reading has not changed stays as it is.
pub(super) fn changed(
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
            // Not read by this process yet: the last reading stays.
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
                since: whole_seconds(o.now),
                read_at: None,
            },
        }
    })
    .collect()
}

/// Fills in the values and messages, which are written along with other changes.
pub(super) fn refresh(spec: &ElastiServiceSpec, o: &Observed, entries: &mut [TriggerStatus]) {
    let readings = spec.triggers.iter().zip(&o.readings).enumerate();
    for (entry, (index, (trigger, reading))) in entries.iter_mut().zip(readings) {
        (entry.value, entry.threshold, entry.message) = match reading {
            Reading::Active { value, threshold } | Reading::Quiet { value, threshold } => {
                let value = value.is_finite().then(|| value.to_string());
                (value, Some(threshold.to_string()), None)
            }
            Reading::Unknown { why, .. } => (None, threshold(trigger), Some(format!("{why}."))),
            Reading::Unread => continue,
        };
        let read_at = o.reading_details.get(index).and_then(|one| one.read_at);
        entry.read_at = read_at.map(whole_seconds);
    }
}

/// Triggers whose metrics have no series although their queries have a value, one sentence each; `None` if that is not
/// known of every trigger.
pub(super) fn without_series(spec: &ElastiServiceSpec, o: &Observed) -> Option<Vec<String>> {
    if o.reading_details.len() != spec.triggers.len() {
        return None;
    }
    let mut sentences = Vec::new();
    for (index, one) in o.reading_details.iter().enumerate() {
        let metrics = one.without_series.as_ref()?;
        if !metrics.is_empty() {
            let names = metrics.join(", ");
            sentences.push(format!(
                "Trigger {index} reads only what its query falls back on: Prometheus has had no series of {names} for 7 days."
            ));
        }
    }
    Some(sentences)
}

const UNKNOWN: &str = "unknown";

fn word(reading: &Reading) -> Option<&'static str> {
    match reading {
        Reading::Active { .. } => Some("active"),
        // With a message: only now.
        Reading::Quiet { .. }
        | Reading::Unknown {
            quiet_now: true, ..
        } => Some("quiet"),
        Reading::Unknown {
            quiet_now: false, ..
        } => Some(UNKNOWN),
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
