//! What a bare watcher sees of the targets, moment by moment: redirects, marks, scales, pods' ends.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::BufReader;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::request_log::{clock, lock};
use crate::kubernetes::ready;
use crate::names;

/// One moment in the life of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edge {
    /// Our slice sends every new connection to the resolvers.
    Redirected,
    /// A pod was marked.
    Marked,
    /// A mark went: the kubelet's tick, or a cancelled sleep.
    Unmarked,
    /// A pod was marked that had been before.
    MarkedAgain,
    /// The Service's own slices hold no ready pod.
    OutOfRotation,
    /// The Service's own slices hold a ready pod.
    InRotation,
    /// The target asks for zero.
    Zero,
    /// A pod was deleted and has not ended yet.
    PodEnding,
    /// A pod is gone.
    PodGone,
    /// The target asks for replicas again.
    Woken,
    /// A pod is ready.
    PodReady,
    /// Our slice is a net again, or gone.
    Restored,
}

/// A moment as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) at: Instant,
    /// The time of day, as logs have it.
    pub(crate) clock: String,
    pub(crate) target: String,
    pub(crate) edge: Edge,
}

/// The state of one target.
#[derive(Debug, Default)]
struct TargetState {
    redirected: bool,
    replicas: Option<i64>,
    /// The target was at zero since the redirect.
    slept: bool,
    marked: BTreeSet<String>,
    marked_before: BTreeSet<String>,
    ready: BTreeMap<String, Option<IpAddr>>,
    pods: BTreeSet<String>,
    ending: BTreeSet<String>,
    rotation: Option<bool>,
}

#[derive(Debug, Default)]
struct State {
    targets: BTreeMap<String, TargetState>,
    seen: Vec<Observation>,
    cancelled: usize,
}

/// The watcher; clones share what it saw.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    state: Arc<(Mutex<State>, Condvar)>,
    ended: Arc<AtomicBool>,
    children: Arc<Mutex<Vec<Child>>>,
}

impl Timeline {
    /// Watches one namespace; the label `app` of a target's objects is its name.
    pub(crate) fn watch(namespace: &'static str) -> Self {
        let timeline = Self {
            state: Arc::default(),
            ended: Arc::default(),
            children: Arc::default(),
        };
        for kind in ["deployments", "statefulsets", "endpointslices", "pods"] {
            let timeline = timeline.clone();
            thread::spawn(move || timeline.follow(namespace, kind));
        }
        timeline
    }

    /// Watches one kind until the end; a watch that breaks is begun anew.
    fn follow(&self, namespace: &str, kind: &str) {
        while !self.ended.load(Ordering::Relaxed) {
            if let Err(error) = self.follow_once(namespace, kind) {
                eprintln!("watching {kind}: {error}");
            }
            thread::sleep(Duration::from_millis(300));
        }
    }

    fn follow_once(&self, namespace: &str, kind: &str) -> Result<(), Box<dyn Error>> {
        let arguments = [
            "get",
            kind,
            "--namespace",
            namespace,
            "--watch",
            "--output-watch-events",
            "--output=json",
        ];
        let mut child = ready::kubectl(&arguments)?
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        lock(&self.children).push(child);
        let events = serde_json::Deserializer::from_reader(BufReader::new(output));
        for event in events.into_iter::<Value>() {
            let event = event?;
            let at = Instant::now();
            let gone = text(&event, "/type") == Some("DELETED");
            let object = event.pointer("/object").unwrap_or(&Value::Null);
            let (state, changed) = &*self.state;
            lock(state).apply(kind, object, gone, at);
            changed.notify_all();
        }
        Ok(())
    }

