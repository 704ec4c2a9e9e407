//! The read model: what a person is shown of one service, made from plain objects and `now`.
//! It never asks the cluster and never decides: what keeps a service awake comes from the rules that the operator runs.

use elasti_api::names::{self, condition};
use elasti_api::{
    Condition, ElastiService, ElastiServiceStatus, LastWake, MicroTime, Mode, Phase, Reason, Time,
    TriggerStatus,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::desire;
use crate::facts;
use crate::observed::{
    Author, Autoscaler, Leadership, Me, Observed, Owned, PortsGiven, Reading, Remembered, Settings,
    Target, Wish,
};
use crate::quantity;
use crate::sightings::Sightings;
use crate::why::Why;

/// Without a word of the operator for this long after its creation, a service is in trouble.
const SILENT: SignedDuration = SignedDuration::from_secs(30);
const HOUR_SECONDS: f64 = 3600.0;
const GIB: f64 = 1_073_741_824.0;

/// What is known of one service when it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The ElastiService, with its status.
    pub me: &'a ElastiService,
    /// Its target, as far as it was looked up.
    pub target: &'a Looked<Workload>,
    /// The time at which it is shown.
    pub now: Timestamp,
}

/// Something that may have been looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked<T> {
    /// Nobody looked, or nobody may.
    NotLooked,
    /// It does not exist.
    Missing,
    /// Here it is.
    Found(T),
}

/// What is shown of a target: any kind that keeps a pod template and counts its pods as Deployments do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// `spec.replicas`, where nothing means 1.
    pub replicas: u32,
    /// `status.readyReplicas`.
    pub ready: u32,
    /// What one pod requests.
    pub requests: Requests,
}

/// What one pod requests; nothing where it requests nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// CPU cores.
    pub cpu_cores: f64,
    /// Bytes of memory.
    pub memory_bytes: f64,
}

/// One service as people and programs see it. Fields are added, never renamed or removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Namespace of the ElastiService, its Service and its target.
    pub namespace: String,
    /// Name of the ElastiService.
    pub name: String,
    /// Name of the Service whose requests wake the target.
    pub service: String,
    /// What is scaled.
    pub target: TargetView,
    /// When the ElastiService was created.
    pub created: Option<Timestamp>,
    /// Where it is in its life; absent until an operator has looked at it.
    pub phase: Option<Phase>,
    /// Since when it has been in this phase.
    pub since: Option<Timestamp>,
    /// `proxy` while requests go to the resolver, else `serve`.
    pub mode: Option<Mode>,
    /// How many replicas the target asks for.
    pub replicas: Option<u32>,
    /// How many of its pods are ready.
    pub ready: Option<u32>,
    /// How many requests waited for a pod when the operator last wrote.
    pub held: u32,
    /// Why it is so, in one word.
    pub reason: String,
    /// Why it is so, in one sentence.
    pub sentence: String,
    /// Elasti cannot do its work for this service, or a wake fails.
    pub trouble: bool,
    /// `spec.paused` is true.
    pub paused: bool,
    /// The operator has not seen the last change of the spec yet.
    pub outdated: bool,
    /// Since when every trigger has been quiet.
    pub quiet_since: Option<Timestamp>,
    /// Seconds of quiet before sleep.
    pub cooldown_seconds: u32,
    /// When it will be put to sleep if nothing comes; absent while it sleeps, and while only an event can allow it.
    pub sleeps_at: Option<Timestamp>,
    /// What keeps it from sleeping now; empty while it sleeps.
    pub blockers: Vec<Blocker>,
    /// When it will be woken by the end of its active window; absent while it is awake, and without a window.
    pub wakes_at: Option<Timestamp>,
    /// What each trigger said, in the order of the spec.
    pub triggers: Vec<TriggerView>,
    /// The last wake.
    pub last_wake: Option<WakeView>,
    /// How long it has slept.
    pub asleep: Asleep,
    /// What that has saved.
    pub saved: Saved,
}

/// The target of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// Its API version.
    pub api_version: String,
    /// Its kind, as Kubernetes spells it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether it exists; absent where nobody looked.
    pub found: Option<bool>,
}

/// One thing that keeps a service from sleeping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub sentence: String,
    /// Until when, where time alone ends it.
    pub until: Option<Timestamp>,
}

/// What one trigger said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerView {
    /// Its type, for example `prometheus`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The query, where the type has one.
    pub query: Option<String>,
    /// `active`, `quiet`, `unknown`, or `unread` where the operator has told nothing.
    pub reading: String,
    /// The sample.
    pub value: Option<String>,
    /// What the sample is held against.
    pub threshold: Option<String>,
    /// Why the reading is unknown.
    pub message: Option<String>,
    /// Since when it has read so.
    pub since: Option<Timestamp>,
}

