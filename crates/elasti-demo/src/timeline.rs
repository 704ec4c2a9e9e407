//! The timeline: the state of each service in the API server, and when it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{ElastiService, Phase, names};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The label that the demo gives to the pods of a service.
pub(crate) const APP_LABEL: &str = "app";

/// The client closes a connection that is silent for a little longer than this.
const WATCH_SECONDS: u32 = 15;

/// A service as the API server shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    /// Phase of the ElastiService's status.
    pub(crate) phase: Option<Phase>,
    /// Reason of the ElastiService's status.
    pub(crate) reason: String,
    /// Why it is so, in a sentence.
    pub(crate) sentence: String,
    /// Generation of the ElastiService's spec, which grows when a user changes it; none once it is deleted.
    pub(crate) generation: Option<i64>,
    /// Its cooldown.
    pub(crate) cooldown_seconds: u32,
    /// A user asked for this sleep: it did not wait for the cooldown.
    pub(crate) sleep_requested: bool,
    /// What the Deployment asks for.
    pub(crate) replicas: i32,
    /// The Deployment was deleted.
    pub(crate) target_gone: bool,
    /// Its pods, and whether each is ready.
    pub(crate) pods: BTreeMap<String, bool>,
    /// Slices that send its Service's connections to resolvers.
    slices: BTreeSet<String>,
}

impl View {
    pub(crate) fn redirected(&self) -> bool {
        !self.slices.is_empty()
    }

    pub(crate) fn ready_pod(&self) -> Option<&str> {
        let ready = self.pods.iter().find(|(_, ready)| **ready);
        ready.map(|(name, _)| name.as_str())
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.phase == Some(Phase::Asleep)
            && self.replicas == 0
            && !self.target_gone
            && self.redirected()
            && self.pods.is_empty()
    }
}

/// The state of a service since a moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) view: View,
}

struct Inner {
    moments: Mutex<BTreeMap<String, Vec<Moment>>>,
    grown: watch::Sender<()>,
}

/// The states of every service since the timeline was opened.
pub(crate) struct Timeline {
    inner: Arc<Inner>,
    _watches: JoinSet<()>,
}

impl Timeline {
    /// Watches everything in the namespace from now on.
    pub(crate) fn open(client: &Client, namespace: &str) -> Self {
        let inner = Arc::new(Inner {
            moments: Mutex::default(),
            grown: watch::Sender::default(),
        });
        let mut watches = JoinSet::new();
        let own = inner.clone();
        watches.spawn(follow(
            Api::namespaced(client.clone(), namespace),
            move |one: &ElastiService, gone| see_service(&own, one, gone),
        ));
        let own = inner.clone();
        watches.spawn(follow(
            Api::namespaced(client.clone(), namespace),
            move |one: &Deployment, gone| see_target(&own, one, gone),
        ));
        let own = inner.clone();
        watches.spawn(follow(
            Api::namespaced(client.clone(), namespace),
            move |one: &Pod, gone| see_pod(&own, one, gone),
        ));
        let own = inner.clone();
        watches.spawn(follow(
            Api::namespaced(client.clone(), namespace),
            move |one: &EndpointSlice, gone| see_slice(&own, one, gone),
        ));
        Self {
            inner,
            _watches: watches,
        }
    }

    /// The first moment at or after `since` in which something holds.
    pub(crate) async fn until(
        &self,
        service: &str,
        since: Instant,
        holds: impl Fn(&View) -> bool,
    ) -> Moment {
        let mut grown = self.inner.grown.subscribe();
        loop {
            grown.borrow_and_update();
            if let Some(moment) = self.inner.first(service, since, &holds) {
                return moment;
            }
            // The sender lives as long as the timeline.
            let _ = grown.changed().await;
        }
    }

    /// How a service is now.
    pub(crate) fn now(&self, service: &str) -> View {
        let moments = self.inner.moments.lock();
        let last = moments.get(service).and_then(|moments| moments.last());
        last.map(|moment| moment.view.clone()).unwrap_or_default()
    }

    /// A new round: only the last moment of each service is kept.
    pub(crate) fn start_round(&self) {
        for moments in self.inner.moments.lock().values_mut() {
            let old = moments.len().saturating_sub(1);
            moments.drain(..old);
        }
    }

    /// Waits for the next change of any service.
    pub(crate) async fn changed(&self) {
        let mut grown = self.inner.grown.subscribe();
        let _ = grown.changed().await;
    }
}

