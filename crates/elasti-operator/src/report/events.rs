//! Kubernetes Events: a bounded queue before the API server, so that no reconcile waits for one.

use std::time::Duration;

use elasti_api::names;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
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

/// What an Event says.
pub(super) struct Notice<'a> {
    pub(super) type_: EventType,
    pub(super) reason: &'a str,
    pub(super) action: &'a str,
    pub(super) note: &'a str,
}

/// An Event about one object.
struct PendingEvent {
    about: ObjectReference,
    event: Event,
}

/// Events that wait to be written.
#[derive(Debug)]
pub(crate) struct EventQueue(mpsc::Sender<PendingEvent>);

impl EventQueue {
    /// The queue, and the task that writes its Events.
    pub(crate) fn new(client: kube::Client) -> (Self, impl Future<Output = ()>) {
        let (events, mut pending) = mpsc::channel::<PendingEvent>(EVENT_QUEUE_CAPACITY);
        let reporter = Reporter {
            controller: names::EVENT_REPORTER.into(),
            instance: None,
        };
        let recorder = Recorder::new(client, reporter);
        let task = async move {
            while let Some(PendingEvent { about, event }) = pending.recv().await {
                let written = timeout(WRITE_TIMEOUT, recorder.publish(&event, &about)).await;
                if !matches!(written, Ok(Ok(()))) {
                    tracing::debug!(reason = event.reason, "event write failed");
                }
            }
        };
        (Self(events), task)
    }

    pub(super) fn publish(&self, about: ObjectReference, notice: &Notice<'_>) {
        let Notice {
            type_,
            reason,
            action,
            note,
        } = notice;
        let event = Event {
            type_: *type_,
            reason: (*reason).into(),
            note: Some(note.chars().take(MAX_NOTE_CHARS).collect()),
            action: (*action).into(),
            secondary: None,
        };
        if self.0.try_send(PendingEvent { about, event }).is_err() {
            tracing::debug!(reason, "event dropped: queue full");
        }
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
