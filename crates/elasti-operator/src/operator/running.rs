//! How an operator starts and shuts down.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_api::{ElastiService, names};
use elasti_core::facts::PREDECESSOR_LABEL;
use elasti_runtime::peer_tls::{ClientConfig, PeerTls, TlsAcceptor, TlsError};
use elasti_runtime::watch::Lifetime;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, Resource as _};
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use crate::activity::Reports;
use crate::apply::Writer;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::health;
use crate::held_counts::HeldCounts;
use crate::leader::LeaderElection;
use crate::memories::Memories;
use crate::metrics::Metrics;
use crate::name::Name;
use crate::permissions::{self, Permissions};
use crate::ports::Ports;
use crate::report::{EventQueue, Reporter};
use crate::settings::Settings;
use crate::shared_rate::SharedRate;
use crate::slim::{Declared, NodeView, PodView, ServiceView, SliceView};
use crate::store::{CachedKind, Change, PredecessorPod, ResolverPod};
use crate::targets;
use crate::term::Terms;
use crate::triggers::prometheus::{Prometheus, PrometheusSettings};
use crate::triggers::{Readings, Sources};
use crate::wake::{self, LeaderClient, WakeEndpoint, WakeSettings};
use crate::watch::{self as kinds, Filter, WatchSpec, resolver_labels};

use super::tasks::{enqueue_readings, follow_lease, follow_resolver_changes, reconcile_queued};
use super::{Operator, RESOLVERLESS_WAKE_RATE};

/// Wakes that wait to be decided; each is one write.
const WAKE_QUEUE_CAPACITY: usize = 1024;
/// What a decision needs is read again before it, except who the resolvers are. Should the one event about a new one
/// be lost, it would stay unknown for ever; so they are listed again after each watch, which costs one small list a minute.
const RESOLVERS_AT_REST: Lifetime = Lifetime {
    seconds: 60,
    silence: Duration::from_secs(62),
};
/// For a while after one has come or gone: well before the grace (30 s) is over after which everything wakes because no
/// resolver is there.
const RESOLVERS_UNSETTLED: Lifetime = Lifetime {
    seconds: 10,
    silence: Duration::from_secs(12),
};
/// Kubernetes gives a pod 30 s to end, of which promises may take 5.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// Why an operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be opened.
    #[error("{port} cannot be opened: {error}")]
    Port {
        /// Which one.
        port: &'static str,
        /// What the system answered.
        error: io::Error,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client cannot be built: {0}")]
    Http(#[from] reqwest::Error),
    /// The default Prometheus cannot be used.
    #[error(
        "PROMETHEUS_TRIGGER_SERVER_ADDRESS, its header or PROMETHEUS_TRIGGER_ALLOWED_SERVERS cannot be used"
    )]
    Prometheus,
    /// The files in ELASTI_OPERATOR_TLS_FOLDER cannot be used.
    #[error("ELASTI_OPERATOR_TLS_FOLDER cannot be used: {0}")]
    Tls(#[from] TlsError),
}

