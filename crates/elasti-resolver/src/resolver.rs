//! One running resolver: builds its parts, starts them, ends them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{ElastiService, names};
use elasti_core::backends::AddressPolicy;
use elasti_core::ports::ServiceKey;
use elasti_runtime::callers::Callers;
use elasti_runtime::otlp::Spans;
use elasti_runtime::peer_tls::{ClientConfig, PeerTls};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access_log::AccessLog;
use crate::activity::ActivityReporter;
use crate::admin::{self, Admin};
use crate::clock::Clock;
use crate::connection::Proxy;
use crate::drain::Lifecycle;
use crate::follow::{Urgency, follow};
use crate::header_blocks::HeaderBlocks;
use crate::hold::Hold;
use crate::host_route::HostRoute;
use crate::leaving::Leaving;
use crate::listener::{ListenerKind, Listeners};
use crate::memory::{self, Pressure};
use crate::metrics::Metrics;
use crate::net;
use crate::operators::{Operators, keep_one_open};
use crate::pod_lookups::PodLookups;
use crate::probe_ahead::Probes;
use crate::reach::Dispatcher;
use crate::routes::{BackendFilter, Routes, ServiceDefaults};
use crate::settings::Settings;
use crate::sources::Sources;
use crate::table::RouteTable;
use crate::trace::Tracer;
use crate::wake::{Turns, WakeTasks};

/// A running resolver; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    table: RouteTable,
    hold: Arc<Hold>,
    lifecycle: Arc<Lifecycle>,
    settle: Duration,
    spans: Option<Spans>,
    leaving: Leaving,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Opens the admin port, the probes' port and the host route, and follows the cluster from now on.
    ///
    /// # Errors
    /// If one of the ports cannot be opened, or the files for TLS cannot be used.
    pub fn start(settings: Settings, client: Client) -> io::Result<Self> {
        let tls = PeerTls::load_if_present(settings.tls_folder.as_deref());
        let tls = tls.map_err(io::Error::other)?;
        let operator_tls = tls
            .as_ref()
            .map(|tls| tls.client_config(names::OPERATOR_TLS_NAME));
        let operator_tls = operator_tls.transpose().map_err(io::Error::other)?;
        let acceptor = tls.as_ref().map(PeerTls::acceptor).transpose();
        let acceptor = acceptor.map_err(io::Error::other)?;
        let admin_listener = net::listen(settings.admin)?;
        let health_listener = net::listen(settings.health)?;
        let proxy_listener = settings.proxy.map(net::listen).transpose()?;
        let Parts {
            table,
            hold,
            routes,
            lifecycle,
            operators,
            callers,
            admin,
            listeners,
            pressure,
            metrics,
        } = Parts::new(&settings, &client, operator_tls);
        let mut tasks = JoinSet::new();
        tasks.spawn(admin::serve(admin.clone(), admin_listener, acceptor));
        if let Some(tls) = tls {
            tasks.spawn(tls.follow());
        }
        tasks.spawn(admin::serve_health(admin, health_listener));
        let tracer = listeners.proxy.tracer.as_ref();
        let spans = tracer.map(|tracer| tracer.spans.clone());
        tasks.spawn(listeners.proxy.sources.clone().expire());
        let lookups = listeners.proxy.dispatcher.lookups.clone();
        tasks.spawn(lookups.check_ahead(table.clone()));
        if let Some(listener) = proxy_listener {
            let by_host = listeners.clone();
            tasks.spawn(by_host.accept(listener, ListenerKind::ByHost, Arc::default()));
        }
        tasks.spawn(listeners.follow_routes());
        tasks.spawn(memory::follow(
            settings.memory_group,
            hold.clone(),
            pressure,
            metrics,
        ));
        tasks.spawn(keep_one_open(operators, settings.operator));
        // So that the operator's first request need not wait for it.
        tasks.spawn(async move { callers.prepare().await });
        let leaving = Leaving {
            client: client.clone(),
            namespaces: settings.namespaces.clone(),
            own: settings.own,
        };
        let cluster = ClusterWatches {
            client,
            routes,
            urgent: hold.urgent(),
        };
        cluster.spawn(&mut tasks, &settings.namespaces, settings.peers);
        Ok(Self {
            table,
            hold,
            lifecycle,
            settle: settings.settle,
            spans,
            leaving,
            _tasks: tasks,
        })
    }

    /// Whether routes are loaded and the resolver is not ending.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        admin::is_ready(&self.table, &self.lifecycle)
    }

    /// How many requests are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.hold.held_total()
    }

    /// Ends in order: not ready first, accepting until no slice names it and nothing new came for the settle time, then
    /// until the last connection has ended.
    /// A second signal should drop the future and the resolver.
    pub async fn drain(&self) {
        let out_of_slices = self.leaving.until_out_of_slices();
        self.lifecycle.drain(self.settle, out_of_slices).await;
        if let Some(spans) = &self.spans {
            spans.end().await;
        }
    }
}

