//! How the parts of one operator start, and how they end.
//! Never decides anything about a service.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::ElastiService;
use elasti_core::ports::PortAllocator;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use crate::activity::Reports;
use crate::clock::Clock;
use crate::health::{self, Pulses};
use crate::leader::LeaderElection;
use crate::metrics::Metrics;
use crate::permissions::{Permissions, ask_for_rights};
use crate::queue::Queue;
use crate::report;
use crate::savings;
use crate::scale_locks::ScaleLocks;
use crate::settings::Settings;
use crate::slim::{Declared, PodView, ServiceView, SliceView};
use crate::store::{Change, Kept, ResolverPod, Store};
use crate::targets::{self, Kinds};
use crate::triggers::prometheus::{Prometheus, PrometheusSettings};
use crate::triggers::{Readings, Sources};
use crate::waiting::Waiting;
use crate::wake::{WakeEndpoint, WakeSettings};
use crate::watch::{Followed, follow, resolver_labels};

use super::tasks::{hear_triggers, keep_terms, take_wakes, work};
use super::{Operator, scopes};

/// Wakes that wait to be decided; each is one write.
const WAKES_WAITING: usize = 1024;
/// What a decision needs is read anew before it, except who the resolvers are. Should the one event about a new one
/// be lost, it would stay unknown for ever; so they are listed anew after each watch, every 18 s. That is before the
/// grace is over after which everything wakes for want of a resolver, and costs three small lists a minute.
const RESOLVERS_AGAIN: u32 = 1;
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

/// An operator at work; dropping it stops everything at once.
#[derive(Debug)]
pub struct Running {
    operator: Arc<Operator>,
    election: Option<Arc<LeaderElection>>,
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
        let election = Arc::new(match settings.leader_elect {
            true => LeaderElection::stand(client.clone(), &settings.operator_namespace, clock),
            false => LeaderElection::alone(),
        });
        let (events, event_writer) = report::event_queue(client.clone());
        let operator = Arc::new(Operator {
            port_allocator: Mutex::new(PortAllocator::new(
                settings.ports.clone(),
                settings.port_quarantine,
            )),
            client,
            clock,
            store: Store::new(scopes(&settings)),
            queue: Queue::default(),
            kinds: Kinds::default(),
            scale_locks: ScaleLocks::default(),
            readings,
            reports,
            metrics,
            pulses: Pulses::default(),
            events,
            leadership: election.subscribe(),
            term: watch::Sender::default(),
            memories: Mutex::default(),
            wakes: Mutex::default(),
            waking: Mutex::default(),
            permissions: Permissions::default(),
            terminating: Mutex::default(),
            services: Mutex::default(),
            stopping: watch::Sender::new(false),
            settings,
        });
        let counted = Arc::downgrade(&operator);
        operator.metrics.before_each_scrape(move || {
            if let Some(operator) = counted.upgrade() {
                savings::count(&operator);
            }
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(event_writer);
        serve(&operator, &mut tasks, wake).await?;
        watch_all(&operator, &mut tasks);
        tasks.spawn(ask_for_rights(operator.clone()));
        tasks.spawn(hear_triggers(operator.clone(), changed));
        tasks.spawn(keep_terms(operator.clone(), election.clone()));
        for _ in 0..operator.settings.concurrency.max(1) {
            tasks.spawn(work(operator.clone()));
        }
        Ok(Self {
            operator,
            election: Some(election),
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
        self.operator.leads()
    }

    /// Who asks the resolvers how many requests wait.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        Waiting(self.operator.clone())
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
        if let Some(election) = self.election.take().and_then(Arc::into_inner) {
            election.release().await;
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
    let answer = move |_, request| router.clone().oneshot(request);
    health::SCRAPED.serve(listener, answer).await;
}

/// One watch a kind and namespace to watch.
fn watch_all(operator: &Arc<Operator>, tasks: &mut JoinSet<()>) {
    for scope in operator.scopes() {
        let of = scope.as_deref();
        let every = |path: String| Followed {
            path,
            labels: None,
            relist_every: 0,
        };
        let declared = every(ElastiService::url_path(&(), of));
        watch_kind::<Declared>(operator, tasks, declared, &scope);
        let services = every(Service::url_path(&(), of));
        watch_kind::<ServiceView>(operator, tasks, services, &scope);
        let slices = every(EndpointSlice::url_path(&(), of));
        watch_kind::<SliceView>(operator, tasks, slices, &scope);
        watch_kind::<PodView>(operator, tasks, every(Pod::url_path(&(), of)), &scope);
    }
    let home = Some(operator.settings.resolver_namespace.clone());
    let resolvers = Followed {
        path: Pod::url_path(&(), home.as_deref()),
        labels: Some(resolver_labels()),
        relist_every: RESOLVERS_AGAIN,
    };
    watch_kind::<ResolverPod>(operator, tasks, resolvers, &home);
    tasks.spawn(targets::follow_kinds(operator.clone()));
}

fn watch_kind<K: Kept>(
    operator: &Arc<Operator>,
    tasks: &mut JoinSet<()>,
    followed: Followed,
    scope: &Option<String>,
) {
    let (operator, scope) = (operator.clone(), scope.clone());
    let pulse = operator.pulses.one_more();
    operator.metrics.watching(K::WHAT);
    tasks.spawn(async move {
        // Which pods and slices matter is known once the ElastiServices and Services are.
        while K::NEEDS_TO_KNOW && !operator.store.known().knows_what_matters() {
            pulse.beat();
            sleep(Duration::from_millis(20)).await;
        }
        let tell = |change: Change<K>, version: &str| {
            operator
                .store
                .reached::<K>(scope.as_deref(), &change, version);
            operator.take_in(scope.as_deref(), change);
        };
        follow(operator.client.clone(), followed, pulse, tell).await;
    });
}
