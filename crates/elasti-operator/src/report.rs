//! Tells people: status with conditions, Events on the ElastiService and its target, metrics.
//! Never writes a status that says what it said before, and never states an intention as a fact.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names::event;
use elasti_api::{ElastiServiceStatus, Mode, Phase, Reason, names};
use elasti_core::status::status;
use elasti_core::{Plan, Step};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::apply::Applied;
use crate::error::Error;
use crate::observe::Snapshot;
use crate::operator::Operator;
use crate::render;
use crate::slim::{Declared, Slim as _, TargetView};
use crate::store::Change;
use crate::targets;

/// Events that wait to be written; more than that and the newest are dropped, because the status says it too.
const MOST_WAITING: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Something that people should read, about one object.
pub(crate) struct PendingEvent {
    about: ObjectReference,
    event: Event,
}

/// Events that wait to be written.
pub(crate) type EventQueue = mpsc::Sender<PendingEvent>;

/// The queue of Events, and the task that writes them.
pub(crate) fn event_queue(client: kube::Client) -> (EventQueue, impl Future<Output = ()>) {
    let (events, mut pending) = mpsc::channel::<PendingEvent>(MOST_WAITING);
    let reporter = Reporter {
        controller: names::EVENT_REPORTER.into(),
        instance: None,
    };
    let recorder = Recorder::new(client, reporter);
    let task = async move {
        while let Some(PendingEvent { about, event }) = pending.recv().await {
            let written = timeout(TIMEOUT, recorder.publish(&event, &about)).await;
            if !matches!(written, Ok(Ok(()))) {
                tracing::debug!(reason = event.reason, "an Event could not be written");
            }
        }
    };
    (events, task)
}

/// Tells what was found and what was done.
pub(crate) async fn report(
    operator: &Operator,
    snapshot: &Snapshot,
    plan: &Plan,
    applied: &Applied,
) -> Result<(), Error> {
    let previous = &*snapshot.me.status;
    let next = status(snapshot.spec(), &snapshot.observed, plan, previous);
    tell_metrics(operator, snapshot, plan, previous, &next, applied);
    tell_events(operator, snapshot, plan, previous, &next, applied);
    let finalize = |step: &Step| matches!(step, Step::RemoveFinalizer(_));
    if next == *previous || applied.done.iter().any(finalize) {
        return Ok(());
    }
    write(operator, snapshot, previous, &next).await
}

