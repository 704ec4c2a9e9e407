//! Held requests on the event stream, with a real operator and real resolvers on a simulated cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use elasti_core::held::Counts;
use elasti_dashboard::held::{HeldSource, HeldUnavailable, Proxy};
use elasti_dashboard::{Running, Settings};
use elasti_e2e::{MERGE, OPERATOR_USER, TIMEOUT, TestEnv, until};
use elasti_fake_cluster::faults::{Calls, Fault};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

const VISITORS: u64 = 3;
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

async fn dashboard(client: kube::Client, held_source: impl HeldSource) -> Running {
    let settings = Settings {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        namespaces: Vec::new(),
        hosts: Vec::new(),
        writes: false,
        price: None,
        place: "test".to_owned(),
        explain: None,
    };
    Running::start(settings, client, held_source).await.unwrap()
}

/// Everything, asked for once.
async fn fleet(running: &Running) -> Value {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let asked = format!(
        "GET /api/v1/fleet HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        running.address
    );
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// One page that listens to the stream, as a browser does.
struct Page {
    lines: Lines<BufReader<TcpStream>>,
    /// Held requests by service.
    held: BTreeMap<String, u64>,
    /// Where those numbers come from.
    from: Value,
}

impl Page {
    async fn open(running: &Running) -> Self {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let asked = format!(
            "GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\n\r\n",
            running.address
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        Self {
            lines: BufReader::new(stream).lines(),
            held: BTreeMap::new(),
            from: Value::Null,
        }
    }

    /// Takes in one line of the stream; each message is one.
    async fn next(&mut self) {
        let line = self.lines.next_line().await.unwrap();
        let line = line.expect("the stream has ended");
        let Some(data) = line.strip_prefix("data: ") else {
            return;
        };
        let news: Value = serde_json::from_str(data).unwrap();
        for service in news["services"].as_array().into_iter().flatten() {
            let name = service["name"].as_str().unwrap().to_owned();
            self.held.insert(name, service["held"].as_u64().unwrap());
        }
        if !news["held"].is_null() {
            self.from = news["held"].clone();
        }
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waited = timeout(TIMEOUT, async {
            while !holds(self) {
                self.next().await;
            }
        });
        if waited.await.is_err() {
            panic!(
                "never came: {what}; held {:?} from {}",
                self.held, self.from
            );
        }
    }

    async fn until_held(&mut self, state: &str, held: u64) {
        let what = format!("{held} held, {state}");
        self.until(&what, |page| {
            page.from["state"] == state && page.held.get("web") == Some(&held)
        })
        .await;
    }
}

/// The law: the stream follows who waits, up and down, and no status is written for it.
async fn the_stream_follows_held_requests<S: HeldSource>(held_source: impl FnOnce(&TestEnv) -> S) {
    let env = TestEnv::with(|config| config.resolvers = 2).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let running = dashboard(env.fake_cluster().server.client(), held_source(&env)).await;
    until("the dashboard knows it", async || {
        fleet(&running).await["services"][0]["phase"] == "Asleep"
    })
    .await;
    let faults = env.fake_cluster().server.faults();
    let asked = || {
        let calls = faults.journal();
        calls.iter().filter(|c| c.subresource == "proxy").count()
    };
    assert_eq!(asked(), 0, "asked without a viewer");
    assert_eq!(fleet(&running).await["held"]["state"], "unasked");
    // The operator can neither wake it nor write a word about it.
    for subresource in ["status", "scale"] {
        let calls = Calls::writes().user(OPERATOR_USER).subresource(subresource);
        faults.strike_randomly(1000, calls, Fault::InternalError);
    }
    let before = web.object().await;
    let mut page = Page::open(&running).await;
    page.until_held("live", 0).await;
    let visitors: Vec<_> = (0..VISITORS).map(|_| web.visitor()).collect();
    page.until_held("live", VISITORS).await;
    web.scale_by_hand(1).await;
    for visitor in visitors {
        visitor.await.unwrap();
    }
    page.until_held("live", 0).await;
    assert_eq!(web.object().await, before, "it was written");
    drop(page);
    until("nothing is asked any more", async || {
        fleet(&running).await["held"]["state"] == "unasked"
    })
    .await;
    faults.heal();
    env.requests().assert_nothing_lost();
}

/// As `elasti operator` asks.
struct AskOperator(elasti_operator::HeldCounts);

impl HeldSource for AskOperator {
    async fn ask(&mut self) -> Result<Counts, HeldUnavailable> {
        let answer = self.0.ask().await;
        answer.map_err(|error| HeldUnavailable::NoAnswer(error.to_string()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_requests_are_live_on_a_workstation_without_a_status_write() {
    the_stream_follows_held_requests(|env| Proxy::new(env.fake_cluster().server.client())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_requests_are_live_in_the_operator_without_a_status_write() {
    the_stream_follows_held_requests(|env| AskOperator(env.waiting(0))).await;
}

/// The rules of a user who may view, and request these subresources of pods.
fn looker(more: &[&str]) -> Value {
    let look = ["get", "list", "watch"];
    let mut rules = vec![
        json!({"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": look}),
        json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": look}),
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": look}),
    ];
    for resource in more {
        rules.push(json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]}));
    }
    json!({"metadata": {"name": "looker"}, "rules": rules})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_permission_the_last_reported_number_is_shown_until_it_is_granted() {
    let env = TestEnv::with(|config| {
        config.operators = 0;
        config.api.enforce_rbac = true;
    })
    .await;
    let web = env.deploy("web").await;
    let status = json!({"status": {"phase": "Waking", "mode": "proxy", "held": 7}});
    let path = format!("{}/status", web.path());
    env.api().patch(&path, MERGE, status).await;
    let api = env.api();
    let accounts = "/api/v1/namespaces/elasti/serviceaccounts";
    api.make(accounts, json!({"metadata": {"name": "looker"}}))
        .await;
    api.make(ROLES, looker(&[])).await;
    let binding = json!({
        "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"},
        "subjects": [{"kind": "ServiceAccount", "name": "looker", "namespace": "elasti"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    api.make(bindings, binding).await;
    let client = env.client_as("looker").await;
    let running = dashboard(client.clone(), Proxy::new(client)).await;
    let mut page = Page::open(&running).await;
    page.until_held("told", 7).await;
    let message = page.from["message"].as_str().unwrap();
    assert!(message.contains("\"pods/proxy\""), "{message}");
    assert!(page.from["since"].is_string(), "{}", page.from);
    let given = looker(&["pods/proxy"]);
    api.patch(&format!("{ROLES}/looker"), MERGE, given).await;
    page.until_held("live", 0).await;
}