    /// Waits until an edge of a target is seen after a moment; gives when.
    pub(crate) fn wait_for(
        &self,
        target: &str,
        edge: Edge,
        after: Instant,
        limit: Duration,
    ) -> Option<Instant> {
        let until = Instant::now() + limit;
        let (state, changed) = &*self.state;
        let mut state = lock(state);
        loop {
            let found = state.seen.iter().rev().take_while(|s| s.at > after);
            let found = found.filter(|s| s.target == target && s.edge == edge);
            if let Some(observation) = found.last() {
                return Some(observation.at);
            }
            let left = until.checked_duration_since(Instant::now())?;
            let waited = changed.wait_timeout(state, left.min(Duration::from_millis(200)));
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Everything that was seen, and how many sleeps were cancelled.
    pub(crate) fn seen(&self) -> (Vec<Observation>, usize) {
        let state = lock(&self.state.0);
        (state.seen.clone(), state.cancelled)
    }

    /// How many pods of a target are ready.
    pub(crate) fn ready_pods(&self, target: &str) -> usize {
        let state = lock(&self.state.0);
        state.targets.get(target).map_or(0, |one| one.ready.len())
    }

    /// The address of a ready pod of a target.
    pub(crate) fn ready_address(&self, target: &str) -> Option<IpAddr> {
        let state = lock(&self.state.0);
        let known = state.targets.get(target)?;
        known.ready.values().next().copied().flatten()
    }

    /// The target asks for zero, and no pod of it is left.
    pub(crate) fn is_at_zero(&self, target: &str) -> bool {
        let state = lock(&self.state.0);
        let known = state.targets.get(target);
        known.is_some_and(|known| known.replicas == Some(0) && known.pods.is_empty())
    }

    /// Stops watching.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        for mut child in lock(&self.children).drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl State {
    fn apply(&mut self, kind: &str, object: &Value, gone: bool, at: Instant) {
        let label = match kind {
            "endpointslices" => "/metadata/labels/kubernetes.io~1service-name",
            _ => "/metadata/labels/app",
        };
        let Some(target) = text(object, label).map(str::to_owned) else {
            return;
        };
        let name = text(object, "/metadata/name")
            .unwrap_or_default()
            .to_owned();
        let known = self.targets.entry(target.clone()).or_default();
        let mut edges = Vec::new();
        match kind {
            "deployments" | "statefulsets" => known.workload(object, &mut edges),
            "endpointslices" if is_ours(object) => {
                let redirects = !gone && list(object, "/endpoints").iter().any(is_ready);
                if known.redirected && !redirects && !known.slept {
                    self.cancelled += 1;
                }
                known.our_slice(redirects, &mut edges);
            }
            "endpointslices" => known.own_slice(object, gone, &mut edges),
            _ => known.pod(&name, object, gone, &mut edges),
        }
        for edge in edges {
            let target = target.clone();
            let clock = clock();
            self.seen.push(Observation {
                at,
                clock,
                target,
                edge,
            });
        }
    }
}

fn is_ours(slice: &Value) -> bool {
    let labels = slice.pointer("/metadata/labels");
    let by = labels.and_then(|labels| labels.get(names::SLICE_MANAGED_BY_LABEL));
    by.and_then(Value::as_str) == Some(names::SLICE_MANAGED_BY_ELASTI)
}

fn is_ready(endpoint: &Value) -> bool {
    endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true))
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path).and_then(Value::as_str)
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    let list = object.pointer(path).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

