//! Keeps the routing table: what ElastiServices, slices of private Services and woken pods say becomes routes.
//! Never asks the cluster for anything, and never takes a slice on trust: core admits every backend.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use elasti_api::{ElastiService, ListenPort, Mode, Phase, Reason, Time, names};
use elasti_core::backends::{AddressPolicy, Backend, SliceEndpoint, admit};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::waiting_room::{Limits, RoomLimits};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::follow::Change;
use crate::hold::{Hold, NotHeld};
use crate::metrics::Metrics;
use crate::pod::{Pod, PodState};
use crate::slice::SliceView;
use crate::table::{Port, Seen, Service, Table};
use crate::woken::WokenPods;

/// What may be a backend besides what core says.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendFilter {
    /// Addresses of resolvers.
    pub(crate) resolvers: BTreeSet<IpAddr>,
    pub(crate) policy: AddressPolicy,
}

/// What one ElastiService says.
#[derive(Clone, Debug)]
struct Declared {
    key: ServiceKey,
    /// Name of its private Service; a hash is in it, so it is made once.
    private: String,
    created: Option<Time>,
    ports: Vec<ListenPort>,
    probes: Arc<ProbeRules>,
    room: RoomLimits,
    in_rotation: bool,
    obstacle: Option<Reason>,
    waiting_page: bool,
}

type Name = (String, String);

/// Everything known, in the shape in which it comes.
#[derive(Debug, Default)]
struct Known {
    /// By namespace and name of the ElastiService.
    declared: HashMap<Name, Declared>,
    declared_listed: bool,
    /// By namespace and name of the private Service, then by name of the slice.
    slices: HashMap<Name, HashMap<String, SliceView>>,
    slices_listed: bool,
    woken: HashMap<ServiceKey, WokenPods>,
    seen: HashMap<ServiceKey, Arc<Seen>>,
    state: HashMap<ServiceKey, HashMap<(String, SocketAddr), Arc<PodState>>>,
    /// `appProtocol` by port name: slices of a sleeping service name no ports, so the last word counts.
    protocols: HashMap<ServiceKey, HashMap<String, String>>,
    /// Addresses of resolvers, by name of the slice of their own Service.
    peers: HashMap<String, Vec<IpAddr>>,
    /// What was told at start, and the peers.
    neighbours: BackendFilter,
}

/// The keeper of the table.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) table: Arc<ArcSwap<Table>>,
    known: Mutex<Known>,
    hold: Arc<Hold>,
    limits: Limits,
    /// The addresses that were told at start.
    neighbours: BackendFilter,
    metrics: Arc<Metrics>,
    changed: watch::Sender<()>,
}

impl Routes {
    pub(crate) fn new(
        table: Arc<ArcSwap<Table>>,
        hold: Arc<Hold>,
        limits: Limits,
        neighbours: BackendFilter,
        metrics: Arc<Metrics>,
    ) -> Self {
        let known = Known {
            neighbours: neighbours.clone(),
            ..Known::default()
        };
        Self {
            table,
            known: Mutex::new(known),
            hold,
            limits,
            neighbours,
            metrics,
            changed: watch::Sender::new(()),
        }
    }

    /// Tells after every new table.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A change among the ElastiServices of one namespace, or of all.
    pub(crate) fn declared(&self, scope: Option<&str>, change: Change<ElastiService>) {
        let mut known = self.known.lock();
        let mut touched = Vec::new();
        match change {
            Change::All(all) => {
                touched.extend(known.declared.values().map(|one| one.key.clone()));
                known
                    .declared
                    .retain(|(namespace, _), _| scope.is_some_and(|scope| scope != namespace));
                for object in &all {
                    let declared = self.declare(object);
                    touched.push(declared.key.clone());
                    known.declared.insert(name_of(object), declared);
                }
                known.declared_listed = true;
            }
            Change::Set(object) => {
                let declared = self.declare(&object);
                touched.push(declared.key.clone());
                known.declared.insert(name_of(&object), declared);
            }
            Change::Gone(object) => {
                touched.extend(known.declared.remove(&name_of(&object)).map(|one| one.key));
            }
        }
        self.publish(&mut known, &touched);
    }

