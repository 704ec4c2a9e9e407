//! Commands of the pages with kubectl or Helm, on a real cluster of our own with the chart installed.
//! Never runs on a foreign cluster: pages say how to delete every ElastiService, and the CRD.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use elasti_e2e::until;
use serde_json::json;

use super::class::Class;
use super::commands::Shown;
use super::objects::{self, Yaml};
use super::page::{Block, pages, root};
use super::shell::Shell;
use super::typed::{lasts, typed};
use super::{Faults, Item, items, prometheus};

const CRD: &str = "elastiservices.elasti.truefoundry.com";
const OPERATOR: &str = "deployment/elasti-operator-controller-manager";
const RESOLVER: &str = "deployment/elasti-resolver";

/// The one place where the pages' own is another's in the tests: the image of this working tree, and a Prometheus.
/// Chart and Kustomize folders are those of the repository, copied; `images:` stands in the copy, as the README says.
fn stands_for(line: &str, prometheus: &str) -> String {
    line.replace("registry=REGISTRY", "registry=docker.io/local")
        .replace("tag=TAG", "tag=dev")
        .replace("http://PROMETHEUS:9090", &format!("http://{prometheus}"))
}
const IMAGES: &str =
    "images: [{name: elasti/elasti, newName: docker.io/local/elasti, newTag: dev}]\n";

/// How Elasti is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Installed {
    No,
    ByHelm,
    ByKustomize,
}

#[tokio::test]
#[ignore = "needs a real cluster of our own: cargo xtask e2e"]
async fn every_command_of_kubectl_and_helm_works_on_a_real_cluster() {
    let mut faults = Faults::default();
    let mut reader = Reader::sits_down().await;
    // What sentences name again and again is typed once.
    let mut said = BTreeSet::new();
    for page in pages() {
        let mut has_begun = false;
        let items = items(&page);
        // A guide is followed from its beginning to its end, whatever its commands are.
        let is_guide = page.name.starts_with("docs/guide/");
        let is_followed = is_guide || items.iter().any(|item| is_for_cluster(item, &said));
        for item in &items {
            match item {
                Item::Yaml(block) => {
                    let place = format!("{}:{}: this YAML", page.name, block.line);
                    faults.add(&place, reader.applies(block).await);
                }
                // On a page with kubectl in it the rest is typed too: one thing follows from another.
                Item::Command(shown)
                    if is_for_cluster(item, &said) || is_followed && is_in_between(shown) =>
                {
                    if shown.in_prose {
                        said.insert(shown.text.clone());
                    }
                    if !has_begun {
                        faults.add(&page.name, reader.turns_the_page().await);
                        has_begun = true;
                    }
                    println!("{}", shown.place());
                    faults.add(&shown.place(), reader.follows(shown).await);
                }
                Item::Command(_) => {}
            }
        }
    }
    // The next page finds what was here before.
    faults.add("at the end", reader.installs(Installed::ByHelm).await);
    faults.none();
}

fn is_for_cluster(item: &Item<'_>, said: &BTreeSet<String>) -> bool {
    let Item::Command(shown) = item else {
        return false;
    };
    let theirs = matches!(
        shown.class(),
        Ok(Class::Cluster | Class::Spoken { of_elasti: false })
    );
    theirs && !(shown.in_prose && said.contains(&shown.text))
}

fn is_in_between(shown: &Shown) -> bool {
    !shown.in_prose && shown.class() == Ok(Class::FakeCluster) && !shown.text.contains("demo")
}

/// What a command finds when it is typed: the way of installing that it is about.
fn wants(line: &str) -> Installed {
    let has = |text: &str| line.contains(text);
    let about_nothing = has("helm install ")
        || has("kubectl delete crd")
        || has("kubectl delete elastiservices --all");
    match () {
        () if about_nothing || has("-k deploy/crd") => Installed::No,
        () if has("deploy/kustomize/overlays/") => Installed::No,
        () if has("elasti-uninstall") || has("deploy/kustomize/uninstall") => {
            Installed::ByKustomize
        }
        () => Installed::ByHelm,
    }
}

/// What a command leaves behind, if that is something else.
fn leaves(line: &str) -> Option<Installed> {
    let has = |text: &str| line.contains(text);
    match () {
        () if has("helm install ") => Some(Installed::ByHelm),
        () if has("helm uninstall ") => Some(Installed::No),
        () if has("deploy/kustomize/overlays/") => Some(Installed::ByKustomize),
        () => None,
    }
}

