//! What recent Events say about an object.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;

use super::LiveObjects;

/// How far back an Event says something about now.
const RECENT: SignedDuration = SignedDuration::from_mins(15);

/// The message of the last recent Event of an object with one of these reasons.
pub(super) fn last_message(live: &LiveObjects, object: &str, reasons: &[&str]) -> Option<String> {
    let of_object = live.events.iter().filter(|event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        event.involved_object.name.as_deref() == Some(object) && reasons.contains(&reason)
    });
    let last = of_object
        .filter_map(|event| Some((happened_at(event)?, event)))
        .filter(|(at, _)| live.now.duration_since(*at) <= RECENT)
        .max_by_key(|(at, _)| *at);
    last.and_then(|(_, event)| event.message.clone())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

fn happened_at(event: &core_v1::Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let series = series.and_then(|one| one.last_observed_time.as_ref());
    let stamps = [
        series.map(|t| t.0),
        event.last_timestamp.as_ref().map(|t| t.0),
        event.event_time.as_ref().map(|t| t.0),
        event.metadata.creation_timestamp.as_ref().map(|t| t.0),
    ];
    stamps.into_iter().flatten().max()
}
