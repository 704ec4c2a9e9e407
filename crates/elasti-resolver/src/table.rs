//! The routing table: listen port to service, port and pods; host name to service.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use elasti_api::{ListenPort, Reason};
use elasti_core::backends::Candidate as _;
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::waiting_room::RoomLimits;

use crate::metrics::RequestSeries;
use crate::pod::Pod;
use crate::protocol::Declared;

/// A handle to the current [`Table`]; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable(Arc<ArcSwap<Table>>);

impl RouteTable {
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.0.load()
    }

    pub(crate) fn store(&self, table: Arc<Table>) {
        self.0.store(table);
    }

    pub(crate) fn service(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.load().services.get(key).cloned()
    }

    pub(crate) fn service_at(&self, listen_port: u16) -> Option<Arc<Service>> {
        self.load().at(listen_port).cloned()
    }

    /// What the Service declares that a port speaks, as far as it is known by now.
    pub(crate) fn declared_protocol(&self, listen_port: u16) -> Declared {
        let table = self.load();
        let port = table.at(listen_port).and_then(|one| one.port(listen_port));
        port.map_or(Declared::Unknown, |port| port.declared)
    }
}

/// The counters of one service; they outlive every table.
#[derive(Debug, Default)]
pub(crate) struct ServiceStats {
    /// Held requests.
    pub(crate) held: AtomicU32,
    /// Requests and streams being forwarded.
    pub(crate) open: AtomicU32,
    /// The clock's milliseconds at the last new connection or request; 0: none yet.
    pub(crate) last_arrival_millis: AtomicU64,
    /// The clock's milliseconds when a pod first answered a held request, since requests were last held; 0: none yet.
    pub(crate) first_answer_millis: AtomicU64,
    /// Where its requests are counted.
    pub(crate) series: RequestSeries,
}

/// Counts one request or stream as open for as long as it lives.
#[derive(Debug)]
pub(crate) struct OpenGuard(Arc<ServiceStats>);

impl OpenGuard {
    pub(crate) fn new(stats: &Arc<ServiceStats>) -> Self {
        stats.open.fetch_add(1, Ordering::Relaxed);
        Self(stats.clone())
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One managed service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) key: ServiceKey,
    pub(crate) ports: Vec<Port>,
    pub(crate) probes: Arc<ProbeRules>,
    pub(crate) room: RoomLimits,
    /// Its pods are in rotation, so clients should come back on the direct path.
    pub(crate) in_rotation: bool,
    /// Why its pods cannot start.
    pub(crate) obstacle: Option<Reason>,
    /// It is awake, and while none of its pods is ready nothing waits for one.
    pub(crate) refuses_when_down: bool,
    /// Browsers see a page while it sleeps.
    pub(crate) waiting_page: bool,
    pub(crate) stats: Arc<ServiceStats>,
}

/// One port of a service.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listen: ListenPort,
    /// By the Service's `appProtocol`, once known.
    pub(crate) declared: Declared,
    pub(crate) pods: Vec<Pod>,
}

impl Service {
    /// Pods that any of its ports can use.
    pub(crate) fn ready_pods(&self) -> usize {
        let ready = |port: &Port| port.pods.iter().filter(|pod| pod.usable()).count();
        self.ports.iter().map(ready).max().unwrap_or(0)
    }

    pub(crate) fn port(&self, listen_port: u16) -> Option<&Port> {
        self.ports
            .iter()
            .find(|port| port.listen.listen_port == listen_port)
    }

    pub(crate) fn has_usable_pod(&self, listen_port: u16) -> bool {
        self.port(listen_port)
            .is_some_and(|port| port.pods.iter().any(Pod::usable))
    }

    /// Requests are held for it already, so new ones queue behind them.
    pub(crate) fn has_waiters(&self) -> bool {
        self.stats.held.load(Ordering::Relaxed) > 0
    }

    /// A new connection must wait.
    pub(crate) fn must_wait(&self, listen_port: u16) -> bool {
        self.has_waiters() || !self.has_usable_pod(listen_port)
    }

    /// While it sleeps, some requests are answered here: by probe rules, or with the waiting page.
    pub(crate) fn answers_without_pod(&self) -> bool {
        !self.probes.is_empty() || self.waiting_page
    }
}

/// All managed services. Immutable: a change publishes a new table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) services: HashMap<ServiceKey, Arc<Service>>,
    pub(crate) listen_ports: HashMap<u16, ServiceKey>,
    /// The first complete list of every kind has arrived.
    pub(crate) loaded: bool,
}

impl Table {
    fn at(&self, listen_port: u16) -> Option<&Arc<Service>> {
        self.services.get(self.listen_ports.get(&listen_port)?)
    }

    pub(crate) fn ready_pods(&self, key: &ServiceKey) -> usize {
        self.services
            .get(key)
            .map_or(0, |service| service.ready_pods())
    }
}
