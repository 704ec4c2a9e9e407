//! Builds the routing table from ElastiServices, slices of private Services and starting pods.
//! Never takes a slice on trust: core admits every backend.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use elasti_api::{ElastiService, ListenPort, Mode, Phase, Reason, Time, names};
use elasti_core::backends::{AddressPolicy, Backend, SliceEndpoint, admit};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::waiting_room::{Limits, RoomLimits};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::follow::Change;
use crate::hold::{Hold, HoldError};
use crate::metrics::Metrics;
use crate::pod::{Pod, PodState};
use crate::promise::Promise;
use crate::protocol::Declared;
use crate::slice::SliceView;
use crate::starting_pods::StartingPods;
use crate::table::{Port, RouteTable, Service, ServiceStats, Table};

/// Which addresses are never backends, besides what core refuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendFilter {
    /// Addresses of resolvers.
    pub(crate) resolvers: BTreeSet<IpAddr>,
    pub(crate) policy: AddressPolicy,
}

/// What the table needs of one Service of an ElastiService: the one that its spec names, or another of the same pods.
#[derive(Clone, Debug)]
struct ServiceConfig {
    key: ServiceKey,
    /// Name of its private Service; a hash is in it, so it is made once.
    private: String,
    created: Option<Time>,
    /// It is not the Service that the spec names.
    other: bool,
    ports: Vec<ListenPort>,
    probes: Arc<ProbeRules>,
    room: RoomLimits,
    in_rotation: bool,
    obstacle: Option<Reason>,
    refuses_when_down: bool,
    waiting_page: bool,
}

type Name = (String, String);
type PodKey = (String, SocketAddr);

/// What the watches have reported, by the objects' names.
#[derive(Debug, Default)]
struct ClusterState {
    /// By namespace and name of the ElastiService; one for each of its Services.
    configs: HashMap<Name, Vec<ServiceConfig>>,
    configs_listed: bool,
    /// By namespace and name of the private Service, then by name of the slice.
    slices: HashMap<Name, HashMap<String, SliceView>>,
    slices_listed: bool,
    starting: HashMap<ServiceKey, StartingPods>,
    promises: HashMap<ServiceKey, Promise>,
    stats: HashMap<ServiceKey, Arc<ServiceStats>>,
    pod_states: HashMap<ServiceKey, HashMap<PodKey, Arc<PodState>>>,
    /// `appProtocol` by port name: slices of a sleeping service name no ports, so the last known one counts.
    protocols: HashMap<ServiceKey, HashMap<String, String>>,
    /// Addresses of resolvers, by name of the slice of their own Service.
    peers: HashMap<String, Vec<IpAddr>>,
    /// From the settings, and the peers.
    filter: BackendFilter,
}

impl ClusterState {
    fn configs(&self) -> impl Iterator<Item = &ServiceConfig> {
        self.configs.values().flatten()
    }
}

/// Publishes a new table for each change in the cluster.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) table: RouteTable,
    cluster: Mutex<ClusterState>,
    hold: Arc<Hold>,
    limits: Limits,
    /// From the settings.
    filter: BackendFilter,
    metrics: Arc<Metrics>,
    changed: watch::Sender<()>,
}

impl Routes {
    pub(crate) fn new(
        table: RouteTable,
        hold: Arc<Hold>,
        limits: Limits,
        filter: BackendFilter,
        metrics: Arc<Metrics>,
    ) -> Self {
        let cluster = ClusterState {
            filter: filter.clone(),
            ..ClusterState::default()
        };
        Self {
            table,
            cluster: Mutex::new(cluster),
            hold,
            limits,
            filter,
            metrics,
            changed: watch::Sender::new(()),
        }
    }

