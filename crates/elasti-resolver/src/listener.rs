//! Opens one listener for each route, and closes it when the route goes; connections outlive their listener.
//! Never ends because a port is taken: that route is missing from the activity report until the port is free.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection;
use crate::memory;
use crate::net::{TcpListener, listen};
use crate::resolver::Resolver;

/// Connections of one listener; more wait in the kernel's backlog until one ends.
/// 16,384 x 4 KiB unread = 64 MiB for the busiest one.
const CONNECTIONS: usize = 16_384;
/// A taken port is tried again this often.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Running out of descriptors must not become a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One connection's right to be there, shared by everything that belongs to it.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermit {
    pub(crate) listen_port: u16,
    _permit: Arc<OwnedSemaphorePermit>,
    _present: Arc<crate::drain::Present>,
}

/// What a listener does with a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One service's port.
    Route,
    /// Any service, by host.
    ByHost,
}

/// Follows the table for ever: opens what is missing, closes what is gone.
pub(crate) async fn follow_routes(resolver: Arc<Resolver>) {
    let mut changes = resolver.routes.changes();
    let mut open: HashMap<u16, AbortHandle> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let wanted: HashSet<u16> = resolver.table.load().listen_ports.keys().copied().collect();
        open.retain(|port, task| {
            let keep = wanted.contains(port);
            if !keep {
                task.abort();
                resolver.listening.lock().remove(port);
            }
            keep
        });
        let mut failed = 0;
        for port in wanted {
            if open.contains_key(&port) {
                continue;
            }
            match listen(SocketAddr::new(resolver.settings.bind, port)) {
                Ok(listener) => {
                    let task = tokio::spawn(accept(resolver.clone(), listener, port, Kind::Route));
                    open.insert(port, task.abort_handle());
                    resolver.listening.lock().insert(port);
                }
                Err(error) => {
                    failed += 1;
                    tracing::warn!(port, %error, "cannot listen for a route");
                }
            }
        }
        resolver.metrics.ports_failed.set(failed);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = sleep(TRY_AGAIN), if failed > 0 => {}
        }
    }
}

/// Accepts until the resolver closes its doors.
pub(crate) async fn accept(
    resolver: Arc<Resolver>,
    listener: TcpListener,
    listen_port: u16,
    kind: Kind,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut closing = resolver.closing();
    let mut pressure = resolver.pressure.subscribe();
    loop {
        let Ok(permit) = places.clone().acquire_owned().await else {
            return;
        };
        tokio::select! {
            () = memory::may_accept(&mut pressure) => {}
            () = closing.begins() => return,
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.begins() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(listen_port, %error, "cannot accept");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let permit = ConnectionPermit {
            listen_port,
            _permit: Arc::new(permit),
            _present: Arc::new(resolver.presence.enter()),
        };
        let resolver = resolver.clone();
        match kind {
            Kind::Route => tokio::spawn(connection::serve(resolver, permit, stream, peer)),
            Kind::ByHost => tokio::spawn(connection::serve_by_host(resolver, permit, stream, peer)),
        };
    }
}
