//! Operators and resolvers as processes of their own, each with a pod in the simulated cluster.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv, get};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::pods;

/// How often a process that starts or ends is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Where operators take wakes.
const WAKE_PORT: u16 = 8013;
/// The longest that one may take to be ready or to end.
const LIMIT: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Operator,
    Resolver,
}

impl Kind {
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Operator, Self::Resolver]
            .into_iter()
            .find(|kind| kind.word() == word)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Resolver => "resolver",
        }
    }

    fn account(self) -> &'static str {
        match self {
            Self::Operator => "elasti-operator-controller-manager",
            Self::Resolver => "elasti-resolver",
        }
    }

    /// The token that it shows to the other kind is for this audience.
    fn audience(self) -> &'static str {
        match self {
            Self::Operator => names::ACTIVITY_AUDIENCE,
            Self::Resolver => names::WAKE_AUDIENCE,
        }
    }

    fn pod_label(self) -> &'static str {
        match self {
            Self::Operator => "elasti-operator",
            Self::Resolver => names::RESOLVER_LABEL_VALUE,
        }
    }

    fn health_port(self) -> u16 {
        match self {
            Self::Operator => 8081,
            Self::Resolver => 8011,
        }
    }
}

/// The second process: runs until it gets a signal.
pub(crate) async fn run(kind: Kind, words: &[String]) {
    let [address, folder, operator_service] = words else {
        panic!("address, folder, the operators' Service");
    };
    let address: Ipv4Addr = address.parse().unwrap();
    let folder = Path::new(folder);
    let client = client(folder, kind).await;
    let token_file = Some(folder.join(format!("{}.shown", kind.word())));
    let mut ended = signal(SignalKind::terminate()).unwrap();
    match kind {
        Kind::Operator => {
            let settings = elasti_operator::Settings {
                wake: SocketAddr::from((address, WAKE_PORT)),
                pod_ip: Some(IpAddr::V4(address)),
                metrics: Some(SocketAddr::from((address, 8080))),
                health: Some(SocketAddr::from((address, kind.health_port()))),
                allow_loopback: true,
                token_file,
                wake_callers: vec![RESOLVER_USER.to_owned()],
                ..elasti_operator::Settings::default()
            };
            let running = elasti_operator::Running::start(settings, client)
                .await
                .unwrap();
            ended.recv().await;
            running.stop().await;
        }
        Kind::Resolver => {
            let settings = elasti_resolver::Settings {
                bind: IpAddr::V4(address),
                admin: SocketAddr::from((address, 8013)),
                health: SocketAddr::from((address, kind.health_port())),
                proxy: Some(SocketAddr::from((address, 8012))),
                operator: operator_service.clone(),
                token_file,
                resolvers: [IpAddr::V4(address)].into(),
                own: [IpAddr::V4(address)].into(),
                allow_loopback: true,
                activity_readers: BTreeSet::from([OPERATOR_USER.to_owned()]),
                ..elasti_resolver::Settings::default()
            };
            let running = elasti_resolver::Running::start(settings, client).unwrap();
            ended.recv().await;
            running.drain().await;
        }
    }
}

/// With the permissions of its own account.
async fn client(folder: &Path, kind: Kind) -> Client {
    let kubeconfig = folder.join(format!("{}.kubeconfig", kind.word()));
    let mut kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let token = std::fs::read_to_string(folder.join(format!("{}.own", kind.word()))).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo {
            token: Some(token.clone().into()),
            ..AuthInfo::default()
        });
    }
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    elasti_runtime::kube_client::from_config(config).unwrap()
}

/// Where the API server is. The simulated cluster's address carries a token, which counts more than the user's.
fn kubeconfig_as(env: &TestEnv, token: &str) -> String {
    if env.is_without_nodes() {
        return env.kubeconfig();
    }
    let cluster = env.fake_cluster();
    cluster
        .server
        .kubeconfig_with_token(cluster.address(), token)
}

/// One of them, from outside.
pub(crate) struct Process {
    pub(crate) kind: Kind,
    pub(crate) pod: String,
    pub(crate) address: Ipv4Addr,
    /// Where it reaches the operators.
    operator_service: String,
    child: Child,
}

impl Process {
    pub(crate) fn name(&self) -> String {
        self.pod.clone()
    }

    pub(crate) fn resident_kib(&self) -> usize {
        self.status_kib("VmRSS:")
    }