    /// A change among the slices of private Services of one namespace, or of all.
    pub(crate) fn slices(&self, scope: Option<&str>, change: Change<EndpointSlice>) {
        let mut known = self.known.lock();
        let mut touched = BTreeSet::new();
        let place = |object: &EndpointSlice| {
            let service = object
                .labels()
                .get(names::SERVICE_NAME_LABEL)
                .cloned()
                .unwrap_or_default();
            (
                (object.namespace().unwrap_or_default(), service),
                object.name_any(),
            )
        };
        match change {
            Change::All(all) => {
                touched.extend(known.slices.keys().cloned());
                known
                    .slices
                    .retain(|(namespace, _), _| scope.is_some_and(|scope| scope != namespace));
                for object in &all {
                    let (service, name) = place(object);
                    known
                        .slices
                        .entry(service.clone())
                        .or_default()
                        .insert(name, SliceView::of(object));
                    touched.insert(service);
                }
                known.slices_listed = true;
            }
            Change::Set(object) => {
                let (service, name) = place(&object);
                known
                    .slices
                    .entry(service.clone())
                    .or_default()
                    .insert(name, SliceView::of(&object));
                touched.insert(service);
            }
            Change::Gone(object) => {
                let (service, name) = place(&object);
                if let Some(slices) = known.slices.get_mut(&service) {
                    slices.remove(&name);
                    if slices.is_empty() {
                        known.slices.remove(&service);
                    }
                }
                touched.insert(service);
            }
        }
        let touched: HashSet<(&str, &str)> = touched
            .iter()
            .map(|(namespace, name)| (namespace.as_str(), name.as_str()))
            .collect();
        let of_slices =
            |one: &&Declared| touched.contains(&(one.key.namespace.as_str(), one.private.as_str()));
        let keys: Vec<ServiceKey> = known
            .declared
            .values()
            .filter(of_slices)
            .map(|one| one.key.clone())
            .collect();
        self.publish(&mut known, &keys);
    }

    /// A change among the slices of the resolvers' own Service. Every route is built anew: a pod that turns out to be a
    /// resolver is no backend from now on.
    pub(crate) fn peers(&self, change: Change<EndpointSlice>) {
        let mut known = self.known.lock();
        let addresses = |object: &EndpointSlice| {
            let all = object.endpoints.iter().flat_map(|one| &one.addresses);
            all.filter_map(|address| address.parse().ok()).collect()
        };
        match change {
            Change::All(all) => {
                let named = all.iter().map(|one| (one.name_any(), addresses(one)));
                known.peers = named.collect();
            }
            Change::Set(one) => drop(known.peers.insert(one.name_any(), addresses(&one))),
            Change::Gone(one) => drop(known.peers.remove(&one.name_any())),
        }
        let mut neighbours = self.neighbours.clone();
        neighbours
            .resolvers
            .extend(known.peers.values().flatten().map(IpAddr::to_canonical));
        if neighbours.resolvers == known.neighbours.resolvers {
            return;
        }
        known.neighbours = neighbours;
        let keys: Vec<ServiceKey> = known.declared.values().map(|one| one.key.clone()).collect();
        self.publish(&mut known, &keys);
    }

    /// What the pods of a service look like while it is being woken; `None` once that is over.
    pub(crate) fn woken(&self, key: &ServiceKey, pods: Option<WokenPods>) {
        let mut known = self.known.lock();
        match pods {
            Some(pods) => {
                let protocols = known.protocols.entry(key.clone()).or_default();
                protocols.extend(pods.protocols.clone());
                known.woken.insert(key.clone(), pods);
            }
            None => drop(known.woken.remove(key)),
        }
        self.publish(&mut known, std::slice::from_ref(key));
    }

