//! A cluster with operators and resolvers: a simulated one with them as pods of the namespace `elasti`, or a real one
//! with the chart installed, or a real API server without nodes. No two environments on one machine share an address or
//! a namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use elasti_api::{WakeAnswer, WakeClient, WakeRequest, names};
use elasti_core::observed;
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use elasti_fake_cluster::clock::Clock;
use elasti_fake_cluster::node::NodeConfig;
use elasti_fake_cluster::prometheus::{Prometheus, Reading};
use jiff::SignedDuration;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use crate::app::{App, Blueprint, blueprint};
use crate::cluster::{self, Cluster, Installation};
use crate::request_log::RequestLog;
use crate::{ApiClient, STRATEGIC, client, logs, permissions, until};

const DEFINITION: &str = include_str!("../../../deploy/crd/elastiservices.yaml");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const ELASTI_SERVICES: &str = "/apis/elasti.truefoundry.com/v1alpha1/elastiservices";
const PODS: &str = "/api/v1/namespaces/elasti/pods";
/// The node of pods that no kubelet has.
pub const NODE: &str = "this-process";
/// The operators' service account.
pub const OPERATOR_USER: &str = "system:serviceaccount:elasti:elasti-operator-controller-manager";
/// The resolvers' service account.
pub const RESOLVER_USER: &str = "system:serviceaccount:elasti:elasti-resolver";

/// Times short enough for a life in a few seconds, and long enough for a loaded machine.
#[must_use]
pub fn times() -> observed::Settings {
    observed::Settings {
        settle: SignedDuration::from_millis(300),
        tick_timeout: SignedDuration::from_millis(600),
        margin: SignedDuration::from_millis(100),
        resolver_grace: SignedDuration::from_secs(2),
        report_fresh: SignedDuration::from_secs(5),
        deletion_timeout: SignedDuration::from_secs(60),
        contention_pause: SignedDuration::from_secs(2),
        promise: SignedDuration::from_secs(1),
        ..observed::Settings::default()
    }
}

/// How far a real kubelet's ticks are apart.
const TICK: Duration = Duration::from_secs(10);

/// The configuration of a test environment.
#[derive(Clone, Debug)]
pub struct TestEnvConfig {
    /// Nodes of the simulated cluster.
    pub nodes: u8,
    /// How far the ticks of a node's kubelet are apart.
    pub tick: Duration,
    /// Operators.
    pub operators: usize,
    /// Resolvers.
    pub resolvers: usize,
    /// The operators' times.
    pub times: observed::Settings,
    /// How often triggers are read.
    pub polling_interval: Duration,
    /// Whether operators stand for election.
    pub leader_elect: bool,
    /// The namespaces to serve; empty means all.
    pub namespaces: Vec<String>,
    /// Operators and resolvers have the chart's permissions in those namespaces and in their own, and none in the cluster.
    pub only_namespaced_permissions: bool,
    /// Resolvers tell whom they wake services for.
    pub wake_clients: bool,
    /// Where listen ports come from.
    pub ports: std::ops::RangeInclusive<u16>,
    /// How long a released listen port rests.
    pub port_quarantine: SignedDuration,
    /// Operators and resolvers speak TLS with one another.
    pub tls: bool,
    /// Install the definitions of Rollouts and ScaledObjects.
    pub rollouts_and_keda: bool,
    /// The simulated cluster's own settings.
    pub api: ApiServerConfig,
}

impl Default for TestEnvConfig {
    fn default() -> Self {
        Self {
            nodes: 2,
            tick: TICK,
            operators: 1,
            resolvers: 1,
            times: times(),
            polling_interval: Duration::from_millis(200),
            leader_elect: false,
            namespaces: Vec::new(),
            only_namespaced_permissions: false,
            wake_clients: false,
            ports: 20_000..=29_999,
            port_quarantine: SignedDuration::from_secs(2),
            tls: false,
            rollouts_and_keda: false,
            api: ApiServerConfig::default(),
        }
    }
}

/// One process in the simulated cluster.
#[derive(Debug)]
struct Process<R> {
    name: String,
    address: Ipv4Addr,
    running: Option<R>,
}

impl<R> Process<R> {
    /// Its name, and what runs of it; after that nothing does.
    fn take(&mut self) -> (String, Option<R>) {
        (self.name.clone(), self.running.take())
    }
}

