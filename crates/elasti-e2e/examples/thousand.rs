//! What many ElastiServices cost an operator that has a process of its own: memory, watches, calls at rest, restarts.
//! It prints figures: `cargo run --profile image -p elasti-e2e --example thousand [-- SERVICES]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{ApiClient, RESOLVER_USER, TestEnv, until};
use elasti_fake_cluster::faults::{Call, Verb};
use elasti_fake_cluster::prometheus::Reading;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The memory of a process without services is measured with these few.
const FEW: usize = 20;
const MANY: usize = 1_000;
const REST_DURATION: Duration = Duration::from_secs(60);
const ADDRESS: [u8; 4] = [127, 0, 0, 77];
/// What every trigger reads: idle.
const LOAD: &str = "load";
const SERVICES: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [word, kubeconfig, token] if word == "operator" => operate(kubeconfig, token).await,
        [] => measure(MANY).await,
        [many] => measure(many.parse().expect("how many services")).await,
        _ => panic!("usage: thousand [SERVICES]"),
    }
}

/// The second process: an operator, until it is killed.
async fn operate(kubeconfig: &str, token: &str) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let settings = elasti_operator::Settings {
        wake: SocketAddr::from((ADDRESS, 8013)),
        metrics: Some(SocketAddr::from((ADDRESS, 8080))),
        health: Some(SocketAddr::from((ADDRESS, 8081))),
        allow_loopback: true,
        token_file: Some(token.into()),
        wake_callers: vec![RESOLVER_USER.to_owned()],
        ..elasti_operator::Settings::default()
    };
    let client = Client::try_from(config).unwrap();
    let _running = elasti_operator::Running::start(settings, client)
        .await
        .unwrap();
    std::future::pending::<()>().await;
}

async fn measure(many: usize) {
    let env = TestEnv::with(|config| config.operators = 0).await;
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, token) = papers(&env, folder.path()).await;
    env.fake_cluster().prometheus.set(LOAD, Reading::Value(0.0));
    declare(&env, 0..FEW).await;
    let mut operator = start(&kubeconfig, &token);
    at_rest(&env).await;
    let few_kib = resident_kib(&operator);
    println!("{FEW} services: {few_kib} KiB resident");
    let started = Instant::now();
    declare(&env, FEW..FEW + many).await;
    at_rest(&env).await;
    println!("{many} more, all written after {:.1?}", started.elapsed());
    tell_memory("grown while running", &operator, few_kib, many);
    tell_rest(&env).await;

    operator.kill().unwrap();
    operator.wait().unwrap();
    let mut operator = start(&kubeconfig, &token);
    at_rest(&env).await;
    tell_memory("after a restart", &operator, few_kib, many);
    operator.kill().unwrap();
    operator.wait().unwrap();

    let started = Instant::now();
    for path in [SERVICES, "/apis/discovery.k8s.io/v1/endpointslices"] {
        env.api().items(path).await;
    }
    let lists = started.elapsed();
    let started = Instant::now();
    env.add_resolver().await;
    let routes = started.elapsed();
    let ratio = routes.as_secs_f64() / lists.as_secs_f64();
    println!(
        "a new resolver is ready after {routes:.1?}; the raw lists take {lists:.1?}: {ratio:.1} times"
    );
}

/// Access for the second process, and the token that it shows to resolvers.
async fn papers(env: &TestEnv, folder: &Path) -> (PathBuf, PathBuf) {
    let (kubeconfig, token) = (folder.join("kubeconfig"), folder.join("token"));
    std::fs::write(&kubeconfig, env.fake_cluster().kubeconfig()).unwrap();
    let account = "/api/v1/namespaces/elasti/serviceaccounts/elasti-operator-controller-manager";
    let user_request =
        json!({"spec": {"audiences": [names::ACTIVITY_AUDIENCE], "expirationSeconds": 86_400}});
    let made = env
        .api()
        .make(&format!("{account}/token"), user_request)
        .await;
    std::fs::write(&token, made["status"]["token"].as_str().unwrap()).unwrap();
    (kubeconfig, token)
}

fn start(kubeconfig: &Path, token: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .arg("operator")
        .args([kubeconfig, token])
        .spawn()
        .unwrap()
}

/// Targets at zero: they cost the simulated cluster no pods.
async fn declare(env: &TestEnv, numbers: std::ops::Range<usize>) {
    let prometheus = format!("http://{}", env.fake_cluster().prometheus.address);
    for number in numbers {
        let name = format!("web-{number:05}");
        let [deployment, service, elastiservice] = objects(&name, &prometheus);
        let api: &ApiClient = env.api();
        api.make("/apis/apps/v1/namespaces/default/deployments", deployment)
            .await;
        api.make("/api/v1/namespaces/default/services", service)
            .await;
        api.make(SERVICES, elastiservice).await;
    }
}

fn objects(name: &str, prometheus: &str) -> [Value; 3] {
    let labels = json!({"app": name});
    let container = json!({"name": "app", "image": "echo:1"});
    let metadata = json!({"serverAddress": prometheus, "query": LOAD, "threshold": "1"});
    [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [container]},
            }},
        }),
        json!({
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }),
        json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name},
            "spec": {
                "service": name,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": metadata}],
            },
        }),
    ]
}

/// Calls of the second process: it has the kubeconfig's user, and everybody else here a name.
fn is_operators(call: &Call) -> bool {
    !call.user.starts_with("system:serviceaccount:") && !call.user_agent.starts_with("e2e")
}

/// The leader renews its lease for as long as it lives, which shows by its kind; nothing else may be written at rest.
fn changes(call: &Call) -> bool {
    let renewal = call.kind == "leases" || call.kind.ends_with("reviews");
    is_operators(call) && call.verb.writes() && !renewal
}

async fn at_rest(env: &TestEnv) {
    let faults = env.fake_cluster().server.faults();
    let written = || faults.journal().iter().filter(|call| changes(call)).count();
    let quiet = async || {
        let before = written();
        sleep(Duration::from_secs(5)).await;
        before > 0 && before == written()
    };
    until("everything is written", quiet).await;
}

async fn tell_rest(env: &TestEnv) {
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    sleep(REST_DURATION).await;
    let mut calls = faults.journal();
    calls.retain(|call| call.number > before && is_operators(call));
    let writes = calls.iter().filter(|call| changes(call)).count();
    let watches = calls.iter().filter(|call| call.verb == Verb::Watch).count();
    println!(
        "at rest for {REST_DURATION:?}: {writes} writes, {} calls, {watches} of them watches",
        calls.len()
    );
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for call in &calls {
        let kind = format!("{} {}/{}", call.verb.as_str(), call.kind, call.subresource);
        *kinds.entry(kind).or_default() += 1;
    }
    println!("{kinds:?}");
}

fn tell_memory(when: &str, operator: &Child, few_kib: usize, many: usize) {
    let kib = resident_kib(operator);
    let each = kib.saturating_sub(few_kib) as f64 / many as f64;
    println!("{when}: {kib} KiB resident, {each:.1} KiB for each of the {many}");
}

fn resident_kib(process: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}
