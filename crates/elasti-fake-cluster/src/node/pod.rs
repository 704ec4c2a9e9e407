//! One pod on a node: starts its apps, probes them, reports, and ends them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::app::{App, AppKind};
use super::probe::Probe;
use super::process;
use super::visits::Visits;
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;
use crate::controllers::endpoint_slices::sidecars;
use crate::controllers::{ControllerClient, Kind, condition};

/// The first wait after a crash; it doubles up to five minutes.
const BACKOFF_MIN: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// The exit code of a container that had to be killed.
const KILLED: i64 = 137;

#[derive(Clone, Debug)]
enum State {
    Waiting(&'static str, Option<String>),
    Running(String),
    Ended { code: i64, at: String },
}

#[derive(Clone, Debug)]
struct Container {
    name: String,
    image: String,
    state: State,
    last_end: Option<(i64, String)>,
    ready: bool,
    /// Its startup probe has passed, or it has none and runs.
    started: bool,
    restarts: i64,
    /// An init container that goes on running.
    sidecar: bool,
}

/// Sidecars, then the other containers; init containers that end are taken for done.
fn lasting(pod: &Value) -> impl Iterator<Item = (bool, &Value)> {
    let others = pod.list("/spec/containers").iter();
    let sidecars = sidecars(pod).map(|one| (true, one));
    sidecars.chain(others.map(|one| (false, one)))
}

/// What the kubelet knows about a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodRecord {
    pub(crate) key: Key,
    pub(crate) uid: String,
    address: Ipv4Addr,
    started: String,
    containers: Vec<Container>,
    /// Since when the containers are (not) ready.
    containers_readiness: (bool, String),
    /// The conditions that the spec's readiness gates name are true.
    gates: bool,
    /// Since when the pod is (not) ready.
    readiness: (bool, String),
}

/// The conditions that a kubelet writes; it leaves all others as they are.
const OWN_CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

fn gates_hold(pod: &Value) -> bool {
    let mut gates = pod.list("/spec/readinessGates").iter();
    gates.all(|gate| condition(pod, gate.text("/conditionType")) == "True")
}

pub(crate) type SharedPodRecord = Arc<Mutex<PodRecord>>;

impl PodRecord {
    pub(crate) fn new(pod: &Value, address: Ipv4Addr, now: &str) -> Self {
        let container = |(sidecar, one): (bool, &Value)| Container {
            name: one.text("/name").to_owned(),
            image: one.text("/image").to_owned(),
            state: State::Waiting("ContainerCreating", None),
            last_end: None,
            ready: false,
            started: false,
            restarts: 0,
            sidecar,
        };
        Self {
            key: Key::from_object(pod),
            uid: pod.text("/metadata/uid").to_owned(),
            address,
            started: now.to_owned(),
            containers: lasting(pod).map(container).collect(),
            containers_readiness: (false, now.to_owned()),
            gates: gates_hold(pod),
            readiness: (false, now.to_owned()),
        }
    }

    fn update_readiness(&mut self, now: &str) {
        let containers = self.containers.iter().all(|container| container.ready);
        let ready = containers && self.gates;
        for (known, holds) in [
            (&mut self.containers_readiness, containers),
            (&mut self.readiness, ready),
        ] {
            if known.0 != holds {
                *known = (holds, now.to_owned());
            }
        }
    }

    fn change(&mut self, at: usize, now: &str, change: impl FnOnce(&mut Container)) {
        if let Some(container) = self.containers.get_mut(at) {
            change(container);
        }
        self.update_readiness(now);
    }

