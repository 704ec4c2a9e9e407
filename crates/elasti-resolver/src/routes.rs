//! Builds the routing table from ElastiServices, slices of private Services and starting pods.
//! Never takes a slice on trust: core admits every backend.

mod cluster_state;

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use elasti_api::{AllowFrom, ListenPort, Mode, Phase};
use elasti_core::backends::{AddressPolicy, Backend, SliceEndpoint, admit, check_address};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::sources::SourceRule;
use elasti_core::waiting_room::Limits;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::elasti_service::ElastiServiceView;
use crate::follow::Change;
use crate::hold::{Hold, HoldError};
use crate::metrics::Metrics;
use crate::pod::Pod;
use crate::promise::Promise;
use crate::protocol::Declared;
use crate::slice::{NamedSlice, SliceView};
use crate::starting_pods::StartingPods;
use crate::table::{Port, RouteTable, Service, Update};

use self::cluster_state::{Claimed, ClusterState, Name, PodKey, ServiceConfig};

/// Which addresses are never backends, besides what core refuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackendFilter {
    /// Addresses of resolvers.
    pub(crate) resolvers: BTreeSet<IpAddr>,
    pub(crate) policy: AddressPolicy,
}

/// What counts for services whose spec does not say.
#[derive(Clone, Debug)]
pub(crate) struct ServiceDefaults {
    pub(crate) limits: Limits,
    /// Which sources are accepted; `None`: all.
    pub(crate) allow_from: Option<AllowFrom>,
}

