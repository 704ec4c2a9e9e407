//! Why one service is as it is: its view, its pods, and for everything that goes wrong the true cause with a command.
//! It never asks the cluster: the same plan and rules as the operator's look at the objects that were brought.

use elasti_api::{ElastiService, ElastiServiceStatus, Mode, Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core_v1;
use serde::Serialize;
use serde_json::Value;

use crate::facts;
use crate::observed::{
    Author, Autoscaler, Claim, Observed, Obstacle, ObstacleKind, Owned, Pod, Report, Resolver,
    Rival, Target,
};
use crate::plan::plan;
use crate::view::{self, Blocker, Facts, Looked, View, Workload};

/// How far back an event says something about now.
const RECENT: jiff::SignedDuration = jiff::SignedDuration::from_mins(15);

/// The live objects around one service. What was not looked up, or may not be, is told as such.
#[derive(Clone, Debug)]
pub struct Live {
    /// The ElastiService.
    pub me: ElastiService,
    /// The other ElastiServices of its namespace.
    pub neighbours: Vec<ElastiService>,
    /// Its target.
    pub target: Looked<Value>,
    /// Its Service.
    pub service: Looked<core_v1::Service>,
    /// The pods that the Service selects.
    pub pods: Vec<core_v1::Pod>,
    /// Events of the target and of its pods.
    pub events: Vec<core_v1::Event>,
    /// The resolvers' pods.
    pub resolvers: Looked<Vec<core_v1::Pod>>,
    /// The autoscaler that the spec names.
    pub autoscaler: Looked<()>,
    /// The time of the look.
    pub now: Timestamp,
}

/// Why one service is as it is. Fields are added, never renamed or removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is shown of every service.
    #[serde(flatten)]
    pub view: View,
    /// The pods that the Service selects.
    pub pods: Vec<PodView>,
    /// Resolvers that may get traffic; absent where nobody may look.
    pub resolvers_ready: Option<usize>,
    /// What goes wrong, worst first; empty if nothing does.
    pub causes: Vec<Cause>,
}

/// One pod of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its node; absent while it has none.
    pub node: Option<String>,
    /// It is ready, or would be but for a drain.
    pub ready: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// What it is doing, in a few words.
    pub state: String,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub sentence: String,
    /// What Kubernetes itself says about it.
    pub said: Option<String>,
    /// Commands that show more.
    pub look: Vec<String>,
    /// What mends it: a command, or a sentence.
    pub fix: Vec<String>,
}

/// Why it is so.
#[must_use]
pub fn explain(live: &Live) -> Explanation {
    let target = workload(&live.target);
    let facts = Facts {
        me: &live.me,
        target: &target,
        held: None,
        now: live.now,
    };
    let nothing = ElastiServiceStatus::default();
    let status = live.me.status.as_ref().unwrap_or(&nothing);
    let observed = observed(live, &facts, status);
    let mut view = view::view(facts);
    if view.replicas != Some(0) {
        view.blockers = view::blockers(&facts, status, &observed);
        view.sleeps_at = match view.phase {
            Some(_) => view::sleeps_at(&view.blockers, live.now),
            None => None,
        };
    }
    let resolvers_ready = match live.resolvers {
        Looked::Found(_) => Some(observed.ready_resolvers().count()),
        Looked::NotLooked | Looked::Missing => None,
    };
    let causes = causes(live, &view, &observed);
    if view.replicas != Some(0) {
        add_preconditions(&mut view, &causes);
    }
    // The plan on live objects knows more than a status that was written before them.
    if let Some(first) = causes.first().filter(|_| !view.trouble) {
        view.reason.clone_from(&first.reason);
        view.sentence.clone_from(&first.sentence);
    }
    view.trouble |= !causes.is_empty();
    Explanation {
        pods: live
            .pods
            .iter()
            .map(|pod| PodView::of(pod, live.now))
            .collect(),
        view,
        resolvers_ready,
        causes,
    }
}

fn workload(target: &Looked<Value>) -> Looked<Workload> {
    match target {
        Looked::NotLooked => Looked::NotLooked,
        Looked::Missing => Looked::Missing,
        Looked::Found(object) => Looked::Found(Workload::read(object)),
    }
}

