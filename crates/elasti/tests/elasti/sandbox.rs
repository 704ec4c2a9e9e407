//! A folder and optionally a simulated cluster to run the binary in: arguments, output, exit code.

pub mod installed;

use std::process::Stdio;
use std::time::Duration;

use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Far more than anything takes that works.
const LIMIT: Duration = Duration::from_secs(120);

pub const DEFINITION: &str = include_str!("../../../../deploy/crd/elastiservices.yaml");
/// What `kubectl apply -k deploy/kustomize/overlays/default` makes, in order.
const CHART: [&str; 7] = [
    include_str!("../../../../deploy/kustomize/base/namespace.yaml"),
    include_str!("../../../../deploy/kustomize/base/serviceaccount.yaml"),
    include_str!("../../../../deploy/kustomize/base/role.yaml"),
    include_str!("../../../../deploy/kustomize/base/rolebinding.yaml"),
    include_str!("../../../../deploy/kustomize/overlays/default/clusterrole.yaml"),
    include_str!("../../../../deploy/kustomize/overlays/default/clusterrolebinding.yaml"),
    include_str!("../../../../deploy/kustomize/base/service.yaml"),
];
const DEPLOYMENTS: &str = include_str!("../../../../deploy/kustomize/base/deployment.yaml");

/// A folder to type commands in, with or without a simulated cluster behind the kubeconfig.
pub struct Sandbox {
    pub fake_cluster: Option<FakeCluster>,
    pub files: TempDir,
}

impl Sandbox {
    /// Without a cluster.
    pub fn bare() -> Self {
        Self {
            fake_cluster: None,
            files: tempfile::tempdir().unwrap(),
        }
    }

    pub async fn with_fake_cluster() -> Self {
        let config = ApiServerConfig {
            enforce_rbac: true,
            ..ApiServerConfig::default()
        };
        let fake_cluster = FakeCluster::start(config, 1).await.unwrap();
        let sandbox = Self::bare();
        sandbox.write("kubeconfig", &fake_cluster.kubeconfig());
        let sandbox = Self {
            fake_cluster: Some(fake_cluster),
            ..sandbox
        };
        sandbox
            .until_there("/api/v1/namespaces/default/serviceaccounts/default")
            .await;
        sandbox
    }

    /// With the objects of an installation; nothing runs in its pods.
    pub async fn with_chart() -> Self {
        let sandbox = Self::with_fake_cluster().await;
        sandbox.make_all(DEFINITION).await;
        for part in CHART {
            sandbox.make_all(part).await;
        }
        sandbox
            .until_there("/api/v1/namespaces/elasti/serviceaccounts/default")
            .await;
        sandbox.make_all(DEPLOYMENTS).await;
        for name in ["elasti-operator-controller-manager", "elasti-resolver"] {
            let path = format!("/apis/apps/v1/namespaces/elasti/deployments/{name}");
            until("both are ready", async || {
                let found = sandbox.get(&path).await.unwrap();
                found["status"]["readyReplicas"] == 2
            })
            .await;
        }
        sandbox
    }

    /// A service account of the namespace `default`, and a kubeconfig of its name for it.
    pub async fn become_account(&self, name: &str) {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        self.make(&account).await;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
        let token = self.token(name, &request).await;
        let fake_cluster = self.fake_cluster();
        let config = fake_cluster
            .server
            .kubeconfig_with_token(fake_cluster.address(), &token);
        self.write(name, &config);
    }

    pub fn fake_cluster(&self) -> &FakeCluster {
        self.fake_cluster.as_ref().unwrap()
    }

    fn client(&self) -> Client {
        self.fake_cluster().server.client()
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.files.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> kube::Result<Value> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(serde_json::to_vec(body).unwrap())
            .unwrap();
        self.client().request(request).await
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        self.call("GET", path, "application/json", &Value::Null)
            .await
            .ok()
    }

    pub async fn until_there(&self, path: &str) {
        until(path, async || self.get(path).await.is_some()).await;
    }

    /// Makes an object where its kind belongs.
    pub async fn make(&self, object: &Value) -> Value {
        let path = collection(object);
        let made = self.call("POST", &path, "application/json", object).await;
        made.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Makes every object of a YAML text.
    pub async fn make_all(&self, yaml: &str) {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        for object in objects.iter().filter(|one| !one.is_null()) {
            self.make(object).await;
        }
    }

    pub async fn patch(&self, path: &str, patch: &Value) {
        let patched = self
            .call("PATCH", path, "application/merge-patch+json", patch)
            .await;
        patched.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    pub async fn delete(&self, path: &str) {
        let deleted = self
            .call("DELETE", path, "application/json", &json!({}))
            .await;
        deleted.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// A token of a service account of the namespace `default`.
    pub async fn token(&self, account: &str, request: &Value) -> String {
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
        let answer = self
            .call("POST", &path, "application/json", request)
            .await
            .unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// What a person sees who types this in the folder: output, errors behind `!`, and the exit code.
    pub async fn type_in(&self, arguments: &[&str]) -> String {
        self.type_with(arguments, "").await
    }

    pub async fn type_with(&self, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(env!("CARGO_BIN_EXE_elasti"))
            .args(arguments)
            .current_dir(self.files.path())
            .env_clear()
            .env("HOME", self.files.path())
            .envs(
                self.fake_cluster
                    .is_some()
                    .then_some(("KUBECONFIG", "kubeconfig")),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let ended = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
        let ended = ended.expect("it does not end").unwrap();
        let mut text = format!("$ elasti {}\n", arguments.join(" "));
        text += &String::from_utf8(ended.stdout).unwrap();
        let errors = String::from_utf8(ended.stderr).unwrap();
        // Progress is shown only if it takes longer than a second, which it may.
        for line in errors.lines().filter(|line| !line.starts_with("... ")) {
            text += &format!("! {line}\n");
        }
        let folder = self.files.path().display().to_string();
        text.replace(&folder, "HOME") + &format!("[exit {}]\n", ended.status.code().unwrap())
    }

    /// The data that a command gives with `-o json`, however it ends.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        self.json_with(arguments, "").await
    }

    pub async fn json_with(&self, arguments: &[&str], input: &str) -> Value {
        let arguments = [arguments, &["-o", "json"]].concat();
        let text = self.type_with(&arguments, input).await;
        let start = text.find('{').unwrap_or_else(|| panic!("no data: {text}"));
        let end = text.rfind('}').unwrap();
        serde_json::from_str(&text[start..=end]).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Waits for a condition.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LIMIT, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Where objects of this kind are made.
fn collection(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap();
    let kind = object["kind"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let plural = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let everywhere = [
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
    ];
    if everywhere.contains(&kind) {
        return format!("/{root}/{version}/{plural}");
    }
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    format!("/{root}/{version}/namespaces/{namespace}/{plural}")
}