/// Brings the table up to date with each change in the cluster.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) table: RouteTable,
    cluster: Mutex<ClusterState>,
    hold: Arc<Hold>,
    defaults: ServiceDefaults,
    /// From the settings.
    filter: BackendFilter,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Routes {
    pub(crate) fn new(
        table: RouteTable,
        hold: Arc<Hold>,
        defaults: ServiceDefaults,
        filter: BackendFilter,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        Self {
            table,
            cluster: Mutex::new(ClusterState::new(filter.clone())),
            hold,
            defaults,
            filter,
            metrics,
            clock,
        }
    }

    /// A change among the ElastiServices of one namespace, or of all.
    pub(crate) fn apply_elasti_services(
        &self,
        scope: Option<&str>,
        change: Change<ElastiServiceView>,
    ) {
        let mut cluster = self.cluster.lock();
        let mut touched = BTreeSet::new();
        let mut set = |cluster: &mut ClusterState, object: &ElastiServiceView| {
            let configs = self.parse_configs(object);
            cluster.set_configs(object_name(object), configs, &mut touched);
        };
        match change {
            Change::All(all) => {
                let listed: HashSet<Name> = all.iter().map(object_name).collect();
                all.iter().for_each(|object| set(&mut cluster, object));
                cluster.configs_listed = true;
                let gone = cluster.names(scope).into_iter();
                for name in gone.filter(|name| !listed.contains(name)) {
                    cluster.remove_configs(&name, &mut touched);
                }
            }
            Change::Set(object) => set(&mut cluster, &object),
            Change::Deleted(object) => {
                cluster.remove_configs(&object_name(&object), &mut touched);
            }
        }
        self.publish(&mut cluster, touched);
    }

    /// A change among the slices of private Services of one namespace, or of all.
    pub(crate) fn apply_slices(&self, scope: Option<&str>, change: Change<NamedSlice>) {
        let mut cluster = self.cluster.lock();
        let mut touched = BTreeSet::new();
        match change {
            Change::All(all) => {
                let mut listed: HashSet<(ServiceKey, String)> = HashSet::with_capacity(all.len());
                for NamedSlice {
                    service,
                    name,
                    view,
                } in all
                {
                    touched.extend(cluster.set_slice(service.clone(), name.clone(), view));
                    listed.insert((service, name));
                }
                for private in cluster.privates(scope) {
                    let gone = |name: &str| {
                        let slice = (ServiceKey::clone(&private), name.to_owned());
                        !listed.contains(&slice)
                    };
                    touched.extend(cluster.remove_slices(&private, gone));
                }
                cluster.slices_listed = true;
            }
            Change::Set(one) => touched.extend(cluster.set_slice(one.service, one.name, one.view)),
            Change::Deleted(gone) => {
                touched.extend(cluster.remove_slices(&gone.service, |one| one == gone.name));
            }
        }
        self.publish(&mut cluster, touched);
    }

    /// A change among the slices of the resolvers' own Service: a pod that turns out to be a resolver is no backend from
    /// now on.
    pub(crate) fn apply_peers(&self, change: Change<NamedSlice>) {
        let mut cluster = self.cluster.lock();
        let addresses = |view: &SliceView| {
            let all = view.endpoints.iter().map(|one| &one.address);
            all.filter_map(|address| address.parse().ok()).collect()
        };
        match change {
            Change::All(all) => {
                let named = all.into_iter().map(|one| (one.name, addresses(&one.view)));
                cluster.peers = named.collect();
            }
            Change::Set(one) => drop(cluster.peers.insert(one.name, addresses(&one.view))),
            Change::Deleted(one) => drop(cluster.peers.remove(&one.name)),
        }
        let mut filter = self.filter.clone();
        filter
            .resolvers
            .extend(cluster.peers.values().flatten().map(IpAddr::to_canonical));
        if filter.resolvers == cluster.filter.resolvers {
            return;
        }
        let before = std::mem::replace(&mut cluster.filter, filter).resolvers;
        let changed = &before ^ &cluster.filter.resolvers;
        let touched = cluster.with_address(&changed);
        self.publish(&mut cluster, touched);
    }

    /// The pods of a service while it is being woken; `None` once that is over.
    pub(crate) fn set_starting_pods(&self, key: &ServiceKey, pods: Option<StartingPods>) {
        let mut cluster = self.cluster.lock();
        let key = cluster.key(key);
        match pods {
            Some(pods) => {
                if let Some(claimed) = cluster.claimed_mut(&key) {
                    claimed.protocols.extend(pods.protocols.clone());
                }
                cluster.starting.insert(key.clone(), pods);
            }
            None => drop(cluster.starting.remove(&key)),
        }
        self.publish(&mut cluster, [key].into());
    }

    /// The leader stops none of these pods for a while.
    pub(crate) fn set_promise(&self, key: &ServiceKey, promise: Promise) {
        let mut cluster = self.cluster.lock();
        let key = cluster.key(key);
        let now = Instant::now();
        cluster.promises.retain(|_, one| now < one.until);
        cluster.promises.insert(key.clone(), promise);
        self.publish(&mut cluster, [key].into());
    }

    /// The address in its plain form, if a pod may have it.
    pub(crate) fn checked(&self, address: IpAddr) -> Option<IpAddr> {
        let filter = &self.cluster.lock().filter;
        check_address(address, &filter.resolvers, filter.policy).ok()
    }

    /// The slices themselves show a pod that can be used.
    pub(crate) fn slices_show_a_pod(&self, key: &ServiceKey) -> bool {
        let cluster = self.cluster.lock();
        let slices = cluster.slices(key);
        let mut endpoints = slices.flat_map(|slice| &slice.endpoints);
        endpoints.any(|endpoint| {
            endpoint.ready.unwrap_or(true) && !endpoint.terminating.unwrap_or(false)
        })
    }

    /// All Services of one ElastiService.
    fn parse_configs(&self, object: &ElastiServiceView) -> Vec<ServiceConfig> {
        let named = self.parse_config(object);
        // Nearly always there is one: a vector that grew to it would have room for four.
        let mut configs = Vec::with_capacity(1 + object.others.len());
        configs.extend(object.others.iter().map(|other| ServiceConfig {
            key: Arc::new(ServiceKey::new(
                named.key.namespace.clone(),
                other.name.clone(),
            )),
            other: true,
            ports: other.ports.clone(),
            ..named.clone()
        }));
        configs.push(named);
        configs
    }

    fn parse_config(&self, object: &ElastiServiceView) -> ServiceConfig {
        let hold = object.hold.as_ref();
        let key = ServiceKey::new(object.namespace.clone(), object.service.name.clone());
        let (probes, invalid) = ProbeRules::compile(&object.probe_response);
        for rule in invalid {
            tracing::warn!(service = %key, %rule, "invalid probe rule ignored");
        }
        let allow_from = hold.and_then(|hold| hold.allow_from.as_ref());
        let allow_from = allow_from.or(self.defaults.allow_from.as_ref());
        let allow_from = allow_from.map(|allowed| {
            let (rule, invalid) = SourceRule::new(allowed, &key.namespace);
            for error in invalid {
                tracing::warn!(service = %key, %error, "entry of allowFrom ignored");
            }
            Arc::new(rule)
        });
        let reason = { object.reason }.filter(|_| object.phase == Some(Phase::Waking));
        let in_rotation = object.mode == Some(Mode::Serve);
        let holds_when_down = hold.and_then(|hold| hold.when_down);
        ServiceConfig {
            key: Arc::new(key),
            created: object.created.clone(),
            other: false,
            ports: object.service.ports.clone(),
            probes: Arc::new(probes),
            room: self.defaults.limits.room(hold),
            in_rotation,
            refuses_when_down: in_rotation && holds_when_down == Some(false),
            obstacle: reason.filter(|reason| reason.is_obstacle()),
            delay: reason.filter(|reason| reason.is_delay()),
            waiting_page: object.waiting_page,
            probe_ahead: object.probe_ahead,
            allow_from,
        }
    }

    /// Rebuilds the touched services, puts them into the table, then releases or refuses what is held for them.
    fn publish(&self, cluster: &mut ClusterState, touched: BTreeSet<Arc<ServiceKey>>) {
        let updates = touched.into_iter().map(|key| {
            let service = { cluster.config(&key) }.and_then(|one| self.build(cluster, &key, one));
            if service.is_none() {
                cluster.forget(&key);
            }
            (key, service.map(Arc::new))
        });
        let updates = updates.collect();
        let loaded = cluster.configs_listed && cluster.slices_listed;
        for update in self.table.update(loaded, updates) {
            self.follow_up(&update);
        }
    }

    fn follow_up(&self, Update { key, before, after }: &Update) {
        if let (Some(before), Some(after)) = (before, after)
            && before.in_rotation != after.in_rotation
        {
            self.metrics.switched(key, after.in_rotation);
        }
        self.hold.advance_all(key);
        match after {
            None => {
                self.metrics.forget(key);
                self.hold.refuse_all(key, HoldError::Deleted);
            }
            Some(service) if service.ready_pods() == 0 => {
                if let Some(reason) = service.obstacle {
                    self.hold.refuse_all(key, HoldError::Obstacle(reason));
                }
            }
            Some(_) => {}
        }
    }

    fn build(
        &self,
        cluster: &mut ClusterState,
        key: &Arc<ServiceKey>,
        config: ServiceConfig,
    ) -> Option<Service> {
        let slices: Vec<SliceView> = cluster.slices(key).cloned().collect();
        let starting = cluster.starting.get(key);
        let listens = config.ports.into_iter().map(|listen| {
            let backends = backends(key, &listen.name, &slices, starting, &cluster.filter);
            (listen, backends)
        });
        let ports: Vec<(ListenPort, Vec<(Backend, Source)>)> = listens.collect();
        let promise = cluster.promises.get(key).cloned();
        let Claimed {
            stats,
            pod_states: states,
            protocols,
            waiters,
            ..
        } = cluster.claimed_mut(key)?;
        for port in slices.iter().flat_map(|slice| &slice.ports) {
            if let Some(protocol) = &port.app_protocol {
                protocols.insert(port.name.clone(), protocol.clone());
            }
        }
        let wanted: BTreeSet<PodKey> = ports
            .iter()
            .flat_map(|(_, backends)| backends.iter().map(|(one, _)| pod_key(one)))
            .collect();
        states.retain(|key, _| wanted.contains(key));
        waiters.retain(|(port, _)| ports.iter().any(|(listen, _)| listen.listen_port == *port));
        let mut to_pod = |(backend, source): (Backend, Source)| {
            let state = states.entry(pod_key(&backend)).or_default().clone();
            if source == Source::Pod && backend.usable() {
                state.standing.set_known(self.clock);
            }
            let promised_until = { promise.as_ref() }.and_then(|one| one.covers(&backend.uid));
            Pod {
                backend,
                promised_until,
                state,
            }
        };
        let ports = ports.into_iter().map(|(listen, backends)| Port {
            declared: Declared::from_app_protocol(protocols.get(&listen.name).map(String::as_str)),
            pods: backends.into_iter().map(&mut to_pod).collect(),
            waiters: waiters_of(waiters, listen.listen_port),
            listen,
        });
        Some(Service {
            key: key.clone(),
            created: config.created.map(|time| time.0),
            ports: ports.collect(),
            probes: config.probes,
            room: config.room,
            in_rotation: config.in_rotation,
            obstacle: config.obstacle,
            delay: config.delay,
            refuses_when_down: config.refuses_when_down,
            waiting_page: config.waiting_page,
            probe_ahead: config.probe_ahead,
            allow_from: config.allow_from,
            stats: stats.clone(),
        })
    }
}

