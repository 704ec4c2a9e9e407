//! A simulated cluster with one operator, one resolver and some sleeping services in it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use elasti_api::names;
use elasti_core::observed;
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use elasti_fake_cluster::node::{Node, Visits};
use jiff::SignedDuration;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::backend::{Backend, First, Service};
use super::installation::{self, OPERATOR, PodAddresses, ProcessNode, RESOLVER};
use super::objects::{self, PORT, cluster_address, names_of};
use super::readings;
use super::request_log::RequestLog;
use super::timeline::{Timeline, View};
use super::traffic::{Traffic, send_one};

/// How long a service must be idle here.
pub(crate) const COOLDOWN_SECONDS: u32 = 2;
/// By then the simulated cluster's nodes have applied a slice.
pub(crate) const SETTLE_MILLIS: u64 = 300;
/// What the trigger compares its reading with: requests answered within the last second.
const THRESHOLD: usize = 1;
const NODES: u8 = 2;
const NAMESPACE: &str = "default";
/// Everything that is created here takes milliseconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);

const ACCOUNTS: &str = "/api/v1/namespaces/elasti/serviceaccounts";

/// What the trigger of a service asks.
fn query(name: &str) -> String {
    format!("sum(increase(http_requests_total{{service=\"{name}\"}}[1s]))")
}

/// Two addresses that belong to this demo, whatever else runs on the machine.
struct Addresses {
    pods: PodAddresses,
    _claim: TcpListener,
}

impl Addresses {
    /// The simulated cluster has its own way to claim `127.n`; these lie beside it.
    fn claim() -> anyhow::Result<Self> {
        const CLAIM_PORT: u16 = 61_007;
        let at = |block: u8, host: u8| Ipv4Addr::new(127, 253, block, host);
        for block in 0..=u8::MAX {
            if let Ok(claim) = TcpListener::bind((at(block, 254), CLAIM_PORT)) {
                let pods = PodAddresses {
                    operator: at(block, 1),
                    resolver: at(block, 2),
                };
                return Ok(Self {
                    pods,
                    _claim: claim,
                });
            }
        }
        Err(anyhow!("no loopback address of 127.253.0.0/16 can be used"))
    }
}

/// A running simulated cluster with an operator, a resolver and services.
pub(crate) struct DemoCluster {
    operator: elasti_operator::Running,
    resolver: elasti_resolver::Running,
    services: Vec<Service>,
    /// What the services consist of, to make again what a user deletes.
    objects: Vec<Made>,
    timeline: Timeline,
    requests: RequestLog,
    _node: ProcessNode,
    fake_cluster: FakeCluster,
    files: TempDir,
    _addresses: Addresses,
}

impl DemoCluster {
    /// Starts everything; the services begin at zero replicas, and the operator adopts them.
    pub(crate) async fn start(services: u16, cold_start: Duration) -> anyhow::Result<Self> {
        let fake_cluster = FakeCluster::start(ApiServerConfig::default(), NODES)
            .await
            .context("the simulated cluster's ports")?;
        let files = tempfile::Builder::new()
            .prefix("elasti-demo-")
            .tempdir()
            .context("a folder for the kubeconfig")?;
        std::fs::write(files.path().join("kubeconfig"), fake_cluster.kubeconfig())
            .context("the kubeconfig")?;
        let addresses = Addresses::claim()?;
        let client = fake_cluster.server.client();
        let operator_address = create_installation(&client).await?;
        let resolver =
            start_resolver(&fake_cluster, files.path(), &addresses, operator_address).await?;
        let operator = start_operator(&fake_cluster, files.path(), &addresses).await?;
        let node = ProcessNode::start(&client, addresses.pods);
        installation::create_deployments(&client, fake_cluster.prometheus.address).await?;
        let nodes: Vec<Visits> = { fake_cluster.nodes.iter() }
            .map(Node::shared_visits)
            .collect();
        let prometheus = &fake_cluster.prometheus;
        prometheus.compute(move |query| readings::reading(query, &nodes));
        let timeline = Timeline::open(&client, NAMESPACE);
        let mut made = Vec::new();
        let mut objects = Vec::new();
        for name in names_of(services) {
            let (service, own) = make_service(&client, name, cold_start).await?;
            made.push(service);
            objects.extend(own);
        }
        Ok(Self {
            operator,
            resolver,
            services: made,
            objects,
            timeline,
            requests: RequestLog::default(),
            _node: node,
            fake_cluster,
            files,
            _addresses: addresses,
        })
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("kubeconfig")
    }

    /// A client with all permissions in the simulated cluster.
    pub(crate) fn client(&self) -> Client {
        self.fake_cluster.server.client()
    }

