//! Carries steps out: the only writer of targets, pods, slices, Services, autoscalers and finalizers.
//! Never chooses, reorders or repeats a step, and never sends one at or after its expiry or the end of the lease.

use std::time::Duration;

use elasti_api::names;
use elasti_core::observed::{KedaPause, Leadership};
use elasti_core::step::PodRef;
use elasti_core::{Plan, Step};
use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::autoscalers::keda::{self, ScaledObject};
use crate::error::Error;
use crate::name::{Name, TargetName};
use crate::observe::{Snapshot, after_scale};
use crate::operator::Operator;
use crate::render;
use crate::slim::{Declared, PodView, ServiceView, SliceView, TargetView};
use crate::store::{Change, Kept};
use crate::targets;

/// One call; the API server answers within a few milliseconds, or it is in trouble.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How far a plan was carried out.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The steps that took effect, in order.
    pub(crate) done: Vec<Step>,
    /// The step that failed, and why; those after it were not tried.
    pub(crate) failed: Option<(Step, Error)>,
}

/// Carries out a plan, and stops at the first step that fails.
pub(crate) async fn apply(operator: &Operator, snapshot: &Snapshot, plan: &Plan) -> Applied {
    let mut applied = Applied::default();
    for step in &plan.steps {
        let result = match may_send(operator, step) {
            Ok(deadline) => carry_out(operator, snapshot, step, deadline).await,
            Err(error) => Err(error),
        };
        tracing::debug!(elastiservice = %snapshot.me.name, step = word(step), ok = result.is_ok(), "step");
        match result {
            Ok(()) => applied.done.push(step.clone()),
            Err(error) => {
                applied.failed = Some((step.clone(), error));
                break;
            }
        }
    }
    applied
}

/// Until when a step may be sent; an error if it is too late already.
fn may_send(operator: &Operator, step: &Step) -> Result<Instant, Error> {
    let Leadership::Leader { until } = operator.leadership() else {
        return Err(Error::NotLeader);
    };
    let now = operator.clock.now();
    if now >= until {
        return Err(Error::NotLeader);
    }
    let ends = step.expires().unwrap_or(Timestamp::MAX).min(until);
    if now >= ends {
        return Err(Error::Expired);
    }
    Ok(operator.clock.instant(ends).min(Instant::now() + TIMEOUT))
}

async fn carry_out(
    operator: &Operator,
    snapshot: &Snapshot,
    step: &Step,
    deadline: Instant,
) -> Result<(), Error> {
    let to = Writer { operator, deadline };
    match step {
        Step::AddFinalizer => to.finalizers(&snapshot.me, true).await,
        Step::RemoveFinalizer(_) => to.finalizers(&snapshot.me, false).await,
        Step::EnsurePrivateService(shape) => {
            let service = render::private_service(&snapshot.me, shape);
            let path = services(&snapshot.me.name);
            let force = snapshot.observed.private_service.ours().is_some();
            to.apply::<ServiceView>(&path, &service, force).await
        }
        Step::EnsureSlice(routed) => {
            let slices = render::slices(&snapshot.me, routed.slices());
            to.ensure_slices(snapshot, &slices).await
        }
        Step::HoldAutoscaler(pause)
        | Step::PinAutoscaler(pause)
        | Step::ReleaseAutoscaler(pause) => to.pause_keda(snapshot, pause).await,
        Step::Mark { pods, .. } => to.conditions(snapshot, pods, render::mark).await,
        Step::Unmark(pods) => to.conditions(snapshot, pods, render::unmark).await,
        Step::ScaleToZero(drained) => {
            let target = snapshot.target.as_deref();
            let target = target.ok_or_else(|| Error::Missing("the target".into()))?;
            to.scale(&snapshot.target_name, target, drained.version(), 0)
                .await
        }
        Step::Wake(replicas) => {
            let target = snapshot.target.as_deref();
            let target = target.ok_or_else(|| Error::Missing("the target".into()))?;
            to.scale(&snapshot.target_name, target, &target.version, *replicas)
                .await
        }
        Step::RemoveSlice(_) => {
            for (name, uid) in &snapshot.our_slices {
                to.delete::<SliceView>(&slices(name), name, uid).await?;
            }
            Ok(())
        }
        Step::DeletePrivateService(_) => match &snapshot.private_service {
            Some((name, uid)) => to.delete::<ServiceView>(&services(name), name, uid).await,
            None => Ok(()),
        },
    }
}