/// A running operator; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    operator: Arc<Operator>,
    election: Option<Arc<LeaderElection>>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Opens the ports and starts to watch the cluster.
    ///
    /// # Errors
    /// If a port cannot be opened or a client cannot be made.
    pub async fn start(settings: Settings, client: Client) -> Result<Self, StartError> {
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
    ) -> Result<Self, StartError> {
        let wake = open("the wake port", settings.wake).await?;
        let election = Arc::new(match settings.leader_elect {
            true => {
                let namespace = &settings.operator_namespace;
                let address = own_address(&wake, settings.pod_ip);
                LeaderElection::start(client.clone(), namespace, address, clock)
            }
            false => LeaderElection::without_lease(),
        });
        let mut tasks = JoinSet::new();
        let tls = PeerTls::load_if_present(settings.tls_folder.as_deref())?;
        let resolvers = client_config(tls.as_ref(), names::RESOLVER_TLS_NAME)?;
        let (operator, changed) = build(clock, settings, client, &election, resolvers, &mut tasks)?;
        let to_leader = client_config(tls.as_ref(), names::OPERATOR_TLS_NAME)?;
        let leader = LeaderClient::new(election.leader_address(), to_leader)?;
        let acceptor = tls.as_ref().map(PeerTls::acceptor).transpose()?;
        if let Some(tls) = tls {
            tasks.spawn(tls.follow());
        }
        serve(&operator, &mut tasks, wake, leader, acceptor).await?;
        watch_all(&operator, &mut tasks);
        let (cluster, permissions) = (operator.cluster.clone(), operator.permissions.clone());
        tasks.spawn(permissions::poll(cluster.clone(), permissions));
        tasks.spawn(enqueue_readings(cluster, changed));
        tasks.spawn(follow_lease(operator.clone(), election.clone()));
        for _ in 0..operator.settings.concurrency.max(1) {
            tasks.spawn(reconcile_queued(operator.clone()));
        }
        Ok(Self {
            operator,
            election: Some(election),
            tasks,
        })
    }

    /// Whether everything that decisions need has been listed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.operator.is_ready()
    }

    /// Whether this operator leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.operator.terms.leads()
    }

    /// Asks the resolvers how many requests they hold.
    #[must_use]
    pub fn held_counts(&self) -> HeldCounts {
        HeldCounts::new(self.operator.cluster.clone(), self.operator.reports.clone())
    }

    /// The metrics as they stand.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.operator.metrics.encode()
    }

    /// Shuts down: nothing more is promised, and what was promised ends; then no new reconcile begins, those in progress
    /// end, and the lease is released.
    pub async fn stop(mut self) {
        self.operator.closing.store(true, Ordering::Relaxed);
        // Reconciles go on meanwhile: a request that got no promise waits until the marks are removed.
        while self.operator.writer.has_promised() {
            sleep(Duration::from_millis(10)).await;
        }
        self.operator.stopping.store(true, Ordering::Relaxed);
        let ends = timeout(SHUTDOWN_TIMEOUT, async {
            while self.operator.cluster.queue.is_working() {
                sleep(Duration::from_millis(10)).await;
            }
        });
        // What does not end by then is cut off; its writes are conditional.
        let _ = ends.await;
        self.tasks.shutdown().await;
        if let Some(election) = self.election.take().and_then(Arc::into_inner) {
            election.release().await;
        }
    }
}

async fn open(port: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| StartError::Port { port, error })
}

/// Where other operators reach this one's wake port, if that is known.
fn own_address(wake: &TcpListener, pod_ip: Option<IpAddr>) -> Option<SocketAddr> {
    let bound = wake.local_addr().ok()?;
    let ip = match bound.ip().is_unspecified() {
        true => pod_ip?,
        false => bound.ip(),
    };
    Some(SocketAddr::new(ip, bound.port()))
}

fn prometheus(settings: &Settings) -> Result<PrometheusSettings, StartError> {
    let server = settings.prometheus_address.as_deref().map(Url::parse);
    let authorization = settings.prometheus_authorization.as_deref();
    let authorization = authorization.map(|text| {
        let mut value = reqwest::header::HeaderValue::from_str(text)?;
        value.set_sensitive(true);
        Ok::<_, reqwest::header::InvalidHeaderValue>(value)
    });
    let allowed = settings.allowed_prometheus_servers.iter();
    let allowed: Result<Vec<Url>, _> = allowed.map(|one| Url::parse(one)).collect();
    Ok(PrometheusSettings {
        allowed: allowed.map_err(|_| StartError::Prometheus)?,
        show_values: settings.show_trigger_values,
        server: server.transpose().map_err(|_| StartError::Prometheus)?,
        authorization: authorization
            .transpose()
            .map_err(|_| StartError::Prometheus)?,
        any_address: settings.allow_loopback,
    })
}

