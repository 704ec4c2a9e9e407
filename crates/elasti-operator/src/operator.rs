//! One running operator: what its parts share, how they start, how they end.
//! Never holds a rule of its own: every part has its file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{ElastiService, names};
use elasti_core::idle;
use elasti_core::observed::{Leadership, Report};
use elasti_core::ports::{PortBook, ServiceKey};
use elasti_core::sightings::Sightings;
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::activity::Reports;
use crate::clock::Clock;
use crate::health::{self, Pulses};
use crate::leader::Seat;
use crate::metrics::Metrics;
use crate::name::{KindName, Name};
use crate::observe::Memory;
use crate::queue::Queue;
use crate::reconcile;
use crate::report;
use crate::settings::Settings;
use crate::slim::{Declared, PodView, ServiceView, SliceView};
use crate::store::{Change, Kept, ResolverPod, Store};
use crate::targets::{self, Kinds};
use crate::triggers::prometheus::{Prometheus, PrometheusSettings};
use crate::triggers::{Readings, Sources};
use crate::wake::{WakeEndpoint, WakeOutcome, WakeRequest, WakeSettings};
use crate::watch::{Followed, follow, resolver_labels};

/// Wakes that wait to be decided; each is one write.
const WAKES_WAITING: usize = 1024;
/// How often the right to mark pods is asked for anew, so that a role that was given or taken is noticed.
const ASK_FOR_RIGHTS: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);
/// Kubernetes gives a pod 30 s to end.
const LONGEST_END: Duration = Duration::from_secs(15);