    /// The status as the kubelet writes it.
    fn status(&self, pod: &Value) -> Value {
        let word = |holds: bool| if holds { "True" } else { "False" };
        let condition = |kind: &str, status: &str, since: &str| {
            let mut one = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
            if status == "False" && self.containers_readiness.0 {
                one.put("/reason", "ReadinessGatesNotReady");
            } else if status == "False" {
                one.put("/reason", "ContainersNotReady");
                let names: Vec<&str> = self
                    .containers
                    .iter()
                    .filter(|container| !container.ready)
                    .map(|container| container.name.as_str())
                    .collect();
                one.put(
                    "/message",
                    format!("containers with unready status: [{}]", names.join(" ")),
                );
            }
            one
        };
        let runs = self.containers.iter().any(|container| {
            matches!(container.state, State::Running(_)) || container.restarts > 0
        });
        let (containers, ready) = (&self.containers_readiness, &self.readiness);
        let mut conditions = vec![
            condition("PodReadyToStartContainers", "True", &self.started),
            condition("Initialized", "True", &self.started),
            condition("Ready", word(ready.0), &ready.1),
            condition("ContainersReady", word(containers.0), &containers.1),
            condition("PodScheduled", "True", &self.started),
        ];
        let others = pod.list("/status/conditions").iter();
        let others = others.filter(|one| !OWN_CONDITIONS.contains(&one.text("/type")));
        conditions.extend(others.cloned());
        let statuses = |sidecar: bool| -> Vec<Value> {
            let containers = self.containers.iter();
            let kind = containers.filter(|one| one.sidecar == sidecar);
            kind.map(container_status).collect()
        };
        let mut status = json!({
            "phase": if runs { "Running" } else { "Pending" },
            "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}],
            "podIP": self.address.to_string(), "podIPs": [{"ip": self.address.to_string()}],
            "qosClass": pod.text("/status/qosClass"), "startTime": self.started,
            "conditions": conditions,
            "containerStatuses": statuses(false),
        });
        let sidecars = statuses(true);
        if !sidecars.is_empty() {
            status.put("/initContainerStatuses", json!(sidecars));
        }
        status
    }
}

fn container_status(container: &Container) -> Value {
    let ended = |code: i64, at: &str| json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "finishedAt": at, "startedAt": at}});
    let state = match &container.state {
        State::Waiting(reason, None) => json!({"waiting": {"reason": reason}}),
        State::Waiting(reason, Some(message)) => {
            json!({"waiting": {"reason": reason, "message": message}})
        }
        State::Running(since) => json!({"running": {"startedAt": since}}),
        State::Ended { code, at } => ended(*code, at),
    };
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": container.ready, "restartCount": container.restarts,
        "started": container.started, "state": state,
        "lastState": container.last_end.as_ref().map_or_else(|| json!({}), |(code, at)| ended(*code, at)),
    })
}

/// Writes what the kubelet knows, whatever the API shows.
pub(crate) fn report(client: &ControllerClient, record: &SharedPodRecord) {
    let record = record.lock().clone();
    // A conflict only means that someone wrote in between: read again.
    for _ in 0..5 {
        let Some(pod) = client
            .get(Kind::PODS, &record.key)
            .filter(|pod| pod.value.text("/metadata/uid") == record.uid)
        else {
            return;
        };
        let status = record.status(&pod.value);
        match client.put_status(Kind::PODS, &pod.value, status) {
            Err(ApiError::Conflict { .. }) => {}
            _ => return,
        }
    }
}

/// A readiness gate that others opened or closed changes the pod's readiness at once; a mark of others waits for a tick.
pub(crate) fn follow_gates(client: &ControllerClient, record: &SharedPodRecord, pod: &Value) {
    let gates = gates_hold(pod);
    {
        let mut record = record.lock();
        if record.gates == gates {
            return;
        }
        record.gates = gates;
        record.update_readiness(&client.timestamp());
    }
    report(client, record);
}

