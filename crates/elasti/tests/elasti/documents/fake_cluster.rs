//! Commands of the pages with `elasti` or curl, and their YAML, on a simulated cluster with an operator and a resolver.

use std::collections::BTreeSet;
use std::time::Duration;

use elasti_e2e::{TestEnv, until};
use elasti_fake_cluster::prometheus::Reading;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::class::Class;
use super::commands::{Shown, split, stages};
use super::objects::{self, Yaml};
use super::page::{Block, Page, pages};
use super::shell::{Lasting, Shell};
use super::typed::{lasts, typed};
use super::{Faults, Item, data, items};
use crate::sandbox::installed::installed;

/// Where the reader works; the kubeconfig says so.
const HOME: &str = "shop";
/// The kubeconfig of a simulated cluster with everything of the chart, for `elasti check`.
const INSTALLED: &str = "kubeconfig-installed";
/// How many pages are read at once: readers mostly wait.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_elasti_and_every_yaml_works_on_a_fake_cluster() {
    let installation = installed().await;
    let checked = installation.fake_cluster().kubeconfig();
    // What sentences name again and again is typed once.
    let mut said = BTreeSet::new();
    let pages = pages();
    let read = pages.iter().map(|page| {
        let items = items(page).into_iter();
        let ours: Vec<Item<'_>> = items
            .filter(|item| is_for_fake_cluster(item, &mut said))
            .collect();
        (page, ours)
    });
    let read: Vec<_> = read.filter(|(_, ours)| !ours.is_empty()).collect();
    let readers = read.iter().map(|(page, ours)| follow(page, ours, &checked));
    let faults: Vec<Faults> = stream::iter(readers)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    Faults(faults.into_iter().flat_map(|found| found.0).collect()).none();
}