    /// The slices themselves show a pod that can be used.
    pub(crate) fn slices_show_a_pod(&self, key: &ServiceKey) -> bool {
        let known = self.known.lock();
        let private = (key.namespace.clone(), names::private_service(&key.service));
        let slices = known
            .slices
            .get(&private)
            .into_iter()
            .flat_map(HashMap::values);
        slices.flat_map(|slice| &slice.endpoints).any(|endpoint| {
            endpoint.ready.unwrap_or(true) && !endpoint.terminating.unwrap_or(false)
        })
    }

    fn declare(&self, object: &ElastiService) -> Declared {
        let spec = &object.spec;
        let status = object.status.clone().unwrap_or_default();
        let key = ServiceKey::new(object.namespace().unwrap_or_default(), spec.service.clone());
        let (probes, invalid) = ProbeRules::compile(&spec.probe_response);
        for rule in invalid {
            tracing::warn!(service = %key, %rule, "a probe rule is not used");
        }
        let reason = status.reason.as_deref().and_then(Reason::from_word);
        let obstacle = reason.filter(|reason| reason.is_obstacle());
        Declared {
            private: names::private_service(&key.service),
            key,
            created: object.metadata.creation_timestamp.clone(),
            ports: status.ports,
            probes: Arc::new(probes),
            room: self.limits.room(spec.hold.as_ref()),
            in_rotation: status.mode == Some(Mode::Serve),
            obstacle: obstacle.filter(|_| status.phase == Some(Phase::Waking)),
            waiting_page: spec.waiting_page.unwrap_or_default(),
        }
    }