/// What keeps the operator from touching the target also keeps it from sleeping, whether the status says so yet or not.
fn add_preconditions(view: &mut View, causes: &[Cause]) {
    for cause in causes.iter().filter(|one| is_precondition(&one.reason)) {
        if !view.blockers.iter().any(|one| one.reason == cause.reason) {
            let blocker = Blocker {
                reason: cause.reason.clone(),
                sentence: cause.sentence.clone(),
                until: None,
            };
            view.blockers.insert(0, blocker);
            view.sleeps_at = None;
        }
    }
}

fn is_precondition(word: &str) -> bool {
    let reasons = [
        Reason::Conflict,
        Reason::Unsupported,
        Reason::TargetNotFound,
        Reason::ServiceNotFound,
    ];
    reasons.iter().any(|reason| reason.as_str() == word)
}

/// The facts of a view, and all that the live objects add to them.
fn observed(live: &Live, facts: &Facts<'_>, status: &ElastiServiceStatus) -> Observed {
    let mut o = view::observed(facts, status);
    o.rival = rival(live);
    o.service = match &live.service {
        Looked::Found(service) => service.spec.clone().map(facts::service),
        Looked::NotLooked | Looked::Missing => None,
    };
    o.pods = live
        .pods
        .iter()
        .map(|pod| read_pod(pod, live.now))
        .collect();
    if let Looked::Found(target) = &live.target {
        o.target = o.target.map(|scale| with_author(scale, target));
        if let Some(message) = refusal(live, target)
            && o.pods.iter().all(|pod| pod.terminating)
            && o.replicas() != Some(0)
        {
            let name = facts.me.spec.scale_target_ref.name.clone();
            o.pods.push(Pod::refused(&name, message));
        }
    }
    o.slice = match status.mode {
        Some(Mode::Proxy) => Owned::Ours(Vec::new()),
        Some(Mode::Serve) | None => Owned::Missing,
    };
    if let Looked::Found(pods) = &live.resolvers {
        o.resolvers = pods.iter().map(resolver).collect();
        let none = o.ready_resolvers().next().is_none();
        o.stable_since.no_resolver_since = none.then_some(live.now);
    }
    if live.me.spec.autoscaler.is_some() && live.autoscaler == Looked::Missing {
        o.autoscaler = Autoscaler::Missing;
    }
    o
}

/// An older ElastiService that claims the same Service or target.
fn rival(live: &Live) -> Option<Rival> {
    let age = |one: &ElastiService| {
        let created = one.metadata.creation_timestamp.as_ref().map(|t| t.0);
        (created, one.metadata.name.clone())
    };
    let older = live
        .neighbours
        .iter()
        .filter(|one| age(one) < age(&live.me));
    let claim = |one: &&ElastiService| {
        let target = |one: &ElastiService| one.spec.scale_target_ref.canonical();
        if one.spec.service == live.me.spec.service {
            Some(Claim::Service)
        } else {
            (target(one) == target(&live.me)).then_some(Claim::Target)
        }
    };
    older
        .filter_map(|one| Some((one, claim(&one)?)))
        .min_by_key(|(one, _)| age(one))
        .map(|(one, claim)| Rival {
            name: one.metadata.name.clone().unwrap_or_default(),
            claim,
        })
}

fn with_author(scale: Target, target: &Value) -> Target {
    let record = target.pointer("/metadata/managedFields").cloned();
    let record = record.and_then(|record| serde_json::from_value::<Vec<_>>(record).ok());
    let (by, at) = record.map_or((Author::Unknown, None), |record| facts::author(&record));
    Target {
        replicas_by: by,
        replicas_at: at,
        ..scale
    }
}

fn read_pod(pod: &core_v1::Pod, now: Timestamp) -> Pod {
    let nothing = core_v1::PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    let ready = holds(status, "Ready");
    let marked = is_marked(status);
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let late = facts::unready_since(status)
        .filter(|_| !marked && !terminating)
        .filter(|since| now.duration_since(*since) >= facts::NEVER_READY)
        .map(|_| facts::never_ready());
    Pod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        version: pod.metadata.resource_version.clone().unwrap_or_default(),
        node: node(pod).unwrap_or_default(),
        started: facts::started(status),
        ready,
        containers_ready: holds(status, "ContainersReady"),
        marked,
        terminating,
        obstacle: facts::obstacle(status).or(late).filter(|_| !ready),
    }
}