async fn write(
    operator: &Operator,
    snapshot: &Snapshot,
    previous: &ElastiServiceStatus,
    next: &ElastiServiceStatus,
) -> Result<(), Error> {
    let name = &snapshot.me.name;
    // Our own finalizer may have moved the version on within this very look.
    let version = operator.store.known().declared.get(name).cloned();
    let version = version
        .filter(|now| now.status == snapshot.me.status && now.generation == snapshot.me.generation)
        .map_or_else(|| snapshot.me.version.clone(), |now| now.version.clone());
    let value = |status: &ElastiServiceStatus| serde_json::to_value(status);
    let before = value(previous).map_err(kube::Error::SerdeError)?;
    let after = value(next).map_err(kube::Error::SerdeError)?;
    let patch = Patch::Merge(render::status(&version, &before, &after));
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let path = elasti_api::ElastiService::url_path(&(), Some(&name.namespace));
    let request = Request::new(path)
        .patch_subresource("status", &name.name, &params, &patch)
        .map_err(kube::Error::BuildRequest)?;
    let written = targets::ask(&operator.client, request).await;
    let mode = next.mode.unwrap_or(Mode::Serve);
    let error = written.as_ref().err().map(Error::as_str);
    operator.metrics.status_written(name, mode, error);
    match written {
        Ok(object) => {
            learn(operator, object);
            Ok(())
        }
        // It went away in between: there is nobody left to tell.
        Err(Error::Missing(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The next look need not wait for the watch, and a second write of the same status does not happen.
fn learn(operator: &Operator, object: Value) {
    if let Ok(me) = Declared::read(object) {
        let touched = operator.store.take_in(None, Change::Set(me));
        operator.look_at(&touched);
    }
}

fn tell_metrics(
    operator: &Operator,
    snapshot: &Snapshot,
    plan: &Plan,
    previous: &ElastiServiceStatus,
    next: &ElastiServiceStatus,
    applied: &Applied,
) {
    let name = &snapshot.me.name;
    let mode = next.mode.unwrap_or(Mode::Serve);
    operator.metrics.stands(name, mode, next.held.unwrap_or(0));
    let service = snapshot.service();
    let target = &snapshot.target_name.name.name;
    for step in &applied.done {
        if let Some(action) = scaling(step) {
            operator.metrics.scaled(&service, target, action, None);
        }
    }
    if let Some((step, error)) = &applied.failed
        && let Some(action) = scaling(step)
    {
        let error = Some(error.as_str());
        operator.metrics.scaled(&service, target, action, error);
    }
    let woken_at = next.last_scaled_up_time.as_ref().map(|t| t.0);
    let was_down = matches!(previous.phase, Some(Phase::Asleep | Phase::Waking));
    // Who took the wake itself knows the moment; the status knows the second.
    let asked = snapshot.observed.wake_requested_at.max(woken_at);
    if let Some(at) = asked.filter(|_| was_down && plan.phase == Phase::Restoring) {
        let took = Duration::try_from(snapshot.observed.since(at)).unwrap_or_default();
        operator.metrics.woke(name, took);
    }
}

/// Which way a step scales.
fn scaling(step: &Step) -> Option<&'static str> {
    match step {
        Step::ScaleToZero(_) => Some("scaleDown"),
        Step::Wake(_) => Some("scaleUp"),
        _ => None,
    }
}

fn tell_events(
    operator: &Operator,
    snapshot: &Snapshot,
    plan: &Plan,
    previous: &ElastiServiceStatus,
    next: &ElastiServiceStatus,
    applied: &Applied,
) {
    let why = &plan.why.sentence;
    let target = snapshot.target_name.name.name.as_ref();
    for step in &applied.done {
        match step {
            Step::ScaleToZero(_) => {
                let note = format!("Scaled {target} to 0. {why}");
                both(operator, snapshot, event::SUCCESS_TO_SCALE, "Sleep", &note);
            }
            Step::Wake(replicas) => {
                let note = format!("Scaled {target} from 0 to {replicas}. {why}");
                both(operator, snapshot, event::SUCCESS_TO_SCALE, "Wake", &note);
            }
            Step::Unmark(_) if previous.phase == Some(Phase::Draining) => {
                mine(
                    operator,
                    snapshot,
                    Normal,
                    event::SLEEP_CANCELLED,
                    "Sleep",
                    why,
                );
            }
            _ => {}
        }
    }
    if let Some((step, error)) = &applied.failed
        && scaling(step).is_some()
        && !error.is_routine()
    {
        let note = format!("{target} could not be scaled: {error}");
        let action = if matches!(step, Step::Wake(_)) {
            "Wake"
        } else {
            "Sleep"
        };
        mine(
            operator,
            snapshot,
            Warning,
            event::FAILED_TO_SCALE,
            action,
            &note,
        );
        onto_target(
            operator,
            snapshot,
            Warning,
            event::FAILED_TO_SCALE,
            action,
            &note,
        );
    }
    match (previous.mode, next.mode) {
        (before, Some(Mode::Proxy)) if before != Some(Mode::Proxy) => {
            let note = "New connections go to the resolvers.";
            mine(
                operator,
                snapshot,
                Normal,
                event::TRAFFIC_REDIRECTED,
                "Redirect",
                note,
            );
        }
        (Some(Mode::Proxy), Some(Mode::Serve)) => {
            let note = "New connections go to the pods.";
            mine(
                operator,
                snapshot,
                Normal,
                event::TRAFFIC_RESTORED,
                "Restore",
                note,
            );
        }
        _ => {}
    }
    // Told once, when it begins.
    if previous.reason != next.reason
        && let Some(reason) = trouble(plan.why.reason)
    {
        mine(operator, snapshot, Warning, reason, "Look", why);
    }
    let contended = |status: &ElastiServiceStatus| {
        let mut conditions = status.conditions.iter();
        conditions
            .find(|c| c.type_ == names::condition::CONTENDED && c.status == "True")
            .map(|c| c.message.clone())
    };
    if let Some(message) = contended(next)
        && contended(previous).is_none()
    {
        mine(
            operator,
            snapshot,
            Warning,
            event::CONTENDED,
            "Look",
            &message,
        );
    }
}

use EventType::{Normal, Warning};

/// The Event for a reason that someone should act on.
fn trouble(reason: Reason) -> Option<&'static str> {
    match reason {
        stuck if stuck.is_obstacle() => Some(event::WAKE_STUCK),
        Reason::NoResolver => Some(event::NO_RESOLVER),
        Reason::Conflict => Some(event::CONFLICT),
        _ => None,
    }
}

/// Tells that a wake's one write was made, on any replica of the operator.
pub(crate) fn woken(operator: &Operator, me: &Declared, target: &Target<'_>, replicas: u32) {
    let service = me.service();
    let name = &target.name.name.name;
    operator.metrics.scaled(&service, name, "scaleUp", None);
    let note = format!("Scaled {name} from 0 to {replicas}: a request waits.");
    let reason = event::SUCCESS_TO_SCALE;
    send(operator, reference(me), Normal, reason, "Wake", &note);
    if let Some(about) = target.reference(operator) {
        send(operator, about, Normal, reason, "Wake", &note);
    }
}

/// Tells that a wake's one write failed.
pub(crate) fn not_woken(operator: &Operator, me: &Declared, target: &Target<'_>, error: &Error) {
    let name = &target.name.name.name;
    operator
        .metrics
        .scaled(&me.service(), name, "scaleUp", Some(error.as_str()));
    let note = format!("{name} could not be scaled: {error}");
    let reason = event::FAILED_TO_SCALE;
    send(operator, reference(me), Warning, reason, "Wake", &note);
    if let Some(about) = target.reference(operator) {
        send(operator, about, Warning, reason, "Wake", &note);
    }
}

/// A target as Events refer to it.
pub(crate) struct Target<'a> {
    pub(crate) name: &'a crate::name::TargetName,
    pub(crate) view: Option<&'a Arc<TargetView>>,
}

impl Target<'_> {
    fn reference(&self, operator: &Operator) -> Option<ObjectReference> {
        let (view, resource) = (self.view?, operator.kinds.get(&self.name.kind)?);
        Some(ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            name: Some(self.name.name.name.to_string()),
            namespace: Some(self.name.name.namespace.to_string()),
            uid: Some(view.uid.clone()),
            ..ObjectReference::default()
        })
    }
}

