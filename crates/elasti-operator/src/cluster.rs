//! What this operator has of the cluster: a client, the kinds that it discovered, the watched objects, and the queue of
//! services that a change concerns.

use std::fmt;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::Error;
use crate::name::TargetName;
use crate::queue::Queue;
use crate::slim::TargetView;
use crate::store::{CachedKind, Change, Store};
use crate::targets::Kinds;

/// The API server answers within a few milliseconds, or it is in trouble.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Clients whose pods are looked for at once. With each one more the API server goes through all pods once more.
const MOST_CLIENT_LOOKUPS: usize = 4;

/// The cluster as this operator knows it.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    /// Who looks for the pod of a client at the moment.
    pub(crate) client_lookups: Semaphore,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Nothing is cached yet; `scopes` are the namespaces to watch, `None` is all of them.
    pub(crate) fn new(client: Client, scopes: Vec<Option<String>>, workers: usize) -> Self {
        Self {
            client,
            kinds: Kinds::default(),
            store: Store::new(scopes),
            queue: Queue::new(workers),
            client_lookups: Semaphore::new(MOST_CLIENT_LOOKUPS),
        }
    }

    /// One call to the API server, with a time-out.
    pub(crate) async fn send(&self, request: http::Request<Vec<u8>>) -> Result<Value, Error> {
        match timeout(CALL_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::NoAnswer(
                "the API server did not answer in 10 s".into(),
            )),
        }
    }

    /// Caches one changed object and enqueues the services that it concerns.
    pub(crate) fn apply_change<K: CachedKind>(&self, change: Change<K>) {
        self.queue.add_all(&self.store.apply_change(None, change));
    }

    /// Caches what a write returned, so that the next reconcile need not wait for the watch to deliver it.
    pub(crate) fn cache_written<K: CachedKind>(&self, object: Value) {
        if let Ok(object) = K::from_object(object) {
            self.apply_change(Change::Set(object));
        }
    }

    /// The same for a target whose scale was written.
    pub(crate) fn cache_scaled(&self, name: &TargetName, target: TargetView) {
        self.queue.add_all(&self.store.put_target(name, target));
    }

    /// Enqueues every ElastiService.
    pub(crate) fn enqueue_all(&self) {
        self.queue.add_all(&self.store.elasti_services());
    }
}