/// The last wake and what it cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WakeView {
    /// Why it was woken, in one word; absent where only the time is known.
    pub by: Option<String>,
    /// When the wake was asked for.
    pub at: Timestamp,
    /// Its parts, in order; one that nobody saw is left out and counts for the next.
    pub parts: Vec<WakePart>,
    /// From the question to the first answer, or to the first ready pod where nobody waited.
    pub cold_start_ms: Option<i64>,
    /// A pod has become ready.
    pub finished: bool,
}

/// One part of a wake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WakePart {
    /// `scaled`, `scheduled`, `started`, `ready` or `answered`: what ended it.
    pub name: &'static str,
    /// How long it took.
    pub ms: i64,
}

/// How long a service has slept since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Asleep {
    /// Seconds, the sleep that goes on included.
    pub seconds: i64,
    /// Of the time since its creation, from 0 to 1.
    pub share: f64,
}

/// What sleep has saved: requests of the pod template x replicas of a wake x time asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// Hours that pods did not run.
    pub pod_hours: f64,
    /// Hours of CPU cores that were not requested.
    pub cpu_hours: f64,
    /// Hours of GiB of memory that were not requested.
    pub gib_hours: f64,
}

/// All services together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// How many there are.
    pub services: usize,
    /// How many sleep.
    pub asleep: usize,
    /// How many are being woken.
    pub waking: usize,
    /// How many are in trouble.
    pub trouble: usize,
    /// How many requests wait.
    pub held: u32,
    /// What sleep has saved.
    pub saved: Saved,
}

impl Totals {
    /// The sums of these views.
    #[must_use]
    pub fn of(views: &[View]) -> Self {
        views.iter().fold(Self::default(), |sum, view| Self {
            services: sum.services + 1,
            asleep: sum.asleep + usize::from(view.phase == Some(Phase::Asleep)),
            waking: sum.waking + usize::from(view.phase == Some(Phase::Waking)),
            trouble: sum.trouble + usize::from(view.trouble),
            held: sum.held.saturating_add(view.held),
            saved: Saved {
                pod_hours: sum.saved.pod_hours + view.saved.pod_hours,
                cpu_hours: sum.saved.cpu_hours + view.saved.cpu_hours,
                gib_hours: sum.saved.gib_hours + view.saved.gib_hours,
            },
        })
    }
}

impl<T> Looked<T> {
    /// What was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::NotLooked | Self::Missing => None,
        }
    }
}

impl Workload {
    /// Reads a workload of any kind.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let count = |path: &str| {
            let number = object.pointer(path).and_then(Value::as_u64);
            number.and_then(|n| u32::try_from(n).ok())
        };
        let pod = object.pointer("/spec/template/spec");
        Self {
            replicas: count("/spec/replicas").unwrap_or(1),
            ready: count("/status/readyReplicas").unwrap_or(0),
            requests: pod.map(Requests::of_pod).unwrap_or_default(),
        }
    }
}

impl Requests {
    /// What a pod of this spec requests, as the scheduler counts it, but for init containers that end.
    #[must_use]
    pub fn of_pod(spec: &Value) -> Self {
        let amount = |resource: &str| {
            let whole = requested(spec, resource);
            let own = containers(spec).filter_map(|one| requested(one, resource));
            let overhead = spec
                .get("overhead")
                .and_then(|all| amount_of(all, resource));
            whole.unwrap_or_else(|| own.sum()) + overhead.unwrap_or(0.0)
        };
        Self {
            cpu_cores: amount("cpu"),
            memory_bytes: amount("memory"),
        }
    }
}

/// The containers that run as long as the pod does.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let list = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let sidecar = |one: &&Value| one.get("restartPolicy").and_then(Value::as_str) == Some("Always");
    list("containers").chain(list("initContainers").filter(sidecar))
}

/// A limit without a request is a request too.
fn requested(of: &Value, resource: &str) -> Option<f64> {
    let resources = of.get("resources")?;
    let of = |which: &str| amount_of(resources.get(which)?, resource);
    of("requests").or_else(|| of("limits"))
}

fn amount_of(amounts: &Value, resource: &str) -> Option<f64> {
    match amounts.get(resource)? {
        Value::String(text) => quantity::parse(text),
        other => other.as_f64(),
    }
}