fn resolver(pod: &core_v1::Pod) -> Resolver {
    let status = pod.status.as_ref();
    let address = status.and_then(|one| one.pod_ip.as_ref());
    let addresses: Vec<_> = address.and_then(|ip| ip.parse().ok()).into_iter().collect();
    Resolver {
        name: pod.metadata.name.clone().unwrap_or_default(),
        ready: status.is_some_and(|one| holds(one, "Ready")) && !addresses.is_empty(),
        addresses,
        terminating: pod.metadata.deletion_timestamp.is_some(),
        report: Report::NotAsked,
    }
}

fn holds(status: &core_v1::PodStatus, type_: &str) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions
        .into_iter()
        .any(|c| c.type_ == type_ && c.status == "True")
}

fn is_marked(status: &core_v1::PodStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|c| {
        c.type_ == "Ready"
            && c.status != "True"
            && c.reason.as_deref() == Some(elasti_api::names::DRAIN_REASON)
    })
}

fn node(pod: &core_v1::Pod) -> Option<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone())
}

impl PodView {
    fn of(pod: &core_v1::Pod, now: Timestamp) -> Self {
        let nothing = core_v1::PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&nothing);
        let read = read_pod(pod, now);
        let state = if read.terminating {
            "terminating".to_owned()
        } else if read.ready {
            "ready".to_owned()
        } else if read.marked {
            "out of rotation, to be stopped".to_owned()
        } else if let Some(obstacle) = &read.obstacle {
            obstacle.message.clone()
        } else {
            starting(&read, status)
        };
        Self {
            name: read.name,
            node: Some(read.node).filter(|node| !node.is_empty()),
            ready: read.ready || read.marked,
            terminating: read.terminating,
            state,
        }
    }
}

/// How far a pod without an obstacle is.
fn starting(pod: &Pod, status: &core_v1::PodStatus) -> String {
    let waits = status.container_statuses.iter().flatten();
    let waits = waits
        .filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone())
        .next();
    match (pod.node.is_empty(), waits) {
        (true, _) => "waits for a node".to_owned(),
        (false, Some(reason)) => format!("starts ({reason})"),
        (false, None) => "runs, not ready yet".to_owned(),
    }
}

/// What refuses the target's pods: its own condition, or for kinds without one its events.
fn refusal(live: &Live, target: &Value) -> Option<String> {
    facts::refused(target).or_else(|| {
        let name = target.pointer("/metadata/name").and_then(Value::as_str);
        let failed = recent(live, name.unwrap_or_default(), &["FailedCreate"]);
        failed.filter(|_| live.pods.is_empty())
    })
}

/// The last thing that recent events of an object said, among these reasons.
fn recent(live: &Live, object: &str, reasons: &[&str]) -> Option<String> {
    let of_object = live.events.iter().filter(|event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        event.involved_object.name.as_deref() == Some(object) && reasons.contains(&reason)
    });
    let last = of_object
        .filter_map(|event| Some((moment(event)?, event)))
        .filter(|(at, _)| live.now.duration_since(*at) <= RECENT)
        .max_by_key(|(at, _)| *at);
    last.and_then(|(_, event)| event.message.clone())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

fn moment(event: &core_v1::Event) -> Option<Timestamp> {
    let series = event.series.as_ref();
    let series = series.and_then(|one| one.last_observed_time.as_ref());
    let stamps = [
        series.map(|t| t.0),
        event.last_timestamp.as_ref().map(|t| t.0),
        event.event_time.as_ref().map(|t| t.0),
        event.metadata.creation_timestamp.as_ref().map(|t| t.0),
    ];
    stamps.into_iter().flatten().max()
}