/// The parts of an operator, the services whose readings change, and the tasks that belong to single parts.
fn build(
    clock: Clock,
    settings: Settings,
    client: Client,
    election: &LeaderElection,
    tls: Option<ClientConfig>,
    tasks: &mut JoinSet<()>,
) -> Result<(Arc<Operator>, mpsc::Receiver<Name>), StartError> {
    let metrics = Arc::new(Metrics::new(&settings.resolver_namespace));
    let sources = Sources {
        prometheus: Prometheus::new(prometheus(&settings)?)?,
        metrics: metrics.clone(),
    };
    let (readings, changed) = Readings::start(sources, settings.polling_interval);
    let reports = Reports::new(
        settings.resolver_port,
        settings.token_file.clone(),
        tls,
        clock,
    )?;
    let (events, event_writer) = EventQueue::new(client.clone());
    tasks.spawn(event_writer);
    let cluster = Arc::new(Cluster::new(
        client,
        scopes(&settings),
        settings.concurrency.max(1),
    ));
    let terms = Arc::new(Terms::new(election.subscribe()));
    let permissions = Arc::new(Permissions::default());
    let (counted, counting) = (cluster.clone(), terms.clone());
    metrics.before_each_scrape(move |metrics| match counting.leads() {
        true => metrics.savings().count(&counted.store.cache(), clock.now()),
        false => metrics.savings().forget_all(),
    });
    let operator = Operator {
        ports: Ports::new(
            settings.ports.clone(),
            settings.port_quarantine,
            settings.namespaces.len() != 1,
        ),
        writer: Writer::new(
            cluster.clone(),
            clock,
            terms.clone(),
            permissions.clone(),
            metrics.clone(),
        ),
        reporter: Reporter::new(cluster.clone(), metrics.clone(), events),
        memories: Memories::new(clock, terms.clone()),
        reports: Arc::new(reports),
        heartbeats: Arc::default(),
        resolvers_changed: Notify::new(),
        resolverless_wakes: SharedRate::new(RESOLVERLESS_WAKE_RATE),
        closing: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        settings,
        clock,
        cluster,
        readings,
        metrics,
        terms,
        permissions,
    };
    Ok((Arc::new(operator), changed))
}

/// How servers of this name are called, if there is TLS.
fn client_config(
    tls: Option<&PeerTls>,
    name: &'static str,
) -> Result<Option<ClientConfig>, TlsError> {
    tls.map(|tls| tls.client_config(name)).transpose()
}

/// The namespaces to watch, one by one; `None` is all of them.
fn scopes(settings: &Settings) -> Vec<Option<String>> {
    match settings.namespaces.as_slice() {
        [] => vec![None],
        some => {
            let unique: BTreeSet<&String> = some.iter().collect();
            unique.into_iter().cloned().map(Some).collect()
        }
    }
}

/// The endpoints: wakes with metrics, metrics alone, health.
async fn serve(
    operator: &Arc<Operator>,
    tasks: &mut JoinSet<()>,
    wakes: TcpListener,
    leader: LeaderClient,
    tls: Option<TlsAcceptor>,
) -> Result<(), StartError> {
    let settings = &operator.settings;
    let (send, pending) = mpsc::channel(WAKE_QUEUE_CAPACITY);
    let callers = WakeSettings {
        callers: settings.wake_callers.iter().cloned().collect(),
        allow_anonymous: settings.allow_anonymous_wakes,
    };
    let metrics = operator.metrics.clone();
    let client = operator.cluster.client.clone();
    let cluster = operator.cluster.clone();
    let endpoint = WakeEndpoint::new(client, callers, send, leader, metrics)
        .with_tokenless(move |peer| cluster.store.cache().has_predecessor_resolver(peer));
    tasks.spawn(endpoint.with_tls(tls).serve(wakes));
    tasks.spawn(wake::run(operator.clone(), pending));
    if let Some(address) = settings.metrics {
        let listener = open("the metrics port", address).await?;
        tasks.spawn(serve_metrics(operator.metrics.clone(), listener));
    }
    if let Some(address) = settings.health {
        let listener = open("the health port", address).await?;
        let (cluster, heartbeats) = (operator.cluster.clone(), operator.heartbeats.clone());
        tasks.spawn(health::serve(cluster, heartbeats, listener));
    }
    Ok(())
}

async fn serve_metrics(metrics: Arc<Metrics>, listener: TcpListener) {
    let text = move || {
        let text = metrics.encode();
        std::future::ready(text)
    };
    let router = axum::Router::new().route("/metrics", axum::routing::get(text));
    let answer = move |_, request| router.clone().oneshot(request);
    health::SCRAPED.serve(listener, answer).await;
}

