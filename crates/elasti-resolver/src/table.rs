//! The routing table: listen port to service, port and pods; host name to service.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use elasti_api::{ListenPort, Reason};
use elasti_core::backends::Candidate as _;
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::sources::SourceRule;
use elasti_core::waiting_room::RoomLimits;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::metrics::RequestSeries;
use crate::pod::Pod;
use crate::protocol::Declared;

/// A handle to the one [`Table`]; clones share it. No method returns while it holds the lock, so that no reader can keep
/// a change waiting, and a change costs what it touches, however many services there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: RwLock<Table>,
    changed_ports: Mutex<ChangedPorts>,
    changed: Notify,
    /// Once true, it stays so: a port that is added later makes no resolver unready.
    first_ports_open: AtomicBool,
}

/// Listen ports that may have been added or removed, for the listeners.
#[derive(Debug, Default)]
struct ChangedPorts {
    waiting: BTreeSet<u16>,
    /// The listeners are opening and closing the last ones.
    in_progress: bool,
}

impl ChangedPorts {
    fn take(&mut self) -> BTreeSet<u16> {
        let ports = std::mem::take(&mut self.waiting);
        self.in_progress |= !ports.is_empty();
        ports
    }
}

impl RouteTable {
    /// The first complete list of every kind has arrived.
    pub(crate) fn is_loaded(&self) -> bool {
        self.0.table.read().loaded
    }

    /// The listeners have opened the ports of the first complete lists, or have tried to.
    pub(crate) fn first_ports_are_open(&self) -> bool {
        let open = &self.0.first_ports_open;
        if !open.load(Ordering::Relaxed) && self.is_loaded() {
            let changed = self.0.changed_ports.lock();
            if changed.waiting.is_empty() && !changed.in_progress {
                open.store(true, Ordering::Relaxed);
            }
        }
        open.load(Ordering::Relaxed)
    }

    /// The listeners have done what [`Self::changed_ports`] told last.
    pub(crate) fn ports_are_followed(&self) {
        self.0.changed_ports.lock().in_progress = false;
    }

    pub(crate) fn service(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        self.0.table.read().services.get(key).cloned()
    }

    pub(crate) fn service_at(&self, listen_port: u16) -> Option<Arc<Service>> {
        self.0.table.read().at(listen_port).cloned()
    }

    /// Every service, as it is now.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.0.table.read().services.values().cloned().collect()
    }

    pub(crate) fn ready_pods(&self, key: &ServiceKey) -> usize {
        let service = self.service(key);
        service.map_or(0, |service| service.ready_pods())
    }

    /// Pods that this port can use; `None` if the service has no such port.
    pub(crate) fn usable_pods(&self, key: &PortKey) -> Option<usize> {
        let service = self.service(&key.service)?;
        service.port(key.listen_port).map(Port::usable_pods)
    }

    /// The listen port routes to this service.
    pub(crate) fn owns(&self, key: &ServiceKey, listen_port: u16) -> bool {
        let table = self.0.table.read();
        { table.listen_ports.get(&listen_port) }.is_some_and(|owner| **owner == *key)
    }

    /// What the Service declares that a port speaks, as far as it is known by now.
    pub(crate) fn declared_protocol(&self, listen_port: u16) -> Declared {
        let service = self.service_at(listen_port);
        let port = service.as_ref().and_then(|one| one.port(listen_port));
        port.map_or(Declared::Unknown, |port| port.declared)
    }

    /// The listen ports that may have been added or removed since this was last called, as soon as there are any, and
    /// whether each is routed.
    pub(crate) async fn changed_ports(&self) -> Vec<(u16, bool)> {
        loop {
            let changed = self.0.changed.notified();
            let ports = self.0.changed_ports.lock().take();
            if !ports.is_empty() {
                let table = self.0.table.read();
                let routed = |port| (port, table.listen_ports.contains_key(&port));
                return ports.into_iter().map(routed).collect();
            }
            changed.await;
        }
    }

    /// Replaces these services, or removes them; gives back what each was before.
    pub(crate) fn update(
        &self,
        loaded: bool,
        updates: Vec<(Arc<ServiceKey>, Option<Arc<Service>>)>,
    ) -> Vec<Update> {
        let mut touched = BTreeSet::new();
        // Held until the ports wait, so that no probe finds routes loaded before that.
        let mut changed = self.0.changed_ports.lock();
        let done = self.0.table.write().update(loaded, updates, &mut touched);
        if !touched.is_empty() {
            changed.waiting.extend(touched);
            self.0.changed.notify_one();
        }
        done
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.0.table.read())
    }
}