impl TargetState {
    fn workload(&mut self, object: &Value, edges: &mut Vec<Edge>) {
        let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64);
        match (self.replicas, replicas) {
            (Some(1..), Some(0)) => {
                self.slept = true;
                edges.push(Edge::Zero);
            }
            (Some(0), Some(1..)) => edges.push(Edge::Woken),
            _ => {}
        }
        self.replicas = replicas;
    }

    fn our_slice(&mut self, redirects: bool, edges: &mut Vec<Edge>) {
        match (self.redirected, redirects) {
            (false, true) => {
                self.slept = self.replicas == Some(0);
                self.marked_before.clear();
                edges.push(Edge::Redirected);
            }
            (true, false) => edges.push(Edge::Restored),
            _ => {}
        }
        self.redirected = redirects;
    }

    fn own_slice(&mut self, object: &Value, gone: bool, edges: &mut Vec<Edge>) {
        let rotation = !gone && list(object, "/endpoints").iter().any(is_ready);
        if self.rotation != Some(rotation) {
            edges.push(match rotation {
                true => Edge::InRotation,
                false => Edge::OutOfRotation,
            });
        }
        self.rotation = Some(rotation);
    }

    fn pod(&mut self, name: &str, object: &Value, gone: bool, edges: &mut Vec<Edge>) {
        let mut conditions = list(object, "/status/conditions").iter();
        let ready = conditions.find(|one| text(one, "/type") == Some("Ready"));
        let is_marked =
            !gone && ready.and_then(|one| text(one, "/reason")) == Some(names::DRAIN_REASON);
        let is_ready = !gone && ready.and_then(|one| text(one, "/status")) == Some("True");
        let is_ending = text(object, "/metadata/deletionTimestamp").is_some();
        match (self.marked.contains(name), is_marked) {
            (false, true) => {
                self.marked.insert(name.to_owned());
                edges.push(match self.marked_before.insert(name.to_owned()) {
                    true => Edge::Marked,
                    false => Edge::MarkedAgain,
                });
            }
            (true, false) => {
                self.marked.remove(name);
                edges.push(Edge::Unmarked);
            }
            _ => {}
        }
        match (self.ready.contains_key(name), is_ready) {
            (false, true) => {
                let address = text(object, "/status/podIP");
                let address = address.and_then(|text| text.parse().ok());
                self.ready.insert(name.to_owned(), address);
                edges.push(Edge::PodReady);
            }
            (true, false) => {
                self.ready.remove(name);
            }
            _ => {}
        }
        if is_ending && self.ending.insert(name.to_owned()) {
            edges.push(Edge::PodEnding);
        }
        self.pods.insert(name.to_owned());
        if gone {
            self.pods.remove(name);
            self.ending.remove(name);
            edges.push(Edge::PodGone);
        }
    }
}

/// A stretch of time in which pods of a target were being drained.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) target: String,
    /// The first mark.
    pub(crate) from: Instant,
    /// The zero, or the end of a cancelled one.
    pub(crate) to: Instant,
    /// It ended with the zero.
    pub(crate) slept: bool,
}

/// All drains, from the first mark after a redirect to the zero or to the restored slice.
pub(crate) fn drains(seen: &[Observation]) -> Vec<Drain> {
    let mut since: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut redirected: BTreeSet<&str> = BTreeSet::new();
    let mut drains = Vec::new();
    for one in seen {
        let target = one.target.as_str();
        match one.edge {
            Edge::Redirected => {
                redirected.insert(target);
            }
            Edge::Marked | Edge::MarkedAgain if redirected.contains(target) => {
                since.entry(target).or_insert(one.at);
            }
            Edge::Zero | Edge::Restored => {
                redirected.remove(target);
                drains.extend(since.remove(target).map(|from| Drain {
                    target: target.to_owned(),
                    from,
                    to: one.at,
                    slept: one.edge == Edge::Zero,
                }));
            }
            _ => {}
        }
    }
    drains
}

/// How long after the first ready pod of each wake the resolvers were out of the path.
pub(crate) fn ready_to_restored(seen: &[Observation]) -> String {
    let mut wakes: BTreeMap<&str, Option<Instant>> = BTreeMap::new();
    let mut spans = Vec::new();
    for Observation {
        at, target, edge, ..
    } in seen
    {
        match (edge, wakes.get(target.as_str())) {
            (Edge::Woken, _) => {
                wakes.insert(target, None);
            }
            (Edge::PodReady, Some(None)) => {
                wakes.insert(target, Some(*at));
            }
            (Edge::Restored, Some(ready)) => {
                spans.extend(ready.map(|ready| at.duration_since(ready)));
                wakes.remove(target.as_str());
            }
            _ => {}
        }
    }
    let count = spans.len();
    format!(
        "from a ready pod to out of the path: {}, {count} times",
        super::request_log::quantiles(&mut spans)
    )
}
