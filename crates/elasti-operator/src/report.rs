//! Reports what a reconcile found and did: status with conditions, Events on the ElastiService and its target, metrics.

mod events;

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names::{condition, event};
use elasti_api::{ElastiServiceStatus, Mode, Phase, Reason, WakeClient, names};
use elasti_core::status::{status_after, status_without_facts};
use elasti_core::{Plan, Step};
use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::runtime::events::EventType::{self, Normal, Warning};

use crate::apply::Applied;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::metrics::{Metrics, Scaling};
use crate::observe::{RefusedKind, Snapshot};
use crate::render;
use crate::slim::Declared;
pub(crate) use events::EventQueue;
use events::Notice;

/// Reports to people.
#[derive(Debug)]
pub(crate) struct Reporter {
    cluster: Arc<Cluster>,
    metrics: Arc<Metrics>,
    events: EventQueue,
}

/// One reconcile, after its steps.
#[derive(Clone, Copy)]
struct Reconciled<'a> {
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    applied: &'a Applied,
    previous: &'a ElastiServiceStatus,
    next: &'a ElastiServiceStatus,
}

impl Reporter {
    pub(crate) fn new(cluster: Arc<Cluster>, metrics: Arc<Metrics>, events: EventQueue) -> Self {
        Self {
            cluster,
            metrics,
            events,
        }
    }

    /// Reports one reconcile. A status that says the same as before is not written.
    pub(crate) async fn report(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        applied: &Applied,
    ) -> Result<(), Error> {
        let previous = &*snapshot.me.status;
        let (spec, observed) = (snapshot.spec(), &snapshot.observed);
        let next = status_after(spec, observed, plan, previous, &applied.refusal());
        let reconciled = Reconciled {
            snapshot,
            plan,
            applied,
            previous,
            next: &next,
        };
        self.record_metrics(reconciled);
        self.publish_scale_events(reconciled);
        self.publish_status_events(reconciled);
        let is_finalized = |step: &Step| matches!(step, Step::RemoveFinalizer(_));
        if next == *previous || applied.done.iter().any(is_finalized) {
            return Ok(());
        }
        self.write_status(&snapshot.me, previous, &next).await
    }

    /// Reports that nothing can be decided, because the operator is not allowed to list a kind. What it did before stays.
    pub(crate) async fn kind_refused(
        &self,
        me: &Declared,
        kind: &RefusedKind,
        now: Timestamp,
    ) -> Result<(), Error> {
        let (RefusedKind::Target(name) | RefusedKind::Autoscaler(name)) = kind;
        let found = self.cluster.kinds.get(name);
        let plural = found.map_or_else(|| name.kind.to_lowercase(), |resource| resource.plural);
        let (reason, sentence) = what_to_grant(kind, &plural);
        let generation = me.generation;
        let next = status_without_facts(&me.status, generation, now, reason, &sentence);
        match next == *me.status {
            true => Ok(()),
            false => self.write_status(me, &me.status, &next).await,
        }
    }

    /// Reports the one write of a wake, on any replica of the operator.
    pub(crate) fn wake_scaled(
        &self,
        snapshot: &Snapshot,
        replicas: u32,
        client: Option<&WakeClient>,
    ) {
        let target = &snapshot.target_name.name.name;
        self.metrics.scaled(&snapshot.me, Scaling::Up, None);
        let client = client.map_or_else(String::new, |client| format!(" ({})", client.sentence()));
        let note = format!("Scaled {target} from 0 to {replicas}: a request waits{client}.");
        self.publish_to_both(snapshot, Normal, event::SUCCESS_TO_SCALE, "Wake", &note);
    }

    /// Reports that the one write of a wake failed.
    pub(crate) fn wake_failed(&self, snapshot: &Snapshot, error: &Error) {
        let target = &snapshot.target_name.name.name;
        self.metrics.scaled(&snapshot.me, Scaling::Up, Some(error));
        let note = format!("{target} could not be scaled: {error}");
        self.publish_to_both(snapshot, Warning, event::FAILED_TO_SCALE, "Wake", &note);
    }

