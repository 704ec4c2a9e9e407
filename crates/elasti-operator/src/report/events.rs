//! Kubernetes Events: a bounded queue before the API server, so that no reconcile waits for one. Namespaces share it fairly:
//! where the writes of one hang, those of the others go on.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::events::EventType;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::name::TargetName;
use crate::slim::{Declared, TargetView};
use crate::targets::Kinds;
use elasti_runtime::turns::Turns;

/// Events that wait to be written; more than that and the newest of the namespace that has most are dropped, because the
/// status says it too.
const EVENT_QUEUE_CAPACITY: usize = 1024;
/// Those of one namespace among them.
const NAMESPACE_CAPACITY: usize = 128;
/// Events that are written at a time.
const WRITES_AT_A_TIME: usize = 8;
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
pub(crate) struct EventQueue(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    events: Mutex<Turns<Event>>,
    added: Notify,
}

impl EventQueue {
    /// The queue, and the task that writes its Events.
    pub(crate) fn new(client: kube::Client) -> (Self, impl Future<Output = ()>) {
        let waiting = Arc::new(Waiting {
            events: Mutex::new(Turns::new(WRITES_AT_A_TIME)),
            added: Notify::new(),
        });
        let task = write_all(client, waiting.clone());
        (Self(waiting), task)
    }

    pub(super) fn publish(&self, about: ObjectReference, notice: &Notice<'_>) {
        let namespace: Arc<str> = about.namespace.as_deref().unwrap_or_default().into();
        let event = event(about, notice, Timestamp::now());
        match self.0.push(&namespace, event) {
            true => self.0.added.notify_one(),
            false => tracing::debug!(reason = notice.reason, "event dropped: queue full"),
        }
    }
}

impl Waiting {
    /// Whether there is room for it; where others have more, one of theirs makes room.
    fn push(&self, namespace: &Arc<str>, event: Event) -> bool {
        let mut events = self.events.lock();
        let own = events.waiting(namespace);
        let is_full = events.waiting_in_all() >= EVENT_QUEUE_CAPACITY;
        let has_room =
            own < NAMESPACE_CAPACITY && (!is_full || events.take_from_longest(own + 1).is_some());
        if has_room {
            events.push(namespace, event);
        }
        has_room
    }
}

/// Writes a few at a time, of each namespace in turn.
async fn write_all(client: kube::Client, waiting: Arc<Waiting>) {
    let mut writes = FuturesUnordered::new();
    let next = || waiting.events.lock().take_next();
    loop {
        while let Some((namespace, event)) = next() {
            writes.push(write(&client, namespace, event));
        }
        tokio::select! {
            Some(namespace) = writes.next() => waiting.events.lock().ended(&namespace),
            () = waiting.added.notified() => {}
        }
    }
}

/// Gives the namespace, whose place is free again.
async fn write(client: &kube::Client, namespace: Arc<str>, event: Event) -> Arc<str> {
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = PostParams::default();
    let written = timeout(WRITE_TIMEOUT, api.create(&params, &event)).await;
    if !matches!(written, Ok(Ok(_))) {
        let reason = event.reason.as_deref().unwrap_or_default();
        tracing::debug!(reason, "event write failed");
    }
    namespace
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
    use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
    use elasti_fake_cluster::faults::{Calls, Fault};
    use jiff::SignedDuration;
    use k8s_openapi::api::core::v1::Namespace;
    use kube::api::ListParams;

    use super::*;

    fn notice(note: &str) -> Notice<'_> {
        Notice {
            type_: EventType::Normal,
            reason: "SuccessToScale",
            action: "Wake",
            note,
        }
    }

    fn about(namespace: &str, name: &str) -> ObjectReference {
        ObjectReference {
            name: Some(name.into()),
            namespace: Some(namespace.into()),
            ..ObjectReference::default()
        }
    }

    #[test]
    fn a_repeated_event_has_its_own_name_note_and_time() {
        let about = about("shop", &"web".repeat(100));
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

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_events_hang_delays_and_drops_none_of_its_neighbours() {
        let server = ApiServer::new(ApiServerConfig {
            check_service_accounts: false,
            ..ApiServerConfig::default()
        });
        let client = server.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["aaa", "shop"] {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name.into());
            let params = PostParams::default();
            namespaces.create(&params, &namespace).await.unwrap();
        }
        let hostile = Calls::writes().kind("events").namespace("aaa");
        let hangs = Fault::Delay(Duration::from_secs(3600));
        server.faults().strike_randomly(1_000, hostile, hangs);
        let (queue, task) = EventQueue::new(client.clone());
        let task = tokio::spawn(task);
        for at in 0..2 * EVENT_QUEUE_CAPACITY {
            queue.publish(about("aaa", &format!("web-{at}")), &notice("again"));
        }
        for at in 0..10 {
            queue.publish(
                about("shop", &format!("cart-{at}")),
                &notice("a request waits"),
            );
        }
        let events: Api<Event> = Api::namespaced(client, "shop");
        let written = async || {
            let list = events.list(&ListParams::default()).await.unwrap();
            list.items.len()
        };
        let mut seconds = 0;
        while written().await < 10 {
            assert!(seconds < 60, "{} were written", written().await);
            seconds += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        task.abort();
    }

    #[test]
    fn a_full_queue_makes_room_for_a_namespace_that_has_less_in_it() {
        let waiting = Waiting {
            events: Mutex::new(Turns::new(WRITES_AT_A_TIME)),
            added: Notify::new(),
        };
        let push = |namespace: &str| waiting.push(&namespace.into(), Event::default());
        for at in 0..EVENT_QUEUE_CAPACITY {
            assert!(push(&format!("aaa-{}", at / NAMESPACE_CAPACITY)));
        }
        assert!(!push("aaa-0"), "one namespace has only so many");
        assert!(push("shop"));
        assert_eq!(waiting.events.lock().waiting_in_all(), EVENT_QUEUE_CAPACITY);
    }

    #[test]
    fn in_one_queue_with_events_that_hang_a_neighbours_is_dropped() {
        for (neighbour, written) in [("aaa", false), ("shop", true)] {
            let waiting = Waiting {
                events: Mutex::new(Turns::new(WRITES_AT_A_TIME)),
                added: Notify::new(),
            };
            for _ in 0..NAMESPACE_CAPACITY {
                waiting.push(&"aaa".into(), Event::default());
            }
            assert_eq!(waiting.push(&neighbour.into(), Event::default()), written);
        }
    }
}