/// A page from top to bottom, in front of a simulated cluster of its own.
async fn follow(page: &Page, ours: &[Item<'_>], checked: &str) -> Faults {
    let mut faults = Faults::default();
    let mut reader = Reader::sits_down(page, checked).await;
    for item in ours {
        match item {
            Item::Yaml(block) => {
                let place = format!("{}:{}: this YAML", page.name, block.line);
                faults.add(&place, reader.applies(block).await);
            }
            Item::Command(shown) => faults.add(&shown.place(), reader.follows(shown).await),
        }
    }
    faults.add(&page.name, reader.leaves().await);
    faults
}

fn is_for_fake_cluster(item: &Item<'_>, said: &mut BTreeSet<String>) -> bool {
    let Item::Command(shown) = item else {
        return true;
    };
    let ours = matches!(
        shown.class(),
        Ok(Class::FakeCluster | Class::Request | Class::Spoken { of_elasti: true })
    );
    ours && (!shown.in_prose || said.insert(shown.text.clone()))
}

/// Someone with a page in front of a simulated cluster.
struct Reader {
    shell: Shell,
    env: TestEnv,
    /// A dashboard that was started, and its address with the token.
    dashboard: Option<(Lasting, String)>,
}

impl Reader {
    async fn sits_down(page: &Page, installed: &str) -> Self {
        let env = TestEnv::with(|config| {
            config.rollouts_and_keda = true;
            // A reading counts for three intervals, which a busy machine needs.
            config.polling_interval = Duration::from_secs(1);
        })
        .await;
        let fake_cluster = env.fake_cluster();
        let shell = Shell::new(&[]);
        let config = fake_cluster.kubeconfig();
        let home = format!("namespace: {HOME}");
        shell.write("kubeconfig", &config.replace("namespace: default", &home));
        shell.write(INSTALLED, installed);
        for query in objects::queries() {
            fake_cluster.prometheus.set(&query, Reading::Value(0.0));
        }
        let reader = Self {
            shell,
            env,
            dashboard: None,
        };
        reader.write_files();
        for namespace in [HOME, "argocd"] {
            reader.env.namespace(namespace).await;
        }
        reader.serve_web(HOME).await;
        if page.text.contains("staging") {
            reader.env.namespace("staging").await;
            reader.serve_web("staging").await;
        }
        if page.text.contains("payments") {
            reader.fail_payments().await;
        }
        reader
    }

    /// The files that pages speak of.
    fn write_files(&self) {
        let web = objects::first_service();
        for name in ["web.yaml", "elastiservice.yaml", "manifests/web.yaml"] {
            self.shell.write(name, &web);
        }
        let object: Value = serde_saphyr::from_str(&web).unwrap();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [object]});
        self.shell.write("elastiservices.yaml", &list.to_string());
    }

    /// The Deployment, the Service and the ElastiService `web` of the README.
    async fn serve_web(&self, namespace: &str) {
        self.workload(namespace, "web", "echo:1", 1).await;
        let mut object: Value = serde_saphyr::from_str(&objects::first_service()).unwrap();
        object["metadata"]["namespace"] = json!(namespace);
        self.apply(&object, "").await.unwrap();
        self.settled(namespace).await;
    }

    /// A service that was woken and cannot start.
    async fn fail_payments(&self) {
        self.workload(HOME, "payments", "registry.example/missing:1", 0)
            .await;
        let query = "sum(rate(payments_total[5m])) or vector(0)";
        let prometheus = &self.env.fake_cluster().prometheus;
        prometheus.set(query, Reading::Value(0.0));
        let mut object: Value = serde_saphyr::from_str(&objects::first_service()).unwrap();
        object["metadata"]["name"] = json!("payments");
        object["spec"]["service"] = json!("payments");
        object["spec"]["scaleTargetRef"]["name"] = json!("payments");
        object["spec"]["triggers"][0]["metadata"]["query"] = json!(query);
        self.apply(&object, "").await.unwrap();
        let status = async || self.object(HOME, "payments").await["status"].clone();
        until("it sleeps behind the resolver", async || {
            let status = status().await;
            status["phase"] == "Asleep" && status["mode"] == "proxy"
        })
        .await;
        prometheus.set(query, Reading::Value(10.0));
        until("its pod cannot start", async || {
            status().await["reason"] == "ImagePull"
        })
        .await;
    }

    async fn workload(&self, namespace: &str, name: &str, image: &str, replicas: u32) {
        let container = json!({
            "name": "app", "image": image, "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        });
        let template =
            json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}});
        let deployment = json!({"metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template,
        }});
        let ports = json!([{"name": "http", "port": 80, "targetPort": "http"}]);
        let service = json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}});
        let api = self.env.api();
        let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        api.make(&deployments, deployment).await;
        api.make(&format!("/api/v1/namespaces/{namespace}/services"), service)
            .await;
        until("its pods are ready", async || {
            let found = api.get(&format!("{deployments}/{name}")).await;
            found["status"]["readyReplicas"].as_u64().unwrap_or(0) == u64::from(replicas)
        })
        .await;
    }

    async fn object(&self, namespace: &str, name: &str) -> Value {
        let path = "/apis/elasti.truefoundry.com/v1alpha1/namespaces";
        let path = format!("{path}/{namespace}/elastiservices/{name}");
        self.env.api().get(&path).await
    }

    /// `kubectl apply --server-side`, with what kubectl asks for besides.
    async fn apply(&self, object: &Value, more: &str) -> Result<(), String> {
        let path = objects::collection(object, HOME)?;
        let options = "fieldManager=reader&force=true&fieldValidation=Strict";
        let path = format!("{path}/{}?{options}{more}", objects::name(object));
        let kind = "application/apply-patch+yaml";
        let (code, said) = self
            .env
            .api()
            .send("PATCH", &path, kind, object.to_string())
            .await;
        match code {
            200 | 201 => Ok(()),
            _ => Err(format!(
                "{code} {}",
                said["message"].as_str().unwrap_or_default()
            )),
        }
    }

    /// The operator has seen the last change of `web`, and what its trigger says.
    async fn settled(&self, namespace: &str) {
        until("the operator has looked", async || {
            let object = self.object(namespace, "web").await;
            let status = &object["status"];
            status["observedGeneration"] == object["metadata"]["generation"]
                && status["phase"].is_string()
                && status["triggers"][0]["reading"] == "quiet"
        })
        .await;
    }

    async fn applies(&self, block: &Block) -> Result<(), String> {
        match objects::parse(block) {
            // tests/elasti/documents/cluster.rs gives them to Helm; against_code.rs compares them with the chart's.
            Yaml::Values => Ok(()),
            Yaml::Part(object) => self.apply(&object, "&dryRun=All").await,
            Yaml::Objects(all) => {
                for object in all {
                    let more = match objects::is_ours(&object) {
                        true => "",
                        false => "&dryRun=All",
                    };
                    if object["kind"] != "Application" {
                        self.apply(&object, more).await?;
                    }
                    let file = format!("{}.yaml", objects::name(&object));
                    self.shell.write(&file, &block.text);
                }
                self.settled(HOME).await;
                Ok(())
            }
        }
    }

    async fn follows(&mut self, shown: &Shown) -> Result<(), String> {
        let line = typed(&shown.text).replace("kubectl elasti", "kubectl-elasti");
        match shown.class()? {
            Class::Spoken { .. } => self.shell.types(&format!("{line} --help")).await.map(drop),
            Class::Request => self.asks(&line).await,
            _ if line.starts_with("elasti check") => {
                self.shell.types_at(&line, INSTALLED).await.map(drop)
            }
            _ if line.starts_with("elasti dashboard") => {
                // A port of its own: readers of other pages have one too.
                let begun = self
                    .shell
                    .begins(&format!("{line} --listen 127.0.0.1:0"))
                    .await?;
                let url = begun.first.trim_start_matches("Dashboard: ").to_owned();
                if let Some((before, _)) = self.dashboard.replace((begun, url)) {
                    before.ends(true).await?;
                }
                Ok(())
            }
            _ if lasts(&line).is_some() => self.shell.begins(&line).await?.ends(true).await,
            _ => {
                self.settled(HOME).await;
                let text = self.shell.types(&line).await?;
                same(&shown.output, &text)
            }
        }
    }

    /// What curl would do, at the dashboard that the page has started.
    async fn asks(&self, line: &str) -> Result<(), String> {
        let (_, url) = self
            .dashboard
            .as_ref()
            .ok_or("the page has started no dashboard before")?;
        let (address, token) = url
            .trim_start_matches("http://")
            .split_once("/#token=")
            .ok_or("no token")?;
        let parts = stages(line);
        let words = split(&parts[0].replace("TOKEN", token));
        let mut method = "GET".to_owned();
        let mut head = String::new();
        let mut path = None;
        let mut rest = words.iter().skip(1);
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-s" => {}
                "-X" => method.clone_from(rest.next().ok_or("-X without a method")?),
                "-H" => head += &format!("{}\r\n", rest.next().ok_or("-H without a header")?),
                word => {
                    path = Some(
                        word.strip_prefix("http://127.0.0.1:8090")
                            .ok_or("an unknown address or option")?,
                    )
                }
            }
        }
        let path = path.ok_or("no address")?;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{head}Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (first, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if !first.starts_with("HTTP/1.1 2") {
            return Err(answer);
        }
        match parts.get(1) {
            None => Ok(()),
            Some(stranger) => data::given(&split(stranger), body),
        }
    }

    async fn leaves(self) -> Result<(), String> {
        match self.dashboard {
            Some((dashboard, _)) => dashboard.ends(true).await,
            None => Ok(()),
        }
    }
}

