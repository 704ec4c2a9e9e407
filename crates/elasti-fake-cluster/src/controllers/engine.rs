//! The engine of all controllers: follow kinds, keep a list of due keys, reconcile them one by one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::api_server::ApiServer;
use crate::api_server::object::Object as _;
use crate::api_server::resources::GroupResource;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Change as EventType, Key, Stored};
use crate::clock::Clock;
use crate::timestamp::rfc3339;

/// A failed reconcile is tried again after this long.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Events read from one kind in one go.
const BATCH_SIZE: usize = 1024;

/// Group, version and plural of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

impl Kind {
    pub(crate) const DEFINITIONS: Self =
        Self("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    pub(crate) const DEPLOYMENTS: Self = Self("apps", "v1", "deployments");
    pub(crate) const EVENTS: Self = Self("", "v1", "events");
    pub(crate) const ENDPOINT_SLICES: Self = Self("discovery.k8s.io", "v1", "endpointslices");
    pub(crate) const NAMESPACES: Self = Self("", "v1", "namespaces");
    pub(crate) const NODES: Self = Self("", "v1", "nodes");
    pub(crate) const PODS: Self = Self("", "v1", "pods");
    pub(crate) const REPLICA_SETS: Self = Self("apps", "v1", "replicasets");
    pub(crate) const ROLLOUTS: Self = Self("argoproj.io", "v1alpha1", "rollouts");
    pub(crate) const SCALED_OBJECTS: Self = Self("keda.sh", "v1alpha1", "scaledobjects");
    pub(crate) const SERVICES: Self = Self("", "v1", "services");
    pub(crate) const SERVICE_ACCOUNTS: Self = Self("", "v1", "serviceaccounts");
    pub(crate) const STATEFUL_SETS: Self = Self("apps", "v1", "statefulsets");

    pub(crate) fn group_resource(self) -> GroupResource {
        (self.0.to_owned(), self.2.to_owned())
    }

    fn path(self, namespace: &str, rest: &str) -> String {
        let root = if self.0.is_empty() {
            format!("/api/{}", self.1)
        } else {
            format!("/apis/{}/{}", self.0, self.1)
        };
        let namespace = if namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{namespace}")
        };
        format!("{root}{namespace}/{}{rest}", self.2)
    }
}

/// How a controller reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct ControllerClient {
    pub(crate) server: ApiServer,
    component: &'static str,
}

impl ControllerClient {
    pub(crate) fn new(server: &ApiServer, component: &'static str) -> Self {
        Self {
            server: server.clone(),
            component,
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.server.clock()
    }

    /// Now, as Kubernetes writes it.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.clock().now())
    }

    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<Arc<Stored>> {
        self.server
            .state
            .lock()
            .store
            .get(&kind.group_resource(), key)
    }

    pub(crate) fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Arc<Stored>> {
        self.server
            .state
            .lock()
            .store
            .list(&kind.group_resource(), namespace)
    }

    pub(crate) fn create(
        &self,
        kind: Kind,
        namespace: &str,
        object: &Value,
    ) -> Result<Value, ApiError> {
        self.server.send(
            self.component,
            &Method::POST,
            &kind.path(namespace, ""),
            "application/json",
            object,
        )
    }

    pub(crate) fn update(&self, kind: Kind, key: &Key, object: &Value) -> Result<Value, ApiError> {
        let path = kind.path(&key.namespace, &format!("/{}", key.name));
        self.server.send(
            self.component,
            &Method::PUT,
            &path,
            "application/json",
            object,
        )
    }

    /// Replaces the status of the version at hand.
    pub(crate) fn put_status(
        &self,
        kind: Kind,
        object: &Value,
        status: Value,
    ) -> Result<Value, ApiError> {
        let key = Key::from_object(object);
        let mut next = object.clone();
        if let Some(map) = next.as_object_mut() {
            map.insert("status".to_owned(), status);
        }
        let path = kind.path(&key.namespace, &format!("/{}/status", key.name));
        self.server.send(
            self.component,
            &Method::PUT,
            &path,
            "application/json",
            &next,
        )
    }

    /// Replaces the status of a custom resource, which must say what it is.
    pub(crate) fn put_status_of(
        &self,
        kind: Kind,
        api_version: &str,
        name: &str,
        object: &Value,
        status: Value,
    ) -> Result<Value, ApiError> {
        let mut named = object.clone();
        if let Some(map) = named.as_object_mut() {
            map.insert("apiVersion".to_owned(), api_version.into());
            map.insert("kind".to_owned(), name.into());
        }
        self.put_status(kind, &named, status)
    }

    pub(crate) fn merge(&self, kind: Kind, key: &Key, patch: &Value) -> Result<Value, ApiError> {
        let path = kind.path(&key.namespace, &format!("/{}", key.name));
        self.server.send(
            self.component,
            &Method::PATCH,
            &path,
            "application/merge-patch+json",
            patch,
        )
    }

    pub(crate) fn post_subresource(
        &self,
        kind: Kind,
        key: &Key,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let path = kind.path(&key.namespace, &format!("/{}/{subresource}", key.name));
        self.server.send(
            self.component,
            &Method::POST,
            &path,
            "application/json",
            body,
        )
    }

