//! What this operator remembers of each service between two reconciles, in memory only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use elasti_core::observed::Report;
use elasti_core::stable_since::StableSince;
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::name::Name;
use crate::observe::Memory;
use crate::term::Terms;

/// The memories of one operator.
#[derive(Debug)]
pub(crate) struct Memories {
    clock: Clock,
    terms: Arc<Terms>,
    /// Lasts for one term.
    services: Mutex<HashMap<Name, Memory>>,
    /// When a wake of each service was last requested.
    wake_requests: Mutex<HashMap<Name, Timestamp>>,
    terminating_namespaces: Mutex<HashSet<Arc<str>>>,
    /// The Services of each ElastiService that was reconciled, for when only its name is left; the one that it names first.
    public_services: Mutex<HashMap<Name, Vec<Name>>>,
}

impl Memories {
    pub(crate) fn new(clock: Clock, terms: Arc<Terms>) -> Self {
        Self {
            clock,
            terms,
            services: Mutex::default(),
            wake_requests: Mutex::default(),
            terminating_namespaces: Mutex::default(),
            public_services: Mutex::default(),
        }
    }

    /// What is remembered of a service; nothing but the start of the term if it is new.
    pub(crate) fn get(&self, name: &Name) -> Memory {
        if let Some(memory) = self.services.lock().get(name) {
            return memory.clone();
        }
        let term = self.terms.current();
        let began = term.map_or_else(|| self.clock.now(), |term| term.began);
        let before = term.and_then(|term| term.previous_leader_until);
        Memory {
            stable_since: StableSince::fresh(began, before),
            reports: Vec::new(),
        }
    }

    pub(crate) fn set_stable_since(&self, name: &Name, stable_since: StableSince) {
        let mut memory = self.get(name);
        memory.stable_since = stable_since;
        self.services.lock().insert(name.clone(), memory);
    }

    /// What each resolver last reported about a service, by the resolver's name.
    pub(crate) fn set_reports(&self, name: &Name, reports: BTreeMap<String, Report>) {
        let mut memory = self.get(name);
        memory.reports = reports.into_iter().collect();
        self.services.lock().insert(name.clone(), memory);
    }

    pub(crate) fn wake_requested_at(&self, name: &Name) -> Option<Timestamp> {
        self.wake_requests.lock().get(name).copied()
    }

    /// A wake was requested just now.
    pub(crate) fn set_wake_requested(&self, name: &Name) {
        let now = self.clock.now();
        self.wake_requests.lock().insert(name.clone(), now);
    }

    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating_namespaces.lock().contains(namespace)
    }

    pub(crate) fn set_terminating(&self, namespace: &Arc<str>, terminating: bool) {
        let mut namespaces = self.terminating_namespaces.lock();
        match terminating {
            true => namespaces.insert(namespace.clone()),
            false => namespaces.remove(namespace),
        };
    }

    /// The Services of an ElastiService; gives those that it had before and has no more.
    pub(crate) fn set_public_services(&self, name: &Name, services: Vec<Name>) -> Vec<Name> {
        let mut all = self.public_services.lock();
        let mut gone = all.get(name).cloned().unwrap_or_default();
        gone.retain(|service| !services.contains(service));
        all.insert(name.clone(), services);
        gone
    }

    /// An ElastiService is gone; gives the Services that it had.
    pub(crate) fn forget(&self, name: &Name) -> Vec<Name> {
        self.services.lock().remove(name);
        self.wake_requests.lock().remove(name);
        // A namespace of that name may be made again, and is not going away then.
        self.terminating_namespaces.lock().remove(&name.namespace);
        self.public_services.lock().remove(name).unwrap_or_default()
    }

    /// A term begins or ends: what was seen before it counts for nothing. Gives the services that were remembered.
    pub(crate) fn clear_term(&self) -> Vec<Name> {
        let mut services = self.services.lock();
        services.drain().map(|(name, _)| name).collect()
    }
}
