//! The attacker: a namespace, its tasks and its open connections.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, MERGE, TestEnv, blueprint};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The attacker's namespace; lists have it first.
pub(crate) const AAA: &str = "aaa";
pub(super) const ELASTI_SERVICES: &str =
    "/apis/elasti.truefoundry.com/v1alpha1/namespaces/aaa/elastiservices";
pub(super) const SERVICES: &str = "/api/v1/namespaces/aaa/services";
pub(super) const PODS: &str = "/api/v1/namespaces/aaa/pods";

/// Where its connections come from.
pub(super) const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 252, 0, 1);
/// An answer that takes longer is not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The attacker.
pub(crate) struct Tenant {
    pub(super) env: TestEnv,
    /// The neighbour.
    pub(super) web: App,
    pub(super) tasks: JoinSet<()>,
    pub(super) connections: Vec<TcpStream>,
}

pub(super) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

/// A trigger at this server.
pub(super) fn trigger(query: &str, server: &str) -> Value {
    let metadata = json!({"query": query, "threshold": "1", "serverAddress": server});
    json!({"type": "prometheus", "metadata": metadata})
}

/// An ElastiService for a Service and a Deployment with its own name.
pub(super) fn elasti_service(name: &str, more: &Value) -> Value {
    let mut spec = json!({"service": name, "scaleTargetRef": deployment(name)});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// How many of something: more in the nightly run.
pub(super) fn amount(usual: usize, nightly: usize) -> usize {
    match super::is_nightly() {
        true => nightly,
        false => usual,
    }
}

/// A connection from an address of the attacker's own, as every pod has one.
pub(super) async fn connect(address: &str) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((ATTACKER, 0).into()).ok()?;
    socket.connect(address.parse().ok()?).await.ok()
}

/// Sends these bytes from there; gives the code of the answer.
pub(super) async fn ask(address: &str, request: &[u8]) -> Option<u16> {
    let asked = async { exchange(connect(address).await?, request).await };
    tokio::time::timeout(ANSWER_TIMEOUT, asked).await.ok()?
}

/// The same over a connection that is open already.
pub(super) async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Option<u16> {
    stream.write_all(request).await.ok()?;
    let mut answer = Vec::new();
    // A server need not end TLS in order.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split(' ').nth(1)?.parse().ok()
}

/// Asks an operator to wake the neighbour; gives the code of its answer.
pub(crate) async fn wake(address: &str, authorization: &str) -> Option<u16> {
    ask(address, wake_request(authorization).as_bytes()).await
}

pub(super) fn wake_request(authorization: &str) -> String {
    let body = json!({"count": 1, "svc": "web", "namespace": "default"}).to_string();
    let (path, length) = (names::WAKE_PATH, body.len());
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Tenant {
    pub(crate) async fn start(env: &TestEnv, web: &App) -> Self {
        env.namespace(AAA).await;
        Self {
            env: env.clone(),
            web: web.clone(),
            tasks: JoinSet::new(),
            connections: Vec::new(),
        }
    }

    /// Fails if an attack has ended, for whatever reason.
    pub(crate) fn assert_goes_on(&mut self) {
        let ended = self.tasks.try_join_next();
        assert!(ended.is_none(), "an attack has ended: {ended:?}");
    }

    pub(super) async fn make(&self, name: &str, more: Value) {
        let object = elasti_service(name, &more);
        self.env.api().make(ELASTI_SERVICES, object).await;
    }

    pub(super) async fn open(&mut self, count: usize, address: &str, bytes: &[u8]) {
        for _ in 0..count {
            // What is not accepted any more is as good.
            if let Some(mut stream) = connect(address).await {
                let _ = stream.write_all(bytes).await;
                self.connections.push(stream);
            }
        }
    }

    /// A service at zero whose pods never start.
    pub(super) async fn never_starts(&self, name: &'static str, spec: Value) -> App {
        let mut app = blueprint(name);
        app.namespace = AAA;
        app.starts = false;
        app.image = "never-ready:1";
        app.in_use = false;
        app.replicas = 0;
        app.spec = spec;
        self.env.build(app).await
    }

    /// Changes an object again and again, each time to what `change` says.
    pub(super) fn change_for_ever(
        &mut self,
        path: String,
        pause: Duration,
        change: impl Fn(u64) -> Value + Send + 'static,
    ) {
        let env = self.env.clone();
        self.tasks.spawn(async move {
            for n in 1_u64.. {
                let change = change(n).to_string();
                env.api().send("PATCH", &path, MERGE, change).await;
                tokio::time::sleep(pause).await;
            }
        });
    }

    pub(super) fn resolver(&self) -> String {
        let addresses = self.env.resolver_addresses();
        addresses.first().cloned().unwrap_or_default()
    }
}