    /// A Warning on an object. The same one again counts up, as Kubernetes' recorders do; one that cannot be written is
    /// dropped, as there.
    pub(crate) fn warn(&self, about: (&str, &str), object: &Value, reason: &str, message: &str) {
        let (api_version, kind) = about;
        let key = Key::from_object(object);
        let now = self.timestamp();
        let mut hash = DefaultHasher::new();
        (object.text("/metadata/uid"), reason, message).hash(&mut hash);
        let event = Key::new(
            &key.namespace,
            &format!("{}.{:016x}", key.name, hash.finish()),
        );
        if let Some(known) = self.get(Kind::EVENTS, &event) {
            let count = known.value.number("/count").unwrap_or(1) + 1;
            let again = json!({"count": count, "lastTimestamp": now});
            drop(self.merge(Kind::EVENTS, &event, &again));
            return;
        }
        let event = json!({
            "metadata": {"name": event.name, "namespace": event.namespace},
            "involvedObject": {
                "apiVersion": api_version, "kind": kind, "namespace": key.namespace, "name": key.name,
                "uid": object.text("/metadata/uid"),
            },
            "type": "Warning", "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": self.component}, "reportingComponent": self.component,
        });
        drop(self.create(Kind::EVENTS, &key.namespace, &event));
    }

    /// Deletes; what is already gone is fine.
    pub(crate) fn delete(&self, kind: Kind, key: &Key, options: &Value) -> Result<(), ApiError> {
        self.delete_at(
            &kind.path(&key.namespace, &format!("/{}", key.name)),
            options,
        )
    }

    pub(crate) fn delete_at(&self, path: &str, options: &Value) -> Result<(), ApiError> {
        match self.server.send(
            self.component,
            &Method::DELETE,
            path,
            "application/json",
            options,
        ) {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Any request by path: for kinds that are only known at run time.
    pub(crate) fn send(
        &self,
        method: &Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        self.server
            .send(self.component, method, path, content_type, body)
    }
}

/// Background deletion of one exact object.
pub(crate) fn only_uid(uid: &str) -> Value {
    json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) group_resource: GroupResource,
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
    pub(crate) deleted: bool,
}

/// Follows some kinds (or all), first showing what is there.
#[derive(Debug)]
pub(crate) struct Feed {
    server: ApiServer,
    kinds: Vec<GroupResource>,
    cursors: BTreeMap<GroupResource, u64>,
    changes: watch::Receiver<u64>,
}

impl Feed {
    /// A feed of `kinds`; of everything if there are none.
    pub(crate) fn new(server: &ApiServer, kinds: &[Kind]) -> Self {
        let changes = server.state.lock().store.any_change();
        let kinds = kinds.iter().map(|kind| kind.group_resource()).collect();
        Self {
            server: server.clone(),
            kinds,
            cursors: BTreeMap::new(),
            changes,
        }
    }

    /// What happened since the last call.
    pub(crate) fn take(&mut self) -> Vec<Change> {
        self.changes.mark_unchanged();
        let state = self.server.state.lock();
        let group_resources = if self.kinds.is_empty() {
            state.store.group_resources()
        } else {
            self.kinds.clone()
        };
        let mut all = Vec::new();
        for group_resource in group_resources {
            let cursor = self.cursors.get(&group_resource).copied();
            match cursor.map(|cursor| {
                state
                    .store
                    .events_after(&group_resource, cursor, BATCH_SIZE)
            }) {
                Some(Ok(events)) => {
                    for event in events {
                        self.cursors.insert(group_resource.clone(), event.version());
                        all.push(Change {
                            group_resource: group_resource.clone(),
                            object: event.object.clone(),
                            previous: event.previous.clone(),
                            deleted: event.change == EventType::Deleted,
                        });
                    }
                }
                // New here, or too far behind: start again from what is there.
                None | Some(Err(_)) => {
                    self.cursors
                        .insert(group_resource.clone(), state.store.version());
                    let present = state.store.list(&group_resource, None).into_iter();
                    all.extend(present.map(|object| Change {
                        group_resource: group_resource.clone(),
                        object,
                        previous: None,
                        deleted: false,
                    }));
                }
            }
        }
        all
    }

    /// Waits until something may have happened.
    pub(crate) async fn changed(&mut self) {
        // The sender lives as long as the server, which the feed holds.
        let _ = self.changes.changed().await;
    }
}

/// What makes a controller.
pub(crate) trait Controller: Send + 'static {
    const COMPONENT: &'static str;
    /// The kinds it follows; empty for all.
    fn follows(&self) -> Vec<Kind>;
    /// Which keys a change makes due.
    fn keys(&mut self, client: &ControllerClient, change: &Change) -> Vec<Key>;
    /// Brings one key in order; says when to reconcile it again.
    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError>;
    /// How long it takes to notice a change.
    fn lag(&self) -> Duration {
        Duration::ZERO
    }
}

/// Runs a controller for ever.
pub(crate) async fn run<C: Controller>(mut controller: C, server: ApiServer) {
    let client = ControllerClient::new(&server, C::COMPONENT);
    let mut feed = Feed::new(&server, &controller.follows());
    let mut due: BTreeMap<Key, Instant> = BTreeMap::new();
    loop {
        for change in feed.take() {
            for key in controller.keys(&client, &change) {
                let at = Instant::now() + controller.lag();
                let known = due.entry(key).or_insert(at);
                *known = at.min(*known);
            }
        }
        let now = Instant::now();
        let ready: Vec<Key> = due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &ready {
            due.remove(key);
            match controller.reconcile(&client, key) {
                Ok(None) => {}
                Ok(Some(later)) => drop(due.insert(key.clone(), Instant::now() + later)),
                Err(_) => drop(due.insert(key.clone(), Instant::now() + RETRY_INTERVAL)),
            }
        }
        // A step a turn keeps one busy controller from starving the others.
        tokio::task::yield_now().await;
        let next = due.values().min().copied();
        tokio::select! {
            () = feed.changed() => {}
            () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
        }
    }
}