    pub(crate) fn most_resident_kib(&self) -> usize {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field));
        line.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }

    async fn until_ready(&self) {
        let health = format!("{}:{}", self.address, self.kind.health_port());
        let ready = async || {
            get(&health, "/readyz")
                .await
                .is_ok_and(|answer| answer.code() == 200)
        };
        until(&format!("{} is ready", self.pod), ready).await;
    }

    /// SIGTERM, and what it does until its end.
    pub(crate) async fn end(mut self) {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().unwrap();
        until("it has ended", async || {
            self.child.try_wait().unwrap().is_some()
        })
        .await;
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < LIMIT, "never: {what}");
        sleep(POLL_INTERVAL).await;
    }
}

/// All of them.
pub(crate) struct Installation {
    env: TestEnv,
    folder: TempDir,
    pub(crate) processes: Vec<Process>,
    made: u8,
    operators: Arc<Mutex<Vec<Ipv4Addr>>>,
}

impl Installation {
    /// Writes what the processes need to reach the API server and each other.
    pub(crate) async fn new(env: &TestEnv) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for kind in [Kind::Operator, Kind::Resolver] {
            let account = format!(
                "/api/v1/namespaces/elasti/serviceaccounts/{}",
                kind.account()
            );
            let own = json!({"spec": {"expirationSeconds": 86_400}});
            let shown =
                json!({"spec": {"audiences": [kind.audience()], "expirationSeconds": 86_400}});
            let file = |name: &str| folder.path().join(format!("{}.{name}", kind.word()));
            for (name, request) in [("own", own), ("shown", shown)] {
                let made = env.api().make(&format!("{account}/token"), request).await;
                let token = made["status"]["token"].as_str().unwrap();
                std::fs::write(file(name), token).unwrap();
                if name == "own" {
                    std::fs::write(file("kubeconfig"), kubeconfig_as(env, token)).unwrap();
                }
            }
        }
        Self {
            env: env.clone(),
            folder,
            processes: Vec::new(),
            made: 0,
            operators: Arc::default(),
        }
    }

    /// One more, ready and with its pod; gives its index.
    pub(crate) async fn add(&mut self, kind: Kind) -> usize {
        self.made += 1;
        let address = match self.env.is_without_nodes() {
            true => pods::address(0, self.made),
            false => Ipv4Addr::new(127, 253, std::process::id().to_le_bytes()[0], self.made),
        };
        let pod = format!("elasti-{}-{}", kind.word(), self.made);
        let operator_service = match self.env.is_without_nodes() {
            true => forward_to(self.operators.clone(), address).await,
            false => self.env.operator_service().to_owned(),
        };
        let child = self.spawn(kind, address, &operator_service);
        let process = Process {
            kind,
            pod,
            address,
            operator_service,
            child,
        };
        process.until_ready().await;
        if kind == Kind::Operator {
            self.operators.lock().push(address);
        }
        self.env
            .make_pod(&process.pod, kind.pod_label(), address)
            .await;
        self.processes.push(process);
        self.processes.len() - 1
    }

    /// Kills one and starts it again; gives the time until it was ready.
    pub(crate) async fn restart(&mut self, index: usize) -> Duration {
        self.processes[index].child.kill().unwrap();
        self.processes[index].child.wait().unwrap();
        let Process {
            kind,
            address,
            ref operator_service,
            ..
        } = self.processes[index];
        let started = Instant::now();
        let child = self.spawn(kind, address, operator_service);
        self.processes[index].child = child;
        self.processes[index].until_ready().await;
        started.elapsed()
    }

    pub(crate) fn each<T>(&self, look: impl Fn(&Process) -> T) -> Vec<T> {
        self.processes.iter().map(look).collect()
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.processes.iter().filter(|one| one.kind == kind).count()
    }

    fn spawn(&self, kind: Kind, address: Ipv4Addr, operator_service: &str) -> Child {
        let folder: PathBuf = self.folder.path().into();
        Command::new(std::env::current_exe().unwrap())
            .arg(kind.word())
            .arg(address.to_string())
            .arg(folder)
            .arg(operator_service)
            .spawn()
            .unwrap()
    }
}

impl Drop for Installation {
    /// Also after a failure nothing runs on.
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may have ended by itself.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

/// Forwards connections of a resolver to the operators in turn, as nodes do for their Service: they come from the resolver's
/// own address. Gives where it may reach them.
async fn forward_to(operators: Arc<Mutex<Vec<Ipv4Addr>>>, resolver: Ipv4Addr) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            operators.lock().rotate_left(1);
            let next = operators.lock()[0];
            tokio::spawn(async move {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind((resolver, 0).into()).unwrap();
                if let Ok(mut operator) = socket.connect((next, WAKE_PORT).into()).await {
                    // Either side may end at any time.
                    let _ = copy_bidirectional(&mut client, &mut operator).await;
                }
            });
        }
    });
    address
}