/// What is shown of one service.
#[must_use]
pub fn view(facts: Facts<'_>) -> View {
    let Facts { me, target, now } = facts;
    let nothing = ElastiServiceStatus::default();
    let status = me.status.as_ref().unwrap_or(&nothing);
    let created = me.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let replicas = target.found().map(|one| one.replicas);
    let told = status.replicas.and_then(|n| u32::try_from(n).ok());
    let replicas = replicas.or(told);
    let asleep = Asleep::of(status, replicas, created, now);
    let sleeps = replicas == Some(0);
    let blockers = match sleeps {
        true => Vec::new(),
        false => blockers(&facts, status, &observed(&facts, status)),
    };
    let (reason, sentence, trouble) = summary(&facts, status);
    let reference = me.spec.scale_target_ref.canonical();
    View {
        namespace: me.metadata.namespace.clone().unwrap_or_default(),
        name: me.metadata.name.clone().unwrap_or_default(),
        service: me.spec.service.clone(),
        target: TargetView {
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            found: match target {
                Looked::NotLooked => None,
                Looked::Missing => Some(false),
                Looked::Found(_) => Some(true),
            },
        },
        created,
        phase: status.phase,
        since: since(status, created),
        mode: status.mode,
        replicas,
        ready: target.found().map(|one| one.ready),
        held: status.held.unwrap_or(0),
        reason,
        sentence,
        trouble,
        paused: me.spec.paused == Some(true),
        outdated: status.observed_generation.is_some()
            && status.observed_generation != me.metadata.generation,
        quiet_since: stamp(status.quiet_since.as_ref()),
        cooldown_seconds: me.spec.cooldown_seconds(),
        sleeps_at: match sleeps || status.phase.is_none() {
            true => None,
            false => sleeps_at(&blockers, now),
        },
        blockers,
        wakes_at: desire::window_closes(&me.spec, now).filter(|_| sleeps),
        triggers: triggers(me, status),
        last_wake: last_wake(status),
        saved: Saved::of(&asleep, me.spec.min_target_replicas, target.found()),
        asleep,
    }
}

fn stamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|t| t.0)
}

fn condition_of<'a>(status: &'a ElastiServiceStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

/// The word, the sentence, and whether it is trouble.
fn summary(facts: &Facts<'_>, status: &ElastiServiceStatus) -> (String, String, bool) {
    if *facts.target == Looked::Missing {
        let kind = facts.me.spec.scale_target_ref.canonical_kind();
        let name = &facts.me.spec.scale_target_ref.name;
        let sentence = format!("The target {kind} {name} does not exist.");
        return (Reason::TargetNotFound.as_str().to_owned(), sentence, true);
    }
    let Some(reason) = &status.reason else {
        let created = facts.me.metadata.creation_timestamp.as_ref();
        let late = created.is_none_or(|t| facts.now.duration_since(t.0) > SILENT);
        let sentence = match late {
            true => "No operator has looked at it; is one running? See: elasti check",
            false => "No operator has looked at it yet.",
        };
        return ("Unseen".to_owned(), sentence.to_owned(), late);
    };
    let ready = condition_of(status, condition::READY);
    let sentence = ready.map(|c| c.message.clone()).unwrap_or_default();
    let trouble = ready.is_some_and(|c| c.status == "False");
    (reason.clone(), sentence, trouble)
}

/// When the phase began, by the stamps and transitions that the status keeps.
fn since(status: &ElastiServiceStatus, created: Option<Timestamp>) -> Option<Timestamp> {
    let turned = |type_: &str, holds: &str| {
        let found = condition_of(status, type_).filter(|c| c.status == holds);
        found.map(|c| c.last_transition_time.0)
    };
    let woken = stamp(status.last_scaled_up_time.as_ref());
    match status.phase? {
        Phase::Asleep => {
            stamp(status.last_sleep_time.as_ref()).or_else(|| turned(condition::ASLEEP, "True"))
        }
        Phase::Waking | Phase::Restoring => {
            woken.or_else(|| turned(condition::TRAFFIC_REDIRECTED, "True"))
        }
        Phase::Redirecting | Phase::Draining => turned(condition::TRAFFIC_REDIRECTED, "True"),
        Phase::Serving => turned(condition::TRAFFIC_REDIRECTED, "False").or(created),
    }
}

/// What keeps a service awake: by the operator's own rules where a view can see the facts, and by the operator's word
/// where it cannot.
pub(crate) fn blockers(
    facts: &Facts<'_>,
    status: &ElastiServiceStatus,
    observed: &Observed,
) -> Vec<Blocker> {
    let mut found: Vec<Blocker> = match status.phase {
        None => Vec::new(),
        Some(_) => {
            let rules = desire::against_sleep(&facts.me.spec, observed);
            rules.into_iter().map(Blocker::from).collect()
        }
    };
    let (reason, sentence, _) = summary(facts, status);
    let unseen = !SEEN_BY_A_VIEW.iter().any(|one| one.as_str() == reason);
    if unseen && !found.iter().any(|one| one.reason == reason) {
        let until = None;
        found.insert(
            0,
            Blocker {
                reason,
                sentence,
                until,
            },
        );
    }
    found
}