/// The parts of a resolver; those that need one another share it.
struct Parts {
    table: RouteTable,
    hold: Arc<Hold>,
    routes: Arc<Routes>,
    lifecycle: Arc<Lifecycle>,
    operators: Arc<Operators>,
    callers: Arc<Callers>,
    admin: Arc<Admin>,
    listeners: Listeners,
    pressure: watch::Sender<Pressure>,
    metrics: Arc<Metrics>,
}

impl Parts {
    fn new(settings: &Settings, client: &Client, operator_tls: Option<ClientConfig>) -> Self {
        let clock = Clock::start();
        let table = RouteTable::default();
        let hold = Hold::new(&settings.limits, clock, table.clone());
        let host_route = host_route(settings);
        let metrics = Arc::new(Metrics::new(&host_route));
        let lifecycle = Arc::new(Lifecycle::new(settings.open_files));
        let routes = Arc::new(Routes::new(
            table.clone(),
            hold.clone(),
            service_defaults(settings),
            backend_filter(settings),
            metrics.clone(),
            clock,
        ));
        let wakes = Arc::new(WakeTasks {
            client: client.clone(),
            operator: settings.operator.clone(),
            token_file: settings.token_file.clone(),
            operators: Arc::new(Operators::new(operator_tls)),
            routes: routes.clone(),
            hold: hold.clone(),
            probes: Probes::new(routes.clone(), hold.clone(), metrics.clone(), clock),
            metrics: metrics.clone(),
            tells_clients: settings.wake_clients,
            running: Arc::default(),
            turns: Turns::default(),
        });
        let operators = wakes.operators.clone();
        let (pressure, current_pressure) = watch::channel(Pressure::default());
        let listeners = Listeners {
            bind: settings.bind,
            proxy: Arc::new(Proxy {
                dispatcher: dispatcher(client, clock, &table, wakes),
                clock,
                metrics: metrics.clone(),
                lifecycle: lifecycle.clone(),
                host_route,
                sources: sources(settings, client),
                idle_timeout: settings.idle_timeout,
                access_log: access_log(settings, clock, &metrics),
                tracer: tracer(settings, clock, &metrics),
                unfinished_heads: Arc::default(),
                header_blocks: HeaderBlocks::default(),
            }),
            pressure: current_pressure,
            open_ports: Arc::default(),
        };
        let admin = Admin {
            table: table.clone(),
            hold: hold.clone(),
            metrics: metrics.clone(),
            lifecycle: lifecycle.clone(),
            callers: callers(settings, client),
            activity: activity(clock, &table, &listeners),
        };
        Self {
            table,
            hold,
            routes,
            lifecycle,
            operators,
            callers: admin.callers.clone(),
            admin: Arc::new(admin),
            listeners,
            pressure,
            metrics,
        }
    }
}

fn dispatcher(
    client: &Client,
    clock: Clock,
    table: &RouteTable,
    wakes: Arc<WakeTasks>,
) -> Dispatcher {
    let hold = wakes.hold.clone();
    Dispatcher {
        table: table.clone(),
        lookups: PodLookups::new(client.clone(), clock, hold.clone()),
        hold,
        wakes,
    }
}

fn host_route(settings: &Settings) -> HostRoute {
    HostRoute {
        cluster_domain: settings.cluster_domain.clone(),
        host_header: settings.host_header.clone(),
    }
}

