//! The attacks. Each goes on until the tenant is dropped.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, MERGE, OPERATOR_USER, STRATEGIC, TestEnv, blueprint, get};
use elasti_fake_cluster::faults::{Calls, Fault};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The attacker's namespace; lists have it first.
pub(crate) const AAA: &str = "aaa";
const ELASTI_SERVICES: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/aaa/elastiservices";
const SERVICES: &str = "/api/v1/namespaces/aaa/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/aaa/endpointslices";
const PODS: &str = "/api/v1/namespaces/aaa/pods";

/// Where its connections come from.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 252, 0, 1);
/// How long a write hangs: far longer than a step of a neighbour's.
const HANGS_FOR: Duration = Duration::from_secs(3);

/// Everything that is tried, in this order; those of one wave begin together.
pub(crate) const WAVES: [&[Attack]; 8] = [
    &[Attack::MadeUpKinds, Attack::OldVersionOfDeployment],
    &[Attack::SlowTriggers],
    &[Attack::RegexBombs],
    &[
        Attack::GiantObjects,
        Attack::NeighboursNames,
        Attack::HandWrittenSlices,
        Attack::FalseResolvers,
    ],
    &[Attack::FlappingSpecs],
    &[Attack::HeldConnections, Attack::SlowHeads],
    &[Attack::AdminPortFlood, Attack::WakesWithoutToken],
    &[Attack::HangingWrites],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// 60 kinds that do not exist.
    MadeUpKinds,
    /// `apps/v1beta1`, which is not served.
    OldVersionOfDeployment,
    /// 50 objects with 32 triggers each, at the neighbour's own server, of 4 s each.
    SlowTriggers,
    /// Rules whose expressions are exponential in engines that backtrack, or larger than any memory, and requests.
    RegexBombs,
    /// Ten objects of 200 KiB.
    GiantObjects,
    /// An ElastiService, a Service and a Deployment with the neighbour's names.
    NeighboursNames,
    /// Slices that claim to be the neighbour's private Service, and name a metadata address.
    HandWrittenSlices,
    /// Pods with the label of resolvers.
    FalseResolvers,
    /// A spec that changes every 20 ms, and asks to wake and to sleep.
    FlappingSpecs,
    /// 500 requests that wait for a pod which never starts.
    HeldConnections,
    /// 300 connections that begin a head and never end it.
    SlowHeads,
    /// 200 connections to each port 8013.
    AdminPortFlood,
    /// Wakes for the neighbour and everybody, without a token and with a made-up one.
    WakesWithoutToken,
    /// Every write in the namespace takes 3 s, as with a webhook that hangs.
    HangingWrites,
}

/// The attacker.
pub(crate) struct Tenant {
    env: TestEnv,
    tasks: JoinSet<()>,
    connections: Vec<TcpStream>,
}

async fn make_elasti_service(env: &TestEnv, name: &str, target: Value, more: Value) {
    let mut spec = json!({"service": name, "scaleTargetRef": target});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": name}, "spec": spec,
    });
    env.api().make(ELASTI_SERVICES, object).await;
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

/// A connection from an address of the attacker's own, as every pod has one.
async fn connect(address: &str) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((ATTACKER, 0).into()).ok()?;
    socket.connect(address.parse().ok()?).await.ok()
}