    async fn write_status(
        &self,
        me: &Declared,
        previous: &ElastiServiceStatus,
        next: &ElastiServiceStatus,
    ) -> Result<(), Error> {
        let name = &me.name;
        let value = |status: &ElastiServiceStatus| serde_json::to_value(status);
        let before = value(previous).map_err(kube::Error::SerdeError)?;
        let after = value(next).map_err(kube::Error::SerdeError)?;
        let version = self.current_version(me);
        let patch = Patch::Merge(render::status(&version, &before, &after));
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let path = elasti_api::ElastiService::url_path(&(), Some(&name.namespace));
        let request = Request::new(path)
            .patch_subresource("status", &name.name, &params, &patch)
            .map_err(kube::Error::BuildRequest)?;
        let written = self.cluster.send(request).await;
        let mode = next.mode.unwrap_or(Mode::Serve);
        self.metrics
            .status_written(name, mode, written.as_ref().err());
        match written {
            // The next reconcile must not write the same status a second time.
            Ok(object) => {
                self.cluster.cache_written::<Declared>(object);
                Ok(())
            }
            // It was deleted in between: there is nothing left to report on.
            Err(Error::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The version to write the status onto: our own finalizer may have moved it on within this very reconcile.
    fn current_version(&self, me: &Declared) -> String {
        let cached = self.cluster.store.cache().declared.get(&me.name).cloned();
        let same = cached.filter(|c| c.status == me.status && c.generation == me.generation);
        same.map_or_else(|| me.version.clone(), |cached| cached.version.clone())
    }

    fn record_metrics(&self, reconciled: Reconciled<'_>) {
        let Reconciled {
            snapshot,
            plan,
            applied,
            previous,
            next,
        } = reconciled;
        let name = &snapshot.me.name;
        let mode = next.mode.unwrap_or(Mode::Serve);
        self.metrics.set_state(name, mode, next.held.unwrap_or(0));
        let too_dense = plan.why.reason == Reason::TicksTooDense;
        self.metrics.set_cannot_drain(name, too_dense);
        let waking = (plan.phase == Phase::Waking).then_some(plan.why.reason);
        self.metrics.set_waking(name, waking);
        let Snapshot {
            me, target_name, ..
        } = snapshot;
        if let Some(kind) = self.cluster.kinds.get(&target_name.kind) {
            self.metrics.set_watched(me, &kind.plural);
        }
        for scaling in applied.done.iter().filter_map(scaling) {
            self.metrics.scaled(me, scaling, None);
        }
        if let Some((step, error)) = &applied.failed
            && let Some(scaling) = scaling(step)
        {
            self.metrics.scaled(me, scaling, Some(error));
        }
        let woken_at = next.last_scaled_up_time.as_ref().map(|t| t.0);
        let was_down = matches!(previous.phase, Some(Phase::Asleep | Phase::Waking));
        // The replica that took the wake knows the moment; the status knows only the second.
        let requested_at = snapshot.observed.wake_requested_at.max(woken_at);
        if let Some(at) = requested_at.filter(|_| was_down && plan.phase == Phase::Restoring) {
            let took = Duration::try_from(snapshot.observed.since(at)).unwrap_or_default();
            self.metrics.cold_started(name, took);
        }
    }

    fn publish_scale_events(&self, reconciled: Reconciled<'_>) {
        let Reconciled {
            snapshot,
            plan,
            applied,
            previous,
            ..
        } = reconciled;
        let why = &plan.why.sentence;
        let target = &*snapshot.target_name.name.name;
        for step in &applied.done {
            match step {
                Step::Shrink(group) => {
                    let (left, pods) = (group.replicas(), group.pods().join(", "));
                    let note = format!("Scaled {target} to {left}. Out of rotation: {pods}.");
                    self.publish(snapshot, Normal, event::SUCCESS_TO_SCALE, "Sleep", &note);
                }
                Step::RestoreReplicas(replicas) => {
                    let note = format!("Scaled {target} back to {replicas}. {why}");
                    self.publish_to_both(snapshot, Normal, event::SUCCESS_TO_SCALE, "Wake", &note);
                }
                Step::ScaleToZero(_) => {
                    let note = format!("Scaled {target} to 0. {why}");
                    self.publish_to_both(snapshot, Normal, event::SUCCESS_TO_SCALE, "Sleep", &note);
                }
                Step::Wake(replicas) => {
                    let note = format!("Scaled {target} from 0 to {replicas}. {why}");
                    self.publish_to_both(snapshot, Normal, event::SUCCESS_TO_SCALE, "Wake", &note);
                }
                Step::Unmark(_) if previous.phase == Some(Phase::Draining) => {
                    self.publish(snapshot, Normal, event::SLEEP_CANCELLED, "Sleep", why);
                }
                _ => {}
            }
        }
        if let Some((step, error)) = &applied.failed
            && let Some(scaling) = scaling(step)
            && !error.is_routine()
        {
            let note = format!("{target} could not be scaled: {error}");
            let (reason, action) = (event::FAILED_TO_SCALE, action(scaling));
            self.publish_to_both(snapshot, Warning, reason, action, &note);
        }
    }

    fn publish_status_events(&self, reconciled: Reconciled<'_>) {
        let Reconciled {
            snapshot,
            plan,
            previous,
            next,
            ..
        } = reconciled;
        match (previous.mode, next.mode) {
            (before, Some(Mode::Proxy)) if before != Some(Mode::Proxy) => {
                let note = "New connections go to the resolvers.";
                self.publish(
                    snapshot,
                    Normal,
                    event::TRAFFIC_REDIRECTED,
                    "Redirect",
                    note,
                );
            }
            (Some(Mode::Proxy), Some(Mode::Serve)) => {
                let note = "New connections go to the pods.";
                self.publish(snapshot, Normal, event::TRAFFIC_RESTORED, "Restore", note);
            }
            _ => {}
        }
        // Once, when it begins.
        if previous.reason != next.reason
            && let Some(reason) = warning_reason(plan.why.reason)
        {
            self.publish(snapshot, Warning, reason, "Reconcile", &plan.why.sentence);
        }
        if let Some(pod) = &snapshot.observed.stable_since.stopped_unmarked {
            let note = format!("Pod {pod} was stopped although it was in rotation.");
            self.publish(snapshot, Warning, event::WRONG_POD_STOPPED, "Sleep", &note);
        }
        for (type_, reason) in [
            (condition::CONTENDED, event::CONTENDED),
            (condition::STEP_FAILED, event::STEP_FAILED),
            (condition::METRICS_MISSING, event::METRICS_MISSING),
        ] {
            if let Some(message) = message_while_true(next, type_)
                && message_while_true(previous, type_).is_none()
            {
                self.publish(snapshot, Warning, reason, "Reconcile", message);
            }
        }
    }

    /// An Event on the ElastiService and on its target.
    fn publish_to_both(
        &self,
        snapshot: &Snapshot,
        type_: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        self.publish(snapshot, type_, reason, action, note);
        let Some(target) = &snapshot.target else {
            return;
        };
        let kinds = &self.cluster.kinds;
        if let Some(about) = events::target(kinds, &snapshot.target_name, target) {
            let notice = Notice {
                type_,
                reason,
                action,
                note,
            };
            self.events.publish(about, &notice);
        }
    }

    /// An Event on the ElastiService.
    fn publish(
        &self,
        snapshot: &Snapshot,
        type_: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let notice = Notice {
            type_,
            reason,
            action,
            note,
        };
        self.events
            .publish(events::elasti_service(&snapshot.me), &notice);
    }
}

/// The reason and the sentence for a kind that the operator is not allowed to list.
fn what_to_grant(kind: &RefusedKind, plural: &str) -> (Reason, String) {
    let (RefusedKind::Target(name) | RefusedKind::Autoscaler(name)) = kind;
    let resource = match name.group.is_empty() {
        true => plural.to_owned(),
        false => format!("{plural}.{}", name.group),
    };
    let may_not = format!("The operator may not list {resource}.");
    let reading = format!("get, list and watch on {resource}");
    match kind {
        RefusedKind::Target(_) => (
            Reason::TargetNotFound,
            format!(
                "{may_not} Name them in global.scaleTargets of the chart, or allow its service account {reading}, and get and update on {resource}/scale."
            ),
        ),
        RefusedKind::Autoscaler(_) => (
            Reason::AutoscalerNotFound,
            format!("{may_not} Allow its service account {reading}."),
        ),
    }
}

/// Which way a step scales.
fn scaling(step: &Step) -> Option<Scaling> {
    match step {
        Step::ScaleToZero(_) | Step::Shrink(_) => Some(Scaling::Down),
        Step::Wake(_) | Step::RestoreReplicas(_) => Some(Scaling::Up),
        _ => None,
    }
}

/// The `action` of Events.
fn action(scaling: Scaling) -> &'static str {
    match scaling {
        Scaling::Down => "Sleep",
        Scaling::Up => "Wake",
    }
}

/// The Event for a reason that someone should act on.
fn warning_reason(reason: Reason) -> Option<&'static str> {
    match reason {
        stuck if stuck.is_obstacle() => Some(event::WAKE_STUCK),
        Reason::NoResolver | Reason::NodesWithoutResolver => Some(event::NO_RESOLVER),
        Reason::Conflict => Some(event::CONFLICT),
        Reason::TicksTooDense => Some(event::CANNOT_DRAIN),
        _ => None,
    }
}

/// The message of a condition, while it is true.
fn message_while_true<'a>(status: &'a ElastiServiceStatus, type_: &str) -> Option<&'a str> {
    let mut conditions = status.conditions.iter();
    conditions
        .find(|c| c.type_ == type_ && c.status == "True")
        .map(|c| c.message.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::KindName;

    #[test]
    fn what_may_not_be_listed_is_told_with_what_to_grant() {
        let kind = RefusedKind::Target(KindName::new("", "v1", "ReplicationController"));
        let (reason, sentence) = what_to_grant(&kind, "replicationcontrollers");
        assert_eq!(reason, Reason::TargetNotFound);
        assert_eq!(
            sentence,
            "The operator may not list replicationcontrollers. Name them in global.scaleTargets of the chart, or allow its service account get, list and watch on replicationcontrollers, and get and update on replicationcontrollers/scale."
        );
        let kind = RefusedKind::Autoscaler(KindName::new("keda.sh", "v1alpha1", "ScaledObject"));
        let (reason, sentence) = what_to_grant(&kind, "scaledobjects");
        assert_eq!(reason, Reason::AutoscalerNotFound);
        let grant = "Allow its service account get, list and watch on scaledobjects.keda.sh.";
        assert!(sentence.ends_with(grant), "{sentence}");
    }
}