/// Why an operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum NoStart {
    /// A port cannot be opened.
    #[error("{what} cannot be opened: {why}")]
    Port {
        /// Which one.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// No HTTP client can be made.
    #[error("no HTTP client can be made: {0}")]
    Http(#[from] reqwest::Error),
    /// The default Prometheus cannot be asked.
    #[error("PROMETHEUS_TRIGGER_SERVER_ADDRESS or its header cannot be used")]
    Prometheus,
}

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
    pub(crate) book: Mutex<PortBook>,
    pub(crate) readings: Readings<Name>,
    pub(crate) reports: Reports,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pulses: Pulses,
    pub(crate) board: report::Board,
    leadership: watch::Receiver<Leadership>,
    term: watch::Sender<Option<Term>>,
    memories: Mutex<HashMap<Name, Memory>>,
    /// When a wake of each service was last asked for.
    wakes: Mutex<HashMap<Name, Timestamp>>,
    /// Wakes under way, and who else waits for their outcome.
    waking: Mutex<HashMap<Name, Vec<oneshot::Sender<WakeOutcome>>>>,
    may_mark: Mutex<bool>,
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
            sightings: Sightings::fresh(began, before),
            reports: BTreeMap::new(),
        }
    }

    /// Keeps what was seen.
    pub(crate) fn remember(&self, name: &Name, sightings: Sightings) {
        let mut memory = self.memory(name);
        memory.sightings = sightings;
        self.memories.lock().insert(name.clone(), memory);
    }

    /// Keeps what the resolvers said.
    pub(crate) fn heard(&self, name: &Name, reports: BTreeMap<String, Report>) {
        let mut memory = self.memory(name);
        memory.reports = reports;
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

    pub(crate) fn may_mark(&self) -> bool {
        *self.may_mark.lock()
    }

    /// The API server has just said so.
    pub(crate) fn may_not_mark(&self) {
        *self.may_mark.lock() = false;
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
        let going = match timeout(PATIENCE, api.get(namespace)).await {
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
        if self.store.known().steward(&service).is_none() {
            let owner = ServiceKey::new(&*service.namespace, &*service.name);
            self.book.lock().release(&owner, self.clock.now());
        }
    }

    /// A new term: what was seen and given out before it counts for nothing.
    fn begin_term(&self, term: Term) {
        self.memories.lock().clear();
        let mut all: Vec<Arc<Declared>> = self.store.known().declared.values().cloned().collect();
        all.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut book = PortBook::new(self.settings.ports.clone(), self.settings.port_quarantine);
        for me in &all {
            let owner = ServiceKey::new(&*me.name.namespace, me.spec.service.as_str());
            book.remember(&owner, &me.status.ports);
        }
        *self.book.lock() = book;
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

/// An operator at work; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    operator: Arc<Operator>,
    seat: Option<Arc<Seat>>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Opens the ports and follows the cluster from now on.
    ///
    /// # Errors
    /// If a port cannot be opened or a client cannot be made.
    pub async fn start(settings: Settings, client: Client) -> Result<Self, NoStart> {
        Self::start_at(Clock::start(), settings, client).await
    }

    /// The same in a cluster with a time of its own.
    ///
    /// # Errors
    /// If a port cannot be opened or a client cannot be made.
    pub async fn start_at(
        clock: Clock,
        settings: Settings,
        client: Client,
    ) -> Result<Self, NoStart> {
        let wake = open("the wake port", settings.wake).await?;
        let metrics = Arc::new(Metrics::new());
        let sources = Sources {
            prometheus: Prometheus::new(prometheus(&settings)?)?,
            metrics: metrics.clone(),
        };
        let (readings, changed) = Readings::start(sources, settings.polling_interval);
        let reports = Reports::new(settings.resolver_port, settings.token_file.clone(), clock)?;
        let seat = Arc::new(match settings.leader_elect {
            true => Seat::stand(client.clone(), &settings.operator_namespace, clock),
            false => Seat::alone(),
        });
        let (board, events) = report::board(client.clone());
        let operator = Arc::new(Operator {
            book: Mutex::new(PortBook::new(
                settings.ports.clone(),
                settings.port_quarantine,
            )),
            client,
            clock,
            store: Store::new(scopes(&settings)),
            queue: Queue::default(),
            kinds: Kinds::default(),
            readings,
            reports,
            metrics,
            pulses: Pulses::default(),
            board,
            leadership: seat.subscribe(),
            term: watch::Sender::default(),
            memories: Mutex::default(),
            wakes: Mutex::default(),
            waking: Mutex::default(),
            may_mark: Mutex::new(true),
            terminating: Mutex::default(),
            services: Mutex::default(),
            stopping: watch::Sender::new(false),
            settings,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(events);
        serve(&operator, &mut tasks, wake).await?;
        watch_all(&operator, &mut tasks);
        tasks.spawn(ask_for_rights(operator.clone()));
        tasks.spawn(hear_triggers(operator.clone(), changed));
        tasks.spawn(keep_terms(operator.clone(), seat.clone()));
        for _ in 0..operator.settings.concurrency.max(1) {
            tasks.spawn(work(operator.clone()));
        }
        Ok(Self {
            operator,
            seat: Some(seat),
            tasks,
        })
    }

    /// Whether the cluster is known.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.operator.is_ready()
    }

    /// Whether this one leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.operator.term.borrow().is_some()
    }

    /// The metrics as they stand.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.operator.metrics.encode()
    }

    /// Ends in order: no new look, the calls under way end, the lease is given back.
    pub async fn stop(mut self) {
        self.operator.stopping.send_replace(true);
        let ends = timeout(LONGEST_END, async {
            while self.operator.queue.is_working() {
                sleep(Duration::from_millis(10)).await;
            }
        });
        // What does not end by then is cut off; its writes are conditional.
        let _ = ends.await;
        self.tasks.shutdown().await;
        if let Some(seat) = self.seat.take().and_then(Arc::into_inner) {
            seat.release().await;
        }
    }
}

async fn open(what: &'static str, address: std::net::SocketAddr) -> Result<TcpListener, NoStart> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|why| NoStart::Port { what, why })
}

fn prometheus(settings: &Settings) -> Result<PrometheusSettings, NoStart> {
    let server = settings.prometheus_address.as_deref().map(Url::parse);
    let authorization = settings.prometheus_authorization.as_deref();
    let authorization = authorization.map(|text| {
        let mut value = reqwest::header::HeaderValue::from_str(text)?;
        value.set_sensitive(true);
        Ok::<_, reqwest::header::InvalidHeaderValue>(value)
    });
    Ok(PrometheusSettings {
        server: server.transpose().map_err(|_| NoStart::Prometheus)?,
        authorization: authorization.transpose().map_err(|_| NoStart::Prometheus)?,
        any_address: settings.allow_loopback,
    })
}

/// The endpoints: wakes with metrics, metrics alone, health.
async fn serve(
    operator: &Arc<Operator>,
    tasks: &mut JoinSet<()>,
    wake: TcpListener,
) -> Result<(), NoStart> {
    let settings = &operator.settings;
    let (send, wakes) = mpsc::channel(WAKES_WAITING);
    let callers = WakeSettings {
        callers: settings.wake_callers.iter().cloned().collect(),
        allow_anonymous: settings.allow_anonymous_wakes,
    };
    let metrics = operator.metrics.clone();
    let endpoint = WakeEndpoint::new(operator.client.clone(), callers, send, metrics);
    tasks.spawn(endpoint.serve(wake));
    tasks.spawn(take_wakes(operator.clone(), wakes));
    if let Some(address) = settings.metrics {
        let listener = open("the metrics port", address).await?;
        tasks.spawn(serve_metrics(operator.metrics.clone(), listener));
    }
    if let Some(address) = settings.health {
        let listener = open("the health port", address).await?;
        tasks.spawn(health::serve(operator.clone(), listener));
    }
    Ok(())
}

async fn serve_metrics(metrics: Arc<Metrics>, listener: TcpListener) {
    let text = move || {
        let text = metrics.encode();
        std::future::ready(text)
    };
    let router = axum::Router::new().route("/metrics", axum::routing::get(text));
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!(%error, "the metrics endpoint ended");
    }
}

