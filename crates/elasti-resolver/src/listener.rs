//! Opens one listener for each route, and closes it when the route is removed; connections outlive their listener.
//! A port that cannot be opened is retried, and its route is missing from the activity report until then.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::{Accepted, Proxy, Route};
use crate::drain::ConnectionGuard;
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
    pub(crate) async fn follow_routes(self, mut changes: watch::Receiver<()>) {
        let mut tasks: HashMap<u16, AbortHandle> = HashMap::new();
        loop {
            changes.mark_unchanged();
            let table = self.proxy.dispatcher.table.load();
            let wanted: HashSet<u16> = table.listen_ports.keys().copied().collect();
            drop(table);
            tasks.retain(|port, task| {
                let keep = wanted.contains(port);
                if !keep {
                    task.abort();
                    self.open_ports.lock().remove(port);
                }
                keep
            });
            let mut failed = 0;
            for port in wanted {
                if tasks.contains_key(&port) {
                    continue;
                }
                match listen(SocketAddr::new(self.bind, port)) {
                    Ok(listener) => {
                        let kind = ListenerKind::Service { listen_port: port };
                        let task = tokio::spawn(self.clone().accept(listener, kind));
                        tasks.insert(port, task.abort_handle());
                        self.open_ports.lock().insert(port);
                    }
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(port, %error, "cannot open listen port");
                    }
                }
            }
            self.proxy.metrics.ports_failed.set(failed);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = sleep(RETRY_INTERVAL), if failed > 0 => {}
            }
        }
    }

    /// Accepts until the resolver is closing.
    pub(crate) async fn accept(mut self, listener: TcpListener, kind: ListenerKind) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut closing = self.proxy.lifecycle.closing();
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            tokio::select! {
                () = memory::may_accept(&mut self.pressure) => {}
                () = closing.begins() => return,
            }
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = closing.begins() => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(?kind, %error, "accept failed");
                    sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            };
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
                stream,
                peer,
            };
            tokio::spawn(accepted.serve());
        }
    }

    /// Where a new connection goes; `None` if its service is not managed any more.
    fn route(&self, kind: ListenerKind) -> Option<Route> {
        let ListenerKind::Service { listen_port } = kind else {
            return Some(Route::ByHost);
        };
        let service = self.proxy.dispatcher.table.service_at(listen_port)?;
        self.proxy.record_arrival(&service.stats);
        Some(Route::Service(Destination::new(&service, listen_port)))
    }
}