/// What an update did to one service.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) key: Arc<ServiceKey>,
    pub(crate) before: Option<Arc<Service>>,
    pub(crate) after: Option<Arc<Service>>,
}

/// The counters of one service; they outlive every table.
#[derive(Debug, Default)]
pub(crate) struct ServiceStats {
    /// Held requests.
    pub(crate) held: AtomicU32,
    /// Requests and streams being forwarded.
    pub(crate) open: AtomicU32,
    /// The clock's milliseconds at the last new connection or request that is use of it; 0: none yet.
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

/// One port of one service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortKey {
    pub(crate) service: Arc<ServiceKey>,
    pub(crate) listen_port: u16,
}

impl PortKey {
    pub(crate) fn new(service: &Service, listen_port: u16) -> Self {
        Self {
            service: service.key.clone(),
            listen_port,
        }
    }
}

/// One managed service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) key: Arc<ServiceKey>,
    /// When its ElastiService was created.
    pub(crate) created: Option<Timestamp>,
    pub(crate) ports: Vec<Port>,
    pub(crate) probes: Arc<ProbeRules>,
    pub(crate) room: RoomLimits,
    /// Its pods are in rotation, so clients should come back on the direct path.
    pub(crate) in_rotation: bool,
    /// Why its pods cannot start.
    pub(crate) obstacle: Option<Reason>,
    /// What its pods wait for, if that may pass by itself.
    pub(crate) delay: Option<Reason>,
    /// It is awake, and while none of its pods is ready nothing waits for one.
    pub(crate) refuses_when_down: bool,
    /// Browsers see a page while it sleeps.
    pub(crate) waiting_page: bool,
    /// The probes of its starting pods are run here too.
    pub(crate) probe_ahead: bool,
    /// Which sources it accepts; `None`: all.
    pub(crate) allow_from: Option<Arc<SourceRule>>,
    pub(crate) stats: Arc<ServiceStats>,
}

/// One port of a service.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) listen: ListenPort,
    /// By the Service's `appProtocol`, once known.
    pub(crate) declared: Declared,
    pub(crate) pods: Vec<Pod>,
    /// Held requests for it; outlives every table.
    pub(crate) waiters: Arc<AtomicU32>,
}

impl Port {
    pub(crate) fn usable_pods(&self) -> usize {
        self.pods.iter().filter(|pod| pod.usable()).count()
    }

    /// Requests are held for it already, so new ones queue behind them.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) > 0
    }
}

impl Service {
    /// Pods that any of its ports can use.
    pub(crate) fn ready_pods(&self) -> usize {
        let usable = self.ports.iter().map(Port::usable_pods);
        usable.max().unwrap_or(0)
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

    /// Requests are held for it already, whatever their port.
    pub(crate) fn has_waiters(&self) -> bool {
        self.stats.held.load(Ordering::Relaxed) > 0
    }

    /// A new connection must wait.
    pub(crate) fn must_wait(&self, listen_port: u16) -> bool {
        let waits = self.port(listen_port).is_some_and(Port::has_waiters);
        waits || !self.has_usable_pod(listen_port)
    }

    /// Every connection is use of it. With probe rules only requests tell: what a rule answers is none.
    pub(crate) fn counts_connections(&self) -> bool {
        self.probes.is_empty()
    }

    /// While it sleeps, some requests are answered here: by probe rules, or with the waiting page.
    pub(crate) fn answers_without_pod(&self) -> bool {
        !self.probes.is_empty() || self.waiting_page
    }
}

/// All managed services.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) services: HashMap<Arc<ServiceKey>, Arc<Service>>,
    pub(crate) listen_ports: HashMap<u16, Arc<ServiceKey>>,
    loaded: bool,
}

