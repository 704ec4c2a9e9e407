//! An app under management: what it is made of, and verbs for what happens to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_api::{Mode, Phase, names};
use elasti_fake_cluster::prometheus::Reading;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::client::{self, Answer, KeepAliveClient, Lost};
use crate::request_log::Entry;
use crate::test_env::TestEnv;
use crate::{MERGE, STRATEGIC};
use crate::{stand_in, until};

/// The sample app on a real node.
const SAMPLE_APP: &str = "docker.io/local/sample-app:1";
/// The condition without which a pod with a door is not ready.
const GATE: &str = "elasti.example/gate";

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
    /// Whether its trigger reads above the threshold from the start.
    pub in_use: bool,
    /// Names and numbers of the Service's ports.
    pub ports: Vec<(&'static str, u16)>,
    /// Its pods are ready only once someone lets visitors in (on a real cluster).
    pub has_gate: bool,
    /// More labels of its pods.
    pub labels: Value,
    /// More of its target's spec.
    pub target_spec: Value,
    /// More of its pods' spec; what stands under `container` is for their one container.
    pub pod: Value,
    /// What its container requests.
    pub requests: Value,
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
        in_use: true,
        ports: vec![("http", 80)],
        has_gate: false,
        requests: json!({}),
        labels: json!({}),
        target_spec: json!({}),
        pod: json!({}),
        service: json!({}),
        spec: json!({}),
    }
}

/// An app under management.
#[derive(Clone, Debug)]
pub struct App {
    env: TestEnv,
    /// What it was made of.
    pub blueprint: Blueprint,
    /// The cluster IP of its Service.
    pub ip: String,
}

impl App {
    pub(crate) async fn build(env: TestEnv, mut blueprint: Blueprint) -> Self {
        blueprint.namespace = env.name_of(blueprint.namespace);
        let app = Self::build_unmanaged(env, blueprint).await;
        match app.blueprint.in_use {
            true => app.busy(),
            false => app.idle(),
        }
        app.manage().await;
        app
    }

    pub(crate) async fn build_without_target(env: TestEnv, mut blueprint: Blueprint) -> Self {
        blueprint.namespace = env.name_of(blueprint.namespace);
        let mut app = Self {
            env,
            blueprint,
            ip: String::new(),
        };
        app.make_service().await;
        app.busy();
        app.manage().await;
        app
    }

    async fn build_unmanaged(env: TestEnv, blueprint: Blueprint) -> Self {
        let mut app = Self {
            env,
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
            replicas,
            ..
        } = &self.blueprint;
        let mut spec = json!({
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": self.pod_spec()},
        });
        let labels = &mut spec["template"]["metadata"]["labels"];
        merge(labels, &self.blueprint.labels);
        if *target == Target::StatefulSet {
            spec["serviceName"] = json!(name);
        }
        if *target == Target::Rollout {
            spec["strategy"] = json!({"canary": {}});
        }
        merge(&mut spec, &self.blueprint.target_spec);
        let object = json!({
            "apiVersion": target.api_version(), "kind": target.kind(),
            "metadata": {"name": name}, "spec": spec,
        });
        self.env.api().make(&self.targets(), object).await;
        if *target == Target::Rollout && self.env.needs_stand_ins() {
            tokio::spawn(stand_in::play(self.env.api().clone(), self.target_path()));
        }
    }

