//! The routing table: listen port to service, port and pods; host name to service.
//! Never changes: a new one takes its place.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use elasti_api::{ListenPort, Reason};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::waiting_room::RoomLimits;

use crate::metrics::RequestSeries;
use crate::pod::Pod;

/// What a resolver has seen of one service; it outlives every table.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Requests that wait.
    pub(crate) held: AtomicU32,
    /// Requests and streams being carried.
    pub(crate) open: AtomicU32,
    /// The clock's milliseconds at the last new connection or request; 0: none yet.
    pub(crate) last_millis: AtomicU64,
    /// The clock's milliseconds when a pod first answered one that had waited, since requests last began to wait;
    /// 0: none yet.
    pub(crate) first_answer_millis: AtomicU64,
    /// Where its requests are counted.
    pub(crate) requests: RequestSeries,
}

/// Counts one request or stream as open for as long as it lives.
#[derive(Debug)]
pub(crate) struct Open(Arc<Seen>);

impl Open {
    pub(crate) fn count(seen: &Arc<Seen>) -> Self {
        seen.open.fetch_add(1, Ordering::Relaxed);
        Self(seen.clone())
    }
}

impl Drop for Open {
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
    /// Browsers see a page while it sleeps.
    pub(crate) waiting_page: bool,
    pub(crate) seen: Arc<Seen>,
}

/// One port of a service.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listen: ListenPort,
    /// The Service's `appProtocol`, once known.
    pub(crate) app_protocol: Option<String>,
    pub(crate) pods: Vec<Pod>,
}

impl Port {
    pub(crate) fn has_usable_pod(&self) -> bool {
        self.pods.iter().any(|pod| pod.backend.usable())
    }
}

impl Service {
    /// Pods that any of its ports can use.
    pub(crate) fn ready_pods(&self) -> usize {
        let ready = |port: &Port| port.pods.iter().filter(|pod| pod.backend.usable()).count();
        self.ports.iter().map(ready).max().unwrap_or(0)
    }

    pub(crate) fn port(&self, listen_port: u16) -> Option<&Port> {
        self.ports
            .iter()
            .find(|port| port.listen.listen_port == listen_port)
    }

    /// Someone waits for it already, so whoever comes now stands behind them.
    pub(crate) fn has_waiters(&self) -> bool {
        self.seen.held.load(Ordering::Relaxed) > 0
    }
}

/// All managed services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) services: HashMap<ServiceKey, Arc<Service>>,
    pub(crate) listen_ports: HashMap<u16, ServiceKey>,
    /// The first complete list of every kind has been read.
    pub(crate) loaded: bool,
}

impl Table {
    pub(crate) fn at(&self, listen_port: u16) -> Option<&Arc<Service>> {
        self.services.get(self.listen_ports.get(&listen_port)?)
    }

    pub(crate) fn ready_pods(&self, key: &ServiceKey) -> usize {
        self.services
            .get(key)
            .map_or(0, |service| service.ready_pods())
    }
}