/// The cluster of a test environment.
enum Backend {
    FakeCluster(Arc<FakeCluster>),
    /// The chart has put operators and resolvers there.
    Cluster(Cluster),
    /// A real API server and its controllers, without nodes.
    ApiServer(ApiServer),
}

/// How it is reached, and what triggers ask.
struct ApiServer {
    kubeconfig: String,
    prometheus: Prometheus,
}

struct Inner {
    backend: Backend,
    /// Someone else sees to the simulated cluster's end.
    handed_over: AtomicBool,
    /// The real names of namespaces, by the names that tests give them.
    namespaces: Mutex<BTreeMap<String, &'static str>>,
    api_client: ApiClient,
    config: TestEnvConfig,
    operators: Mutex<Vec<Process<elasti_operator::Running>>>,
    resolvers: Mutex<Vec<Process<elasti_resolver::Running>>>,
    requests: RequestLog,
    tokens: TempDir,
    operator_service: String,
}

impl Drop for Inner {
    /// The simulated cluster ends with the runtime. Dropped before, its addresses would go to the next simulated cluster while sockets
    /// still live there.
    fn drop(&mut self) {
        if let Backend::FakeCluster(fake_cluster) = &self.backend
            && !self.handed_over.load(Ordering::Relaxed)
        {
            std::mem::forget(fake_cluster.clone());
        }
    }
}

/// A simulated cluster with operators, resolvers and a request log; clones share it.
#[derive(Clone)]
pub struct TestEnv(Arc<Inner>);

impl std::fmt::Debug for TestEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestEnv")
    }
}