    /// Rebuilds the touched services and puts the new table in place, then lets their waiters know.
    fn publish(&self, known: &mut Known, touched: &[ServiceKey]) {
        let mut table = Table::clone(&self.table.load());
        table.loaded = known.declared_listed && known.slices_listed;
        let touched_keys: HashSet<&ServiceKey> = touched.iter().collect();
        table
            .listen_ports
            .retain(|_, owner| !touched_keys.contains(owner));
        let mut claims = claims(known, &touched_keys);
        for key in touched_keys.iter().copied() {
            let declared = claims.remove(key);
            match declared.map(|declared| self.build(known, key, declared)) {
                Some(service) => {
                    let in_rotation = service.in_rotation;
                    let before = table.services.insert(key.clone(), Arc::new(service));
                    if before.is_some_and(|before| before.in_rotation != in_rotation) {
                        self.metrics.switched(key, in_rotation);
                    }
                }
                None => {
                    forget(known, &mut table, key);
                    self.metrics.forget(key);
                }
            }
        }
        for key in touched {
            let ports = table.services.get(key).map(|service| service.ports.iter());
            for port in ports.into_iter().flatten() {
                // A port that two services claim stays with the first: bytes never reach the wrong one.
                table
                    .listen_ports
                    .entry(port.listen.listen_port)
                    .or_insert_with(|| key.clone());
            }
        }
        let table = Arc::new(table);
        self.table.store(table.clone());
        self.changed.send_replace(());
        for key in touched {
            self.hold.advance(key);
            match table.services.get(key) {
                None => self.hold.turn_away(key, NotHeld::Deleted),
                Some(service) if service.ready_pods() == 0 => {
                    if let Some(reason) = service.obstacle {
                        self.hold.turn_away(key, NotHeld::Obstacle(reason));
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn build(&self, known: &mut Known, key: &ServiceKey, declared: Declared) -> Service {
        let seen = known.seen.entry(key.clone()).or_default().clone();
        let private = (key.namespace.clone(), names::private_service(&key.service));
        let slices: Vec<SliceView> = known
            .slices
            .get(&private)
            .into_iter()
            .flat_map(HashMap::values)
            .cloned()
            .collect();
        let protocols = known.protocols.entry(key.clone()).or_default();
        for port in slices.iter().flat_map(|slice| &slice.ports) {
            if let Some(protocol) = &port.app_protocol {
                protocols.insert(port.name.clone(), protocol.clone());
            }
        }
        let mut ports = Vec::with_capacity(declared.ports.len());
        for listen in declared.ports {
            let woken = known.woken.get(key);
            let backends = backends(key, &listen.name, &slices, woken, &known.neighbours);
            ports.push((listen, backends));
        }
        let state = known.state.entry(key.clone()).or_default();
        let wanted: BTreeSet<(String, SocketAddr)> = ports
            .iter()
            .flat_map(|(_, backends)| backends.iter().map(tie_of))
            .collect();
        state.retain(|tie, _| wanted.contains(tie));
        let mut tied = |backend: Backend| Pod {
            state: state.entry(tie_of(&backend)).or_default().clone(),
            backend,
        };
        let ports = ports.into_iter().map(|(listen, backends)| Port {
            app_protocol: known
                .protocols
                .get(key)
                .and_then(|all| all.get(&listen.name))
                .cloned(),
            pods: backends.into_iter().map(&mut tied).collect(),
            listen,
        });
        Service {
            key: key.clone(),
            ports: ports.collect(),
            probes: declared.probes,
            room: declared.room,
            in_rotation: declared.in_rotation,
            obstacle: declared.obstacle,
            waiting_page: declared.waiting_page,
            seen,
        }
    }
}

/// Who has the say for each of these services: of two ElastiServices for one the oldest that has ports. One pass,
/// however many they are: a list touches all of them.
fn claims(known: &Known, keys: &HashSet<&ServiceKey>) -> HashMap<ServiceKey, Declared> {
    let rank = |one: &Declared| {
        let created = one.created.as_ref().map(|time| time.0);
        (one.ports.is_empty(), created)
    };
    let mut found: HashMap<ServiceKey, &Declared> = HashMap::with_capacity(keys.len());
    let asked = known
        .declared
        .values()
        .filter(|one| keys.contains(&one.key));
    for one in asked {
        let best = found.entry(one.key.clone()).or_insert(one);
        if rank(one) < rank(best) {
            *best = one;
        }
    }
    let owned = found.into_iter();
    owned.map(|(key, one)| (key, one.clone())).collect()
}

/// The backends of one port. What a pod itself says is newer than what a slice says about it.
fn backends(
    key: &ServiceKey,
    port: &str,
    slices: &[SliceView],
    woken: Option<&WokenPods>,
    neighbours: &BackendFilter,
) -> Vec<Backend> {
    let mut all = woken
        .map(|pods| pods.backends(port, neighbours))
        .unwrap_or_default();
    let knows = |pod: &str| woken.is_some_and(|pods| pods.knows(pod));
    for slice in slices {
        let number = slice
            .ports
            .iter()
            .find(|one| one.name == port)
            .and_then(|one| one.number);
        for endpoint in &slice.endpoints {
            let endpoint = SliceEndpoint {
                port: number,
                ..endpoint.clone()
            };
            match admit(
                &endpoint,
                &key.namespace,
                &neighbours.resolvers,
                neighbours.policy,
            ) {
                Ok(backend)
                    if !knows(&backend.pod)
                        && !all.iter().any(|have| have.address == backend.address) =>
                {
                    all.push(backend);
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::debug!(service = %key, %fault, "an endpoint is not used")
                }
            }
        }
    }
    all
}

fn tie_of(backend: &Backend) -> (String, SocketAddr) {
    (backend.pod.clone(), backend.address)
}

fn forget(known: &mut Known, table: &mut Table, key: &ServiceKey) {
    table.services.remove(key);
    known.seen.remove(key);
    known.state.remove(key);
    known.protocols.remove(key);
    known.woken.remove(key);
}

fn name_of(object: &ElastiService) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}