/// How many requests are held for this port.
fn waiters_of(all: &mut Vec<(u16, Arc<AtomicU32>)>, port: u16) -> Arc<AtomicU32> {
    if let Some((_, waiters)) = all.iter().find(|(one, _)| *one == port) {
        return waiters.clone();
    }
    let waiters = Arc::<AtomicU32>::default();
    all.reserve_exact(1);
    all.push((port, waiters.clone()));
    waiters
}

/// Where a backend is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The pod itself, so the address is its own.
    Pod,
    Slice,
}

/// The backends of one port. A pod itself is newer than a slice that names it.
fn backends(
    key: &ServiceKey,
    port: &str,
    slices: &[SliceView],
    starting: Option<&StartingPods>,
    filter: &BackendFilter,
) -> Vec<(Backend, Source)> {
    let starting_backends = starting
        .map(|pods| pods.backends(port, filter))
        .unwrap_or_default();
    let mut all: Vec<(Backend, Source)> = { starting_backends.into_iter() }
        .map(|one| (one, Source::Pod))
        .collect();
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
                        && !all.iter().any(|(have, _)| have.address == backend.address) =>
                {
                    all.push((backend, Source::Slice));
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
    (backend.uid.clone(), backend.address)
}

fn object_name(object: &ElastiServiceView) -> Name {
    (object.namespace.clone(), object.name.clone())
}