/// An address that no other test has: sockets of a test that has just ended may live a little longer than its simulated cluster.
/// The simulated clusters of one machine take their blocks from `127.1` upwards and do not get here.
fn own_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let process = std::process::id().to_le_bytes()[0];
    Ipv4Addr::new(127, 254, process, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a process. Its address may have been another's before, whose sockets take a moment to go; in a cluster no two
/// pods share one.
async fn started<P, E: std::fmt::Debug>(mut start: impl AsyncFnMut() -> Result<P, E>) -> P {
    let mut attempts = 0;
    loop {
        match start().await {
            Ok(running) => return running,
            Err(error) => assert!(attempts < 600, "it does not start: {error:?}"),
        }
        attempts += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl TestEnv {
    /// One operator, one resolver, two nodes.
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// An environment that differs.
    pub async fn with(change: impl FnOnce(&mut TestEnvConfig)) -> Self {
        logs();
        let mut config = TestEnvConfig::default();
        change(&mut config);
        match Cluster::from_environment().await {
            Some(cluster) => Self::on_cluster(cluster, config).await,
            None => Self::in_fake_cluster(config).await,
        }
    }

    /// On a real cluster only `rollouts_and_keda` counts: everything else is as the chart made it.
    async fn on_cluster(cluster: Cluster, config: TestEnvConfig) -> Self {
        let api_client = ApiClient(cluster.client.clone());
        if config.rollouts_and_keda {
            cluster.install_definitions().await;
        }
        let env = Self::new(Backend::Cluster(cluster), config, api_client, String::new());
        env.namespace("default").await;
        env
    }

    fn new(
        backend: Backend,
        config: TestEnvConfig,
        api_client: ApiClient,
        operator_service: String,
    ) -> Self {
        Self(Arc::new(Inner {
            backend,
            handed_over: AtomicBool::new(false),
            namespaces: Mutex::default(),
            api_client,
            config,
            operators: Mutex::default(),
            resolvers: Mutex::default(),
            requests: RequestLog::default(),
            tokens: tempfile::tempdir().unwrap(),
            operator_service,
        }))
    }

    async fn in_fake_cluster(mut config: TestEnvConfig) -> Self {
        config.api.enforce_rbac |= config.only_namespaced_permissions;
        let shape = |node: &mut NodeConfig| {
            node.tick = config.tick;
            node.first_tick = node.first_tick.mul_f64(config.tick.div_duration_f64(TICK));
        };
        let fake_cluster = FakeCluster::start_with(config.api.clone(), config.nodes, shape).await;
        let fake_cluster = fake_cluster.unwrap();
        let api_client = ApiClient(fake_cluster.server.client());
        if config.rollouts_and_keda {
            fake_cluster.install_rollouts_and_keda();
        }
        make_home(&api_client).await;
        if config.only_namespaced_permissions {
            permissions::grant(&api_client, &config.namespaces).await;
        } else {
            let accounts = permissions::ACCOUNTS;
            api_client
                .make(BINDINGS, everything("elasti", &accounts))
                .await;
        }
        let operator_service = make_operator_service(&api_client).await;
        let (operators, resolvers) = (config.operators, config.resolvers);
        let backend = Backend::FakeCluster(Arc::new(fake_cluster));
        let env = Self::new(backend, config, api_client, operator_service);
        for _ in 0..resolvers {
            env.add_resolver().await;
        }
        for _ in 0..operators {
            env.add_operator().await;
        }
        env
    }

    /// On an empty API server whose controllers run and which allows everything. There are no operators and resolvers, no
    /// pod runs, and nothing forwards a Service's address.
    pub async fn on_api_server(kubeconfig: &Path) -> Self {
        let config = TestEnvConfig {
            operators: 0,
            resolvers: 0,
            nodes: 0,
            ..TestEnvConfig::default()
        };
        let api_client = ApiClient(cluster::client(kubeconfig).await);
        make_home(&api_client).await;
        // Endpoints of pods whose node is not there are left out of EndpointSlices.
        let node = json!({"metadata": {"name": NODE}});
        api_client.make("/api/v1/nodes", node).await;
        until("ElastiServices are served", async || {
            api_client.exists(ELASTI_SERVICES).await
        })
        .await;
        let operator_service = make_operator_service(&api_client).await;
        let backend = Backend::ApiServer(ApiServer {
            kubeconfig: std::fs::read_to_string(kubeconfig).unwrap(),
            prometheus: Prometheus::start(Clock::start()).await.unwrap(),
        });
        Self::new(backend, config, api_client, operator_service)
    }

    /// The simulated cluster.
    #[must_use]
    pub fn fake_cluster(&self) -> &Arc<FakeCluster> {
        match &self.0.backend {
            Backend::FakeCluster(fake_cluster) => fake_cluster,
            Backend::Cluster(_) | Backend::ApiServer(_) => {
                panic!("this test is for the simulated cluster only")
            }
        }
    }

    fn cluster(&self) -> Option<&Cluster> {
        match &self.0.backend {
            Backend::FakeCluster(_) | Backend::ApiServer(_) => None,
            Backend::Cluster(cluster) => Some(cluster),
        }
    }

    /// Elasti as its chart installed it.
    #[must_use]
    pub fn installation(&self) -> Installation {
        let cluster = self.cluster();
        let cluster = cluster.expect("this test is for a real cluster: cargo xtask e2e");
        Installation::new(cluster, self.0.api_client.clone())
    }

    /// The Prometheus that triggers ask, as operators reach it.
    #[must_use]
    pub fn prometheus(&self) -> String {
        match &self.0.backend {
            Backend::FakeCluster(fake_cluster) => {
                format!("http://{}", fake_cluster.prometheus.address)
            }
            Backend::Cluster(cluster) => cluster.prometheus.clone(),
            Backend::ApiServer(server) => format!("http://{}", server.prometheus.address),
        }
    }

    /// Sets what a query gets from now on.
    pub fn set_reading(&self, query: &str, reading: Reading) {
        match &self.0.backend {
            Backend::FakeCluster(fake_cluster) => fake_cluster.prometheus.set(query, reading),
            Backend::Cluster(cluster) => cluster.readings.set(query, &reading),
            Backend::ApiServer(server) => server.prometheus.set(query, reading),
        }
    }

    /// How many requests to a Service wait at resolvers.
    pub(crate) async fn held_for(&self, namespace: &str, service: &str) -> usize {
        match &self.0.backend {
            Backend::FakeCluster(_) | Backend::ApiServer(_) => self.held(),
            Backend::Cluster(_) => self.installation().held_for(namespace, service).await,
        }
    }

    /// How long nodes may take to follow a slice, and a little more.
    #[must_use]
    pub fn settle(&self) -> Duration {
        let real = observed::Settings::default().settle;
        let settle = if self.is_real() {
            real
        } else {
            self.0.config.times.settle
        };
        Duration::try_from(settle).unwrap() + Duration::from_millis(200)
    }

    /// Whether nothing runs pods and forwards the addresses of Services.
    #[must_use]
    pub fn is_without_nodes(&self) -> bool {
        matches!(self.0.backend, Backend::ApiServer(_))
    }

    /// Whether pods are real.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.cluster().is_some()
    }

    /// Whether a test plays the controllers of others itself.
    pub(crate) fn needs_stand_ins(&self) -> bool {
        self.is_real() && !cluster::has_partners()
    }

    /// The real name of a namespace.
    #[must_use]
    pub fn name_of(&self, namespace: &'static str) -> &'static str {
        let namespaces = self.0.namespaces.lock();
        namespaces.get(namespace).copied().unwrap_or(namespace)
    }

    /// The namespace of apps that name no other.
    #[must_use]
    pub fn home(&self) -> &'static str {
        self.name_of("default")
    }

    /// The simulated cluster, for a caller that drops it after the runtime, when its addresses are free again.
    #[must_use]
    pub fn hand_over_fake_cluster(&self) -> Arc<FakeCluster> {
        self.0.handed_over.store(true, Ordering::Relaxed);
        self.fake_cluster().clone()
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        match &self.0.backend {
            Backend::FakeCluster(fake_cluster) => fake_cluster.kubeconfig(),
            Backend::Cluster(cluster) => cluster.kubeconfig(),
            Backend::ApiServer(server) => server.kubeconfig.clone(),
        }
    }

    /// The API, as the administrator.
    #[must_use]
    pub fn api(&self) -> &ApiClient {
        &self.0.api_client
    }

    /// What became of every request.
    #[must_use]
    pub fn requests(&self) -> &RequestLog {
        &self.0.requests
    }

    /// How it is laid out.
    #[must_use]
    pub fn config(&self) -> &TestEnvConfig {
        &self.0.config
    }

    /// An app with a Service, managed by an ElastiService, awake and in use.
    pub async fn deploy(&self, name: &'static str) -> App {
        self.build(blueprint(name)).await
    }

    /// An app that differs.
    pub async fn build(&self, blueprint: Blueprint) -> App {
        App::build(self.clone(), blueprint).await
    }

    /// A Service and an ElastiService whose target does not exist yet.
    pub async fn build_without_target(&self, blueprint: Blueprint) -> App {
        App::build_without_target(self.clone(), blueprint).await
    }

    /// Makes a namespace that is ready for pods; gives its real name.
    pub async fn namespace(&self, name: &'static str) -> &'static str {
        let real = match self.cluster() {
            None => name,
            Some(cluster) => cluster.own_name(name),
        };
        self.0.namespaces.lock().insert(name.to_owned(), real);
        match self.cluster() {
            None => make_namespace(&self.0.api_client, real).await,
            Some(_) => {
                make_restricted_namespace(&self.0.api_client, real).await;
            }
        }
        real
    }

    /// A service account of the namespace `elasti` that may do everything.
    pub async fn account(&self, name: &str) {
        let object = json!({"metadata": {"name": name}});
        let path = "/api/v1/namespaces/elasti/serviceaccounts";
        self.0.api_client.make(path, object).await;
        let binding = everything(name, &[name]);
        self.0.api_client.make(BINDINGS, binding).await;
    }

    /// A client with a service account's own permissions.
    pub async fn client_as(&self, account: &str) -> kube::Client {
        let token = self.token(account, None).await;
        self.fake_cluster().server.client_with_token(&token)
    }

    async fn token(&self, account: &str, audience: Option<&str>) -> String {
        let path = format!("/api/v1/namespaces/elasti/serviceaccounts/{account}/token");
        let mut spec = json!({"expirationSeconds": 86_400});
        if let Some(audience) = audience {
            spec["audiences"] = json!([audience]);
        }
        let answer = self.0.api_client.make(&path, json!({"spec": spec})).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A token for the other side: resolvers show theirs to operators, operators theirs to resolvers.
    async fn token_file(&self, account: &str, audience: &str) -> PathBuf {
        let token = self.token(account, Some(audience)).await;
        let path = self.0.tokens.path().join(account);
        std::fs::write(&path, token).unwrap();
        path
    }

    /// The certificate of both, as its volume shows it.
    fn tls_folder(&self) -> Option<PathBuf> {
        let folder = self
            .0
            .config
            .tls
            .then(|| self.0.tokens.path().join("tls"))?;
        std::fs::create_dir_all(&folder).unwrap();
        elasti_testkit::tls::FIRST.write(&folder);
        Some(folder)
    }

    /// One more resolver; gives its index.
    pub async fn add_resolver(&self) -> usize {
        let address = own_address();
        let settings = elasti_resolver::Settings {
            bind: IpAddr::V4(address),
            admin: SocketAddr::from((address, 8013)),
            health: SocketAddr::from((address, 8011)),
            proxy: Some(SocketAddr::from((address, 8012))),
            operator: self.0.operator_service.clone(),
            token_file: Some(
                self.token_file("elasti-resolver", names::WAKE_AUDIENCE)
                    .await,
            ),
            resolvers: [IpAddr::V4(address)].into(),
            own: [IpAddr::V4(address)].into(),
            allow_loopback: true,
            settle: Duration::try_from(self.0.config.times.settle).unwrap(),
            activity_readers: BTreeSet::from([OPERATOR_USER.to_owned()]),
            namespaces: self.0.config.namespaces.clone(),
            wake_clients: self.0.config.wake_clients,
            tls_folder: self.tls_folder(),
            ..elasti_resolver::Settings::default()
        };
        let client = self.client_as("elasti-resolver").await;
        let running =
            started(async || elasti_resolver::Running::start(settings.clone(), client.clone()))
                .await;
        until("the resolver is ready", async || running.is_ready()).await;
        let index = self.0.resolvers.lock().len();
        let name = format!("elasti-resolver-{index}");
        self.make_pod(&name, names::RESOLVER_LABEL_VALUE, address)
            .await;
        self.0.resolvers.lock().push(Process {
            name,
            address,
            running: Some(running),
        });
        index
    }

    /// Kills a resolver: its pod is gone, its sockets are closed.
    pub async fn kill_resolver(&self, index: usize) {
        let (name, running) = self.0.resolvers.lock()[index].take();
        drop(running);
        self.remove_pod(&name).await;
    }

    /// Ends a resolver in order, as a scale-down does: its pod goes, it serves to the end, then it is gone.
    pub async fn stop_resolver(&self, index: usize) {
        let (name, running) = self.0.resolvers.lock()[index].take();
        self.delete_pod(&name).await;
        if let Some(running) = running {
            running.drain().await;
        }
        self.remove_pod(&name).await;
    }

    /// Deletes a resolver's pod; the process answers until it is killed.
    pub async fn retire_resolver(&self, index: usize) {
        let name = self.0.resolvers.lock()[index].name.clone();
        self.remove_pod(&name).await;
    }

    /// How many requests a resolver holds.
    #[must_use]
    pub fn held(&self) -> usize {
        let resolvers = self.0.resolvers.lock();
        let running = resolvers.iter().filter_map(|r| r.running.as_ref());
        running.map(elasti_resolver::Running::held).sum()
    }

    /// The addresses of the living resolvers.
    #[must_use]
    pub fn resolver_addresses(&self) -> BTreeSet<String> {
        let resolvers = self.0.resolvers.lock();
        let living = resolvers.iter().filter(|r| r.running.is_some());
        living.map(|r| r.address.to_string()).collect()
    }

    /// One more operator; gives its index.
    pub async fn add_operator(&self) -> usize {
        let client = self.client_as("elasti-operator-controller-manager").await;
        self.add_operator_with(client, |_| {}).await
    }

    /// One more operator that differs.
    pub async fn add_operator_with(
        &self,
        client: kube::Client,
        change: impl FnOnce(&mut elasti_operator::Settings),
    ) -> usize {
        let address = own_address();
        let settings = self.operator_settings(address).await;
        let index = self.0.operators.lock().len();
        self.0.operators.lock().push(Process {
            name: format!("elasti-operator-{index}"),
            address,
            running: None,
        });
        let mut settings = settings;
        change(&mut settings);
        self.start_operator_as(index, settings, client).await;
        index
    }

    async fn operator_settings(&self, address: Ipv4Addr) -> elasti_operator::Settings {
        let config = &self.0.config;
        let account = "elasti-operator-controller-manager";
        let token_file = self.token_file(account, names::ACTIVITY_AUDIENCE).await;
        elasti_operator::Settings {
            wake: SocketAddr::from((address, 8013)),
            metrics: Some(SocketAddr::from((address, 8080))),
            health: Some(SocketAddr::from((address, 8081))),
            namespaces: config.namespaces.clone(),
            leader_elect: config.leader_elect,
            polling_interval: config.polling_interval,
            prometheus_address: Some(self.prometheus()),
            allow_loopback: true,
            token_file: Some(token_file),
            tls_folder: self.tls_folder(),
            wake_callers: vec![RESOLVER_USER.to_owned()],
            ports: config.ports.clone(),
            port_quarantine: config.port_quarantine,
            times: config.times,
            ..elasti_operator::Settings::default()
        }
    }

    async fn start_operator_as(
        &self,
        index: usize,
        settings: elasti_operator::Settings,
        client: kube::Client,
    ) {
        let (name, address) = {
            let operators = self.0.operators.lock();
            (operators[index].name.clone(), operators[index].address)
        };
        let clock =
            elasti_operator::clock::Clock::starting_at(self.fake_cluster().server.clock().now());
        let running = started(async || {
            elasti_operator::Running::start_at(clock, settings.clone(), client.clone()).await
        })
        .await;
        until("the operator is ready", async || running.is_ready()).await;
        self.make_pod(&name, "elasti-operator", address).await;
        self.0.operators.lock()[index].running = Some(running);
    }

    /// An operator's process dies; its pod is still there, as after a crash.
    pub fn crash_operator(&self, index: usize) {
        let running = self.0.operators.lock()[index].running.take();
        drop(running);
    }

    /// Ends an operator at once, as SIGKILL does.
    pub async fn kill_operator(&self, index: usize) {
        let (name, running) = self.0.operators.lock()[index].take();
        drop(running);
        self.remove_pod(&name).await;
    }

    /// Ends an operator in order, as SIGTERM does.
    pub async fn stop_operator(&self, index: usize) {
        let (name, running) = self.0.operators.lock()[index].take();
        if let Some(running) = running {
            running.stop().await;
        }
        self.remove_pod(&name).await;
    }

    /// Starts an operator that was killed or stopped, with nothing but what is in the cluster.
    pub async fn restart_operator(&self, index: usize) {
        let address = self.0.operators.lock()[index].address;
        let settings = self.operator_settings(address).await;
        let client = self.client_as("elasti-operator-controller-manager").await;
        self.start_operator_as(index, settings, client).await;
    }

    /// The operators that lead.
    #[must_use]
    pub fn leaders(&self) -> Vec<usize> {
        let operators = self.0.operators.lock();
        let leads = |running: &Option<elasti_operator::Running>| {
            running
                .as_ref()
                .is_some_and(elasti_operator::Running::leads)
        };
        let all = operators.iter().enumerate();
        all.filter(|(_, o)| leads(&o.running))
            .map(|(i, _)| i)
            .collect()
    }

    /// Where an operator serves its health.
    #[must_use]
    pub fn operator_address(&self, index: usize) -> Ipv4Addr {
        self.0.operators.lock()[index].address
    }

    /// One operator's answer to a wake, as a resolver gets it.
    pub async fn wake(&self, operator: usize, app: &App) -> WakeAnswer {
        self.wake_for(operator, app, None).await
    }

    /// The same for this client.
    pub async fn wake_for(
        &self,
        operator: usize,
        app: &App,
        client: Option<WakeClient>,
    ) -> WakeAnswer {
        let token = self.token("elasti-resolver", Some(names::WAKE_AUDIENCE));
        let wake = WakeRequest {
            count: 1,
            svc: app.blueprint.name.to_owned(),
            namespace: app.blueprint.namespace.to_owned(),
            client,
        };
        let body = serde_json::to_string(&wake).unwrap();
        let address = format!("{}:8013", self.operator_address(operator));
        let answer = client::post(&address, names::WAKE_PATH, &token.await, &body).await;
        let answer = answer.unwrap();
        assert_eq!(answer.code(), 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Where resolvers reach the operators.
    #[must_use]
    pub fn operator_service(&self) -> &str {
        &self.0.operator_service
    }

    /// Who asks the resolvers for a living operator how many requests wait.
    #[must_use]
    pub fn waiting(&self, index: usize) -> elasti_operator::HeldCounts {
        let operators = self.0.operators.lock();
        let running = operators[index].running.as_ref();
        running.expect("this operator lives").held_counts()
    }

    /// The text of an operator's metrics.
    #[must_use]
    pub fn metrics(&self, index: usize) -> String {
        let operators = self.0.operators.lock();
        let running = operators[index].running.as_ref();
        running
            .map(elasti_operator::Running::metrics)
            .unwrap_or_default()
    }

    /// A pod of the namespace `elasti` that is ready and runs elsewhere: no kubelet of the simulated cluster has it.
    pub async fn make_pod(&self, name: &str, app: &str, address: Ipv4Addr) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "local"}]},
        });
        self.0.api_client.make(PODS, pod).await;
        self.make_pod_ready("elasti", name, address).await;
    }

    /// Reports a pod that no kubelet has as ready at this address.
    pub async fn make_pod_ready(&self, namespace: &str, name: &str, address: Ipv4Addr) {
        let yes = |type_: &str| json!({"type": type_, "status": "True"});
        let status = json!({"status": {
            "phase": "Running",
            "podIP": address.to_string(),
            "podIPs": [{"ip": address.to_string()}],
            "conditions": [yes("Ready"), yes("ContainersReady"), yes("PodScheduled")],
        }});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        self.0.api_client.patch(&path, STRATEGIC, status).await;
    }

    /// Begins to delete such a pod, as a scale-down does.
    pub async fn delete_pod(&self, name: &str) {
        self.0.api_client.delete(&format!("{PODS}/{name}")).await;
    }

    /// Removes such a pod at once.
    pub async fn remove_pod(&self, name: &str) {
        let path = format!("{PODS}/{name}");
        let now = json!({"gracePeriodSeconds": 0}).to_string();
        let api_client = &self.0.api_client;
        api_client
            .send("DELETE", &path, "application/json", now)
            .await;
        until("the pod is gone", async || !api_client.exists(&path).await).await;
    }
}