    /// Notifies after every new table.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// A change among the ElastiServices of one namespace, or of all.
    pub(crate) fn apply_elasti_services(&self, scope: Option<&str>, change: Change<ElastiService>) {
        let mut cluster = self.cluster.lock();
        let mut touched = Vec::new();
        match change {
            Change::All(all) => {
                touched.extend(cluster.configs().map(|one| one.key.clone()));
                cluster
                    .configs
                    .retain(|(namespace, _), _| scope.is_some_and(|scope| scope != namespace));
                for object in &all {
                    let configs = self.parse_configs(object);
                    touched.extend(configs.iter().map(|one| one.key.clone()));
                    cluster.configs.insert(object_name(object), configs);
                }
                cluster.configs_listed = true;
            }
            Change::Set(object) => {
                let configs = self.parse_configs(&object);
                touched.extend(configs.iter().map(|one| one.key.clone()));
                let before = cluster.configs.insert(object_name(&object), configs);
                touched.extend(before.into_iter().flatten().map(|one| one.key));
            }
            Change::Deleted(object) => {
                let before = cluster.configs.remove(&object_name(&object));
                touched.extend(before.into_iter().flatten().map(|one| one.key));
            }
        }
        touched.sort();
        touched.dedup();
        self.publish(&mut cluster, &touched);
    }

