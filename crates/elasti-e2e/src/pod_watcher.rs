//! Watches the apps of a namespace and sends each edge the moment it happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use elasti_api::{Phase, names};
use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use crate::app::App;
use crate::test_env::TestEnv;

/// Edges that one listener may be behind; more means that it does not listen.
const BEHIND: usize = 4096;

/// Something turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The status tells another phase.
    Phase(Phase),
    /// Our slice is there.
    SliceIn,
    /// Our slice is gone.
    SliceOut,
    /// A pod stopped being ready, by our mark or by itself.
    PodOut,
    /// A pod became ready.
    PodIn,
    /// The Service's own slices show no ready pod any more.
    RotationEmpty,
    /// The Service's own slices show a ready pod.
    RotationFull,
    /// The target asks for zero.
    Zero,
    /// The target asks for replicas.
    Up,
    /// A pod was deleted and has not ended yet.
    PodEnding,
    /// A pod is gone.
    PodGone,
}

/// What is known of one app.
#[derive(Debug, Default)]
struct AppState {
    phase: Option<Phase>,
    slice: bool,
    rotation: bool,
    zero: bool,
    /// By name: ready, ending.
    pods: BTreeMap<String, (bool, bool)>,
    listener: Option<Sender<Edge>>,
}

type Apps = Arc<Mutex<BTreeMap<String, AppState>>>;

/// Follows a namespace until it is dropped.
#[derive(Debug)]
pub struct PodWatcher {
    apps: Apps,
    _watches: JoinSet<()>,
}

impl PodWatcher {
    /// Follows the namespace of apps that name no other.
    #[must_use]
    pub fn start(env: &TestEnv) -> Self {
        let apps = Apps::default();
        let mut watches = JoinSet::new();
        for (group, plural) in [
            ("apis/elasti.truefoundry.com/v1alpha1", "elastiservices"),
            ("apis/discovery.k8s.io/v1", "endpointslices"),
            ("apis/apps/v1", "deployments"),
            ("api/v1", "pods"),
        ] {
            let path = format!("/{group}/namespaces/{}/{plural}", env.home());
            watches.spawn(follow(env.clone(), path, apps.clone()));
        }
        Self {
            apps,
            _watches: watches,
        }
    }

    /// The edges of one app from now on.
    #[must_use]
    pub fn edges(&self, app: &App) -> Receiver<Edge> {
        let (listener, edges) = channel(BEHIND);
        let mut apps = self.apps.lock();
        let known = apps.entry(app.blueprint.name.to_owned()).or_default();
        known.listener = Some(listener);
        edges
    }
}

async fn follow(env: TestEnv, path: String, apps: Apps) {
    let client = &env.api().0;
    loop {
        let version = env.api().get(&path).await;
        let version = version["metadata"]["resourceVersion"].as_str();
        let uri = format!("{path}?watch=true&resourceVersion={}", version.unwrap());
        let request = http::Request::get(uri).body(Vec::new()).unwrap();
        let mut events = std::pin::pin!(client.request_events::<Value>(request).await.unwrap());
        // A watch that ends is begun anew; what changed in between shows at the object's next change.
        while let Ok(Some(event)) = events.try_next().await {
            let mut apps = apps.lock();
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    learn(&mut apps, &path, &object, false);
                }
                WatchEvent::Deleted(object) => learn(&mut apps, &path, &object, true),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
            }
        }
    }
}

fn learn(apps: &mut BTreeMap<String, AppState>, path: &str, object: &Value, gone: bool) {
    let meta = &object["metadata"];
    let kind = path.rsplit('/').next().unwrap_or_default();
    let app = match kind {
        "endpointslices" => &meta["labels"][names::SERVICE_NAME_LABEL],
        "pods" => &meta["labels"]["app"],
        _ => &meta["name"],
    };
    let Some(known) = app.as_str().and_then(|app| apps.get_mut(app)) else {
        return;
    };
    let mut edges = Vec::new();
    match kind {
        "elastiservices" => {
            let phase = serde_json::from_value(object["status"]["phase"].clone()).ok();
            if known.phase != phase {
                known.phase = phase;
                edges.extend(phase.map(Edge::Phase));
            }
        }
        "endpointslices" => learn_slice(known, object, gone, &mut edges),
        "deployments" => {
            let zero = object["spec"]["replicas"] == 0;
            turn(&mut known.zero, zero, [Edge::Zero, Edge::Up], &mut edges);
        }
        _ => learn_pod(known, object, gone, &mut edges),
    }
    if let Some(listener) = &known.listener {
        for edge in edges {
            // Full: the receiver is not read any more.
            let _ = listener.try_send(edge);
        }
    }
}

fn learn_slice(known: &mut AppState, slice: &Value, gone: bool, edges: &mut Vec<Edge>) {
    let labels = &slice["metadata"]["labels"];
    if labels[names::SLICE_MANAGED_BY_LABEL] == names::SLICE_MANAGED_BY_ELASTI {
        let way = [Edge::SliceIn, Edge::SliceOut];
        return turn(&mut known.slice, !gone, way, edges);
    }
    let endpoints = slice["endpoints"].as_array();
    let mut endpoints = endpoints.into_iter().flatten();
    let full = !gone && endpoints.any(|e| e["conditions"]["ready"] == true);
    let way = [Edge::RotationFull, Edge::RotationEmpty];
    turn(&mut known.rotation, full, way, edges);
}

fn learn_pod(known: &mut AppState, pod: &Value, gone: bool, edges: &mut Vec<Edge>) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if gone {
        known.pods.remove(name);
        return edges.push(Edge::PodGone);
    }
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
    let is_ending = pod["metadata"]["deletionTimestamp"].is_string();
    let (ready, ending) = known.pods.entry(name.to_owned()).or_default();
    turn(ready, is_ready, [Edge::PodIn, Edge::PodOut], edges);
    if is_ending && !*ending {
        edges.push(Edge::PodEnding);
    }
    *ending = is_ending;
}

/// Tells the first edge when `now` became true, the second when it became false.
fn turn(known: &mut bool, now: bool, [on, off]: [Edge; 2], edges: &mut Vec<Edge>) {
    if *known != now {
        *known = now;
        edges.push(if now { on } else { off });
    }
}