/// Reasons that follow from the facts of a view, so that it need not ask the status for them; and those of a service
/// that is on its way to sleep.
const SEEN_BY_A_VIEW: [Reason; 11] = [
    Reason::TriggerActive,
    Reason::TriggerUnknown,
    Reason::WakeRequested,
    Reason::CoolingDown,
    Reason::Idle,
    Reason::OutsideWindow,
    Reason::InvalidWindow,
    Reason::Paused,
    Reason::SleepRequested,
    Reason::Draining,
    Reason::Restoring,
];

impl From<Why> for Blocker {
    fn from(why: Why) -> Self {
        Self {
            reason: why.reason.as_str().to_owned(),
            sentence: why.sentence,
            until: why.until,
        }
    }
}

pub(crate) fn sleeps_at(blockers: &[Blocker], now: Timestamp) -> Option<Timestamp> {
    let ends: Option<Vec<Timestamp>> = blockers.iter().map(|one| one.until).collect();
    Some(ends?.into_iter().max().unwrap_or(now))
}

/// The facts of a view as the rules of sleep take them. What a view cannot see counts as in order: the operator's own
/// word is added where it is not.
pub(crate) fn observed(facts: &Facts<'_>, status: &ElastiServiceStatus) -> Observed {
    let Facts { me, target, now } = *facts;
    let created = me.metadata.creation_timestamp.as_ref();
    Observed {
        now,
        me: Me {
            created: created.map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            generation: me.metadata.generation.unwrap_or_default(),
            deleting_since: me.metadata.deletion_timestamp.as_ref().map(|t| t.0),
            finalizer: true,
            wake_wish: wish(me, names::WAKE_REQUESTED_ANNOTATION),
            sleep_wish: wish(me, names::SLEEP_REQUESTED_ANNOTATION),
            remembered: Remembered::from(status),
        },
        leadership: Leadership::Follower,
        rival: None,
        namespace_terminating: false,
        service: None,
        target: target.found().map(|one| Target {
            replicas: one.replicas,
            version: String::new(),
            replicas_by: Author::Unknown,
            replicas_at: None,
        }),
        pods: Vec::new(),
        endpoints: Vec::new(),
        endpoints_version: String::new(),
        slice: Owned::Missing,
        private_service: Owned::Missing,
        resolvers: Vec::new(),
        ports: PortsGiven::Given(status.ports.clone()),
        autoscaler: Autoscaler::None,
        readings: readings(me, status),
        wake_requested_at: None,
        may_mark: true,
        // The operator has watched all the time, as far as a view can tell.
        sightings: Sightings::fresh(Timestamp::UNIX_EPOCH, Some(Timestamp::UNIX_EPOCH)),
        settings: Settings::default(),
    }
}

fn wish(me: &ElastiService, annotation: &str) -> Wish {
    let annotations = me.metadata.annotations.as_ref();
    facts::wish(annotations.and_then(|all| all.get(annotation)))
}

/// The readings that the status tells. A status that tells none is of an operator that did not write them yet: then its
/// reason and its conditions tell.
fn readings(me: &ElastiService, status: &ElastiServiceStatus) -> Vec<Reading> {
    let threshold = |index: usize| {
        let trigger = me.spec.triggers.get(index);
        let read = trigger.and_then(|one| one.prometheus().ok());
        read.map_or(f64::NAN, |read| read.threshold)
    };
    if !status.triggers.is_empty() || me.spec.triggers.is_empty() {
        let told = status.triggers.iter().enumerate();
        return told.map(|(at, one)| reading(one, threshold(at))).collect();
    }
    let reason = status.reason.as_deref();
    let active = reason == Some(Reason::TriggerActive.as_str());
    let healthy = condition_of(status, condition::TRIGGERS_HEALTHY);
    let sick = healthy.filter(|c| c.status == "False");
    let numbered = me.spec.triggers.iter().enumerate();
    numbered
        .map(|(at, _)| {
            let (value, threshold) = (f64::NAN, threshold(at));
            match (active, sick) {
                (true, _) => Reading::Active { value, threshold },
                (false, Some(c)) => Reading::Unknown {
                    why: c.message.trim_end_matches('.').to_owned(),
                },
                (false, None) => Reading::Quiet { value, threshold },
            }
        })
        .collect()
}