    /// A change among the slices of private Services of one namespace, or of all.
    pub(crate) fn apply_slices(&self, scope: Option<&str>, change: Change<EndpointSlice>) {
        let mut cluster = self.cluster.lock();
        let mut touched = BTreeSet::new();
        let slice_name = |object: &EndpointSlice| {
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
                touched.extend(cluster.slices.keys().cloned());
                cluster
                    .slices
                    .retain(|(namespace, _), _| scope.is_some_and(|scope| scope != namespace));
                for object in &all {
                    let (service, name) = slice_name(object);
                    cluster
                        .slices
                        .entry(service.clone())
                        .or_default()
                        .insert(name, SliceView::from_slice(object));
                    touched.insert(service);
                }
                cluster.slices_listed = true;
            }
            Change::Set(object) => {
                let (service, name) = slice_name(&object);
                cluster
                    .slices
                    .entry(service.clone())
                    .or_default()
                    .insert(name, SliceView::from_slice(&object));
                touched.insert(service);
            }
            Change::Deleted(object) => {
                let (service, name) = slice_name(&object);
                if let Some(slices) = cluster.slices.get_mut(&service) {
                    slices.remove(&name);
                    if slices.is_empty() {
                        cluster.slices.remove(&service);
                    }
                }
                touched.insert(service);
            }
        }
        let touched: HashSet<(&str, &str)> = touched
            .iter()
            .map(|(namespace, name)| (namespace.as_str(), name.as_str()))
            .collect();
        let has_touched_slice = |one: &&ServiceConfig| {
            touched.contains(&(one.key.namespace.as_str(), one.private.as_str()))
        };
        let keys: Vec<ServiceKey> = cluster
            .configs()
            .filter(has_touched_slice)
            .map(|one| one.key.clone())
            .collect();
        self.publish(&mut cluster, &keys);
    }

    /// A change among the slices of the resolvers' own Service. Every route is built anew: a pod that turns out to be a
    /// resolver is no backend from now on.
    pub(crate) fn apply_peers(&self, change: Change<EndpointSlice>) {
        let mut cluster = self.cluster.lock();
        let addresses = |object: &EndpointSlice| {
            let all = object.endpoints.iter().flat_map(|one| &one.addresses);
            all.filter_map(|address| address.parse().ok()).collect()
        };
        match change {
            Change::All(all) => {
                let named = all.iter().map(|one| (one.name_any(), addresses(one)));
                cluster.peers = named.collect();
            }
            Change::Set(one) => drop(cluster.peers.insert(one.name_any(), addresses(&one))),
            Change::Deleted(one) => drop(cluster.peers.remove(&one.name_any())),
        }
        let mut filter = self.filter.clone();
        filter
            .resolvers
            .extend(cluster.peers.values().flatten().map(IpAddr::to_canonical));
        if filter.resolvers == cluster.filter.resolvers {
            return;
        }
        cluster.filter = filter;
        let keys: Vec<ServiceKey> = cluster.configs().map(|one| one.key.clone()).collect();
        self.publish(&mut cluster, &keys);
    }

    /// The pods of a service while it is being woken; `None` once that is over.
    pub(crate) fn set_starting_pods(&self, key: &ServiceKey, pods: Option<StartingPods>) {
        let mut cluster = self.cluster.lock();
        match pods {
            Some(pods) => {
                let protocols = cluster.protocols.entry(key.clone()).or_default();
                protocols.extend(pods.protocols.clone());
                cluster.starting.insert(key.clone(), pods);
            }
            None => drop(cluster.starting.remove(key)),
        }
        self.publish(&mut cluster, std::slice::from_ref(key));
    }

    /// The leader stops none of these pods for a while.
    pub(crate) fn set_promise(&self, key: &ServiceKey, promise: Promise) {
        let mut cluster = self.cluster.lock();
        let now = Instant::now();
        cluster.promises.retain(|_, one| now < one.until);
        cluster.promises.insert(key.clone(), promise);
        self.publish(&mut cluster, std::slice::from_ref(key));
    }

    /// The slices themselves show a pod that can be used.
    pub(crate) fn slices_show_a_pod(&self, key: &ServiceKey) -> bool {
        let cluster = self.cluster.lock();
        let private = (key.namespace.clone(), names::private_service(&key.service));
        let slices = cluster
            .slices
            .get(&private)
            .into_iter()
            .flat_map(HashMap::values);
        slices.flat_map(|slice| &slice.endpoints).any(|endpoint| {
            endpoint.ready.unwrap_or(true) && !endpoint.terminating.unwrap_or(false)
        })
    }

    /// All Services of one ElastiService.
    fn parse_configs(&self, object: &ElastiService) -> Vec<ServiceConfig> {
        let named = self.parse_config(object);
        let others = object.status.iter().flat_map(|status| &status.services);
        let others = others.filter(|other| other.name != named.key.service);
        let mut configs: Vec<ServiceConfig> = others
            .map(|other| ServiceConfig {
                private: names::private_service(&other.name),
                key: ServiceKey::new(named.key.namespace.clone(), other.name.clone()),
                other: true,
                ports: other.ports.clone(),
                ..named.clone()
            })
            .collect();
        configs.push(named);
        configs
    }

    fn parse_config(&self, object: &ElastiService) -> ServiceConfig {
        let spec = &object.spec;
        let status = object.status.clone().unwrap_or_default();
        let key = ServiceKey::new(object.namespace().unwrap_or_default(), spec.service.clone());
        let (probes, invalid) = ProbeRules::compile(&spec.probe_response);
        for rule in invalid {
            tracing::warn!(service = %key, %rule, "invalid probe rule ignored");
        }
        let reason = status.reason.as_deref().and_then(Reason::from_word);
        let obstacle = reason.filter(|reason| reason.is_obstacle());
        let in_rotation = status.mode == Some(Mode::Serve);
        let holds_when_down = spec.hold.as_ref().and_then(|hold| hold.when_down);
        ServiceConfig {
            private: names::private_service(&key.service),
            key,
            created: object.metadata.creation_timestamp.clone(),
            other: false,
            ports: status.ports,
            probes: Arc::new(probes),
            room: self.limits.room(spec.hold.as_ref()),
            in_rotation,
            refuses_when_down: in_rotation && holds_when_down == Some(false),
            obstacle: obstacle.filter(|_| status.phase == Some(Phase::Waking)),
            waiting_page: spec.waiting_page.unwrap_or_default(),
        }
    }

    /// Rebuilds the touched services, publishes the new table, then releases or refuses what is held for them.
    fn publish(&self, cluster: &mut ClusterState, touched: &[ServiceKey]) {
        let mut table = Table::clone(&self.table.load());
        table.loaded = cluster.configs_listed && cluster.slices_listed;
        let touched_keys: HashSet<&ServiceKey> = touched.iter().collect();
        table
            .listen_ports
            .retain(|_, owner| !touched_keys.contains(owner));
        let mut claims = claims(cluster, &touched_keys);
        for key in touched_keys.iter().copied() {
            let config = claims.remove(key);
            match config.map(|config| self.build(cluster, key, config)) {
                Some(service) => {
                    let in_rotation = service.in_rotation;
                    let before = table.services.insert(key.clone(), Arc::new(service));
                    if before.is_some_and(|before| before.in_rotation != in_rotation) {
                        self.metrics.switched(key, in_rotation);
                    }
                }
                None => {
                    forget(cluster, &mut table, key);
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
                None => self.hold.refuse_all(key, HoldError::Deleted),
                Some(service) if service.ready_pods() == 0 => {
                    if let Some(reason) = service.obstacle {
                        self.hold.refuse_all(key, HoldError::Obstacle(reason));
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn build(
        &self,
        cluster: &mut ClusterState,
        key: &ServiceKey,
        config: ServiceConfig,
    ) -> Service {
        let stats = cluster.stats.entry(key.clone()).or_default().clone();
        let private = (key.namespace.clone(), names::private_service(&key.service));
        let slices: Vec<SliceView> = cluster
            .slices
            .get(&private)
            .into_iter()
            .flat_map(HashMap::values)
            .cloned()
            .collect();
        let protocols = cluster.protocols.entry(key.clone()).or_default();
        for port in slices.iter().flat_map(|slice| &slice.ports) {
            if let Some(protocol) = &port.app_protocol {
                protocols.insert(port.name.clone(), protocol.clone());
            }
        }
        let mut ports = Vec::with_capacity(config.ports.len());
        for listen in config.ports {
            let starting = cluster.starting.get(key);
            let backends = backends(key, &listen.name, &slices, starting, &cluster.filter);
            ports.push((listen, backends));
        }
        let states = cluster.pod_states.entry(key.clone()).or_default();
        let wanted: BTreeSet<PodKey> = ports
            .iter()
            .flat_map(|(_, backends)| backends.iter().map(pod_key))
            .collect();
        states.retain(|key, _| wanted.contains(key));
        let promise = cluster.promises.get(key);
        let mut to_pod = |backend: Backend| Pod {
            state: states.entry(pod_key(&backend)).or_default().clone(),
            promised_until: promise.and_then(|promise| promise.covers(&backend.uid)),
            backend,
        };
        let protocols = cluster.protocols.get(key);
        let ports = ports.into_iter().map(|(listen, backends)| Port {
            declared: Declared::from_app_protocol(
                protocols
                    .and_then(|all| all.get(&listen.name))
                    .map(String::as_str),
            ),
            pods: backends.into_iter().map(&mut to_pod).collect(),
            listen,
        });
        Service {
            key: key.clone(),
            ports: ports.collect(),
            probes: config.probes,
            room: config.room,
            in_rotation: config.in_rotation,
            obstacle: config.obstacle,
            refuses_when_down: config.refuses_when_down,
            waiting_page: config.waiting_page,
            stats,
        }
    }
}

/// Which ElastiService counts for each of these services: of two for one, the oldest that has ports, and one that names
/// it before one whose pods it selects as well. One pass, however
/// many they are: a list touches all of them.
fn claims(
    cluster: &ClusterState,
    keys: &HashSet<&ServiceKey>,
) -> HashMap<ServiceKey, ServiceConfig> {
    let rank = |one: &ServiceConfig| {
        let created = one.created.as_ref().map(|time| time.0);
        (one.ports.is_empty(), one.other, created)
    };
    let mut found: HashMap<ServiceKey, &ServiceConfig> = HashMap::with_capacity(keys.len());
    let candidates = cluster.configs().filter(|one| keys.contains(&one.key));
    for one in candidates {
        let best = found.entry(one.key.clone()).or_insert(one);
        if rank(one) < rank(best) {
            *best = one;
        }
    }
    let owned = found.into_iter();
    owned.map(|(key, one)| (key, one.clone())).collect()
}

/// The backends of one port. A pod itself is newer than a slice that names it.
fn backends(
    key: &ServiceKey,
    port: &str,
    slices: &[SliceView],
    starting: Option<&StartingPods>,
    filter: &BackendFilter,
) -> Vec<Backend> {
    let mut all = starting
        .map(|pods| pods.backends(port, filter))
        .unwrap_or_default();
    let is_starting = |pod: &str| starting.is_some_and(|pods| pods.contains(pod));
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
            match admit(&endpoint, &key.namespace, &filter.resolvers, filter.policy) {
                Ok(backend)
                    if !is_starting(&backend.pod)
                        && !all.iter().any(|have| have.address == backend.address) =>
                {
                    all.push(backend);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(service = %key, %error, "endpoint not admitted")
                }
            }
        }
    }
    all
}

fn pod_key(backend: &Backend) -> PodKey {
    (backend.pod.clone(), backend.address)
}

fn forget(cluster: &mut ClusterState, table: &mut Table, key: &ServiceKey) {
    table.services.remove(key);
    cluster.stats.remove(key);
    cluster.pod_states.remove(key);
    cluster.protocols.remove(key);
    cluster.starting.remove(key);
    cluster.promises.remove(key);
}

fn object_name(object: &ElastiService) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}