    /// Stops in order; what does not stop soon is cut off.
    pub(crate) async fn stop(self) {
        let _ = timeout(Duration::from_secs(3), self.operator.stop()).await;
    }
}

impl Backend for DemoCluster {
    type Traffic = Traffic;

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    fn requests(&self) -> &RequestLog {
        &self.requests
    }

    async fn held(&self) -> usize {
        self.resolver.held()
    }

    async fn send_first(&self, timeout: Duration) -> anyhow::Result<First> {
        let sent_at = Instant::now();
        let mut answers = JoinSet::new();
        for service in &self.services {
            let sent = send_one(service.clone(), self.requests.clone(), timeout);
            answers.spawn(async { Ok(vec![sent.await]) });
        }
        Ok(First { sent_at, answers })
    }

    async fn send(&self, every: Duration, timeout: Duration) -> anyhow::Result<Traffic> {
        Ok(Traffic::start(
            &self.services,
            &self.requests,
            every,
            timeout,
        ))
    }

    async fn stop(&self, traffic: Traffic) -> anyhow::Result<()> {
        traffic.stop().await;
        Ok(())
    }

    fn why_idle(&self, quiet_millis: &str) -> String {
        let views = { self.services.iter() }.map(|one| self.timeline.now(&one.name));
        let views: Vec<View> = views.collect();
        if views.iter().any(|view| view.sleep_requested) {
            return format!("sleep was requested, {quiet_millis} ms after the last request");
        }
        let cooldown = { views.first() }.map_or(COOLDOWN_SECONDS, |view| view.cooldown_seconds);
        format!("no request for {quiet_millis} ms, cooldown {cooldown} s")
    }

    fn invitation(&self) -> String {
        let url = self.services.first().map(Service::url).unwrap_or_default();
        format!("`curl {url}` in another terminal wakes it")
    }

    async fn restore(&self) -> Vec<String> {
        let client = self.client();
        let mut sentences = Vec::new();
        for one in &self.objects {
            match one.restore(&client).await {
                Ok(false) => {}
                Ok(true) => sentences.push(format!("{one} was deleted; it is created again")),
                Err(error) => sentences.push(format!("cannot create {one} again: {error:#}")),
            }
        }
        sentences
    }
}

/// An object of a service, as it was made.
struct Made {
    kind: &'static str,
    collection: &'static str,
    name: String,
    object: Value,
}

impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl Made {
    /// Makes it again if it is gone; tells whether it was.
    async fn restore(&self, client: &Client) -> anyhow::Result<bool> {
        let path = format!("{}/{}", self.collection, self.name);
        match objects::call(client, "GET", &path, None).await {
            Ok(_) => Ok(false),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                make(client, self.collection, &self.object).await?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What the chart installs but the Deployments; returns the address of the operator's Service.
async fn create_installation(client: &Client) -> anyhow::Result<String> {
    installation::create_chart(client).await?;
    for namespace in [installation::NAMESPACE, NAMESPACE] {
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        until("its service account", async || {
            call(client, "GET", &account, None).await.is_ok()
        })
        .await?;
    }
    let service = "/api/v1/namespaces/elasti/services/elasti-operator-controller-service";
    let service = call(client, "GET", service, None).await?;
    Ok(format!("{}:8013", cluster_address(&service)?))
}

async fn start_resolver(
    fake_cluster: &FakeCluster,
    files: &Path,
    addresses: &Addresses,
    operator: String,
) -> anyhow::Result<elasti_resolver::Running> {
    let client = fake_cluster.server.client();
    let address = addresses.pods.resolver;
    let settings = elasti_resolver::Settings {
        bind: IpAddr::V4(address),
        admin: SocketAddr::from((address, 8013)),
        health: SocketAddr::from((address, 8011)),
        proxy: Some(SocketAddr::from((address, 8012))),
        operator,
        token_file: Some(token_file(&client, files, RESOLVER, names::WAKE_AUDIENCE).await?),
        resolvers: [IpAddr::V4(address)].into(),
        allow_loopback: true,
        settle: Duration::from_millis(SETTLE_MILLIS),
        activity_readers: BTreeSet::from([user(OPERATOR)]),
        ..elasti_resolver::Settings::default()
    };
    let own = fake_cluster
        .server
        .client_with_token(&token(&client, RESOLVER, None).await?);
    let running = elasti_resolver::Running::start(settings, own).context("the resolver's ports")?;
    until("the resolver is ready", async || running.is_ready()).await?;
    Ok(running)
}

async fn start_operator(
    fake_cluster: &FakeCluster,
    files: &Path,
    addresses: &Addresses,
) -> anyhow::Result<elasti_operator::Running> {
    let client = fake_cluster.server.client();
    let address = addresses.pods.operator;
    let settings = elasti_operator::Settings {
        wake: SocketAddr::from((address, 8013)),
        metrics: Some(SocketAddr::from((address, 8080))),
        health: Some(SocketAddr::from((address, 8081))),
        leader_elect: false,
        // A reading is too old after three rounds, and doubt is not idle: shorter, a busy machine would never see sleep.
        polling_interval: Duration::from_secs(1),
        prometheus_address: Some(format!("http://{}", fake_cluster.prometheus.address)),
        allow_loopback: true,
        token_file: Some(token_file(&client, files, OPERATOR, names::ACTIVITY_AUDIENCE).await?),
        wake_callers: vec![user(RESOLVER)],
        times: times(),
        ..elasti_operator::Settings::default()
    };
    let own = fake_cluster
        .server
        .client_with_token(&token(&client, OPERATOR, None).await?);
    let running = elasti_operator::Running::start(settings, own).await?;
    until("the operator is ready", async || running.is_ready()).await?;
    Ok(running)
}

/// Short enough to watch, long enough for a busy machine.
fn times() -> observed::Settings {
    observed::Settings {
        settle: SignedDuration::from_millis(i64::try_from(SETTLE_MILLIS).unwrap_or(i64::MAX)),
        tick_timeout: SignedDuration::from_millis(600),
        margin: SignedDuration::from_millis(100),
        report_fresh: SignedDuration::from_secs(5),
        ..observed::Settings::default()
    }
}

/// A Deployment at zero, its Service, and the ElastiService.
async fn make_service(
    client: &Client,
    name: String,
    cold_start: Duration,
) -> anyhow::Result<(Service, [Made; 3])> {
    let seconds = cold_start.as_secs_f64().to_string();
    let pod = json!({"containers": [{
        "name": "app", "image": "echo:1",
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}},
        "env": [{"name": "START_SECONDS", "value": seconds}],
    }]});
    let made = |kind, collection, object| Made {
        kind,
        collection,
        name: name.clone(),
        object,
    };
    let trigger = json!({"query": query(&name), "threshold": THRESHOLD.to_string()});
    let mut all = [
        made(
            "Deployment",
            "/apis/apps/v1/namespaces/default/deployments",
            objects::deployment(&name, &pod),
        ),
        made(
            "Service",
            "/api/v1/namespaces/default/services",
            objects::service(&name),
        ),
        made(
            "ElastiService",
            "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices",
            objects::elasti_service(&name, COOLDOWN_SECONDS, &trigger),
        ),
    ];
    let [deployment, service, elasti_service] = &mut all;
    make(client, deployment.collection, &deployment.object).await?;
    let given = make(client, service.collection, &service.object).await?;
    make(client, elasti_service.collection, &elasti_service.object).await?;
    let address = SocketAddr::new(cluster_address(&given)?, PORT);
    // Made again, it has the address that was printed.
    if let Some(Value::Object(spec)) = service.object.get_mut("spec") {
        spec.insert("clusterIP".to_owned(), json!(address.ip().to_string()));
    }
    let service = Service {
        name: name.clone(),
        address,
        host: address.to_string(),
        path: "/",
    };
    Ok((service, all))
}

fn user(account: &str) -> String {
    format!("system:serviceaccount:elasti:{account}")
}

async fn token_file(
    client: &Client,
    files: &Path,
    account: &str,
    audience: &str,
) -> anyhow::Result<PathBuf> {
    let path = files.join(account);
    std::fs::write(&path, token(client, account, Some(audience)).await?)
        .context("a token's file")?;
    Ok(path)
}

async fn token(client: &Client, account: &str, audience: Option<&str>) -> anyhow::Result<String> {
    let mut spec = json!({"expirationSeconds": 86_400});
    if let (Some(audience), Some(spec)) = (audience, spec.as_object_mut()) {
        spec.insert("audiences".into(), json!([audience]));
    }
    let answer = make(
        client,
        &format!("{ACCOUNTS}/{account}/token"),
        &json!({"spec": spec}),
    )
    .await?;
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    Ok(token.context("a token without a token")?.to_owned())
}

async fn make(client: &Client, path: &str, object: &Value) -> anyhow::Result<Value> {
    call(client, "POST", path, Some(object)).await
}

async fn call(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    let answer = objects::call(client, method, path, body).await;
    answer.with_context(|| format!("{method} {path}"))
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let waited = timeout(START_TIMEOUT, async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    });
    waited
        .await
        .map_err(|_| anyhow!("timed out waiting for: {what}"))
}
