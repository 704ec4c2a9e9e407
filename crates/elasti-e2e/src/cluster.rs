//! A real cluster with the chart installed; `cargo xtask e2e` sets the variables that say where it is.
//! It touches only the namespaces of these tests and Elasti's own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use elasti_api::names;
use elasti_fake_cluster::controllers::stand_in_definitions;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::get;
use crate::readings::Readings;
use crate::until;
use crate::{ApiClient, MERGE};

/// The operators' Deployment.
pub const OPERATOR: &str = "elasti-operator-controller-manager";
/// The resolvers' Deployment.
pub const RESOLVER: &str = "elasti-resolver";
/// On every namespace of an end-to-end test.
pub(crate) const E2E_LABEL: &str = "elasti.example/e2e";

const KUBECONFIG: &str = "ELASTI_E2E_KUBECONFIG";
const PROMETHEUS: &str = "ELASTI_E2E_PROMETHEUS";
const READINGS: &str = "ELASTI_E2E_READINGS";
const HELM: &str = "ELASTI_E2E_HELM";
const KUBECTL: &str = "ELASTI_E2E_KUBECTL";
const CHART: &str = "ELASTI_E2E_CHART";
const VALUES: &str = "ELASTI_E2E_VALUES";
/// Set where the real controllers of KEDA, Argo Rollouts and metrics-server run, and Traefik.
const PARTNERS: &str = "ELASTI_E2E_PARTNERS";
const TRAEFIK: &str = "ELASTI_E2E_TRAEFIK";
const TRAEFIK_ADMIN: &str = "ELASTI_E2E_TRAEFIK_ADMIN";

const RELEASE: &str = "elasti";
const PODS: &str = "/api/v1/namespaces/elasti/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/elasti/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether end-to-end tests go to a real cluster.
pub(crate) fn is_real() -> bool {
    variable(KUBECONFIG).is_some()
}

/// Whether the real KEDA, Argo Rollouts and metrics-server run there.
pub(crate) fn has_partners() -> bool {
    variable(PARTNERS).is_some()
}

/// Where the real Traefik takes requests, and where it shows its configuration.
#[must_use]
pub fn traefik() -> (String, String) {
    let must = |name| variable(name).unwrap_or_else(|| panic!("{name} is not set"));
    (must(TRAEFIK), must(TRAEFIK_ADMIN))
}

/// With this kubeconfig's permissions.
pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

/// A real cluster, and one test's own part of it.
pub(crate) struct Cluster {
    pub(crate) client: kube::Client,
    pub(crate) prometheus: String,
    pub(crate) readings: Readings,
    kubeconfig: PathBuf,
    number: u32,
}

impl Cluster {
    /// The cluster that the environment names, if it names one.
    pub(crate) async fn from_environment() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let kubeconfig = PathBuf::from(variable(KUBECONFIG)?);
        let must = |name| variable(name).unwrap_or_else(|| panic!("{name} is not set"));
        let address: SocketAddr = must(READINGS).parse().unwrap();
        Some(Self {
            client: client(&kubeconfig).await,
            prometheus: must(PROMETHEUS),
            readings: Readings::served_at(address),
            kubeconfig,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        })
    }

    pub(crate) fn kubeconfig(&self) -> String {
        std::fs::read_to_string(&self.kubeconfig).unwrap()
    }

    /// A namespace's name that no other test has.
    pub(crate) fn own_name(&self, name: &str) -> &'static str {
        let process = std::process::id();
        let name = format!("scenario-{process}-{}-{name}", self.number);
        // As long as the test: a few bytes.
        Box::leak(name.into_boxed_str())
    }

    /// Definitions of Rollouts and ScaledObjects, unless the real ones are there.
    pub(crate) async fn install_definitions(&self) {
        let api_client = ApiClient(self.client.clone());
        for definition in stand_in_definitions() {
            let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
            let sent = definition.to_string();
            let (code, said) = api_client
                .send("POST", DEFINITIONS, "application/json", sent)
                .await;
            assert!([201, 409].contains(&code), "{said}");
            until("the definition is served", async || {
                let found = api_client.get(&format!("{DEFINITIONS}/{name}")).await;
                condition(&found, "Established")
            })
            .await;
        }
    }
}

fn condition(object: &Value, type_: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c["type"] == type_ && c["status"] == "True")
}

/// Elasti as installed, and verbs for what may happen to it.
#[derive(Clone, Debug)]
pub struct Installation {
    api: ApiClient,
    kubeconfig: PathBuf,
}

impl Installation {
    pub(crate) fn new(cluster: &Cluster, api: ApiClient) -> Self {
        Self {
            api,
            kubeconfig: cluster.kubeconfig.clone(),
        }
    }

    async fn helm(&self, arguments: &[&str]) {
        let helm = variable(HELM).unwrap_or_else(|| "helm".into());
        let until_timeout = ["--namespace", RELEASE, "--timeout", "280s"];
        self.run(&helm, &[arguments, &until_timeout].concat()).await;
    }