/// One watch for each kind and watched namespace.
fn watch_all(operator: &Arc<Operator>, tasks: &mut JoinSet<()>) {
    for scope in operator.cluster.store.scopes() {
        let namespace = scope.as_deref();
        let declared = WatchSpec::everything_at(ElastiService::url_path(&(), namespace));
        watch_kind::<Declared>(operator, tasks, declared, &scope);
        let services = WatchSpec::everything_at(Service::url_path(&(), namespace));
        watch_kind::<ServiceView>(operator, tasks, services, &scope);
        let slices = WatchSpec::everything_at(EndpointSlice::url_path(&(), namespace));
        watch_kind::<SliceView>(operator, tasks, slices, &scope);
        let pods = WatchSpec::everything_at(Pod::url_path(&(), namespace));
        watch_kind::<PodView>(operator, tasks, pods, &scope);
        if scope.is_none() {
            // A node is tens of kilobytes large, and is written every few minutes.
            let nodes = WatchSpec {
                metadata_only: true,
                optional: true,
                ..WatchSpec::everything_at(Node::url_path(&(), None))
            };
            watch_kind::<NodeView>(operator, tasks, nodes, &scope);
        }
    }
    watch_resolvers(operator, tasks);
    watch_predecessor(operator, tasks);
    tasks.spawn(targets::watch_kinds(targets::Watches {
        cluster: operator.cluster.clone(),
        heartbeats: operator.heartbeats.clone(),
        metrics: operator.metrics.clone(),
    }));
}

/// Listed again after each watch; sooner while some come or go.
fn watch_resolvers(operator: &Arc<Operator>, tasks: &mut JoinSet<()>) {
    let (unsettled, is_unsettled) = watch::channel(false);
    tasks.spawn(follow_resolver_changes(operator.clone(), unsettled));
    let namespace = Some(operator.settings.resolver_namespace.clone());
    let resolvers = WatchSpec {
        labels: Some(resolver_labels()),
        relist_every: 1,
        lifetime: RESOLVERS_AT_REST,
        urgent: Some((is_unsettled, RESOLVERS_UNSETTLED)),
        ..WatchSpec::everything_at(Pod::url_path(&(), namespace.as_deref()))
    };
    watch_kind::<ResolverPod>(operator, tasks, resolvers, &namespace);
}

/// In all namespaces, if this operator serves all; or else in its own, where an upgrade replaces KubeElasti.
fn watch_predecessor(operator: &Arc<Operator>, tasks: &mut JoinSet<()>) {
    let everywhere = operator.cluster.store.scopes().contains(&None);
    let own = operator.settings.operator_namespace.clone();
    let namespace = (!everywhere).then_some(own);
    let pods = WatchSpec {
        labels: Some(PREDECESSOR_LABEL.to_owned()),
        ..WatchSpec::everything_at(Pod::url_path(&(), namespace.as_deref()))
    };
    watch_kind::<PredecessorPod>(operator, tasks, pods, &namespace);
}

fn watch_kind<K: CachedKind>(
    operator: &Arc<Operator>,
    tasks: &mut JoinSet<()>,
    spec: WatchSpec,
    scope: &Option<String>,
) {
    let (operator, scope) = (operator.clone(), scope.clone());
    let heartbeat = operator.heartbeats.register();
    tasks.spawn(async move {
        let _counted = operator.metrics.watch_started(K::RESOURCE);
        let Cluster { client, store, .. } = &*operator.cluster;
        // Which pods and slices matter is known once the ElastiServices and Services are.
        while K::NEEDS_SERVICES_FIRST && !store.cache().services_listed() {
            heartbeat.beat();
            sleep(Duration::from_millis(20)).await;
        }
        let on_change = |change: Change<K>, version: &str| {
            store.set_watch_version::<K>(scope.as_deref(), &change, version);
            operator.apply_change(scope.as_deref(), change);
        };
        let filter = filter::<K>(&operator, scope.clone());
        kinds::watch(client.clone(), spec, heartbeat, filter, on_change).await;
    });
}

/// Of a list only what decisions need is kept: a cluster may have 150,000 pods, few of which are of managed Services.
fn filter<K: CachedKind>(operator: &Arc<Operator>, scope: Option<String>) -> Filter<K> {
    let (begins, keeps) = (operator.cluster.clone(), operator.cluster.clone());
    Filter {
        begin: Box::new(move || begins.store.begin_list::<K>(scope.as_deref())),
        keep: Box::new(move |object| object.matters(&keeps.store.cache())),
    }
}
