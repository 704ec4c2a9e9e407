//! What the parts of one running operator share.
//! Never holds a rule of its own: every part has its file.

mod running;
mod tasks;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use elasti_core::idle;
use elasti_core::observed::{Leadership, Report};
use elasti_core::ports::{PortAllocator, ServiceKey};
use elasti_core::stable_since::StableSince;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::activity::Reports;
use crate::clock::Clock;
use crate::health::Pulses;
use crate::metrics::Metrics;
use crate::name::{KindName, Name};
use crate::observe::Memory;
use crate::permissions::Permissions;
use crate::queue::Queue;
use crate::report;
use crate::scale_locks::ScaleLocks;
use crate::settings::Settings;
use crate::slim::Declared;
use crate::store::{Change, Kept, Store};
use crate::targets::Kinds;
use crate::triggers::Readings;
use crate::wake::WakeOutcome;

pub use running::{NoStart, Running};

const TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which this process leads without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    began: Timestamp,
    watched_before_until: Option<Timestamp>,
}

/// What the parts of an operator share.
pub(crate) struct Operator {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) queue: Queue,
    pub(crate) kinds: Kinds,
    pub(crate) scale_locks: ScaleLocks,
    pub(crate) port_allocator: Mutex<PortAllocator>,
    pub(crate) readings: Readings<Name>,
    pub(crate) reports: Reports,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pulses: Pulses,
    pub(crate) permissions: Permissions,
    pub(crate) events: report::EventQueue,
    leadership: watch::Receiver<Leadership>,
    term: watch::Sender<Option<Term>>,
    memories: Mutex<HashMap<Name, Memory>>,
    /// When a wake of each service was last asked for.
    wakes: Mutex<HashMap<Name, Timestamp>>,
    /// Wakes under way, and who else waits for their outcome.
    waking: Mutex<HashMap<Name, Vec<oneshot::Sender<WakeOutcome>>>>,
    terminating: Mutex<HashSet<Arc<str>>>,
    /// The Service of each ElastiService that was looked at, for when only its name is left.
    services: Mutex<HashMap<Name, Name>>,
    stopping: watch::Sender<bool>,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// The namespaces to watch, one by one; `None` is all of them.
    pub(crate) fn scopes(&self) -> Vec<Option<String>> {
        scopes(&self.settings)
    }

    /// Everything that decisions need has been listed.
    pub(crate) fn is_ready(&self) -> bool {
        self.store.known().is_listed()
    }

    /// Whether this process decides.
    pub(crate) fn leads(&self) -> bool {
        self.term.borrow().is_some()
    }

    pub(crate) fn leadership(&self) -> Leadership {
        *self.leadership.borrow()
    }

    /// Looks at these services soon, if this process leads; whoever begins to lead looks at all of them.
    pub(crate) fn look_at(&self, names: &[Name]) {
        if self.term.borrow().is_none() {
            return;
        }
        for name in names {
            self.queue.add(name);
        }
    }

    /// Takes in a change and looks at the services that care.
    fn take_in<K: Kept>(&self, scope: Option<&str>, change: Change<K>) {
        self.metrics.told(K::WHAT, change.as_str());
        let whole = matches!(change, Change::All { .. });
        let touched = self.store.take_in(scope, change);
        self.look_at(&touched);
        if K::IS_MANAGED {
            self.forget_gone(&touched);
        }
        if whole {
            // What was too early before may not be any more.
            let all: Vec<Name> = self.store.known().declared.keys().cloned().collect();
            self.look_at(&all);
        }
    }

    /// The same for a kind that services refer to.
    pub(crate) fn take_in_of<K: Kept>(
        &self,
        kind: &KindName,
        scope: Option<&str>,
        change: Change<K>,
    ) {
        self.metrics.told(K::WHAT, change.as_str());
        let whole = matches!(change, Change::All { .. });
        self.look_at(&self.store.take_in(scope, change));
        if whole {
            self.look_at(&self.store.list_kind(kind, scope));
        }
    }

    /// What is remembered of a service.
    pub(crate) fn memory(&self, name: &Name) -> Memory {
        if let Some(memory) = self.memories.lock().get(name) {
            return memory.clone();
        }
        let term = *self.term.borrow();
        let began = term.map_or_else(|| self.clock.now(), |term| term.began);
        let before = term.and_then(|term| term.watched_before_until);
        Memory {
            stable_since: StableSince::fresh(began, before),
            reports: Vec::new(),
        }
    }

    /// Keeps what was seen.
    pub(crate) fn remember(&self, name: &Name, stable_since: StableSince) {
        let mut memory = self.memory(name);
        memory.stable_since = stable_since;
        self.memories.lock().insert(name.clone(), memory);
    }

    /// Keeps what the resolvers said.
    pub(crate) fn heard(&self, name: &Name, reports: BTreeMap<String, Report>) {
        let mut memory = self.memory(name);
        memory.reports = reports.into_iter().collect();
        self.memories.lock().insert(name.clone(), memory);
    }

    pub(crate) fn wake_requested_at(&self, name: &Name) -> Option<Timestamp> {
        self.wakes.lock().get(name).copied()
    }

    /// Someone has just asked for a wake.
    pub(crate) fn wake_asked(&self, name: &Name) {
        let now = self.clock.now();
        self.wakes.lock().insert(name.clone(), now);
    }

    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.terminating.lock().contains(namespace)
    }

    /// Sees to what a decision about this service needs from outside the watches.
    pub(crate) async fn attend(&self, me: &Declared) {
        let cooldown = Duration::try_from(idle::cooldown(&me.spec)).unwrap_or_default();
        self.readings.want(&me.name, &me.spec.triggers, cooldown);
        self.services.lock().insert(me.name.clone(), me.service());
        if me.deleting_since.is_some() && !self.is_terminating(&me.name.namespace) {
            self.look_at_namespace(&me.name.namespace).await;
        }
    }

    /// Only a deletion needs to know, so nobody watches namespaces.
    async fn look_at_namespace(&self, namespace: &Arc<str>) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let going = match timeout(TIMEOUT, api.get(namespace)).await {
            Ok(Ok(object)) => object.metadata.deletion_timestamp.is_some(),
            Ok(Err(kube::Error::Api(status))) => status.code == 404,
            Ok(Err(_)) | Err(_) => false,
        };
        let mut terminating = self.terminating.lock();
        match going {
            true => terminating.insert(namespace.clone()),
            false => terminating.remove(namespace),
        };
    }

    fn forget_gone(&self, names: &[Name]) {
        let mut gone = names.to_vec();
        let known = self.store.known();
        gone.retain(|name| !known.declared.contains_key(name));
        drop(known);
        for name in gone {
            self.forget(&name);
        }
    }

    /// An ElastiService is gone.
    pub(crate) fn forget(&self, name: &Name) {
        self.readings.forget(name);
        self.memories.lock().remove(name);
        self.wakes.lock().remove(name);
        self.queue.forget(name);
        let Some(service) = self.services.lock().remove(name) else {
            return;
        };
        self.metrics.forget(name, &service.name);
        if self.store.known().claimant(&service).is_none() {
            let owner = ServiceKey::new(&*service.namespace, &*service.name);
            self.port_allocator.lock().release(&owner, self.clock.now());
        }
    }

    /// A new term: what was seen and given out before it counts for nothing.
    fn begin_term(&self, term: Term) {
        self.memories.lock().clear();
        let mut all: Vec<Arc<Declared>> = self.store.known().declared.values().cloned().collect();
        all.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut port_allocator =
            PortAllocator::new(self.settings.ports.clone(), self.settings.port_quarantine);
        for me in &all {
            let owner = ServiceKey::new(&*me.name.namespace, me.spec.service.as_str());
            port_allocator.remember(&owner, &me.status.ports);
        }
        *self.port_allocator.lock() = port_allocator;
        self.term.send_replace(Some(term));
        tracing::info!(services = all.len(), "this operator leads");
        for me in all {
            self.queue.add(&me.name);
        }
    }

    fn end_term(&self) {
        self.term.send_replace(None);
        self.queue.clear();
        let names: Vec<Name> = self.memories.lock().drain().map(|(name, _)| name).collect();
        for name in names {
            self.readings.forget(&name);
        }
    }
}

fn scopes(settings: &Settings) -> Vec<Option<String>> {
    match settings.namespaces.as_slice() {
        [] => vec![None],
        some => {
            let unique: BTreeSet<&String> = some.iter().collect();
            unique.into_iter().cloned().map(Some).collect()
        }
    }
}
