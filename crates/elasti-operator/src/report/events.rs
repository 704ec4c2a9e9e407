//! Kubernetes Events: a bounded queue before the API server, so that no reconcile waits for one.

use std::time::Duration;

use elasti_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::events::EventType;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::name::TargetName;
use crate::slim::{Declared, TargetView};
use crate::targets::Kinds;

/// Events that wait to be written; more than that and the newest are dropped, because the status says it too.
const EVENT_QUEUE_CAPACITY: usize = 1024;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Kubernetes refuses a note that is longer.
const MAX_NOTE_CHARS: usize = 1000;
/// With the time in hexadecimal, a name stays below Kubernetes' 253 characters.
const MAX_NAME_CHARS: usize = 230;

/// What an Event says.
pub(super) struct Notice<'a> {
    pub(super) type_: EventType,
    pub(super) reason: &'a str,
    pub(super) action: &'a str,
    pub(super) note: &'a str,
}

/// Events that wait to be written.
#[derive(Debug)]
pub(crate) struct EventQueue(mpsc::Sender<Event>);

impl EventQueue {
    /// The queue, and the task that writes its Events.
    pub(crate) fn new(client: kube::Client) -> (Self, impl Future<Output = ()>) {
        let (events, mut pending) = mpsc::channel::<Event>(EVENT_QUEUE_CAPACITY);
        let task = async move {
            while let Some(event) = pending.recv().await {
                let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), namespace);
                let params = PostParams::default();
                let written = timeout(WRITE_TIMEOUT, api.create(&params, &event)).await;
                if !matches!(written, Ok(Ok(_))) {
                    let reason = event.reason.as_deref().unwrap_or_default();
                    tracing::debug!(reason, "event write failed");
                }
            }
        };
        (Self(events), task)
    }

    pub(super) fn publish(&self, about: ObjectReference, notice: &Notice<'_>) {
        let event = event(about, notice, Timestamp::now());
        if self.0.try_send(event).is_err() {
            tracing::debug!(reason = notice.reason, "event dropped: queue full");
        }
    }
}

/// One Event each time, never a series: kube's `Recorder` counts an Event up whose type, reason and action are the
/// same, and so shows the note and the time of the first for all of them.
fn event(about: ObjectReference, notice: &Notice<'_>, now: Timestamp) -> Event {
    let Notice {
        type_,
        reason,
        action,
        note,
    } = notice;
    let name = about.name.as_deref().unwrap_or_default();
    let name: String = name.chars().take(MAX_NAME_CHARS).collect();
    Event {
        metadata: ObjectMeta {
            namespace: about.namespace.clone(),
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        action: Some((*action).to_owned()),
        reason: Some((*reason).to_owned()),
        note: Some(note.chars().take(MAX_NOTE_CHARS).collect()),
        type_: Some(
            match type_ {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            }
            .to_owned(),
        ),
        regarding: Some(about),
        reporting_controller: Some(names::EVENT_REPORTER.to_owned()),
        reporting_instance: Some(names::EVENT_REPORTER.to_owned()),
        ..Event::default()
    }
}

/// An ElastiService as Events refer to it.
pub(super) fn elasti_service(me: &Declared) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{}/v1alpha1", names::GROUP)),
        kind: Some("ElastiService".into()),
        name: Some(me.name.name.to_string()),
        namespace: Some(me.name.namespace.to_string()),
        uid: Some(me.uid.clone()),
        ..ObjectReference::default()
    }
}

/// A target as Events refer to it.
pub(super) fn target(
    kinds: &Kinds,
    name: &TargetName,
    view: &TargetView,
) -> Option<ObjectReference> {
    let resource = kinds.get(&name.kind)?;
    Some(ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        name: Some(name.name.name.to_string()),
        namespace: Some(name.name.namespace.to_string()),
        uid: Some(view.uid.clone()),
        ..ObjectReference::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use jiff::{SignedDuration, Timestamp};
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::runtime::events::EventType;

    use super::{Notice, event};

    fn notice(note: &str) -> Notice<'_> {
        Notice {
            type_: EventType::Normal,
            reason: "SuccessToScale",
            action: "Wake",
            note,
        }
    }

    #[test]
    fn a_repeated_event_has_its_own_name_note_and_time() {
        let about = ObjectReference {
            name: Some("web".repeat(100)),
            namespace: Some("shop".into()),
            ..ObjectReference::default()
        };
        let first_at: Timestamp = "2026-03-02T08:00:00Z".parse().unwrap();
        let second_at = first_at + SignedDuration::from_secs(60);
        let first = event(about.clone(), &notice("a request waits"), first_at);
        let second = event(about, &notice("a wake was requested"), second_at);
        assert_ne!(first.metadata.name, second.metadata.name);
        assert!(second.metadata.name.unwrap().len() <= 253);
        assert_eq!(second.note.as_deref(), Some("a wake was requested"));
        assert_eq!(second.event_time.unwrap().0, second_at);
        assert_eq!(second.series, None);
    }
}