/// Everything that goes wrong, worst first.
fn causes(live: &Live, view: &View, o: &Observed) -> Vec<Cause> {
    let told = Telling { live, view };
    let mut found = Vec::new();
    if view.phase.is_none() && view.trouble && view.reason == "Unseen" {
        found.push(told.unseen());
    }
    let why = plan(&live.me.spec, o).why;
    let preconditions = matches!(
        why.reason,
        Reason::Conflict | Reason::Unsupported | Reason::TargetNotFound
    );
    let missing = why.reason == Reason::ServiceNotFound && live.service == Looked::Missing;
    if (preconditions && live.target != Looked::NotLooked) || missing {
        found.push(told.of_reason(why.reason, why.sentence));
    }
    let stuck = o.pods.iter().filter(|pod| !pod.terminating);
    for pod in stuck {
        if let Some(obstacle) = &pod.obstacle {
            found.push(told.of_pod(pod, obstacle));
        }
    }
    if matches!(live.resolvers, Looked::Found(_)) && o.ready_resolvers().next().is_none() {
        let sentence = "No resolver is ready: nothing may sleep, and what sleeps cannot be woken by a request.";
        found.push(told.of_reason(Reason::NoResolver, sentence.to_owned()));
    }
    let unread = !view.triggers.iter().any(|one| one.reading == "unknown");
    for blocker in &view.blockers {
        // Not read yet, or no trigger at all, is no trouble.
        if unread && blocker.reason == Reason::TriggerUnknown.as_str() {
            continue;
        }
        let reason = BLOCKING_TROUBLE
            .iter()
            .find(|one| one.as_str() == blocker.reason);
        if let Some(reason) = reason
            && !found.iter().any(|one: &Cause| one.reason == blocker.reason)
        {
            found.push(told.of_reason(*reason, blocker.sentence.clone()));
        }
    }
    found
}

/// What keeps a service awake for ever until somebody acts.
const BLOCKING_TROUBLE: [Reason; 7] = [
    Reason::TriggerUnknown,
    Reason::InvalidWindow,
    Reason::AutoscalerNotFound,
    Reason::PortsExhausted,
    Reason::ServiceNotFound,
    Reason::ResolverUnreachable,
    Reason::TicksTooDense,
];

/// Puts causes into words and commands.
struct Telling<'a> {
    live: &'a Live,
    view: &'a View,
}