/// What is there before operators and resolvers are.
async fn make_home(api_client: &ApiClient) {
    let definition = serde_saphyr::from_str(DEFINITION).unwrap();
    api_client.make(DEFINITIONS, definition).await;
    make_namespace(api_client, "elasti").await;
    make_namespace_ready(api_client, "default").await;
    make_accounts(api_client).await;
}

async fn make_namespace(api_client: &ApiClient, name: &str) {
    let object = json!({"metadata": {"name": name}});
    api_client.make("/api/v1/namespaces", object).await;
    make_namespace_ready(api_client, name).await;
}

async fn make_accounts(api_client: &ApiClient) {
    for account in permissions::ACCOUNTS {
        let object = json!({"metadata": {"name": account}});
        let path = "/api/v1/namespaces/elasti/serviceaccounts";
        api_client.make(path, object).await;
    }
}

/// A namespace of a real cluster that takes only harmless pods.
async fn make_restricted_namespace(api_client: &ApiClient, name: &str) {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted",
        crate::cluster::E2E_LABEL: "true",
    });
    let object = json!({"metadata": {"name": name, "labels": labels}});
    api_client.make("/api/v1/namespaces", object).await;
    make_namespace_ready(api_client, name).await;
}

/// The chart's roles are narrower; here accounts may do everything, unless a test takes it away.
fn everything(name: &str, accounts: &[&str]) -> serde_json::Value {
    let account =
        |name: &&str| json!({"kind": "ServiceAccount", "name": name, "namespace": "elasti"});
    let subjects: Vec<_> = accounts.iter().map(account).collect();
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": subjects,
    })
}

async fn make_namespace_ready(api_client: &ApiClient, name: &str) {
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until("its service account", async || {
        api_client.exists(&account).await
    })
    .await;
}

/// The operators' Service; gives its address.
async fn make_operator_service(api_client: &ApiClient) -> String {
    let service = json!({
        "metadata": {"name": "elasti-operator-controller-service"},
        "spec": {"selector": {"app": "elasti-operator"}, "ports": [{"port": 8013, "targetPort": 8013}]},
    });
    let path = "/api/v1/namespaces/elasti/services";
    let service = api_client.make(path, service).await;
    format!("{}:8013", service["spec"]["clusterIP"].as_str().unwrap())
}
