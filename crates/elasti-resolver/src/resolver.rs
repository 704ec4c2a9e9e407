//! One running resolver: what its parts share, how they start, how they end.
//! Never holds a rule of its own: every part has its file.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use elasti_api::{ElastiService, names};
use elasti_core::backends::AddressPolicy;
use elasti_core::ports::ServiceKey;
use elasti_runtime::callers::Callers;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::admin;
use crate::answer::Failure;
use crate::clock::{Clock, to_std};
use crate::drain::{self, Closing, Presence, Stage};
use crate::follow::follow;
use crate::hold::{Hold, NotHeld, Released};
use crate::listener::{self, Kind};
use crate::memory::{self, Pressure};
use crate::metrics::Metrics;
use crate::net;
use crate::operators::keep_one_open;
use crate::routes::{BackendFilter, Routes};
use crate::settings::Settings;
use crate::table::{Seen, Service, Table};
use crate::wake::{self, Wakes};

/// What the parts of a resolver share.
pub(crate) struct Resolver {
    pub(crate) settings: Settings,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) table: Arc<ArcSwap<Table>>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) routes: Routes,
    pub(crate) wakes: Wakes,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) callers: Callers,
    pub(crate) listening: Mutex<HashSet<u16>>,
    pub(crate) presence: Presence,
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) pressure: watch::Sender<Pressure>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Resolver {
    fn new(settings: Settings, client: Client) -> Arc<Self> {
        let clock = Clock::start();
        let table: Arc<ArcSwap<Table>> = Arc::default();
        let hold = Hold::new(&settings.limits, clock, table.clone());
        let neighbours = BackendFilter {
            resolvers: settings.resolvers.clone(),
            policy: AddressPolicy {
                allow_loopback: settings.allow_loopback,
            },
        };
        let readers = settings.activity_readers.clone();
        let callers = Callers::new(client.clone(), names::ACTIVITY_AUDIENCE, readers);
        let metrics = Arc::new(Metrics::new());
        let routes = Routes::new(
            table.clone(),
            hold.clone(),
            settings.limits,
            neighbours,
            metrics.clone(),
        );
        Arc::new(Self {
            settings,
            client,
            clock,
            table,
            hold,
            routes,
            wakes: Wakes::default(),
            metrics,
            callers,
            listening: Mutex::default(),
            presence: Presence::default(),
            stage: watch::Sender::default(),
            pressure: watch::Sender::default(),
        })
    }

    pub(crate) fn service(&self, key: &ServiceKey) -> Result<Arc<Service>, Failure> {
        self.table
            .load()
            .services
            .get(key)
            .cloned()
            .ok_or(Failure::NotManaged)
    }

    /// What the Service says that a port speaks, as far as it is known by now.
    pub(crate) fn app_protocol(&self, listen_port: u16) -> Option<String> {
        let table = self.table.load();
        table
            .at(listen_port)?
            .port(listen_port)?
            .app_protocol
            .clone()
    }

    /// Notes that something new came for a service.
    pub(crate) fn saw(&self, seen: &Seen) {
        seen.last_millis
            .store(self.clock.millis(), Ordering::Relaxed);
    }

    /// Holds a request until a pod is ready, and sees to it that the service is woken.
    pub(crate) async fn hold_for_pod(
        self: &Arc<Self>,
        service: &Service,
        bytes: u64,
        deadline: Instant,
    ) -> Result<Released, Failure> {
        let held = self.hold.wait(service, bytes, deadline, || {
            wake::needed(self, &service.key);
            // Known before it came: the others were turned away when it became known.
            service.obstacle.filter(|_| service.ready_pods() == 0)
        });
        held.await.map_err(|why: NotHeld| Failure::from(why))
    }

    /// Wakes a service for a client that does not wait on its connection. One place in its room stands for all of them,
    /// so that the wake goes on as long as for anybody who waits.
    pub(crate) fn wake_without_waiting(self: &Arc<Self>, service: &Arc<Service>) {
        if service.has_waiters() {
            return;
        }
        let (resolver, service) = (self.clone(), service.clone());
        tokio::spawn(async move {
            let deadline = Instant::now() + to_std(service.room.timeout);
            // Nobody hears how it ended; the page asks again by itself.
            let _ = resolver.hold_for_pod(&service, 0, deadline).await;
        });
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing::new(self.stage.subscribe())
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.stage.borrow() == Stage::Closing
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.table.load().loaded && *self.stage.borrow() == Stage::Open
    }
}