impl Telling<'_> {
    fn kubectl(&self, rest: &str) -> String {
        format!("kubectl -n {} {rest}", self.view.namespace)
    }

    /// The target as kubectl takes it: `deployment/web`.
    fn target(&self) -> String {
        let target = &self.view.target;
        format!("{}/{}", target.kind.to_ascii_lowercase(), target.name)
    }

    fn unseen(&self) -> Cause {
        Cause {
            reason: "Unseen".to_owned(),
            sentence: self.view.sentence.clone(),
            said: None,
            look: vec![
                "elasti check".to_owned(),
                "kubectl get pods -A | grep elasti-operator".to_owned(),
            ],
            fix: vec!["Install Elasti, or let its operator watch this namespace.".to_owned()],
        }
    }

    /// A cause that no pod has.
    fn of_reason(&self, reason: Reason, sentence: String) -> Cause {
        let View {
            name,
            service,
            target,
            ..
        } = self.view;
        let kind = target.kind.to_ascii_lowercase();
        let delete = self.kubectl(&format!("delete elastiservice {name}"));
        let edit = self.kubectl(&format!("edit elastiservice {name}"));
        let (look, fix) = match reason {
            Reason::TargetNotFound => (
                vec![self.kubectl(&format!("get {kind}"))],
                vec![format!("Create {}, or: {delete}", self.target())],
            ),
            Reason::ServiceNotFound => (
                vec![self.kubectl("get services")],
                vec![format!("Create the Service {service}, or: {delete}")],
            ),
            Reason::Conflict => (vec![self.kubectl("get elastiservices")], vec![delete]),
            Reason::NoResolver | Reason::ResolverUnreachable => (
                vec![
                    "elasti check".to_owned(),
                    format!(
                        "kubectl get pods -A -l {}={}",
                        elasti_api::names::RESOLVER_LABEL,
                        elasti_api::names::RESOLVER_LABEL_VALUE
                    ),
                ],
                Vec::new(),
            ),
            Reason::TriggerUnknown | Reason::InvalidWindow | Reason::AutoscalerNotFound => (
                vec![self.kubectl(&format!("get elastiservice {name} -o yaml"))],
                vec![edit],
            ),
            _ => (
                vec![self.kubectl(&format!("describe elastiservice {name}"))],
                Vec::new(),
            ),
        };
        Cause {
            reason: reason.as_str().to_owned(),
            sentence,
            said: None,
            look,
            fix,
        }
    }

    /// A pod that cannot start: what Kubernetes says about it, and where to look.
    fn of_pod(&self, pod: &Pod, obstacle: &Obstacle) -> Cause {
        let name = &pod.name;
        let describe = self.kubectl(&format!("describe pod {name}"));
        let sentence = format!("Pod {name} cannot start: {}.", obstacle.message);
        let container = self
            .stuck_container(name)
            .unwrap_or_else(|| "CONTAINER".to_owned());
        let (reason, said, look, fix) = match obstacle.kind {
            ObstacleKind::ImagePull => (
                Reason::ImagePull,
                self.waiting_message(name)
                    .or_else(|| recent(self.live, name, &["Failed", "InspectFailed"])),
                vec![describe],
                vec![self.kubectl(&format!("set image {} {container}=IMAGE", self.target()))],
            ),
            ObstacleKind::CrashLoop => (
                Reason::CrashLoop,
                self.last_end(name),
                vec![self.kubectl(&format!("logs {name} -c {container} --previous"))],
                Vec::new(),
            ),
            ObstacleKind::Unschedulable => (
                Reason::Unschedulable,
                recent(self.live, name, &["FailedScheduling"]),
                vec![describe, "kubectl get nodes".to_owned()],
                Vec::new(),
            ),
            ObstacleKind::Refused if pod.uid.is_empty() => return self.refused(obstacle),
            ObstacleKind::Refused => (Reason::PodRefused, None, vec![describe], Vec::new()),
            ObstacleKind::NeverReady => (
                Reason::NeverReady,
                recent(self.live, name, &["Unhealthy", "ProbeError"]),
                vec![self.kubectl(&format!("logs {name}")), describe],
                Vec::new(),
            ),
        };
        Cause {
            reason: reason.as_str().to_owned(),
            // What is in the sentence already need not be said twice.
            said: said.filter(|said| !sentence.contains(said.trim_end_matches('.'))),
            sentence,
            look,
            fix,
        }
    }

    /// Pods that the API server lets nobody create.
    fn refused(&self, obstacle: &Obstacle) -> Cause {
        let quota = obstacle.message.contains("quota");
        let mut look = vec![self.kubectl(&format!("describe {}", self.target()))];
        if quota {
            look.push(self.kubectl("describe resourcequota"));
        }
        Cause {
            reason: Reason::PodRefused.as_str().to_owned(),
            sentence: format!(
                "The API server refuses the pods of {}: {}.",
                self.target(),
                obstacle.message
            ),
            said: None,
            look,
            fix: Vec::new(),
        }
    }

    fn containers(&self, pod: &str) -> impl Iterator<Item = &core_v1::ContainerStatus> {
        let of_name = |one: &&core_v1::Pod| one.metadata.name.as_deref() == Some(pod);
        let status = self.live.pods.iter().find(of_name);
        let status = status.and_then(|one| one.status.as_ref());
        status.into_iter().flat_map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        })
    }

    fn stuck_container(&self, pod: &str) -> Option<String> {
        let mut stuck = self.containers(pod).filter(|one| !one.ready);
        stuck.next().map(|one| one.name.clone())
    }

    fn waiting_message(&self, pod: &str) -> Option<String> {
        let mut messages = self.containers(pod).filter_map(|one| {
            let waiting = one.state.as_ref()?.waiting.as_ref()?;
            let message = waiting.message.as_deref()?;
            // A back-off says that it is waited, and only in newer versions for what.
            match message.split_once(": ErrImagePull: ") {
                Some((_, error)) => Some(error.to_owned()),
                None if message.starts_with("Back-off") => None,
                None => Some(message.to_owned()),
            }
        });
        messages.next()
    }

    /// How a container ended the last time, and how often it was started again.
    fn last_end(&self, pod: &str) -> Option<String> {
        self.containers(pod).find_map(|one| {
            let end = one.last_state.as_ref()?.terminated.as_ref()?;
            let why = match end.reason.as_deref() {
                Some("OOMKilled") => " (out of memory: raise its limit)",
                _ => "",
            };
            let message = end.message.as_deref().map(str::trim).unwrap_or_default();
            let message = match message.is_empty() {
                true => String::new(),
                false => format!(": {message}"),
            };
            Some(format!(
                "container {} ended with exit code {}{why} and was restarted {} times{message}",
                one.name, end.exit_code, one.restart_count
            ))
        })
    }
}
