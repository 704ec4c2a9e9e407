//! The real kubectl works against the simulated cluster, on built-in kinds and on a custom resource.

use std::process::Output;

use crate::fixture::WIDGET_DEFINITION;
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use tempfile::TempDir;
use tokio::process::Command;

const APP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, labels: {app: app}}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      containers:
      - name: c
        image: echo:1
        env: [{name: A, value: '1'}, {name: B, value: '2'}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec: {selector: {app: app}, ports: [{port: 80, targetPort: 8080}]}
";

const WIDGET: &str = "
apiVersion: example.io/v1
kind: Widget
metadata: {name: w}
spec: {size: 3, parts: [{name: x, count: 1}]}
";

struct Kubectl {
    directory: TempDir,
    _fake_cluster: FakeCluster,
}

impl Kubectl {
    /// `None`, with a printed reason, where kubectl is not installed.
    async fn start() -> Option<Self> {
        if Command::new("kubectl")
            .arg("version")
            .arg("--client")
            .output()
            .await
            .is_err()
        {
            println!("skipped: kubectl is not installed");
            return None;
        }
        let fake_cluster = FakeCluster::start(ApiServerConfig::default(), 2)
            .await
            .unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join("kubeconfig"),
            fake_cluster.kubeconfig(),
        )
        .unwrap();
        Some(Self {
            directory,
            _fake_cluster: fake_cluster,
        })
    }

    async fn run(&self, arguments: &str) -> Output {
        let path = |name: &str| self.directory.path().join(name).display().to_string();
        let fixed = [
            format!("--kubeconfig={}", path("kubeconfig")),
            format!("--cache-dir={}", path("cache")),
        ];
        Command::new("kubectl")
            .args(fixed)
            .args(arguments.split_whitespace())
            .current_dir(self.directory.path())
            .output()
            .await
            .unwrap()
    }

    async fn output(&self, arguments: &str) -> String {
        let output = self.run(arguments).await;
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "kubectl {arguments}: {out}{err}");
        format!("{out}{err}")
    }

    async fn expect(&self, arguments: &str, parts: &[&str]) {
        let output = self.output(arguments).await;
        for part in parts {
            assert!(
                output.contains(part),
                "kubectl {arguments} does not print {part:?}:\n{output}"
            );
        }
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_on_built_in_kinds() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.file("app.yaml", APP);
    kubectl
        .expect(
            "get namespaces",
            &["NAME", "STATUS", "kube-system", "Active"],
        )
        .await;
    kubectl
        .expect(
            "apply -f app.yaml",
            &["deployment.apps/app created", "service/app created"],
        )
        .await;
    kubectl
        .expect(
            "rollout status deploy/app --timeout=60s",
            &["deployment \"app\" successfully rolled out"],
        )
        .await;
    kubectl
        .expect(
            "wait --for=condition=Available deploy/app --timeout=60s",
            &["condition met"],
        )
        .await;
    kubectl
        .expect(
            "get deploy app",
            &[
                "NAME   READY   UP-TO-DATE   AVAILABLE   AGE",
                "app    2/2     2            2",
            ],
        )
        .await;
    kubectl
        .expect("get pods -o wide", &["1/1", "Running", "node-1", "node-2"])
        .await;
    kubectl
        .expect(
            "get deploy app -o yaml",
            &[
                "kind: Deployment",
                "kubectl.kubernetes.io/last-applied-configuration",
            ],
        )
        .await;
    kubectl
        .expect(
            "describe deploy app",
            &[
                "2 desired | 2 updated | 2 total | 2 available",
                "25% max unavailable",
                "NewReplicaSet:",
            ],
        )
        .await;
    kubectl
        .expect("describe svc app", &["Endpoints:", "TargetPort:"])
        .await;
    kubectl_changes(&kubectl).await;
}

