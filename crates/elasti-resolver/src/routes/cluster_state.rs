//! What the watches have reported, indexed so that a change finds the services that it concerns and no
//! others.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use elasti_api::{ListenPort, Reason, Time, names};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRules;
use elasti_core::sources::SourceRule;
use elasti_core::waiting_room::RoomLimits;

use super::BackendFilter;
use crate::pod::PodState;
use crate::promise::Promise;
use crate::slice::SliceView;
use crate::starting_pods::StartingPods;
use crate::table::ServiceStats;

/// Namespace and name of an ElastiService.
pub(super) type Name = (String, String);
/// The uid of a pod, and one of its addresses.
pub(super) type PodKey = (String, SocketAddr);

/// What the table needs of one Service of an ElastiService: the one that its spec names, or another of the same pods.
#[derive(Clone, Debug)]
pub(super) struct ServiceConfig {
    pub(super) key: Arc<ServiceKey>,
    pub(super) created: Option<Time>,
    /// It is not the Service that the spec names.
    pub(super) other: bool,
    pub(super) ports: Vec<ListenPort>,
    pub(super) probes: Arc<ProbeRules>,
    pub(super) room: RoomLimits,
    pub(super) in_rotation: bool,
    pub(super) obstacle: Option<Reason>,
    pub(super) delay: Option<Reason>,
    pub(super) refuses_when_down: bool,
    pub(super) waiting_page: bool,
    pub(super) probe_ahead: bool,
    pub(super) allow_from: Option<Arc<SourceRule>>,
}

/// One Service that an ElastiService claims.
#[derive(Debug)]
pub(super) struct Claimed {
    /// Its private Service; a hash is in the name, so it is made once.
    private: Arc<ServiceKey>,
    /// The ElastiServices that claim it; more than one is a conflict.
    claimants: Vec<Name>,
    pub(super) stats: Arc<ServiceStats>,
    pub(super) pod_states: HashMap<PodKey, Arc<PodState>>,
    /// `appProtocol` by port name: slices of a sleeping service name no ports, so the last known one counts.
    pub(super) protocols: HashMap<String, String>,
    /// How many requests are held for each listen port.
    pub(super) waiters: Vec<(u16, Arc<AtomicU32>)>,
}

/// The slices of one private Service, by their names, and whose it is.
#[derive(Debug, Default)]
struct PrivateService {
    of: Option<Arc<ServiceKey>>,
    slices: Vec<(String, SliceView)>,
}

/// What the watches have reported.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    /// One for each of its Services.
    configs: HashMap<Name, Vec<ServiceConfig>>,
    pub(super) configs_listed: bool,
    claimed: HashMap<Arc<ServiceKey>, Claimed>,
    /// By namespace and name of the private Service.
    private: HashMap<Arc<ServiceKey>, PrivateService>,
    pub(super) slices_listed: bool,
    pub(super) starting: HashMap<Arc<ServiceKey>, StartingPods>,
    pub(super) promises: HashMap<Arc<ServiceKey>, Promise>,
    /// Addresses of resolvers, by name of the slice of their own Service.
    pub(super) peers: HashMap<String, Vec<IpAddr>>,
    /// From the settings, and the peers.
    pub(super) filter: BackendFilter,
}

impl ClusterState {
    pub(super) fn new(filter: BackendFilter) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// The one copy of this key.
    pub(super) fn key(&self, key: &ServiceKey) -> Arc<ServiceKey> {
        let known = self.claimed.get_key_value(key).map(|(key, _)| key.clone());
        known.unwrap_or_else(|| Arc::new(key.clone()))
    }

    /// The ElastiServices of one namespace, or of all.
    pub(super) fn names(&self, scope: Option<&str>) -> Vec<Name> {
        let names = self.configs.keys();
        let in_scope = |(namespace, _): &&Name| scope.is_none_or(|scope| scope == namespace);
        names.filter(in_scope).cloned().collect()
    }

    /// This ElastiService has these Services from now on; `touched` gets what it had, and what it has.
    pub(super) fn set_configs(
        &mut self,
        name: Name,
        mut configs: Vec<ServiceConfig>,
        touched: &mut BTreeSet<Arc<ServiceKey>>,
    ) {
        self.remove_configs(&name, touched);
        for config in &mut configs {
            config.key = self.key(&config.key);
            let key = &config.key;
            let claimed = self.claimed.entry(key.clone()).or_insert_with(|| {
                let private = names::private_service(&key.service);
                let private = Arc::new(ServiceKey::new(key.namespace.clone(), private));
                let found = self.private.entry(private.clone()).or_default();
                found.of = Some(key.clone());
                Claimed {
                    private,
                    claimants: Vec::with_capacity(1),
                    stats: Arc::default(),
                    pod_states: HashMap::new(),
                    protocols: HashMap::new(),
                    waiters: Vec::new(),
                }
            });
            claimed.claimants.push(name.clone());
            touched.insert(key.clone());
        }
        self.configs.insert(name, configs);
    }

