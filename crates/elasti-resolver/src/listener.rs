//! Opens one listener for each route, and closes it when the route is removed; connections outlive their listener.
//! A port that cannot be opened is retried, and its route is missing from the activity report until then.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::{Accepted, Proxy, Route};
use crate::drain::{ConnectionGuard, EndSender};
use crate::memory::{self, Pressure};
use crate::net::{TcpListener, listen};
use crate::reach::Destination;

/// Connections of one listener; more wait in the kernel's backlog until one ends.
/// 16,384 x 4 KiB unread = 64 MiB for the busiest one.
const MAX_CONNECTIONS: usize = 16_384;
/// How often a port that could not be opened is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Running out of descriptors must not become a busy loop.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// A connection's share of its listener's limit, held by everything that belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermit {
    _permit: Arc<OwnedSemaphorePermit>,
    _counted: Arc<ConnectionGuard>,
}

/// Which requests a listener takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListenerKind {
    /// Those for one service's port.
    Service { listen_port: u16 },
    /// Those for any service, by host.
    ByHost,
}

/// The listeners of one resolver.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    pub(crate) bind: IpAddr,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) pressure: watch::Receiver<Pressure>,
    /// The listen ports that are open.
    pub(crate) open_ports: Arc<Mutex<HashSet<u16>>>,
}

impl Listeners {
    /// Follows the table for ever: opens what is missing, closes what is no longer routed.
    pub(crate) async fn follow_routes(self) {
        let table = self.proxy.dispatcher.table.clone();
        let mut tasks: HashMap<u16, (AbortHandle, Arc<EndSender>)> = HashMap::new();
        let mut failed: BTreeSet<u16> = BTreeSet::new();
        loop {
            let changed = tokio::select! {
                changed = table.changed_ports() => changed,
                () = sleep(RETRY_INTERVAL), if !failed.is_empty() => {
                    let again = std::mem::take(&mut failed).into_iter();
                    again.map(|port| (port, table.service_at(port).is_some())).collect()
                }
            };
            for (port, routed) in changed {
                failed.remove(&port);
                match (routed, tasks.entry(port)) {
                    (true, Entry::Vacant(free)) => match self.open(port) {
                        Ok(task) => {
                            free.insert(task);
                        }
                        Err(error) => {
                            failed.insert(port);
                            tracing::warn!(port, %error, "cannot open listen port");
                        }
                    },
                    (false, Entry::Occupied(open)) => {
                        let (task, connections) = open.remove();
                        task.abort();
                        // What they were opened for is reached on another way from now on.
                        connections.end();
                        self.open_ports.lock().remove(&port);
                    }
                    _ => {}
                }
            }
            table.ports_are_followed();
            let count = i64::try_from(failed.len()).unwrap_or(i64::MAX);
            self.proxy.metrics.ports_failed.set(count);
        }
    }

    fn open(&self, port: u16) -> std::io::Result<(AbortHandle, Arc<EndSender>)> {
        let listener = listen(SocketAddr::new(self.bind, port))?;
        let kind = ListenerKind::Service { listen_port: port };
        let connections = Arc::<EndSender>::default();
        let accepting = self.clone().accept(listener, kind, connections.clone());
        let task = tokio::spawn(accepting).abort_handle();
        self.open_ports.lock().insert(port);
        Ok((task, connections))
    }

    /// Accepts until the resolver is closing, which then ends the connections in order.
    pub(crate) async fn accept(
        self,
        listener: TcpListener,
        kind: ListenerKind,
        connections: Arc<EndSender>,
    ) {
        let mut closing = self.proxy.lifecycle.closing();
        tokio::select! {
            () = self.accept_all(listener, kind, &connections) => {}
            () = closing.begins() => {}
        }
        connections.end();
    }

    async fn accept_all(
        mut self,
        listener: TcpListener,
        kind: ListenerKind,
        connections: &EndSender,
    ) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let own = || MAX_CONNECTIONS.saturating_sub(permits.available_permits() + 1);
            self.may_accept(own).await;
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(?kind, %error, "accept failed");
                    self.proxy.metrics.limits.accept_failed(&error);
                    // In a box, because every listener of thousands would have room for it.
                    Box::pin(sleep(ACCEPT_BACKOFF)).await;
                    continue;
                }
            };
            // Memory or files may have become short while nothing came.
            self.may_accept(own).await;
            let Some(route) = self.route(kind) else {
                continue;
            };
            let accepted = Accepted {
                proxy: self.proxy.clone(),
                route,
                permit: ConnectionPermit {
                    _permit: Arc::new(permit),
                    _counted: Arc::new(self.proxy.lifecycle.count_connection()),
                },
                ending: connections.ending(),
                stream,
                peer,
            };
            tokio::spawn(accepted.serve());
        }
    }

    /// Ends when memory and files allow one more connection of a listener that has `own` ones.
    async fn may_accept(&mut self, own: impl Fn() -> usize) {
        memory::may_accept(&mut self.pressure).await;
        self.proxy.lifecycle.may_accept(own).await;
    }

    /// Where a new connection goes; `None` if its service is not managed any more.
    fn route(&self, kind: ListenerKind) -> Option<Route> {
        let ListenerKind::Service { listen_port } = kind else {
            return Some(Route::ByHost);
        };
        let service = self.proxy.dispatcher.table.service_at(listen_port)?;
        if service.allow_from.is_none() && service.counts_connections() {
            self.proxy.record_arrival(&service.stats);
        }
        Some(Route::Service(Destination::new(&service, listen_port)))
    }
}