/// Runs the pod until it is asked to stop, then confirms its end.
pub(crate) async fn live(
    client: ControllerClient,
    pod: Value,
    record: SharedPodRecord,
    mut stop: watch::Receiver<Option<Duration>>,
    visits: Visits,
) {
    report(&client, &record);
    let (address, key, uid) = {
        let record = record.lock();
        (record.address, record.key.clone(), record.uid.clone())
    };
    let mut containers = JoinSet::new();
    for (at, (_, container)) in lasting(&pod).enumerate() {
        let app = App::from_container(container, &key.name, visits.clone());
        let runner = ContainerRunner {
            client: client.clone(),
            record: record.clone(),
            at,
            container: container.clone(),
            address,
            app,
        };
        containers.spawn(runner.run(stop.clone()));
    }
    // The sender lives in the kubelet; without it the node is gone and so is the pod.
    if stop.wait_for(Option::is_some).await.is_err() {
        return;
    }
    // A pod that is deleted is reported at once, and so what others wrote into its status is undone.
    report(&client, &record);
    while containers.join_next().await.is_some() {}
    report(&client, &record);
    let gone = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let _ = client.delete(Kind::PODS, &key, &gone);
}

/// Runs one container, and restarts it.
struct ContainerRunner {
    client: ControllerClient,
    record: SharedPodRecord,
    at: usize,
    container: Value,
    address: Ipv4Addr,
    app: App,
}

impl ContainerRunner {
    fn update(&self, change: impl FnOnce(&mut Container)) {
        self.record
            .lock()
            .change(self.at, &self.client.timestamp(), change);
        report(&self.client, &self.record);
    }

    async fn run(self, mut stop: watch::Receiver<Option<Duration>>) {
        let mut wait = BACKOFF_MIN;
        while stop.borrow().is_none() {
            match self.app.kind {
                AppKind::Missing if self.container.text("/imagePullPolicy") == "Never" => {
                    let image = self.container.text("/image");
                    let message = format!(
                        "Container image \"{image}\" is not present with pull policy of Never"
                    );
                    self.warn("ErrImageNeverPull", &message);
                    self.set_waiting("ErrImageNeverPull", message);
                }
                AppKind::Missing => {
                    let image = self.container.text("/image");
                    let error = format!(
                        "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": {image}: not found"
                    );
                    self.warn(
                        "Failed",
                        &format!("Failed to pull image \"{image}\": {error}"),
                    );
                    self.warn("Failed", "Error: ErrImagePull");
                    self.set_waiting("ErrImagePull", error.clone());
                    sleep_or_stop(wait, &mut stop).await;
                    let message = format!("Back-off pulling image \"{image}\"");
                    self.warn("BackOff", &message);
                    self.warn("Failed", "Error: ImagePullBackOff");
                    self.set_waiting(
                        "ImagePullBackOff",
                        format!("{message}: ErrImagePull: {error}"),
                    );
                }
                AppKind::Crashes => {
                    let now = self.client.timestamp();
                    self.update(|container| container.state = State::Running(now));
                    sleep_or_stop(Duration::from_secs(1), &mut stop).await;
                    self.restarted(1, wait);
                }
                _ => {
                    let code = self.run_once(&mut stop).await;
                    if stop.borrow().is_some() {
                        break;
                    }
                    self.restarted(code, wait);
                }
            }
            sleep_or_stop(wait, &mut stop).await;
            wait = (wait * 2).min(BACKOFF_MAX);
        }
        let at = self.client.timestamp();
        self.record.lock().change(self.at, &at, |container| {
            container.ready = false;
            container.state = State::Ended {
                code: 0,
                at: at.clone(),
            };
        });
    }

    /// Reports why the container waits.
    fn set_waiting(&self, reason: &'static str, message: String) {
        self.update(|container| container.state = State::Waiting(reason, Some(message)));
    }

    fn warn(&self, reason: &str, message: &str) {
        let key = self.record.lock().key.clone();
        if let Some(pod) = self.client.get(Kind::PODS, &key) {
            self.client.warn(("v1", "Pod"), &pod.value, reason, message);
        }
    }

    fn restarted(&self, code: i64, wait: Duration) {
        let at = self.client.timestamp();
        let (key, uid) = {
            let record = self.record.lock();
            (record.key.clone(), record.uid.clone())
        };
        let name = self.container.text("/name");
        let pod = format!("{}_{}({uid})", key.name, key.namespace);
        self.warn(
            "BackOff",
            &format!("Back-off restarting failed container {name} in pod {pod}"),
        );
        let message = format!(
            "back-off {}s restarting failed container={name} pod={pod}",
            wait.as_secs()
        );
        self.update(|container| {
            container.last_end = Some((code, at));
            container.state = State::Waiting("CrashLoopBackOff", Some(message));
            (container.ready, container.started) = (false, false);
            container.restarts += 1;
        });
    }