fn reading(told: &TriggerStatus, written: f64) -> Reading {
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
    let value = number(&told.value).unwrap_or(f64::NAN);
    let threshold = number(&told.threshold).unwrap_or(written);
    match told.reading.as_str() {
        "active" => Reading::Active { value, threshold },
        "quiet" => Reading::Quiet { value, threshold },
        // Unknown for no reason is not read yet: the operator has only just begun.
        _ => told.message.as_ref().map_or(Reading::Unread, |why| {
            let why = why.trim_end_matches('.').to_owned();
            Reading::Unknown { why }
        }),
    }
}

fn word(told: &TriggerStatus) -> &str {
    match (told.reading.as_str(), &told.message) {
        ("unknown", None) => "unread",
        (word, _) => word,
    }
}

/// What each trigger of the spec said; a trigger that the status does not speak of is unread.
fn triggers(me: &ElastiService, status: &ElastiServiceStatus) -> Vec<TriggerView> {
    let triggers = me.spec.triggers.iter().enumerate();
    triggers
        .map(|(at, trigger)| {
            let written = trigger.prometheus();
            let told = status.triggers.get(at);
            let threshold = told.and_then(|one| one.threshold.clone());
            let from_spec = || written.as_ref().ok().map(|one| one.threshold.to_string());
            TriggerView {
                kind: told.map_or_else(|| "prometheus".to_owned(), |one| one.kind.clone()),
                query: written.as_ref().ok().map(|one| one.query.clone()),
                reading: told.map_or("unread", word).to_owned(),
                value: told.and_then(|one| one.value.clone()),
                threshold: threshold.or_else(from_spec),
                message: told
                    .and_then(|one| one.message.clone())
                    .or_else(|| written.as_ref().err().map(ToString::to_string)),
                since: told.map(|one| one.since.0),
            }
        })
        .collect()
}

fn last_wake(status: &ElastiServiceStatus) -> Option<WakeView> {
    let at = stamp(status.last_scaled_up_time.as_ref());
    let Some(wake) = &status.last_wake else {
        return at.map(|at| WakeView {
            by: None,
            at,
            parts: Vec::new(),
            cold_start_ms: None,
            finished: status.phase != Some(Phase::Waking),
        });
    };
    let LastWake {
        by,
        asked_at,
        scaled_at,
        scheduled_at,
        started_at,
        ready_at,
        answered_at,
    } = wake;
    let mut parts = Vec::new();
    let mut before = asked_at.0;
    for (name, end) in [
        ("scaled", scaled_at),
        ("scheduled", scheduled_at),
        ("started", started_at),
        ("ready", ready_at),
        ("answered", answered_at),
    ] {
        let Some(MicroTime(end)) = end else { continue };
        // Several clocks wrote these: a part never takes less than nothing.
        let ms = millis(before, *end);
        before = before.max(*end);
        parts.push(WakePart { name, ms });
    }
    let last = answered_at.as_ref().or(ready_at.as_ref());
    Some(WakeView {
        by: Some(by.clone()),
        at: asked_at.0,
        parts,
        cold_start_ms: last.map(|end| millis(asked_at.0, end.0)),
        finished: ready_at.is_some() || answered_at.is_some(),
    })
}

fn millis(from: Timestamp, to: Timestamp) -> i64 {
    i64::try_from(to.duration_since(from).as_millis().max(0)).unwrap_or(i64::MAX)
}

impl Asleep {
    fn of(
        status: &ElastiServiceStatus,
        replicas: Option<u32>,
        created: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let fell = stamp(status.last_sleep_time.as_ref()).filter(|_| replicas == Some(0));
        let spans = |from: Timestamp| now.duration_since(from).as_secs().max(0);
        let seconds = status.asleep_seconds.unwrap_or(0).max(0) + fell.map_or(0, spans);
        let age = created.map_or(0, spans);
        // A service that slept before it was declared has not slept longer than it has been there.
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let share = match age {
            0 => 0.0,
            age => (seconds as f64 / age as f64).min(1.0),
        };
        Self { seconds, share }
    }
}

impl Saved {
    fn of(asleep: &Asleep, replicas: u32, target: Option<&Workload>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 seconds")]
        let hours = asleep.seconds as f64 / HOUR_SECONDS;
        let pod_hours = hours * f64::from(replicas.max(1));
        let requests = target.map(|one| one.requests).unwrap_or_default();
        Self {
            pod_hours,
            cpu_hours: pod_hours * requests.cpu_cores,
            gib_hours: pod_hours * requests.memory_bytes / GIB,
        }
    }
}

#[cfg(test)]
mod tests;