async fn kubectl_changes(kubectl: &Kubectl) {
    kubectl.file(
        "app.yaml",
        &APP.replace("echo:1", "echo:2")
            .replace("{name: A, value: '1'}, ", ""),
    );
    kubectl
        .expect(
            "apply -f app.yaml",
            &["deployment.apps/app configured", "service/app unchanged"],
        )
        .await;
    kubectl
        .expect(
            "rollout status deploy/app --timeout=60s",
            &["successfully rolled out"],
        )
        .await;
    let env = kubectl
        .output("get deploy app -o jsonpath={.spec.template.spec.containers[0].env}")
        .await;
    assert_eq!(env, r#"[{"name":"B","value":"2"}]"#);
    kubectl
        .expect(
            "apply --server-side --force-conflicts -f app.yaml",
            &["deployment.apps/app serverside-applied"],
        )
        .await;
    kubectl
        .expect(
            "scale deploy/app --replicas=3",
            &["deployment.apps/app scaled"],
        )
        .await;
    kubectl
        .expect(
            "wait --for=jsonpath={.status.readyReplicas}=3 deploy/app --timeout=60s",
            &["condition met"],
        )
        .await;
    kubectl
        .expect(
            r#"patch deploy app -p {"metadata":{"labels":{"x":"y"}}}"#,
            &["deployment.apps/app patched"],
        )
        .await;
    kubectl
        .expect("get deploy -l x=y -o name", &["deployment.apps/app"])
        .await;
    kubectl
        .expect(
            "explain deployment.spec.strategy.type",
            &["FIELD: type <string>", "Type of deployment."],
        )
        .await;
    kubectl
        .expect(
            "get endpointslices -o yaml",
            &["kubernetes.io/service-name: app"],
        )
        .await;
    kubectl_deletes(kubectl).await;
}

async fn kubectl_deletes(kubectl: &Kubectl) {
    kubectl
        .expect(
            "delete -f app.yaml --timeout=60s",
            &["deployment.apps \"app\" deleted", "service \"app\" deleted"],
        )
        .await;
    kubectl
        .expect("wait --for=delete pod -l app=app --timeout=60s", &[])
        .await;
    let wrong = kubectl.run("get pod nope").await;
    assert!(
        String::from_utf8_lossy(&wrong.stderr)
            .contains("Error from server (NotFound): pods \"nope\" not found")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_works_on_custom_resources() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.file("definition.yaml", WIDGET_DEFINITION);
    kubectl.file("widget.yaml", WIDGET);
    kubectl
        .expect(
            "apply -f definition.yaml",
            &["customresourcedefinition.apiextensions.k8s.io/widgets.example.io created"],
        )
        .await;
    kubectl
        .expect(
            "wait --for=condition=Established crd/widgets.example.io --timeout=30s",
            &["condition met"],
        )
        .await;
    kubectl
        .expect("apply -f widget.yaml", &["widget.example.io/w created"])
        .await;
    kubectl
        .expect("apply -f widget.yaml", &["widget.example.io/w unchanged"])
        .await;
    kubectl
        .expect("get wd", &["NAME   SIZE   READY   AGE", "w      3"])
        .await;
    kubectl
        .expect("get widget w -o yaml", &["colour: red"])
        .await;
    kubectl_changes_a_custom_resource(&kubectl).await;
}

async fn kubectl_changes_a_custom_resource(kubectl: &Kubectl) {
    kubectl.file("widget.yaml", &WIDGET.replace("size: 3", "size: 4"));
    kubectl
        .expect(
            "apply --server-side --force-conflicts -f widget.yaml",
            &["serverside-applied"],
        )
        .await;
    kubectl
        .expect(
            "scale widget/w --replicas=2",
            &["widget.example.io/w scaled"],
        )
        .await;
    kubectl
        .expect(
            r#"patch widget w --type=merge -p {"spec":{"size":5}}"#,
            &["patched"],
        )
        .await;
    kubectl
        .expect(
            r#"patch widget w --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#,
            &["patched"],
        )
        .await;
    kubectl
        .expect(
            "wait --for=condition=Ready widget/w --timeout=30s",
            &["condition met"],
        )
        .await;
    kubectl.expect("get widgets", &["w      5      True"]).await;
    kubectl
        .expect("describe widget w", &["Kind:         Widget", "Colour:"])
        .await;
    kubectl
        .expect(
            "explain widget.spec.size",
            &["FIELD: size <integer>", "How big it is."],
        )
        .await;
    kubectl.file("bad.yaml", &WIDGET.replace("size: 3", "size: 300"));
    let refused = kubectl.run("apply -f bad.yaml").await;
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("too big"),
        "{refused:?}"
    );
    kubectl
        .expect(
            "delete widget w --timeout=30s",
            &["widget.example.io \"w\" deleted"],
        )
        .await;
    kubectl
        .expect("delete crd widgets.example.io --timeout=30s", &["deleted"])
        .await;
}