/// Asks an operator to wake the neighbour; gives the code of its answer.
pub(crate) async fn wake(address: &str, authorization: &str) -> Option<u16> {
    let body = json!({"count": 1, "svc": "web", "namespace": "default"}).to_string();
    let (path, length) = (names::WAKE_PATH, body.len());
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut stream = connect(address).await?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

impl Tenant {
    pub(crate) async fn start(env: &TestEnv) -> Self {
        env.namespace(AAA).await;
        Self {
            env: env.clone(),
            tasks: JoinSet::new(),
            connections: Vec::new(),
        }
    }

    /// Fails if an attack has ended, for whatever reason.
    pub(crate) fn assert_goes_on(&mut self) {
        let ended = self.tasks.try_join_next();
        assert!(ended.is_none(), "an attack has ended: {ended:?}");
    }

    async fn open(&mut self, count: usize, address: &str, bytes: &[u8]) {
        for _ in 0..count {
            // What is not accepted any more is as good.
            if let Some(mut stream) = connect(address).await {
                let _ = stream.write_all(bytes).await;
                self.connections.push(stream);
            }
        }
    }

    /// A service at zero whose pods never start.
    async fn never_starts(&self, name: &'static str, spec: Value) -> App {
        let mut app = blueprint(name);
        app.namespace = AAA;
        app.starts = false;
        app.in_use = false;
        app.replicas = 0;
        app.spec = spec;
        self.env.build(app).await
    }

    async fn slow_triggers(&self) {
        let prometheus = &self.env.fake_cluster().prometheus;
        prometheus.set_delay_of("slow_", Duration::from_secs(4));
        let server = self.env.prometheus();
        for object in 0..50 {
            let triggers: Vec<Value> = (0..32)
                .map(|n| {
                    let query = format!("slow_{object}_{n}");
                    let metadata =
                        json!({"query": query, "threshold": "1", "serverAddress": server});
                    json!({"type": "prometheus", "metadata": metadata})
                })
                .collect();
            let name = format!("slow-{object}");
            let more = json!({"triggers": triggers});
            make_elasti_service(&self.env, &name, deployment(&name), more).await;
        }
    }

    async fn regex_bombs(&mut self) {
        let bombs = [
            "(x+x+)+y",
            "(a|aa)+$",
            "(.{0,900}){0,900}",
            "((((a*)*)*)*)*b",
        ];
        let rules: Vec<Value> = (0..32)
            .map(|n| {
                let value = bombs[n % bombs.len()];
                let path = json!({"type": "RegularExpression", "value": value});
                json!({"path": path, "response": {"status": 200}})
            })
            .collect();
        let bomb = self
            .never_starts("bomb", json!({"probeResponse": rules}))
            .await;
        let path = format!("/{}", "x".repeat(8000));
        let address = bomb.address(80);
        self.tasks.spawn(async move {
            loop {
                let _ = tokio::time::timeout(Duration::from_secs(1), get(&address, &path)).await;
            }
        });
    }

    async fn giant_objects(&self) {
        for n in 0..10 {
            let name = format!("giant-{n}");
            make_elasti_service(&self.env, &name, deployment(&name), json!({})).await;
            let huge = json!({"metadata": {"annotations": {"x": "x".repeat(200 * 1024)}}});
            let path = format!("{ELASTI_SERVICES}/{name}");
            self.env.api().patch(&path, MERGE, huge).await;
        }
    }

    async fn hand_written_slices(&self) {
        let private = names::private_service("web");
        let labels = json!({
            names::SERVICE_NAME_LABEL: private, names::ELASTI_SERVICE_LABEL: "web",
            names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES,
        });
        let endpoint = json!({
            "addresses": ["169.254.169.254"], "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "web", "uid": "1"},
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "false", "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "endpoints": [endpoint],
        });
        self.env.api().make(SLICES, slice).await;
    }

    async fn false_resolvers(&self) {
        let api = self.env.api();
        for n in 0..5 {
            let name = format!("resolver-{n}");
            let pod = json!({
                "metadata": {"name": name, "labels": {"app": names::RESOLVER_LABEL_VALUE}},
                "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "local"}]},
            });
            api.make(PODS, pod).await;
            let address = format!("203.0.113.{n}");
            let status = json!({"status": {"phase": "Running", "podIP": address,
                "conditions": [{"type": "Ready", "status": "True"}]}});
            let path = format!("{PODS}/{name}/status");
            api.patch(&path, STRATEGIC, status).await;
        }
    }

    async fn flapping_specs(&mut self) {
        make_elasti_service(&self.env, "flap", deployment("flap"), json!({})).await;
        let env = self.env.clone();
        self.tasks.spawn(async move {
            for n in 1_u64.. {
                let spec = json!({"spec": {"cooldownPeriod": 1 + n % 1000, "paused": n % 2 == 0}});
                let path = format!("{ELASTI_SERVICES}/flap");
                env.api().patch(&path, MERGE, spec).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
    }

    async fn neighbours_names(&self) {
        make_elasti_service(&self.env, "web", deployment("web"), json!({})).await;
        let service = json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}});
        self.env.api().make(SERVICES, service).await;
    }

    async fn held_connections(&mut self) {
        let crowded = self.never_starts("crowded", json!({})).await;
        crowded.until_asleep().await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        self.open(500, &crowded.address(80), request).await;
    }

    async fn slow_heads(&mut self) {
        let address = format!("{}:8012", self.resolver());
        self.open(300, &address, b"G").await;
    }

    fn resolver(&self) -> String {
        let addresses = self.env.resolver_addresses();
        addresses.first().cloned().unwrap_or_default()
    }

    async fn admin_port_flood(&mut self) {
        let (resolver, operator) = (self.resolver(), self.env.operator_address(0));
        self.open(200, &format!("{resolver}:8013"), b"GET /").await;
        self.open(200, &format!("{operator}:8013"), b"POST /").await;
    }

    fn wakes_without_token(&mut self) {
        let address = format!("{}:8013", self.env.operator_address(0));
        self.tasks.spawn(async move {
            for authorization in ["", "Authorization: Bearer made.up.token\r\n"]
                .into_iter()
                .cycle()
            {
                let code = wake(&address, authorization).await;
                assert_ne!(code, Some(200));
                sleep(Duration::from_millis(5)).await;
            }
        });
    }

    pub(crate) fn hanging_writes(&self) {
        let faults = self.env.fake_cluster().server.faults();
        let calls = Calls::writes().namespace(AAA).user(OPERATOR_USER);
        faults.strike_randomly(1000, calls, Fault::Delay(HANGS_FOR));
    }
}

impl Attack {
    pub(crate) async fn begin(self, tenant: &mut Tenant) {
        match self {
            Self::MadeUpKinds => {
                for n in 0..60 {
                    let name = format!("bogus-{n}");
                    let api_version = format!("g{n}.example/v1");
                    let target = json!({"apiVersion": api_version, "kind": "Thing", "name": name});
                    make_elasti_service(&tenant.env, &name, target, json!({})).await;
                }
            }
            Self::OldVersionOfDeployment => {
                let target =
                    json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "old"});
                make_elasti_service(&tenant.env, "old", target, json!({})).await;
            }
            Self::SlowTriggers => tenant.slow_triggers().await,
            Self::RegexBombs => tenant.regex_bombs().await,
            Self::GiantObjects => tenant.giant_objects().await,
            Self::NeighboursNames => tenant.neighbours_names().await,
            Self::HandWrittenSlices => tenant.hand_written_slices().await,
            Self::FalseResolvers => tenant.false_resolvers().await,
            Self::FlappingSpecs => tenant.flapping_specs().await,
            Self::HeldConnections => tenant.held_connections().await,
            Self::SlowHeads => tenant.slow_heads().await,
            Self::AdminPortFlood => tenant.admin_port_flood().await,
            Self::WakesWithoutToken => tenant.wakes_without_token(),
            Self::HangingWrites => tenant.hanging_writes(),
        }
    }
}