/// A resolver at work; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    resolver: Arc<Resolver>,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Opens the admin port and the host route, and follows the cluster from now on.
    ///
    /// # Errors
    /// If one of the two ports cannot be opened.
    pub fn start(settings: Settings, client: Client) -> io::Result<Self> {
        let resolver = Resolver::new(settings, client);
        let admin = net::listen(resolver.settings.admin)?;
        let proxy = net::listen(resolver.settings.proxy)?;
        let proxy_port = resolver.settings.proxy.port();
        let mut tasks = JoinSet::new();
        tasks.spawn(admin::serve(resolver.clone(), admin));
        tasks.spawn(listener::accept(
            resolver.clone(),
            proxy,
            proxy_port,
            Kind::ByHost,
        ));
        tasks.spawn(listener::follow_routes(resolver.clone()));
        tasks.spawn(memory::watch(resolver.clone()));
        tasks.spawn(keep_one_open(
            resolver.wakes.operators.clone(),
            resolver.settings.operator.clone(),
        ));
        let asked = resolver.clone();
        // So that the operator's first question need not wait for it.
        tasks.spawn(async move { asked.callers.prepare().await });
        let scopes: Vec<Option<String>> = match resolver.settings.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        for scope in scopes {
            tasks.spawn(follow_declared(resolver.clone(), scope.clone()));
            tasks.spawn(follow_slices(resolver.clone(), scope));
        }
        if let Some(peers) = resolver.settings.peers.clone() {
            tasks.spawn(follow_peers(resolver.clone(), peers));
        }
        Ok(Self {
            resolver,
            _tasks: tasks,
        })
    }

    /// Whether routes are loaded and nobody has asked it to end.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.resolver.is_ready()
    }

    /// How many requests wait for pods.
    #[must_use]
    pub fn held(&self) -> usize {
        self.resolver.hold.held_total()
    }

    /// Ends in order: not ready first, accepting for the settle time, then until the last connection has ended.
    /// A second signal should drop the future and the resolver.
    pub async fn drain(&self) {
        let settle: Duration = self.resolver.settings.settle;
        drain::drain(&self.resolver, settle).await;
    }
}

async fn follow_declared(resolver: Arc<Resolver>, scope: Option<String>) {
    let api: Api<ElastiService> = match &scope {
        Some(namespace) => Api::namespaced(resolver.client.clone(), namespace),
        None => Api::all(resolver.client.clone()),
    };
    let tell = |change| resolver.routes.declared(scope.as_deref(), change);
    follow(api, None, resolver.hold.urgent(), tell).await;
}

/// Slices carry the labels of their Service, and every private Service carries ours.
async fn follow_slices(resolver: Arc<Resolver>, scope: Option<String>) {
    let api: Api<EndpointSlice> = match &scope {
        Some(namespace) => Api::namespaced(resolver.client.clone(), namespace),
        None => Api::all(resolver.client.clone()),
    };
    let labels = format!(
        "{},{}={}",
        names::ELASTI_SERVICE_LABEL,
        names::SLICE_MANAGED_BY_LABEL,
        names::SLICE_MANAGED_BY_KUBERNETES
    );
    let tell = |change| resolver.routes.slices(scope.as_deref(), change);
    follow(api, Some(labels), resolver.hold.urgent(), tell).await;
}

/// The slices of the resolvers' own Service name every resolver, ready or not.
async fn follow_peers(resolver: Arc<Resolver>, peers: ServiceKey) {
    let api: Api<EndpointSlice> = Api::namespaced(resolver.client.clone(), &peers.namespace);
    let labels = format!("{}={}", names::SERVICE_NAME_LABEL, peers.service);
    let tell = |change| resolver.routes.peers(change);
    follow(api, Some(labels), resolver.hold.urgent(), tell).await;
}