fn variable(name: &str) -> String {
    let name = format!("ELASTI_E2E_{name}");
    std::env::var(&name).unwrap_or_else(|_| panic!("{name} is not set: cargo xtask e2e does it"))
}

/// Someone with the pages in front of a cluster.
struct Reader {
    shell: Shell,
    installed: Installed,
    /// Where unused services are recognised.
    prometheus: String,
}

impl Reader {
    async fn sits_down() -> Self {
        let (kubectl, helm) = (variable("KUBECTL"), variable("HELM"));
        let shell = Shell::new(&[("kubectl", Path::new(&kubectl)), ("helm", Path::new(&helm))]);
        shell.write(
            "kubeconfig",
            &fs::read_to_string(variable("KUBECONFIG")).unwrap(),
        );
        copy(&root().join("deploy"), &shell.path("deploy"));
        for folder in ["overlays/default", "uninstall"] {
            let file = shell.path(&format!("deploy/kustomize/{folder}/kustomization.yaml"));
            let text = fs::read_to_string(&file).unwrap();
            fs::write(file, text + IMAGES).unwrap();
        }
        let web = objects::first_service();
        for name in [
            "web.yaml",
            "elastiservice.yaml",
            "manifests/web.yaml",
            "my-chart/templates/web.yaml",
        ] {
            shell.write(name, &web);
        }
        shell.write(
            "my-chart/Chart.yaml",
            "apiVersion: v2\nname: my-chart\nversion: 1.0.0\n",
        );
        shell.write("around.yaml", &around());
        let prometheus = variable("READINGS");
        prometheus::serve(prometheus.parse().unwrap());
        let mut reader = Self {
            shell,
            // As far as this reader knows: what `cargo xtask e2e` has installed is upgraded.
            installed: Installed::No,
            prometheus,
        };
        let home = "kubectl config set-context --current --namespace=shop";
        reader.type_all(&[home]).await.unwrap();
        reader.turns_the_page().await.unwrap();
        reader
    }

    /// Everything that pages speak of is there, awake and unused.
    async fn turns_the_page(&mut self) -> Result<(), String> {
        self.installs(Installed::ByHelm).await?;
        self.shell.write("web.yaml", &objects::first_service());
        for line in [
            "kubectl apply -f around.yaml",
            "kubectl apply -f web.yaml",
            "kubectl rollout status deployment/web --timeout=120s",
        ] {
            self.shell.types(line).await?;
        }
        self.looked_at().await
    }

    /// The operator has read the trigger of `web`.
    async fn looked_at(&self) -> Result<(), String> {
        let quiet = "--for=jsonpath='{.status.triggers[0].reading}'=quiet";
        let line = format!("kubectl wait {quiet} els/web -n shop --timeout=120s");
        self.shell.types(&line).await.map(drop)
    }

    async fn installs(&mut self, user_request: Installed) -> Result<(), String> {
        if self.installed == user_request {
            return Ok(());
        }
        match self.installed {
            Installed::No => {}
            Installed::ByHelm => {
                self.type_all(&["helm uninstall elasti --namespace elasti --wait"])
                    .await?
            }
            Installed::ByKustomize => self.removes_overlay().await?,
        }
        self.installed = Installed::No;
        match user_request {
            Installed::No => return Ok(()),
            Installed::ByHelm => {
                let values = variable("VALUES");
                let address = format!(
                    "elastiController.manager.env.prometheusTriggerServerAddress=http://{}",
                    self.prometheus
                );
                let line = format!(
                    "helm upgrade --install elasti deploy/helm/elasti --namespace elasti --wait --timeout 280s \
                     --set '{values},{address}'"
                );
                self.type_all(&["kubectl apply -f around.yaml", &line])
                    .await?;
            }
            Installed::ByKustomize => {
                self.type_all(&[
                    "kubectl apply --server-side -k deploy/crd",
                    "kubectl apply -k deploy/kustomize/overlays/default",
                ])
                .await?;
                self.is_rolled_out().await?;
            }
        }
        self.installed = user_request;
        Ok(())
    }

    /// Helm takes over no CRD that another tool has made, so that goes too. A terminating pod keeps its permissions until then.
    async fn removes_overlay(&self) -> Result<(), String> {
        let definition = format!("kubectl delete crd {CRD} --ignore-not-found --timeout=120s");
        self.type_all(&[
            "kubectl delete elastiservices --all --all-namespaces --timeout=180s",
            "kubectl delete -k deploy/kustomize/uninstall --ignore-not-found --timeout=180s",
            "kubectl delete deployments --all -n elasti --cascade=foreground --timeout=280s",
            "kubectl delete -k deploy/kustomize/overlays/default --ignore-not-found --timeout=180s",
            &definition,
        ])
        .await
    }