    /// The simulated cluster knows apps by their image; on a real node there is one image, and a variable says which app it is.
    fn pod_spec(&self) -> Value {
        let Blueprint {
            image,
            start_seconds,
            ports,
            ..
        } = &self.blueprint;
        let container_ports: Vec<Value> = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "containerPort": 8000 + port}))
            .collect();
        let numbers = ports.iter().map(|(_, port)| (8000 + port).to_string());
        let numbers: Vec<String> = numbers.collect();
        let app = image.split(':').next().unwrap_or_default();
        let real_image = match app {
            "missing" => "docker.io/local/missing:1",
            _ => SAMPLE_APP,
        };
        let mut spec = json!({
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "app",
                "image": if self.env.is_real() { real_image } else { image },
                "imagePullPolicy": "Never",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "ports": container_ports,
                "readinessProbe": {"tcpSocket": {"port": 8000 + ports[0].1}, "periodSeconds": 1},
                "resources": {"requests": self.blueprint.requests},
                "env": [
                    {"name": "START_SECONDS", "value": start_seconds},
                    {"name": "SAMPLE_APP", "value": app},
                    {"name": "PORTS", "value": numbers.join(" ")},
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            }],
        });
        if self.blueprint.has_gate {
            spec["readinessGates"] = json!([{"conditionType": GATE}]);
        }
        let mut more = self.blueprint.pod.clone();
        if let Some(container) = more
            .as_object_mut()
            .and_then(|more| more.remove("container"))
        {
            merge(&mut spec["containers"][0], &container);
        }
        merge(&mut spec, &more);
        spec
    }

    /// Opens the doors of all its pods, once there is one.
    pub async fn open_gates(&self) {
        let pods = self.pods_path();
        let api = self.env.api();
        until("there is a pod", async || {
            !api.items(&pods).await.is_empty()
        })
        .await;
        for pod in api.items(&pods).await {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{}/{name}/status", self.core("pods"));
            let open = json!({"status": {"conditions": [{"type": GATE, "status": "True"}]}});
            api.patch(&path, STRATEGIC, open).await;
        }
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
        let service = self.env.api().make(&self.core("services"), service).await;
        let ip = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        self.ip = ip.to_owned();
    }

    /// Another Service of its pods, as an app that has nothing but this Service.
    pub async fn add_service(&self, name: &'static str, more: Value) -> Self {
        let mut other = self.clone();
        merge(
            &mut other.blueprint.service,
            &json!({"selector": {"app": self.blueprint.name}}),
        );
        merge(&mut other.blueprint.service, &more);
        other.blueprint.name = name;
        other.make_service().await;
        other
    }

    /// Waits until every node sends its clients somewhere.
    pub async fn until_answering(&self) {
        let address = self.address(self.blueprint.ports[0].1);
        until("the app answers", async || match self.blueprint.image {
            "speaks-first:1" => client::greeting(&address).await.is_ok(),
            // Not any answer: a machine may have a proxy that answers for addresses that do not exist.
            _ => { client::get(&address, "/").await }.is_ok_and(|answer| answer.code() == 200),
        })
        .await;
    }

    /// Creates its ElastiService.
    pub async fn manage(&self) {
        let Blueprint { name, target, .. } = &self.blueprint;
        let prometheus = self.env.prometheus();
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": target.api_version(), "kind": target.kind(), "name": name},
            "service": name,
            "cooldownPeriod": 1,
            "triggers": [{"type": "prometheus", "metadata": {
                "query": self.query(), "threshold": "1", "serverAddress": prometheus,
            }}],
        });
        merge(&mut spec, &self.blueprint.spec);
        let object = json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name}, "spec": spec,
        });
        self.env.api().make(&self.elastiservices(), object).await;
    }

    /// The metric that its trigger reads.
    #[must_use]
    pub fn query(&self) -> String {
        let namespace = self.blueprint.namespace.replace('-', "_");
        format!("requests_{namespace}_{}", self.blueprint.name)
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

    /// Path that lists its pods.
    #[must_use]
    pub fn pods_path(&self) -> String {
        let app = self.blueprint.name;
        format!("{}?labelSelector=app%3D{app}", self.core("pods"))
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

    /// Sets its trigger below the threshold.
    pub fn idle(&self) {
        self.set_reading(Reading::Value(0.0));
    }

    /// Sets its trigger above the threshold.
    pub fn busy(&self) {
        self.set_reading(Reading::Value(5.0));
    }

    /// Sets what the trigger reads from now on.
    pub fn set_reading(&self, reading: Reading) {
        self.env.set_reading(&self.query(), reading);
    }

    /// Changes the ElastiService's spec.
    pub async fn edit(&self, spec: Value) {
        let patch = json!({"spec": spec});
        self.env.api().patch(&self.path(), MERGE, patch).await;
    }

    /// The ElastiService as it is; null if it is gone.
    pub async fn object(&self) -> Value {
        self.env.api().get(&self.path()).await
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
        let target = self.env.api().get(&self.target_path()).await;
        target["spec"]["replicas"].as_u64().unwrap_or(0)
    }

    /// Someone scales the target by hand.
    pub async fn scale_by_hand(&self, replicas: u32) {
        let path = format!("{}/scale?fieldManager=kubectl", self.target_path());
        let patch = json!({"spec": {"replicas": replicas}});
        self.env.api().patch(&path, MERGE, patch).await;
    }

    /// The slices that send its Service's connections to resolvers.
    pub async fn resolver_slices(&self) -> Vec<Value> {
        let mut slices = self.our_slices().await;
        slices.retain(|slice| {
            let endpoints = slice["endpoints"].as_array();
            let mut endpoints = endpoints.into_iter().flatten();
            endpoints.any(|endpoint| endpoint["conditions"]["ready"] == true)
        });
        slices
    }

    /// The slices of ours that its Service has, as a redirect or as a net.
    pub async fn our_slices(&self) -> Vec<Value> {
        let mut slices = self.env.api().items(&self.slices_path()).await;
        slices.retain(|slice| {
            let labels = &slice["metadata"]["labels"];
            labels[names::SERVICE_NAME_LABEL] == self.blueprint.name
                && labels[names::SLICE_MANAGED_BY_LABEL] == names::SLICE_MANAGED_BY_ELASTI
        });
        slices
    }

    /// The resolvers in those slices.
    pub async fn slice_addresses(&self) -> BTreeSet<String> {
        let slices = self.our_slices().await;
        let endpoints = slices
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        endpoints
            .filter_map(|endpoint| endpoint["addresses"][0].as_str().map(str::to_owned))
            .collect()
    }

    /// How many requests to it wait at resolvers.
    pub async fn held(&self) -> usize {
        let Blueprint {
            namespace, name, ..
        } = &self.blueprint;
        self.env.held_for(namespace, name).await
    }

    /// Someone who comes now and is answered later.
    #[must_use]
    pub fn visitor(&self) -> JoinHandle<()> {
        let app = self.clone();
        tokio::spawn(async move { drop(app.visit().await) })
    }

    /// Visitors who come one after the other until `stop` is set; the request log has them.
    #[must_use]
    pub fn visitors(&self) -> (Arc<AtomicBool>, JoinHandle<()>) {
        let (app, stop) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let coming = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                drop(app.get().await);
                sleep(Duration::from_millis(25)).await;
            }
        });
        (stop, coming)
    }

    /// The private Service; null if there is none.
    pub async fn private_service(&self) -> Value {
        let name = names::private_service(self.blueprint.name);
        let path = format!("{}/{name}", self.core("services"));
        self.env.api().get(&path).await
    }

    /// Events about the ElastiService or the target, by kind.
    pub async fn events(&self, kind: &str) -> Vec<Value> {
        let namespace = self.blueprint.namespace;
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let mut events = self.env.api().items(&path).await;
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

    /// Waits until its pods are gone or ready, and then for the settle time, within which nodes follow slices.
    pub async fn until_nodes_follow(&self) {
        let pods = self.pods_path();
        until("no pod is about to end", async || {
            let pods = self.env.api().items(&pods).await;
            let mut ends = pods.iter().map(|pod| &pod["metadata"]["deletionTimestamp"]);
            ends.all(Value::is_null)
        })
        .await;
        sleep(self.env.settle()).await;
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

    /// One request to its first port, with an entry in the request log.
    pub async fn get(&self) -> Result<Answer, Lost> {
        self.get_at(self.blueprint.ports[0].1).await
    }

    /// One request to a port of it, with an entry in the request log.
    pub async fn get_at(&self, port: u16) -> Result<Answer, Lost> {
        let (path, sent_at) = (self.next_path(), Instant::now());
        let outcome = client::get(&self.address(port), &path).await;
        self.note(path, sent_at, outcome)
    }

    /// One request by way of a gateway that knows it by this host, with an entry in the request log.
    pub async fn get_through(&self, gateway: &str, host: &str) -> Result<Answer, Lost> {
        let (path, sent_at) = (self.next_path(), Instant::now());
        let outcome = client::get_of(gateway, host, &path).await;
        self.note(path, sent_at, outcome)
    }

    /// One request on a kept connection to its first port, with an entry in the request log.
    pub async fn get_as(&self, keep_alive: &mut KeepAliveClient) -> Result<Answer, Lost> {
        let (path, sent_at) = (self.next_path(), Instant::now());
        let address = self.address(self.blueprint.ports[0].1);
        let outcome = keep_alive.get(&address, &path).await;
        self.note(path, sent_at, outcome)
    }

    fn next_path(&self) -> String {
        format!("/{}/{}", self.blueprint.name, self.env.requests().next())
    }

    fn note(
        &self,
        path: String,
        sent_at: Instant,
        outcome: Result<Answer, Lost>,
    ) -> Result<Answer, Lost> {
        self.env.requests().write(Entry {
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