impl Table {
    fn at(&self, listen_port: u16) -> Option<&Arc<Service>> {
        self.services.get(self.listen_ports.get(&listen_port)?)
    }

    /// All ports of the touched services become free before one is given, so that two services can exchange theirs. A port
    /// that several claim goes to the one that has it, or else to the oldest: what a status says can be copied.
    fn update(
        &mut self,
        loaded: bool,
        updates: Vec<(Arc<ServiceKey>, Option<Arc<Service>>)>,
        touched: &mut BTreeSet<u16>,
    ) -> Vec<Update> {
        self.loaded = loaded;
        let mut done = Vec::with_capacity(updates.len());
        let mut had: HashSet<(u16, Arc<ServiceKey>)> = HashSet::new();
        for (key, after) in updates {
            let before = match &after {
                Some(service) => self.services.insert(key.clone(), service.clone()),
                None => self.services.remove(&key),
            };
            let ports = before.iter().flat_map(|before| &before.ports);
            for port in ports.map(|port| port.listen.listen_port) {
                if self.listen_ports.get(&port) == Some(&key) {
                    self.listen_ports.remove(&port);
                    had.insert((port, key.clone()));
                    touched.insert(port);
                }
            }
            done.push(Update { key, before, after });
        }
        let claims = done.iter().flat_map(|Update { key, after, .. }| {
            let ports = after.iter().flat_map(|service| &service.ports);
            let created = after.as_ref().and_then(|service| service.created);
            ports.map(move |port| (port.listen.listen_port, created, key))
        });
        let mut claims: Vec<(u16, Option<Timestamp>, &Arc<ServiceKey>)> = claims.collect();
        claims.sort_by_cached_key(|(port, created, key)| {
            let has_it = had.contains(&(*port, Arc::clone(key)));
            (!has_it, created.is_none(), *created, Arc::clone(key))
        });
        for (port, _, key) in claims {
            // It stays with the first: bytes never reach the wrong one.
            self.listen_ports.entry(port).or_insert_with(|| key.clone());
            touched.insert(port);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &str) -> Arc<ServiceKey> {
        Arc::new(ServiceKey::new("shop", name))
    }

    fn with_ports(name: &str, ports: &[u16]) -> (Arc<ServiceKey>, Option<Arc<Service>>) {
        let port = |number: &u16| Port {
            listen: ListenPort {
                name: String::new(),
                port: 80,
                listen_port: *number,
            },
            declared: Declared::Unknown,
            pods: Vec::new(),
            waiters: Arc::default(),
        };
        let service = Service {
            key: key(name),
            created: None,
            ports: ports.iter().map(port).collect(),
            probes: Arc::default(),
            room: elasti_core::waiting_room::Limits::default().room(None),
            in_rotation: false,
            obstacle: None,
            delay: None,
            refuses_when_down: false,
            waiting_page: false,
            probe_ahead: true,
            allow_from: None,
            stats: Arc::default(),
        };
        (key(name), Some(Arc::new(service)))
    }

    fn created_at(
        second: i64,
        name: &str,
        ports: &[u16],
    ) -> (Arc<ServiceKey>, Option<Arc<Service>>) {
        let (key, service) = with_ports(name, ports);
        let service = Arc::into_inner(service.unwrap()).unwrap();
        let created = Timestamp::from_second(second).ok();
        (key, Some(Arc::new(Service { created, ..service })))
    }

    fn owner(table: &RouteTable, port: u16) -> Option<String> {
        let service = table.service_at(port)?;
        Some(service.key.service.clone())
    }

    #[tokio::test]
    async fn listeners_learn_the_ports_that_changed_and_no_others() {
        let table = RouteTable::default();
        let many: Vec<_> = (0..1_000)
            .map(|i| with_ports(&format!("service-{i}"), &[10_000 + i]))
            .collect();
        table.update(true, many);
        assert_eq!(table.changed_ports().await.len(), 1_000);
        table.update(true, vec![with_ports("service-7", &[10_007, 20_000])]);
        let changed = table.changed_ports().await;
        assert_eq!(changed, [(10_007, true), (20_000, true)]);
        table.update(true, vec![(key("service-7"), None)]);
        let changed = table.changed_ports().await;
        assert_eq!(changed, [(10_007, false), (20_000, false)]);
        assert!(table.service(&key("service-8")).is_some());
    }

    #[tokio::test]
    async fn it_is_ready_when_the_ports_of_the_first_lists_are_open_and_stays_so() {
        let table = RouteTable::default();
        table.update(false, vec![with_ports("a", &[1])]);
        table.changed_ports().await;
        table.ports_are_followed();
        assert!(!table.first_ports_are_open(), "the lists are not complete");
        table.update(true, vec![with_ports("b", &[2])]);
        assert!(!table.first_ports_are_open(), "nothing listens on 2");
        table.changed_ports().await;
        assert!(!table.first_ports_are_open(), "2 is being opened");
        table.ports_are_followed();
        assert!(table.first_ports_are_open());
        table.update(true, vec![with_ports("c", &[3])]);
        assert!(table.first_ports_are_open());
    }

    #[test]
    fn without_any_route_it_is_ready_at_once() {
        let table = RouteTable::default();
        table.update(true, Vec::new());
        assert!(table.first_ports_are_open());
    }

    #[test]
    fn two_services_can_exchange_their_ports() {
        let table = RouteTable::default();
        table.update(true, vec![with_ports("a", &[1]), with_ports("b", &[2])]);
        table.update(true, vec![with_ports("a", &[2]), with_ports("b", &[1])]);
        assert_eq!(owner(&table, 1).as_deref(), Some("b"));
        assert_eq!(owner(&table, 2).as_deref(), Some("a"));
    }

    /// A tenant that may write the status of its ElastiService can copy the port of another.
    #[test]
    fn of_two_that_claim_a_port_in_one_list_the_oldest_gets_it_unless_another_has_it() {
        let table = RouteTable::default();
        let list = || {
            let copied = created_at(9, "aaa", &[1, 2]);
            let of_none = with_ports("aab", &[1]);
            vec![
                copied,
                of_none,
                created_at(5, "b", &[1]),
                created_at(7, "c", &[1]),
            ]
        };
        table.update(true, list());
        assert_eq!(owner(&table, 1).as_deref(), Some("b"));
        assert_eq!(owner(&table, 2).as_deref(), Some("aaa"));
        let before = vec![(key("b"), None), created_at(7, "c", &[1])];
        table.update(true, before);
        table.update(true, list());
        assert_eq!(owner(&table, 1).as_deref(), Some("c"), "it has it");
    }

    #[test]
    fn a_port_stays_with_its_first_claimant_until_that_one_is_gone() {
        let table = RouteTable::default();
        table.update(true, vec![with_ports("a", &[1])]);
        table.update(true, vec![with_ports("b", &[1])]);
        assert_eq!(owner(&table, 1).as_deref(), Some("a"));
        assert!(!table.owns(&key("b"), 1));
        table.update(true, vec![(key("a"), None)]);
        assert_eq!(owner(&table, 1), None, "not given away unasked");
        table.update(true, vec![with_ports("b", &[1])]);
        assert_eq!(owner(&table, 1).as_deref(), Some("b"));
    }
}