    /// This ElastiService is gone.
    pub(super) fn remove_configs(&mut self, name: &Name, touched: &mut BTreeSet<Arc<ServiceKey>>) {
        for config in self.configs.remove(name).into_iter().flatten() {
            if let Some(claimed) = self.claimed.get_mut(&config.key) {
                claimed.claimants.retain(|one| one != name);
            }
            touched.insert(config.key);
        }
    }

    /// The private Services of one namespace, or of all.
    pub(super) fn privates(&self, scope: Option<&str>) -> Vec<Arc<ServiceKey>> {
        let keys = self.private.keys();
        let in_scope = |key: &&Arc<ServiceKey>| scope.is_none_or(|scope| scope == key.namespace);
        keys.filter(in_scope).cloned().collect()
    }

    /// Sets one slice of a private Service; gives back the Service whose it is, if that is known.
    pub(super) fn set_slice(
        &mut self,
        private: ServiceKey,
        name: String,
        view: SliceView,
    ) -> Option<Arc<ServiceKey>> {
        let found = self.private.entry(Arc::new(private)).or_default();
        match found.slices.iter_mut().find(|(one, _)| *one == name) {
            Some((_, slice)) => *slice = view,
            None => {
                found.slices.reserve_exact(1);
                found.slices.push((name, view));
            }
        }
        found.of.clone()
    }

    /// Removes the slices of a private Service that `gone` selects; gives back the Service whose it is, if that is known.
    pub(super) fn remove_slices(
        &mut self,
        private: &ServiceKey,
        gone: impl Fn(&str) -> bool,
    ) -> Option<Arc<ServiceKey>> {
        let found = self.private.get_mut(private)?;
        found.slices.retain(|(name, _)| !gone(name));
        let of = found.of.clone();
        if of.is_none() && found.slices.is_empty() {
            self.private.remove(private);
        }
        of
    }

    /// The slices of the private Service of this one.
    pub(super) fn slices(&self, key: &ServiceKey) -> impl Iterator<Item = &SliceView> {
        let private = self.claimed.get(key).map(|claimed| &claimed.private);
        let found = private.and_then(|private| self.private.get(private));
        let slices = found.into_iter().flat_map(|found| &found.slices);
        slices.map(|(_, slice)| slice)
    }

    /// The Services that have one of these addresses behind them, or that pods start for.
    pub(super) fn with_address(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<Arc<ServiceKey>> {
        let is_one = |address: &str| {
            let parsed = address.parse::<IpAddr>();
            parsed.is_ok_and(|address| addresses.contains(&address.to_canonical()))
        };
        let has_one = |found: &&PrivateService| {
            let mut endpoints = found.slices.iter().flat_map(|(_, slice)| &slice.endpoints);
            endpoints.any(|endpoint| is_one(&endpoint.address))
        };
        let behind = self.private.values().filter(has_one);
        let behind = behind.filter_map(|found| found.of.clone());
        behind.chain(self.starting.keys().cloned()).collect()
    }

    pub(super) fn claimed_mut(&mut self, key: &ServiceKey) -> Option<&mut Claimed> {
        self.claimed.get_mut(key)
    }

    /// Which ElastiService counts for this Service: of two for one, the oldest that has ports, and one that names it
    /// before one whose pods it selects as well.
    pub(super) fn config(&self, key: &ServiceKey) -> Option<ServiceConfig> {
        let claimants = { self.claimed.get(key)? }.claimants.iter();
        let configs = claimants.filter_map(|name| self.configs.get(name));
        let configs = configs.flatten().filter(|one| *one.key == *key);
        let rank = |one: &&ServiceConfig| {
            let created = one.created.as_ref().map(|time| time.0);
            (one.ports.is_empty(), one.other, created)
        };
        configs.min_by_key(rank).cloned()
    }

    /// Nothing claims this Service any more.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        self.starting.remove(key);
        self.promises.remove(key);
        let Some(claimed) = self.claimed.remove(key) else {
            return;
        };
        if let Some(found) = self.private.get_mut(&claimed.private) {
            found.of = None;
            if found.slices.is_empty() {
                self.private.remove(&claimed.private);
            }
        }
    }
}