impl Inner {
    fn first(
        &self,
        service: &str,
        since: Instant,
        holds: impl Fn(&View) -> bool,
    ) -> Option<Moment> {
        let moments = self.moments.lock();
        let moments = moments.get(service)?;
        // What began before `since` may still have held then.
        let before = moments.iter().rposition(|moment| moment.at <= since);
        let mut rest = moments.iter().skip(before.unwrap_or(0));
        let found = rest.find(|moment| holds(&moment.view))?;
        Some(Moment {
            at: found.at.max(since),
            view: found.view.clone(),
        })
    }

    fn change(&self, service: &str, change: impl FnOnce(&mut View)) {
        {
            let mut all = self.moments.lock();
            let moments = all.entry(service.to_owned()).or_default();
            let last = moments
                .last()
                .map(|moment| moment.view.clone())
                .unwrap_or_default();
            let mut view = last.clone();
            change(&mut view);
            if view == last {
                return;
            }
            moments.push(Moment {
                at: Instant::now(),
                view,
            });
        }
        self.grown.send_replace(());
    }
}

fn see_service(inner: &Inner, service: &ElastiService, gone: bool) {
    let status = service.status.clone().unwrap_or_default();
    let ready = { status.conditions.iter() }
        .find(|one| one.type_ == names::condition::READY)
        .map(|one| one.message.clone());
    let deleted = gone || service.metadata.deletion_timestamp.is_some();
    let requested = service.annotations().get(names::SLEEP_REQUESTED_ANNOTATION);
    let requested: Option<Timestamp> = requested.and_then(|at| at.parse().ok());
    let woken = status.last_scaled_up_time.map(|at| at.0);
    inner.change(&service.name_any(), |view| {
        view.phase = status.phase.filter(|_| !gone);
        view.reason = status.reason.unwrap_or_default();
        view.sentence = ready.unwrap_or_default();
        view.generation = service.metadata.generation.filter(|_| !deleted);
        view.cooldown_seconds = service.spec.cooldown_seconds();
        view.sleep_requested = requested.is_some_and(|at| woken.is_none_or(|woken| at >= woken));
    });
}

fn see_target(inner: &Inner, target: &Deployment, gone: bool) {
    let replicas = target.spec.as_ref().and_then(|spec| spec.replicas);
    inner.change(&target.name_any(), |view| {
        view.replicas = replicas.filter(|_| !gone).unwrap_or(0);
        view.target_gone = gone;
    });
}

fn see_pod(inner: &Inner, pod: &Pod, gone: bool) {
    let Some(service) = pod.labels().get(APP_LABEL) else {
        return;
    };
    let ready = elasti_core::facts::is_ready(pod);
    inner.change(service, |view| {
        if gone {
            view.pods.remove(&pod.name_any());
        } else {
            view.pods.insert(pod.name_any(), ready);
        }
    });
}

fn see_slice(inner: &Inner, slice: &EndpointSlice, gone: bool) {
    let label = |name: &str| slice.labels().get(name).map(String::as_str);
    let ours = label(names::SLICE_MANAGED_BY_LABEL) == Some(names::SLICE_MANAGED_BY_ELASTI);
    let ready = |endpoint: &Endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) == Some(true)
    };
    let redirects = slice.endpoints.iter().any(ready);
    let Some(service) = label(names::SERVICE_NAME_LABEL).filter(|_| ours) else {
        return;
    };
    inner.change(service, |view| {
        if gone || !redirects {
            view.slices.remove(&slice.name_any());
        } else {
            view.slices.insert(slice.name_any());
        }
    });
}

/// Watches a kind, for ever; `see` gets each object, and whether it is gone.
pub(crate) async fn follow<K>(api: Api<K>, see: impl Fn(&K, bool))
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    loop {
        // An error is rare, and the next try soon.
        let Ok(list) = api.list(&ListParams::default()).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut version = list.metadata.resource_version.unwrap_or_default();
        for object in &list.items {
            see(object, false);
        }
        while let Some(next) = follow_from(&api, &see, version).await {
            version = next;
        }
    }
}

/// Passes on changes until the watch ends; returns the version to continue from, or none if it is too old.
async fn follow_from<K>(
    api: &Api<K>,
    see: &impl Fn(&K, bool),
    mut version: String,
) -> Option<String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let lasting = WatchParams::default().timeout(WATCH_SECONDS);
    let events = api.watch(&lasting, &version).await.ok()?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let (object, gone) = match event {
            Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
            Ok(WatchEvent::Deleted(object)) => (object, true),
            Ok(WatchEvent::Bookmark(_)) => continue,
            Ok(WatchEvent::Error(_)) | Err(_) => return None,
        };
        see(&object, gone);
        version = object.resource_version().unwrap_or(version);
    }
    Some(version)
}