    /// Runs a command of `kubectl` in the installation's namespace, to its good end.
    pub async fn kubectl(&self, arguments: &[&str]) {
        let kubectl = variable(KUBECTL).unwrap_or_else(|| "kubectl".into());
        self.run(&kubectl, &[arguments, &["--namespace", RELEASE]].concat())
            .await;
    }

    async fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        let output = command.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
    }

    /// Installs the chart, or upgrades it: as it was, but for these values.
    pub async fn install(&self, more: &[&str]) {
        let chart = variable(CHART).unwrap();
        let mut values = variable(VALUES).unwrap_or_default();
        for one in more {
            values = format!("{values},{one}");
        }
        self.helm(&[
            "upgrade",
            "--install",
            RELEASE,
            &chart,
            "--wait",
            "--set",
            &values,
        ])
        .await;
    }

    /// Installs another chart as this release.
    pub async fn install_other(&self, chart: &str) {
        self.helm(&["upgrade", "--install", RELEASE, chart, "--wait"])
            .await;
    }

    /// Takes the release back to the revision before this one.
    pub async fn roll_back(&self) {
        self.helm(&["rollback", RELEASE, "--wait"]).await;
    }

    /// Uninstalls the chart, with its hooks.
    pub async fn uninstall(&self) {
        self.helm(&["uninstall", RELEASE, "--wait"]).await;
    }

    /// `kubectl rollout restart`, and its end.
    pub async fn restart(&self, deployment: &str) {
        let path = format!("{DEPLOYMENTS}/{deployment}");
        let at = jiff::Timestamp::now().to_string();
        let annotations = json!({"kubectl.kubernetes.io/restartedAt": at});
        let template = json!({"metadata": {"annotations": annotations}});
        let patch = json!({"spec": {"template": template}});
        let patched = self.api.patch(&path, MERGE, patch).await;
        let generation = patched["metadata"]["generation"].as_u64();
        until("it is rolled out", async || {
            let found = self.api.get(&path).await;
            let status = &found["status"];
            status["observedGeneration"].as_u64() >= generation
                && ["updatedReplicas", "availableReplicas", "replicas"]
                    .iter()
                    .all(|field| status[field] == found["spec"]["replicas"])
        })
        .await;
    }

    /// A Deployment of the release.
    pub async fn deployment(&self, name: &str) -> Value {
        self.api.get(&format!("{DEPLOYMENTS}/{name}")).await
    }

    /// How many replicas a Deployment asks for.
    pub async fn replicas(&self, deployment: &str) -> u32 {
        let scale = self
            .api
            .get(&format!("{DEPLOYMENTS}/{deployment}/scale"))
            .await;
        let replicas = scale["spec"]["replicas"].as_u64().unwrap_or(0);
        u32::try_from(replicas).unwrap_or_default()
    }

    /// `kubectl scale`, and its end.
    pub async fn scale(&self, deployment: &str, replicas: u32) {
        let path = format!("{DEPLOYMENTS}/{deployment}");
        let patch = json!({"spec": {"replicas": replicas}});
        self.api.patch(&format!("{path}/scale"), MERGE, patch).await;
        until("it is scaled", async || {
            let status = &self.api.get(&path).await["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or(0);
            count("replicas") == u64::from(replicas)
                && count("readyReplicas") == u64::from(replicas)
        })
        .await;
    }

    async fn pods_by_app(&self, app: &str) -> Vec<Value> {
        let path = format!("{PODS}?labelSelector={}%3D{app}", names::RESOLVER_LABEL);
        self.api.items(&path).await
    }

    /// The resolvers that are ready and not about to end.
    async fn resolvers(&self) -> Vec<Value> {
        let mut pods = self.pods_by_app(names::RESOLVER_LABEL_VALUE).await;
        pods.retain(|pod| {
            condition(pod, "Ready") && pod["metadata"]["deletionTimestamp"].is_null()
        });
        pods
    }

    /// The addresses of the resolvers that are ready and not about to end.
    pub async fn resolver_addresses(&self) -> BTreeSet<String> {
        let pods = self.resolvers().await;
        pods.iter()
            .filter_map(|pod| pod["status"]["podIP"].as_str().map(str::to_owned))
            .collect()
    }

    /// The nodes that they are on.
    pub async fn resolver_nodes(&self) -> BTreeSet<String> {
        let pods = self.resolvers().await;
        pods.iter()
            .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
            .collect()
    }

    /// How many requests to a Service wait at resolvers, also at those that are about to end.
    pub(crate) async fn held_for(&self, namespace: &str, service: &str) -> usize {
        let wanted = format!(
            "elasti_resolver_queued_count{{namespace=\"{namespace}\",source=\"{service}\"}} "
        );
        let mut held = 0;
        for pod in self.pods_by_app(names::RESOLVER_LABEL_VALUE).await {
            let Some(address) = pod["status"]["podIP"].as_str() else {
                continue;
            };
            // One that has just ended holds nothing.
            let Ok(answer) = get(&format!("{address}:8013"), "/metrics").await else {
                continue;
            };
            let line = answer.body.lines().find_map(|l| l.strip_prefix(&wanted));
            held += line.and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        }
        held
    }
}