    /// One life of the app, and its exit code: ends with the pod or when the liveness or startup probe gives it up.
    async fn run_once(&self, stop: &mut watch::Receiver<Option<Duration>>) -> i64 {
        let (kill, killed) = watch::channel(None);
        let now = self.client.timestamp();
        let serving = match self.app.kind {
            AppKind::Process => {
                let (container, key, address) = (
                    self.container.clone(),
                    self.record.lock().key.clone(),
                    self.address,
                );
                tokio::spawn(async move { process::run(&container, &key, address, killed).await })
            }
            _ => {
                let serve = self.app.clone().serve(self.address, killed);
                tokio::spawn(async move {
                    serve.await;
                    KILLED
                })
            }
        };
        let mut serving = AbortOnDrop(serving);
        let started = self.probe("startupProbe").is_none();
        self.update(|container| {
            container.state = State::Running(now);
            container.started = started;
        });
        let grace = tokio::select! {
            grace = async { stop.wait_for(Option::is_some).await.map_or(None, |grace| *grace) } => grace,
            () = self.run_probes() => Some(Duration::ZERO),
            // A process may end by itself.
            code = serving.finished() => return code,
        };
        let _ = kill.send(grace.or(Some(Duration::ZERO)));
        // Readiness is followed to the end, so an app that closed its listener is still reported ready for some probes.
        tokio::select! {
            _ = serving.finished() => {}
            () = self.follow_readiness(self.probe("readinessProbe")) => {}
        }
        KILLED
    }

    fn probe(&self, which: &str) -> Option<Probe> {
        Probe::from_container(&self.container, which, self.address)
    }

    /// Probes until the app has to be restarted.
    async fn run_probes(&self) {
        if let Some(mut startup) = self.probe("startupProbe") {
            startup.wait_initially().await;
            loop {
                match startup.check().await {
                    Some(true) => break,
                    Some(false) => return,
                    None => sleep(startup.period).await,
                }
            }
            self.update(|container| container.started = true);
        }
        tokio::select! {
            () = self.follow_readiness(self.probe("readinessProbe")) => {}
            () = follow_liveness(self.probe("livenessProbe")) => {}
        }
    }

    async fn follow_readiness(&self, probe: Option<Probe>) {
        let Some(mut probe) = probe else {
            self.update(|container| container.ready = true);
            return std::future::pending().await;
        };
        probe.wait_initially().await;
        let mut reported = false;
        loop {
            let ready = self
                .record
                .lock()
                .containers
                .get(self.at)
                .is_some_and(|container| container.ready);
            let verdict = probe.check().await;
            if let Some(verdict) = verdict.filter(|verdict| *verdict != ready) {
                self.update(|container| container.ready = verdict);
            }
            // Once is enough to know: the kubelet's own recorder holds back what repeats.
            if verdict == Some(false) && !reported {
                self.warn(
                    "Unhealthy",
                    &format!("Readiness probe failed: {}", probe.failure()),
                );
            }
            reported = verdict.map_or(reported, |verdict| !verdict);
            sleep(probe.period).await;
        }
    }
}

async fn follow_liveness(probe: Option<Probe>) {
    let Some(mut probe) = probe else {
        return std::future::pending().await;
    };
    probe.wait_initially().await;
    while probe.check().await != Some(false) {
        sleep(probe.period).await;
    }
}

async fn sleep_or_stop(time: Duration, stop: &mut watch::Receiver<Option<Duration>>) {
    tokio::select! {
        () = sleep(time) => {}
        _ = stop.wait_for(Option::is_some) => {}
    }
}

/// A task that ends with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<i64>);

impl AbortOnDrop {
    async fn finished(&mut self) -> i64 {
        (&mut self.0).await.unwrap_or(KILLED)
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