/// Whether a page shows what is printed, but for what differs from run to run.
fn same(shown: &[String], printed: &str) -> Result<(), String> {
    let shown: Vec<String> = shown.iter().map(|line| stable(line)).collect();
    let printed: Vec<String> = printed.lines().map(stable).collect();
    let wrong = shown.iter().zip(&printed).find(|(one, other)| one != other);
    match wrong {
        _ if shown.is_empty() => Ok(()),
        Some((one, other)) => Err(format!("the page shows {one:?}, and it prints {other:?}")),
        None if shown.len() != printed.len() => Err(format!(
            "it prints {} lines, and the page shows {}",
            printed.len(),
            shown.len()
        )),
        None => Ok(()),
    }
}

/// A line without numbers, addresses, paths and names of pods.
fn stable(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let differs = word.starts_with(['/', '#'])
            || word.contains("://")
            || word.contains(|c: char| c.is_ascii_digit());
        if differs { "#" } else { word }
    });
    // "2 to 3 ms" may as well be "2 ms". A pod's name may have no digit in it.
    let text = words.collect::<Vec<_>>().join(" ").replace("# to #", "#");
    match text.split_once(" pod ") {
        Some((before, after)) => {
            let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
            format!("{before} pod # {rest}")
        }
        None => text,
    }
}
