//! One running resolver: builds its parts, starts them, ends them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{ElastiService, names};
use elasti_core::backends::AddressPolicy;
use elasti_core::ports::ServiceKey;
use elasti_runtime::callers::Callers;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::activity::ActivityReporter;
use crate::admin::{self, Admin};
use crate::clock::Clock;
use crate::connection::Proxy;
use crate::drain::Lifecycle;
use crate::follow::follow;
use crate::hold::Hold;
use crate::host_route::HostRoute;
use crate::listener::{ListenerKind, Listeners};
use crate::memory::{self, Pressure};
use crate::metrics::Metrics;
use crate::net;
use crate::operators::{Operators, keep_one_open};
use crate::reach::Dispatcher;
use crate::routes::{BackendFilter, Routes};
use crate::settings::Settings;
use crate::table::RouteTable;
use crate::wake::WakeTasks;

/// A running resolver; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    table: RouteTable,
    hold: Arc<Hold>,
    lifecycle: Arc<Lifecycle>,
    settle: Duration,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Opens the admin port and the host route, and follows the cluster from now on.
    ///
    /// # Errors
    /// If one of the two ports cannot be opened.
    pub fn start(settings: Settings, client: Client) -> io::Result<Self> {
        let admin_listener = net::listen(settings.admin)?;
        let proxy_listener = net::listen(settings.proxy)?;
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
        } = Parts::new(&settings, &client);
        let mut tasks = JoinSet::new();
        tasks.spawn(admin::serve(admin, admin_listener));
        let by_host = listeners.clone();
        tasks.spawn(by_host.accept(proxy_listener, ListenerKind::ByHost));
        tasks.spawn(listeners.follow_routes(routes.changes()));
        tasks.spawn(memory::follow(
            settings.memory_group,
            hold.clone(),
            pressure,
        ));
        tasks.spawn(keep_one_open(operators, settings.operator));
        // So that the operator's first request need not wait for it.
        tasks.spawn(async move { callers.prepare().await });
        let cluster = ClusterWatches {
            client,
            routes,
            urgent: hold.urgent(),
        };
        cluster.spawn(&mut tasks, settings.namespaces, settings.peers);
        Ok(Self {
            table,
            hold,
            lifecycle,
            settle: settings.settle,
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

    /// Ends in order: not ready first, accepting for the settle time, then until the last connection has ended.
    /// A second signal should drop the future and the resolver.
    pub async fn drain(&self) {
        self.lifecycle.drain(self.settle).await;
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
}

impl Parts {
    fn new(settings: &Settings, client: &Client) -> Self {
        let clock = Clock::start();
        let table = RouteTable::default();
        let hold = Hold::new(&settings.limits, clock, table.clone());
        let host_route = HostRoute {
            cluster_domain: settings.cluster_domain.clone(),
            host_header: settings.host_header.clone(),
        };
        let metrics = Arc::new(Metrics::new(&host_route));
        let lifecycle: Arc<Lifecycle> = Arc::default();
        let routes = Arc::new(Routes::new(
            table.clone(),
            hold.clone(),
            settings.limits,
            backend_filter(settings),
            metrics.clone(),
        ));
        let wakes = Arc::new(WakeTasks {
            client: client.clone(),
            operator: settings.operator.clone(),
            token_file: settings.token_file.clone(),
            operators: Arc::default(),
            routes: routes.clone(),
            hold: hold.clone(),
            metrics: metrics.clone(),
            running: Mutex::default(),
        });
        let operators = wakes.operators.clone();
        let (pressure, current_pressure) = watch::channel(Pressure::default());
        let listeners = Listeners {
            bind: settings.bind,
            proxy: Arc::new(Proxy {
                dispatcher: Dispatcher {
                    table: table.clone(),
                    hold: hold.clone(),
                    wakes,
                },
                clock,
                metrics: metrics.clone(),
                lifecycle: lifecycle.clone(),
                host_route,
                idle_timeout: settings.idle_timeout,
            }),
            pressure: current_pressure,
            open_ports: Arc::default(),
        };
        let admin = Admin {
            table: table.clone(),
            hold: hold.clone(),
            metrics,
            lifecycle: lifecycle.clone(),
            callers: callers(settings, client),
            activity: ActivityReporter {
                clock,
                table: table.clone(),
                open_ports: listeners.open_ports.clone(),
            },
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

/// The watches that keep the routes up to date.
#[derive(Clone)]
struct ClusterWatches {
    client: Client,
    routes: Arc<Routes>,
    urgent: watch::Receiver<bool>,
}

impl ClusterWatches {
    fn spawn(
        self,
        tasks: &mut JoinSet<()>,
        namespaces: Vec<String>,
        resolvers: Option<ServiceKey>,
    ) {
        let scopes: Vec<Option<String>> = if namespaces.is_empty() {
            vec![None]
        } else {
            namespaces.into_iter().map(Some).collect()
        };
        for scope in scopes {
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

    async fn follow_elasti_services(self, scope: Option<String>) {
        let scope = scope.as_deref();
        let api = self.api::<ElastiService>(scope);
        let on_change = |change| self.routes.apply_elasti_services(scope, change);
        follow(api, None, self.urgent.clone(), on_change).await;
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
        follow(api, Some(labels), self.urgent.clone(), on_change).await;
    }

    /// The slices of the resolvers' own Service name every resolver, ready or not.
    async fn follow_resolvers(self, resolvers: ServiceKey) {
        let api = self.api::<EndpointSlice>(Some(&resolvers.namespace));
        let labels = format!("{}={}", names::SERVICE_NAME_LABEL, resolvers.service);
        let on_change = |change| self.routes.apply_peers(change);
        follow(api, Some(labels), self.urgent.clone(), on_change).await;
    }
}