    async fn is_rolled_out(&self) -> Result<(), String> {
        for deployment in [OPERATOR, RESOLVER] {
            let line = format!("kubectl rollout status {deployment} -n elasti --timeout=280s");
            self.shell.types(&line).await?;
        }
        Ok(())
    }

    async fn type_all(&self, lines: &[&str]) -> Result<(), String> {
        for line in lines {
            let typed = self.shell.types(line).await;
            typed.map_err(|what| format!("{line}: {what}"))?;
        }
        Ok(())
    }

    async fn applies(&mut self, block: &Block) -> Result<(), String> {
        let all = match objects::parse(block) {
            Yaml::Values => {
                self.shell.write("values.yaml", &block.text);
                let line = "helm template elasti deploy/helm/elasti -f values.yaml > rendered.yaml";
                return self.shell.types(line).await.map(drop);
            }
            Yaml::Part(object) => vec![object],
            Yaml::Objects(all) => all,
        };
        self.installs(Installed::ByHelm).await?;
        for object in all.iter().filter(|object| !objects::is_foreign(object)) {
            self.shell.write("one.yaml", &object.to_string());
            self.shell
                .types("kubectl apply --dry-run=server -f one.yaml")
                .await?;
            if objects::is_ours(object) {
                let file = format!("{}.yaml", objects::name(object));
                self.shell.write(&file, &block.text);
            }
        }
        Ok(())
    }

    async fn follows(&mut self, shown: &Shown) -> Result<(), String> {
        let mut line = stands_for(&typed(&shown.text), &self.prometheus);
        if matches!(shown.class()?, Class::Spoken { .. }) {
            return self.shell.types(&format!("{line} --help")).await.map(drop);
        }
        let (wished, before) = (wants(&line), self.installed);
        // A second line of the same way goes on from the first.
        if !(wished == Installed::No
            && before == Installed::ByKustomize
            && line.contains("deploy/kustomize"))
        {
            self.installs(wished).await?;
        }
        if wished == Installed::ByHelm && before != wished {
            self.turns_the_page().await?;
        }
        if line.contains(" POD") {
            line = line.replace(" POD", &format!(" {}", self.restarted_pod().await?));
        }
        if lasts(&line).is_some() {
            let is_ours = line.starts_with("elasti");
            self.shell.begins(&line).await?.ends(is_ours).await?;
        } else {
            self.shell.types(&line).await?;
        }
        self.installed = leaves(&line).unwrap_or(self.installed);
        let changes = ["helm install", "helm upgrade", "helm rollback", "overlays/"];
        if changes.iter().any(|change| line.contains(change)) {
            self.is_rolled_out().await?;
        }
        if line.starts_with("kubectl apply -f web.yaml") || line.starts_with("elasti resume") {
            self.looked_at().await?;
        }
        Ok(())
    }

    /// A pod of `payments`, which keeps crashing, once it has a life behind it.
    async fn restarted_pod(&self) -> Result<String, String> {
        until("a container has died and come back", async || {
            let line = "kubectl get pods -l app=payments -o jsonpath='{.items[0].status.containerStatuses[0].restartCount}'";
            let restarts = self.shell.types(line).await.unwrap_or_default();
            restarts.parse::<u32>().is_ok_and(|count| count > 0)
        })
        .await;
        let line = "kubectl get pods -l app=payments -o jsonpath='{.items[0].metadata.name}'";
        self.shell.types(line).await
    }
}

/// What is there before a page begins: namespaces under Pod Security, an app that works, and one that dies.
fn around() -> String {
    let labels = |more: bool| {
        let mut labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        if more {
            labels["elasti.example/e2e"] = json!("true");
        }
        labels
    };
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elasti", "labels": labels(false)}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels(true)}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd", "labels": labels(true)}}),
    ];
    for (name, app) in [("web", "echo"), ("payments", "crash-loop")] {
        let container = json!({
            "name": "app", "image": "docker.io/local/sample-app:1", "imagePullPolicy": "Never",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            "env": [{"name": "SAMPLE_APP", "value": app}, {"name": "PORTS", "value": "8080"}],
        });
        let safe = json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
        let pod = json!({"securityContext": safe, "containers": [container]});
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
        let metadata = json!({"name": name, "namespace": "shop"});
        all.push(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            // Without replicas, as docs/gitops.md says: a sleeping target is not woken by an apply.
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        }));
        let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}]);
        all.push(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": {"app": name}, "ports": ports},
        }));
    }
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    texts.join("\n---\n")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}