/// One watch a kind and namespace to watch.
fn watch_all(operator: &Arc<Operator>, tasks: &mut JoinSet<()>) {
    for scope in operator.scopes() {
        let of = scope.as_deref();
        watch_kind::<Declared>(
            operator,
            tasks,
            ElastiService::url_path(&(), of),
            &scope,
            None,
        );
        watch_kind::<ServiceView>(operator, tasks, Service::url_path(&(), of), &scope, None);
        watch_kind::<SliceView>(
            operator,
            tasks,
            EndpointSlice::url_path(&(), of),
            &scope,
            None,
        );
        watch_kind::<PodView>(operator, tasks, Pod::url_path(&(), of), &scope, None);
    }
    let home = Some(operator.settings.resolver_namespace.clone());
    let path = Pod::url_path(&(), home.as_deref());
    watch_kind::<ResolverPod>(operator, tasks, path, &home, Some(resolver_labels()));
    tasks.spawn(targets::follow_kinds(operator.clone()));
}

fn watch_kind<K: Kept>(
    operator: &Arc<Operator>,
    tasks: &mut JoinSet<()>,
    path: String,
    scope: &Option<String>,
    labels: Option<String>,
) {
    let (operator, scope) = (operator.clone(), scope.clone());
    let pulse = operator.pulses.one_more();
    operator.metrics.watching(K::WHAT);
    let followed = Followed { path, labels };
    tasks.spawn(async move {
        // Which pods and slices matter is known once the ElastiServices and Services are.
        while K::NEEDS_TO_KNOW && !operator.store.known().knows_what_matters() {
            pulse.beat();
            sleep(Duration::from_millis(20)).await;
        }
        let tell = |change: Change<K>| operator.take_in(scope.as_deref(), change);
        follow(operator.client.clone(), followed, pulse, tell).await;
    });
}

/// Begins and ends terms as the lease comes and goes.
async fn keep_terms(operator: Arc<Operator>, seat: Arc<Seat>) {
    let mut leadership = seat.subscribe();
    loop {
        let leads = matches!(*leadership.borrow_and_update(), Leadership::Leader { .. });
        let had = operator.term.borrow().is_some();
        if leads && !had {
            // Ports are remembered from the statuses, so those must be known first.
            while !operator.store.known().knows_what_matters() {
                sleep(Duration::from_millis(20)).await;
            }
            operator.begin_term(Term {
                began: operator.clock.now(),
                watched_before_until: seat.watched_before_until(),
            });
        } else if !leads && had {
            operator.end_term();
        }
        if leadership.changed().await.is_err() {
            operator.end_term();
            return;
        }
    }
}

/// Looks at one service after another, while this process leads.
async fn work(operator: Arc<Operator>) {
    let mut term = operator.term.subscribe();
    loop {
        if term.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let name = operator.queue.next().await;
        if term.borrow().is_none() || *operator.stopping.borrow() {
            // Whoever leads next looks at everything anew.
            operator.queue.done(&name, None);
            continue;
        }
        match reconcile::reconcile(&operator, &name).await {
            Ok(look_again) => {
                let at = look_again.map(|moment| operator.clock.instant(moment));
                operator.queue.done(&name, at);
            }
            Err(fault) => {
                match fault.is_routine() {
                    true => tracing::debug!(elastiservice = %name, %fault, "again, on new facts"),
                    false => tracing::warn!(elastiservice = %name, %fault, "it is tried again"),
                }
                operator.queue.failed(&name);
            }
        }
    }
}

async fn hear_triggers(operator: Arc<Operator>, mut changed: mpsc::Receiver<Name>) {
    while let Some(name) = changed.recv().await {
        operator.queue.add(&name);
    }
}

/// Every wake at once; several for one service share one decision.
async fn take_wakes(operator: Arc<Operator>, mut wakes: mpsc::Receiver<WakeRequest>) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            wake = wakes.recv() => {
                let Some(WakeRequest { namespace, service, answer }) = wake else { return };
                let service = Name::new(namespace, service);
                let mut waking = operator.waking.lock();
                let is_first = !waking.contains_key(&service);
                waking.entry(service.clone()).or_default().push(answer);
                drop(waking);
                if is_first {
                    under_way.spawn(wake_one(operator.clone(), service));
                }
            }
            Some(_) = under_way.join_next() => {}
        }
    }
}

async fn wake_one(operator: Arc<Operator>, service: Name) {
    let outcome = reconcile::wake(&operator, &service).await;
    let waiting = operator.waking.lock().remove(&service);
    for answer in waiting.into_iter().flatten() {
        // Who has left does not need an answer.
        let _ = answer.send(outcome.clone());
    }
    let steward = operator.store.known().steward(&service);
    operator.look_at(steward.as_slice());
}

/// Whether pods may be marked, asked for again and again.
async fn ask_for_rights(operator: Arc<Operator>) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(operator.client.clone());
    let question = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: operator.settings.namespaces.first().cloned(),
                verb: Some("patch".into()),
                resource: Some("pods".into()),
                subresource: Some("status".into()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    loop {
        let params = PostParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        if let Ok(Ok(answer)) = timeout(PATIENCE, reviews.create(&params, &question)).await
            && let Some(status) = answer.status
        {
            let before = std::mem::replace(&mut *operator.may_mark.lock(), status.allowed);
            if before != status.allowed {
                let all: Vec<Name> = operator.store.known().declared.keys().cloned().collect();
                operator.look_at(&all);
            }
        }
        sleep(ASK_FOR_RIGHTS).await;
    }
}