fn service_defaults(settings: &Settings) -> ServiceDefaults {
    ServiceDefaults {
        limits: settings.limits,
        allow_from: settings.allow_from.clone(),
    }
}

fn sources(settings: &Settings, client: &Client) -> Arc<Sources> {
    Arc::new(Sources::new(client.clone(), settings.namespaces.clone()))
}

fn activity(clock: Clock, table: &RouteTable, listeners: &Listeners) -> ActivityReporter {
    ActivityReporter {
        clock,
        table: table.clone(),
        open_ports: listeners.open_ports.clone(),
    }
}

fn access_log(settings: &Settings, clock: Clock, metrics: &Metrics) -> Option<AccessLog> {
    let dropped = metrics.access_lines_dropped.clone();
    AccessLog::start(settings.access_log_share, clock, dropped)
}

fn tracer(settings: &Settings, clock: Clock, metrics: &Metrics) -> Option<Tracer> {
    let traces = settings.traces.clone()?;
    let host = traces.endpoint.host_str().map(str::to_owned);
    match Spans::start(traces, "elasti-resolver", metrics.spans.clone()) {
        Ok(spans) => {
            tracing::info!(host, "spans of holds are exported");
            Some(Tracer { spans, clock })
        }
        Err(error) => {
            tracing::warn!(%error, "no spans are exported: the HTTP client cannot be made");
            None
        }
    }
}

fn callers(settings: &Settings, client: &Client) -> Arc<Callers> {
    let readers = settings.activity_readers.clone();
    let audience = names::ACTIVITY_AUDIENCE;
    Arc::new(Callers::new(client.clone(), audience, readers))
}

fn backend_filter(settings: &Settings) -> BackendFilter {
    BackendFilter {
        resolvers: settings.resolvers.clone(),
        policy: AddressPolicy {
            allow_loopback: settings.allow_loopback,
        },
    }
}

/// What to follow: everything, or each of these namespaces.
pub(crate) fn scopes(namespaces: &[String]) -> Vec<Option<String>> {
    match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    }
}

/// The watches that keep the routes up to date.
#[derive(Clone)]
struct ClusterWatches {
    client: Client,
    routes: Arc<Routes>,
    urgent: watch::Receiver<bool>,
}

impl ClusterWatches {
    fn spawn(self, tasks: &mut JoinSet<()>, namespaces: &[String], resolvers: Option<ServiceKey>) {
        for scope in scopes(namespaces) {
            tasks.spawn(self.clone().follow_elasti_services(scope.clone()));
            tasks.spawn(self.clone().follow_slices(scope));
        }
        if let Some(resolvers) = resolvers {
            tasks.spawn(self.follow_resolvers(resolvers));
        }
    }

    fn api<K>(&self, scope: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn urgency(&self) -> Urgency {
        Urgency::While(self.urgent.clone())
    }

    async fn follow_elasti_services(self, scope: Option<String>) {
        let scope = scope.as_deref();
        let api = self.api::<ElastiService>(scope);
        let on_change = |change| self.routes.apply_elasti_services(scope, change);
        follow(api, None, usize::MAX, self.urgency(), on_change).await;
    }

    /// Slices carry the labels of their Service, and every private Service carries ours.
    async fn follow_slices(self, scope: Option<String>) {
        let scope = scope.as_deref();
        let api = self.api::<EndpointSlice>(scope);
        let labels = format!(
            "{},{}={}",
            names::ELASTI_SERVICE_LABEL,
            names::SLICE_MANAGED_BY_LABEL,
            names::SLICE_MANAGED_BY_KUBERNETES
        );
        let on_change = |change| self.routes.apply_slices(scope, change);
        follow(api, Some(labels), usize::MAX, self.urgency(), on_change).await;
    }

    /// The slices of the resolvers' own Service name every resolver, ready or not.
    async fn follow_resolvers(self, resolvers: ServiceKey) {
        let api = self.api::<EndpointSlice>(Some(&resolvers.namespace));
        let labels = format!("{}={}", names::SERVICE_NAME_LABEL, resolvers.service);
        let on_change = |change| self.routes.apply_peers(change);
        follow(api, Some(labels), usize::MAX, self.urgency(), on_change).await;
    }
}
