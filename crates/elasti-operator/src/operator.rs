//! The parts of one running operator, and what happens when an ElastiService or a term begins or ends.

mod running;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elasti_core::observed::ReadingDetails;

use crate::activity::Reports;
use crate::apply::Writer;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::health::Heartbeats;
use crate::memories::Memories;
use crate::metrics::Metrics;
use crate::name::Name;
use crate::observe::{self, Context, Incomplete, Snapshot};
use crate::permissions::Permissions;
use crate::ports::Ports;
use crate::report::Reporter;
use crate::settings::Settings;
use crate::shared_rate::SharedRate;
use crate::slim::{Declared, ServiceView};
use crate::store::{CachedKind, Change, Others, target_of};
use crate::term::{Term, Terms};
use crate::triggers::Readings;

use tokio::sync::Notify;

pub use running::{Running, StartError};

/// Wakes a second for lack of resolvers, and in a burst: 100 services are woken at once, 10,000 within 9 minutes.
const RESOLVERLESS_WAKE_RATE: (f64, f64) = (20.0, 100.0);

/// The parts of an operator.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) writer: Writer,
    pub(crate) reporter: Reporter,
    pub(crate) memories: Memories,
    pub(crate) readings: Readings<Name>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) metrics: Arc<Metrics>,
    ports: Ports,
    terms: Arc<Terms>,
    permissions: Arc<Permissions>,
    heartbeats: Arc<Heartbeats>,
    /// A resolver has come or gone, or has become ready or not.
    resolvers_changed: Notify,
    /// How fast services are woken because no resolver is ready for them.
    pub(crate) resolverless_wakes: SharedRate,
    /// Nothing more is promised.
    closing: AtomicBool,
    /// No more reconcile begins.
    stopping: AtomicBool,
}

impl Operator {
    /// Everything that decisions need has been listed.
    pub(crate) fn is_ready(&self) -> bool {
        self.cluster.store.cache().is_listed()
    }

    /// The process is about to shut down: nothing more is promised.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The process is shutting down: no more reconcile begins.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The facts about one service as they are cached now. A Service port that has no listen port yet gets one first.
    pub(crate) fn snapshot(&self, name: &Name) -> Result<Snapshot, Incomplete> {
        let cache = self.cluster.store.cache();
        let me = observe::find(&cache, name)?;
        let now = self.clock.now();
        let allocate = |name: &Name, managed: bool| {
            let service = cache.service(name).filter(|_| managed);
            let recorded = me.recorded_ports(name);
            (self.ports).allocate(name, &recorded, service.map(Arc::as_ref), now)
        };
        let others = cache.others(name);
        let managed = |one: &Name| others.is_some_and(|others| others.managed.contains(one));
        let other_allocations = { others.into_iter().flat_map(Others::all) }
            .map(|one| (one.clone(), allocate(one, managed(one))))
            .collect();
        let (readings, reading_details) = { self.readings.last(name).into_iter() }
            .map(|last| {
                let read_at = last.age.and_then(|age| now.checked_sub(age).ok());
                let without_series = last.without_series;
                let details = ReadingDetails {
                    read_at,
                    without_series,
                };
                (last.reading, details)
            })
            .unzip();
        let context = Context {
            now,
            leadership: self.terms.leadership(),
            memory: self.memories.get(name),
            allocation: allocate(&me.service(), true),
            other_allocations,
            // Nothing can be created in a namespace that is being deleted, so only a deletion needs to know.
            namespace_terminating: me.deleting_since.is_some()
                && self.memories.is_namespace_terminating(&me),
            readings,
            reading_details,
            wake_requested_at: self.memories.wake_requested_at(name),
            wake_client: self.memories.wake_client(name),
            woken_at: self.memories.woken_at(name),
            promised_until: self.writer.promised_until(&target_of(&me)),
            may_mark: self.permissions.may_mark(&name.namespace),
            times: self.settings.times,
        };
        Ok(observe::observe(&cache, me, context))
    }

    /// Caches what a watch delivered, and enqueues the services that it concerns.
    fn apply_change<K: CachedKind>(&self, scope: Option<&str>, change: Change<K>) {
        self.metrics.change_received(K::RESOURCE, change.as_str());
        let service = match &change {
            Change::Set(object) if K::RESOURCE == ServiceView::RESOURCE => {
                Some(object.name().clone())
            }
            _ => None,
        };
        let mut touched = self.cluster.store.apply_change(scope, change);
        if K::CONCERNS_ALL && !touched.is_empty() {
            self.resolvers_changed.notify_one();
            self.cluster.store.cache().sort_by_need(&mut touched);
        }
        if let Some(service) = service {
            self.count_service_change(&service, &touched);
        }
        self.cluster.queue.add_all(&touched);
        if K::IS_ELASTI_SERVICE {
            self.forget_gone(touched);
        }
    }

    /// A private Service is ours, and its changes need no count.
    fn count_service_change(&self, service: &Name, touched: &[Name]) {
        let cache = self.cluster.store.cache();
        let concerned = touched.iter().filter_map(|name| cache.declared.get(name));
        for me in concerned.filter(|me| me.service() == *service) {
            self.metrics.service_changed(me);
        }
    }

    /// Forgets an ElastiService whose name another one has by now, should no event have told of its end.
    pub(crate) fn forget_replaced(&self, name: &Name) {
        let me = self.cluster.store.cache().declared.get(name).cloned();
        if me.is_some_and(|me| self.memories.is_replaced(&me)) {
            self.forget(name);
        }
    }

    fn forget_gone(&self, mut names: Vec<Name>) {
        let cache = self.cluster.store.cache();
        names.retain(|name| !cache.declared.contains_key(name));
        drop(cache);
        for name in names {
            self.forget(&name);
        }
    }

    /// An ElastiService is gone.
    pub(crate) fn forget(&self, name: &Name) {
        self.readings.forget(name);
        self.cluster.queue.forget(name);
        let services = self.memories.forget(name);
        if let Some(service) = services.first() {
            self.metrics.forget(name, &service.name);
        }
        self.release_ports(&services);
    }

    /// Services that an ElastiService had and has no more.
    pub(crate) fn release_ports(&self, services: &[Name]) {
        for service in services {
            if self.cluster.store.cache().claimant(service).is_none() {
                self.ports.release(service, self.clock.now());
            }
        }
    }

    /// A new term: what was seen and allocated before it counts for nothing.
    fn begin_term(&self, term: Term) {
        self.memories.clear_term();
        let cache = self.cluster.store.cache();
        let mut all: Vec<Arc<Declared>> = cache.declared.values().cloned().collect();
        drop(cache);
        all.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        self.ports.restore(&all);
        self.terms.begin(term);
        self.cluster.queue.open();
        tracing::info!(services = all.len(), "leader term began");
        // Resolvers may have ended together with the leader before: clients of what sleeps come first.
        // Read again: what has come since the first reading found a closed queue.
        let mut names = self.cluster.store.elasti_services();
        self.cluster.store.cache().sort_by_need(&mut names);
        self.cluster.queue.add_all(&names);
    }

    fn end_term(&self) {
        self.terms.end();
        self.cluster.queue.close();
        self.metrics.forget_states();
        for name in self.memories.clear_term() {
            self.readings.forget(&name);
        }
    }
}
