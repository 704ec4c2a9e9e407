//! An app under management: what it is made of, and verbs for what happens to it.
//! Never looks into a process: it sees what kubectl and a client see.

use elasti_api::{Mode, Phase, names};
use elasti_town::prometheus::Reading;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{self, Answer, Lost};
use crate::ledger::Entry;
use crate::neighbourhood::Neighbourhood;
use crate::teller::MERGE;
use crate::until;

/// What scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// An Argo Rollout.
    Rollout,
}

impl Target {
    fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet => "apps/v1",
            Self::Rollout => "argoproj.io/v1alpha1",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::Rollout => "Rollout",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::Rollout => "rollouts",
        }
    }
}

/// What an app is made of: whatever differs from one HTTP port and an echo behind it.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// The name of the Service, the target and the ElastiService.
    pub name: &'static str,
    /// Its namespace.
    pub namespace: &'static str,
    /// What scales.
    pub target: Target,
    /// The sample app.
    pub image: &'static str,
    /// How long it takes to start.
    pub start_seconds: &'static str,
    /// Replicas at the start.
    pub replicas: u32,
    /// Whether its pods become ready at all.
    pub starts: bool,
    /// Names and numbers of the Service's ports.
    pub ports: Vec<(&'static str, u16)>,
    /// More of the Service's spec.
    pub service: Value,
    /// More of the ElastiService's spec.
    pub spec: Value,
}

/// An app with a Service `name`, one port 80, one replica, and a cooldown of one second.
#[must_use]
pub fn blueprint(name: &'static str) -> Blueprint {
    Blueprint {
        name,
        namespace: "default",
        target: Target::Deployment,
        image: "echo:1",
        start_seconds: "0",
        replicas: 1,
        starts: true,
        ports: vec![("http", 80)],
        service: json!({}),
        spec: json!({}),
    }
}

/// An app under management.
#[derive(Clone, Debug)]
pub struct App {
    hood: Neighbourhood,
    /// What it was made of.
    pub blueprint: Blueprint,
    /// The cluster IP of its Service.
    pub ip: String,
}

impl App {
    pub(crate) async fn build(hood: Neighbourhood, blueprint: Blueprint) -> Self {
        let app = Self::build_unmanaged(hood, blueprint).await;
        app.busy();
        app.manage().await;
        app
    }

    pub(crate) async fn build_without_target(hood: Neighbourhood, blueprint: Blueprint) -> Self {
        let mut app = Self {
            hood,
            blueprint,
            ip: String::new(),
        };
        app.make_service().await;
        app.busy();
        app.manage().await;
        app
    }

    async fn build_unmanaged(hood: Neighbourhood, blueprint: Blueprint) -> Self {
        let mut app = Self {
            hood,
            blueprint,
            ip: String::new(),
        };
        app.make_target().await;
        app.make_service().await;
        if app.blueprint.replicas > 0 && app.blueprint.starts {
            app.until_answering().await;
        }
        app
    }