fn both(operator: &Operator, snapshot: &Snapshot, reason: &str, action: &str, note: &str) {
    mine(operator, snapshot, Normal, reason, action, note);
    onto_target(operator, snapshot, Normal, reason, action, note);
}

fn mine(
    operator: &Operator,
    snapshot: &Snapshot,
    type_: EventType,
    reason: &str,
    action: &str,
    note: &str,
) {
    send(
        operator,
        reference(&snapshot.me),
        type_,
        reason,
        action,
        note,
    );
}

fn onto_target(
    operator: &Operator,
    snapshot: &Snapshot,
    type_: EventType,
    reason: &str,
    action: &str,
    note: &str,
) {
    let target = Target {
        name: &snapshot.target_name,
        view: snapshot.target.as_ref(),
    };
    if let Some(about) = target.reference(operator) {
        send(operator, about, type_, reason, action, note);
    }
}

fn reference(me: &Declared) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{}/v1alpha1", names::GROUP)),
        kind: Some("ElastiService".into()),
        name: Some(me.name.name.to_string()),
        namespace: Some(me.name.namespace.to_string()),
        uid: Some(me.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Kubernetes refuses a note that is longer.
const LONGEST_NOTE: usize = 1000;

fn send(
    operator: &Operator,
    about: ObjectReference,
    type_: EventType,
    reason: &str,
    action: &str,
    note: &str,
) {
    let event = Event {
        type_,
        reason: reason.into(),
        note: Some(note.chars().take(LONGEST_NOTE).collect()),
        action: action.into(),
        secondary: None,
    };
    if operator
        .events
        .try_send(PendingEvent { about, event })
        .is_err()
    {
        tracing::debug!(reason, "too many Events wait; this one is dropped");
    }
}
