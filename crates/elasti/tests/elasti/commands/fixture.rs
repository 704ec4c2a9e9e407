//! A simulated cluster with services in any state, and a terminal in it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use elasti_e2e::{MERGE, STRATEGIC, TestEnv, TestEnvConfig, until};
use elasti_fake_cluster::prometheus::Reading;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::transcript::normalised;

pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub const SERVICES: &str = "/api/v1/namespaces/default/services";
pub const ELASTI: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";
/// Far more than any command takes.
const LIMIT: Duration = Duration::from_secs(300);
const DAY: i64 = 86_400;

/// A moment so many days ago. Half an hour off, so that a slow test still tells the same number of days and hours.
pub fn days_ago(days: i64) -> String {
    seconds_ago(days * DAY + 1800)
}

pub fn seconds_ago(seconds: i64) -> String {
    (Timestamp::now() - SignedDuration::from_secs(seconds))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// What an operator adds to a status of a service whose sleeps of so many pods took so many seconds, until one that
/// began then. Each pod requested what the fixture's do.
pub fn saved(pods: i64, seconds: i64, since: Option<String>) -> Value {
    let current = since.map(|since| {
        json!({"since": since, "pods": pods, "cpuMillicores": 250, "memoryBytes": 536_870_912})
    });
    let seconds = pods * seconds;
    json!({
        "currentSleep": current,
        "saved": {
            "podSeconds": seconds, "cpuMillicoreSeconds": seconds * 250, "memoryMebibyteSeconds": seconds * 512,
        },
    })
}

/// A simulated cluster and a kubeconfig.
pub struct Fixture {
    pub env: TestEnv,
    pub files: TempDir,
}

impl Fixture {
    /// A simulated cluster that is twenty days old, without an operator: statuses are what a test writes.
    pub async fn unattended() -> Self {
        let epoch = Timestamp::now() - SignedDuration::from_secs(20 * DAY + 1800);
        Self::with(|config| {
            config.operators = 0;
            config.resolvers = 0;
            config.api.epoch = Some(epoch);
        })
        .await
    }

    pub async fn with(change: impl FnOnce(&mut TestEnvConfig)) -> Self {
        let env = TestEnv::with(change).await;
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("config"), env.fake_cluster().kubeconfig()).unwrap();
        Self { env, files }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.files.path().join("config")
    }

    /// A Deployment with its Service, ready if it is meant to be.
    pub async fn workload(&self, name: &str, replicas: u32, pod: Value) {
        self.target(name, replicas, pod).await;
        self.service(name, json!({})).await;
    }

    pub async fn target(&self, name: &str, replicas: u32, pod: Value) {
        let mut spec = json!({"containers": [{
            "name": "app", "image": "echo:1", "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        }]});
        for (key, value) in pod.as_object().unwrap() {
            match key.as_str() {
                "image" => spec["containers"][0]["image"] = value.clone(),
                _ => spec[key] = value.clone(),
            }
        }
        let object = json!({"metadata": {"name": name}, "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        }});
        let path = format!("{DEPLOYMENTS}/{name}");
        self.env.api().make(DEPLOYMENTS, object).await;
        until("its pods are ready", async || {
            let now = self.env.api().get(&path).await;
            now["status"]["readyReplicas"].as_u64().unwrap_or(0) == u64::from(replicas)
        })
        .await;
    }

    pub async fn service(&self, name: &str, more: Value) {
        let mut spec = json!({"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
        merge(&mut spec, &more);
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.env.api().make(SERVICES, object).await;
    }

    /// An ElastiService of a Deployment and a Service of the same name.
    pub async fn declare(&self, name: &str, more: Value) {
        let query = format!("sum(rate(http_requests_total{{service=\"{name}\"}}[1m]))");
        let prometheus = format!("http://{}", self.env.fake_cluster().prometheus.address);
        let mut spec = json!({
            "service": name, "cooldownPeriod": 604_800,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "triggers": [{"type": "prometheus", "metadata": {
                "query": query, "threshold": "0.5", "serverAddress": prometheus,
            }}],
        });
        merge(&mut spec, &more);
        let object = json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name}, "spec": spec,
        });
        self.reads(name, 0.0);
        self.env.api().make(ELASTI, object).await;
    }

    /// What the trigger of a service reads.
    pub fn reads(&self, name: &str, value: f64) {
        let query = format!("sum(rate(http_requests_total{{service=\"{name}\"}}[1m]))");
        let prometheus = &self.env.fake_cluster().prometheus;
        prometheus.set(&query, Reading::Value(value));
    }

    /// The status, as an operator would have written it.
    pub async fn status(&self, name: &str, status: Value) {
        let path = format!("{ELASTI}/{name}/status");
        let patch = json!({"status": status});
        self.env.api().patch(&path, MERGE, patch).await;
    }

    pub async fn object(&self, name: &str) -> Value {
        self.env.api().get(&format!("{ELASTI}/{name}")).await
    }

    /// A resolver's pod that no kubelet has.
    pub async fn resolver(&self, ready: bool) {
        let pods = "/api/v1/namespaces/elasti/pods";
        let pod = json!({
            "metadata": {"name": "elasti-resolver-1", "labels": {"app": "elasti-resolver"}},
            "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "elasti"}]},
        });
        self.env.api().make(pods, pod).await;
        let word = if ready { "True" } else { "False" };
        let status = json!({"status": {
            "phase": "Running", "podIP": "127.0.0.9", "podIPs": [{"ip": "127.0.0.9"}],
            "conditions": [{"type": "Ready", "status": word}],
        }});
        let path = format!("{pods}/elasti-resolver-1/status");
        self.env.api().patch(&path, STRATEGIC, status).await;
    }

    /// The binary, with the simulated cluster's kubeconfig and nothing else of this process.
    pub fn elasti(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elasti"));
        command
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// One command as a person sees it: what was typed, what was answered, and the code where it is not 0.
    pub async fn types(&self, arguments: &[&str]) -> String {
        self.printed(arguments, &mut self.elasti(arguments)).await
    }

    pub async fn printed(&self, arguments: &[&str], command: &mut Command) -> String {
        let output = timeout(LIMIT, command.output()).await;
        let output = output.expect("it never ends").unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut printed = format!("$ elasti {}\n{}", arguments.join(" "), text(&output.stdout));
        // Progress is shown only if it takes longer than a second, which it may.
        let errors = text(&output.stderr);
        for line in errors.lines().filter(|line| !line.starts_with("... ")) {
            printed.push_str(&format!("2> {line}\n"));
        }
        match output.status.code() {
            Some(0) => {}
            code => printed.push_str(&format!("[exit {}]\n", code.unwrap_or(-1))),
        }
        self.normalised(&printed)
    }

    /// Without what differs from run to run: moments, names of pods, paths, addresses.
    fn normalised(&self, text: &str) -> String {
        let folder = self.files.path().display().to_string();
        let text = text.replace(&folder, "FOLDER");
        normalised(&text)
    }
}

pub fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        into[key] = value.clone();
    }
}