    /// Creates its target.
    pub async fn make_target(&self) {
        let Blueprint {
            name,
            target,
            image,
            start_seconds,
            ports,
            replicas,
            ..
        } = &self.blueprint;
        let container_ports: Vec<Value> = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "containerPort": 8000 + port}))
            .collect();
        let probe = json!({"tcpSocket": {"port": 8000 + ports[0].1}, "periodSeconds": 1});
        let mut spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{
                "name": "app", "image": image, "ports": container_ports, "readinessProbe": probe,
                "env": [{"name": "START_SECONDS", "value": start_seconds}],
            }]}},
        });
        if *target == Target::StatefulSet {
            spec["serviceName"] = json!(name);
        }
        let object = json!({
            "apiVersion": target.api_version(), "kind": target.kind(),
            "metadata": {"name": name}, "spec": spec,
        });
        self.hood.api().make(&self.targets(), object).await;
    }

    async fn make_service(&mut self) {
        let Blueprint { name, ports, .. } = &self.blueprint;
        let ports: Vec<Value> = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "port": port, "targetPort": name}))
            .collect();
        let mut spec = json!({"selector": {"app": name}, "ports": ports});
        merge(&mut spec, &self.blueprint.service);
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let service = self.hood.api().make(&self.core("services"), service).await;
        let ip = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        self.ip = ip.to_owned();
    }

    /// Waits until every node sends its clients somewhere.
    pub async fn until_answering(&self) {
        let address = self.address(self.blueprint.ports[0].1);
        until("the app answers", async || {
            client::get(&address, "/").await.is_ok()
        })
        .await;
    }

    /// Creates its ElastiService.
    pub async fn manage(&self) {
        let Blueprint { name, target, .. } = &self.blueprint;
        let address = self.hood.town().prometheus.address;
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": target.api_version(), "kind": target.kind(), "name": name},
            "service": name,
            "cooldownPeriod": 1,
            "triggers": [{"type": "prometheus", "metadata": {
                "query": self.query(), "threshold": "1", "serverAddress": format!("http://{address}"),
            }}],
        });
        merge(&mut spec, &self.blueprint.spec);
        let object = json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name}, "spec": spec,
        });
        self.hood.api().make(&self.elastiservices(), object).await;
    }

    fn query(&self) -> String {
        format!(
            "requests_{}_{}",
            self.blueprint.namespace, self.blueprint.name
        )
    }

    /// Path of the targets.
    #[must_use]
    pub fn targets(&self) -> String {
        let Blueprint {
            namespace, target, ..
        } = &self.blueprint;
        let version = target.api_version();
        format!("/apis/{version}/namespaces/{namespace}/{}", target.plural())
    }

    /// Path of the target.
    #[must_use]
    pub fn target_path(&self) -> String {
        format!("{}/{}", self.targets(), self.blueprint.name)
    }

    /// Path of a kind of the core group.
    #[must_use]
    pub fn core(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.blueprint.namespace)
    }

    /// Path of the EndpointSlices.
    #[must_use]
    pub fn slices_path(&self) -> String {
        let namespace = self.blueprint.namespace;
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
    }

    fn elastiservices(&self) -> String {
        let namespace = self.blueprint.namespace;
        format!("/apis/elasti.truefoundry.com/v1alpha1/namespaces/{namespace}/elastiservices")
    }

    /// Path of the ElastiService.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.elastiservices(), self.blueprint.name)
    }

    /// Nobody uses it, says the trigger.
    pub fn idle(&self) {
        self.reads(Reading::Value(0.0));
    }

    /// Somebody uses it, says the trigger.
    pub fn busy(&self) {
        self.reads(Reading::Value(5.0));
    }

    /// What the trigger reads from now on.
    pub fn reads(&self, reading: Reading) {
        self.hood.town().prometheus.set(&self.query(), reading);
    }

    /// Changes the ElastiService's spec.
    pub async fn edit(&self, spec: Value) {
        let patch = json!({"spec": spec});
        self.hood.api().patch(&self.path(), MERGE, patch).await;
    }

    /// The ElastiService as it is; null if it is gone.
    pub async fn object(&self) -> Value {
        self.hood.api().get(&self.path()).await
    }

    /// Its status.
    pub async fn status(&self) -> elasti_api::ElastiServiceStatus {
        let object = self.object().await;
        serde_json::from_value(object["status"].clone()).unwrap_or_default()
    }

    /// Its phase.
    pub async fn phase(&self) -> Option<Phase> {
        self.status().await.phase
    }

    /// One of its conditions: status and reason.
    pub async fn condition(&self, type_: &str) -> Option<(String, String)> {
        let status = self.status().await;
        let found = status.conditions.into_iter().find(|c| c.type_ == type_)?;
        Some((found.status, found.reason))
    }

    /// The replicas that the target asks for.
    pub async fn replicas(&self) -> u64 {
        let target = self.hood.api().get(&self.target_path()).await;
        target["spec"]["replicas"].as_u64().unwrap_or(0)
    }

    /// Someone scales the target by hand.
    pub async fn scale_by_hand(&self, replicas: u32) {
        let path = format!("{}/scale?fieldManager=kubectl", self.target_path());
        let patch = json!({"spec": {"replicas": replicas}});
        self.hood.api().patch(&path, MERGE, patch).await;
    }

    /// The slices that point its Service at resolvers.
    pub async fn resolver_slices(&self) -> Vec<Value> {
        let mut slices = self.hood.api().items(&self.slices_path()).await;
        slices.retain(|slice| {
            let labels = &slice["metadata"]["labels"];
            labels[names::SERVICE_NAME_LABEL] == self.blueprint.name
                && labels[names::SLICE_MANAGED_BY_LABEL] == names::SLICE_MANAGED_BY_ELASTI
        });
        slices
    }

    /// The private Service; null if there is none.
    pub async fn private_service(&self) -> Value {
        let name = names::private_service(self.blueprint.name);
        let path = format!("{}/{name}", self.core("services"));
        self.hood.api().get(&path).await
    }

    /// Events about the ElastiService or the target, by kind.
    pub async fn events(&self, kind: &str) -> Vec<Value> {
        let namespace = self.blueprint.namespace;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let mut events = self.hood.api().items(&path).await;
        events.retain(|event| {
            let about = &event["regarding"];
            about["kind"] == kind && about["name"] == self.blueprint.name
        });
        events
    }

    /// Waits for a phase.
    pub async fn until_phase(&self, phase: Phase) {
        until(&format!("{phase:?}"), async || {
            self.phase().await == Some(phase)
        })
        .await;
    }

    /// Waits until it serves directly, with ports recorded.
    pub async fn until_serving(&self) {
        until("serving", async || {
            let status = self.status().await;
            status.phase == Some(Phase::Serving)
                && status.mode == Some(Mode::Serve)
                && !status.ports.is_empty()
                && self.replicas().await > 0
        })
        .await;
    }

    /// Waits until it sleeps: zero replicas, and the resolvers answer.
    pub async fn until_asleep(&self) {
        until("asleep", async || {
            let status = self.status().await;
            status.phase == Some(Phase::Asleep)
                && status.mode == Some(Mode::Proxy)
                && self.replicas().await == 0
        })
        .await;
    }

    /// Puts it to sleep.
    pub async fn fall_asleep(&self) {
        self.idle();
        self.until_asleep().await;
    }

    /// Where clients reach a port of it.
    #[must_use]
    pub fn address(&self, port: u16) -> String {
        format!("{}:{port}", self.ip)
    }

    /// One request to its first port, written into the ledger.
    pub async fn get(&self) -> Result<Answer, Lost> {
        self.get_at(self.blueprint.ports[0].1).await
    }

    /// One request to a port of it, written into the ledger.
    pub async fn get_at(&self, port: u16) -> Result<Answer, Lost> {
        let sent_at = Instant::now();
        let path = format!("/{}/{}", self.blueprint.name, self.hood.ledger().next());
        let outcome = client::get(&self.address(port), &path).await;
        self.hood.ledger().write(Entry {
            app: self.blueprint.name.to_owned(),
            path,
            sent_at,
            took: sent_at.elapsed(),
            outcome: outcome.clone(),
        });
        outcome
    }

    /// One request that must be answered by the app.
    pub async fn visit(&self) -> Answer {
        let answer = self.get().await;
        let answer = answer.unwrap_or_else(|lost| panic!("lost: {lost:?}"));
        assert_eq!(answer.code(), 200, "{answer:?}");
        answer
    }
}

/// Puts every key of `more` into `object`.
fn merge(object: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}