/// The one write of a wake: from zero up, if the target is still as it was seen.
pub(crate) async fn wake(
    operator: &Operator,
    name: &TargetName,
    target: &TargetView,
    replicas: u32,
) -> Result<(), Error> {
    let deadline = Instant::now() + TIMEOUT;
    let to = Writer { operator, deadline };
    to.scale(name, target, &target.version, replicas).await
}

/// Writes until a moment.
struct Writer<'a> {
    operator: &'a Operator,
    deadline: Instant,
}

impl Writer<'_> {
    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let call = self.operator.client.request::<Value>(request);
        match timeout_at(self.deadline, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::NoAnswer(
                "the API server did not answer in time".into(),
            )),
        }
    }

    /// What a write gave is what a watch will tell; the next look need not wait for it.
    fn learn<K: Kept>(&self, object: Value) {
        if let Ok(object) = K::read(object) {
            let touched = self.operator.store.take_in(None, Change::Set(object));
            self.operator.look_at(&touched);
        }
    }

    async fn finalizers(&self, me: &Declared, ours: bool) -> Result<(), Error> {
        let path = elastiservices(&me.name);
        let patch = Patch::Merge(render::finalizers(me, ours));
        let request = Request::new(path).patch(&me.name.name, &patch_params(), &patch);
        let written = self.send(request).await;
        self.operator
            .metrics
            .finalized(&me.name, written.as_ref().err().map(Error::as_str));
        match written {
            Ok(object) if ours => self.learn::<Declared>(object),
            Ok(_) => {}
            Err(Error::Missing(_)) if !ours => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Server-side apply; `force` only onto what is ours already.
    async fn apply<K: Kept>(
        &self,
        path: &str,
        rendered: &render::Rendered,
        force: bool,
    ) -> Result<(), Error> {
        let mut params = patch_params();
        params.force = force;
        let patch = Patch::Apply(&rendered.object);
        let request = Request::new(path).patch(&rendered.name, &params, &patch);
        let written = self.send(request).await?;
        self.learn::<K>(written);
        Ok(())
    }

    /// The wanted slices first, then those of ours that are too many.
    async fn ensure_slices(
        &self,
        snapshot: &Snapshot,
        wanted: &[render::Rendered],
    ) -> Result<(), Error> {
        let path = slices(&snapshot.me.name);
        for slice in wanted {
            let ours = snapshot.our_slices.iter();
            let force = ours.clone().any(|(name, _)| *name.name == *slice.name);
            self.apply::<SliceView>(&path, slice, force).await?;
        }
        for (name, uid) in &snapshot.our_slices {
            if !wanted.iter().any(|slice| *slice.name == *name.name) {
                self.delete::<SliceView>(&path, name, uid).await?;
            }
        }
        Ok(())
    }

    async fn pause_keda(&self, snapshot: &Snapshot, pause: &KedaPause) -> Result<(), Error> {
        let missing = || Error::Missing("the ScaledObject".into());
        let autoscaler = snapshot.me.spec.autoscaler.as_ref().ok_or_else(missing)?;
        let version = snapshot.scaled_version.as_deref().ok_or_else(missing)?;
        let (kind, _) = crate::store::autoscaler_kind(autoscaler.type_);
        let resource = self.operator.kinds.get(&kind).ok_or_else(missing)?;
        let path = targets::path(&resource, Some(&snapshot.me.name.namespace));
        let patch = Patch::Merge(keda::patch(pause, version));
        let request = Request::new(path).patch(&autoscaler.name, &patch_params(), &patch);
        let written = self.send(request).await?;
        self.learn::<ScaledObject>(written);
        Ok(())
    }

    /// Changes the `Ready` condition of pods, each only if it is as it was observed.
    async fn conditions(
        &self,
        snapshot: &Snapshot,
        pods: &[PodRef],
        render: fn(&str, Timestamp) -> Value,
    ) -> Result<(), Error> {
        let namespace = &snapshot.me.name.namespace;
        let path = k8s_openapi::api::core::v1::Pod::url_path(&(), Some(namespace));
        let all = pods.iter().map(|PodRef { name, version }| {
            let patch = Patch::Strategic(render(version, self.operator.clock.now()));
            let request = Request::new(path.as_str()).patch_subresource(
                "status",
                name,
                &patch_params(),
                &patch,
            );
            self.send(request)
        });
        let mut outcome = Ok(());
        // All at once: a pod that is out must not wait for the others.
        for written in futures::future::join_all(all).await {
            match written {
                Ok(pod) => self.learn::<PodView>(pod),
                Err(error) => {
                    if matches!(error, Error::Forbidden(_)) {
                        self.operator.permissions.may_not_mark(namespace);
                    }
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Writes the scale, if the target is still at this version. A wake and a look may want the same at the same
    /// moment: the second one waits, and learns from the first one's write instead of a refusal.
    async fn scale(
        &self,
        name: &TargetName,
        target: &TargetView,
        version: &str,
        replicas: u32,
    ) -> Result<(), Error> {
        let missing = || Error::Missing("the target's kind".into());
        let resource = self.operator.kinds.get(&name.kind).ok_or_else(missing)?;
        let turn = timeout_at(self.deadline, self.operator.scale_locks.wait(name)).await;
        let _turn =
            turn.map_err(|_| Error::NoAnswer("another write of the target hangs".into()))?;
        let known = self
            .operator
            .store
            .known()
            .target(name)
            .map(|t| t.version.clone());
        if known.is_some_and(|known| *known != *version) {
            return Err(Error::Conflict("the target has just been written".into()));
        }
        let path = targets::path(&resource, Some(&name.name.namespace));
        let body = render::scale(&name.name, version, replicas);
        let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            ..PostParams::default()
        };
        let request =
            Request::new(path).replace_subresource("scale", &name.name.name, &params, body);
        let scale = self.send(request).await?;
        let version = scale.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str).unwrap_or_default();
        let now = self.operator.clock.now();
        let after = after_scale(
            target,
            elasti_core::facts::replicas_of_scale(&scale),
            version,
            now,
        );
        let mut touched = Default::default();
        let mut known = self.operator.store.known();
        known.put_target(name, after, &mut touched);
        drop(known);
        let touched: Vec<Name> = touched.into_iter().collect();
        self.operator.look_at(&touched);
        Ok(())
    }

    async fn delete<K: Kept>(&self, path: &str, name: &Name, uid: &str) -> Result<(), Error> {
        // Exactly this object, not a later one of the same name.
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        let request = Request::new(path).delete(&name.name, &params);
        match self.send(request).await {
            Ok(_) | Err(Error::Missing(_)) => {
                let gone: Change<K> = Change::Gone(name.clone());
                let touched = self.operator.store.take_in(None, gone);
                self.operator.look_at(&touched);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(names::FIELD_MANAGER.into()),
        ..PatchParams::default()
    }
}

fn services(of: &Name) -> String {
    k8s_openapi::api::core::v1::Service::url_path(&(), Some(&of.namespace))
}

fn slices(of: &Name) -> String {
    k8s_openapi::api::discovery::v1::EndpointSlice::url_path(&(), Some(&of.namespace))
}

fn elastiservices(of: &Name) -> String {
    elasti_api::ElastiService::url_path(&(), Some(&of.namespace))
}

/// The log's word for a step.
fn word(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "AddFinalizer",
        Step::EnsurePrivateService(_) => "EnsurePrivateService",
        Step::EnsureSlice(_) => "EnsureSlice",
        Step::HoldAutoscaler(_) => "HoldAutoscaler",
        Step::Mark { .. } => "Mark",
        Step::ScaleToZero(_) => "ScaleToZero",
        Step::PinAutoscaler(_) => "PinAutoscaler",
        Step::Wake(_) => "Wake",
        Step::ReleaseAutoscaler(_) => "ReleaseAutoscaler",
        Step::Unmark(_) => "Unmark",
        Step::RemoveSlice(_) => "RemoveSlice",
        Step::DeletePrivateService(_) => "DeletePrivateService",
        Step::RemoveFinalizer(_) => "RemoveFinalizer",
    }
}
