//! Carries steps out: the only writer of targets, pods, slices, Services, autoscalers and finalizers.
//! A step that fails is not repeated here, and none is sent at or after its expiry or the end of the lease.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use elasti_core::observed::{KedaPause, Leadership, SliceShape};
use elasti_core::status::Refusal;
use elasti_core::step::PodRef;
use elasti_core::{Plan, Promise, Step};
use jiff::Timestamp;
use kube::Resource as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use crate::autoscalers::keda::{self, ScaledObject};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::name::{Name, TargetName};
use crate::observe::{Ours, Snapshot, after_scale};
use crate::permissions::Permissions;
use crate::render;
use crate::scale_locks::ScaleLocks;
use crate::slim::{Declared, PodView, ServiceView, SliceView, TargetView};
use crate::store::{CachedKind, Change};
use crate::targets;
use crate::term::Terms;

/// One call; the API server answers within a few milliseconds, or it is in trouble.
const TIMEOUT: Duration = Duration::from_secs(10);
/// After so many in a row, a step without an answer is told in the status.
const UNANSWERED_TO_REPORT: u32 = 2;
const NO_ANSWER_AGAIN: &str = "the API server gave no answer in 10 s, again; usually an admission webhook hangs, so look for one that does not answer: kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
/// How long a promise waits for a write in flight; a scale to zero ends within a second.
const PROMISE_TIMEOUT: Duration = Duration::from_secs(1);

/// How far a plan was carried out.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The steps that took effect, in order.
    pub(crate) done: Vec<Step>,
    /// The first step that failed, and why; of those after it only slices were tried.
    pub(crate) failed: Option<(Step, Error)>,
    /// How often in a row that step got no answer.
    pub(crate) unanswered: u32,
}

impl Applied {
    /// What the API server refused. A webhook that hangs makes it answer later than we wait, so that a step without an
    /// answer counts too once that is no chance.
    pub(crate) fn refusal(&self) -> Refusal {
        match &self.failed {
            None => Refusal::None,
            Some((step, Error::NoAnswer(_))) if self.unanswered >= UNANSWERED_TO_REPORT => {
                Refusal::Step {
                    step: step.name(),
                    why: NO_ANSWER_AGAIN.to_owned(),
                }
            }
            Some((step, error)) if error.is_refusal() => Refusal::Step {
                step: step.name(),
                why: error.to_string(),
            },
            Some(_) => Refusal::Unknown,
        }
    }

    pub(crate) fn outcome(&self) -> Result<(), Error> {
        match &self.failed {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn has_woken(&self) -> bool {
        { self.done.iter() }.any(|step| matches!(step, Step::Wake(_)))
    }

    /// No scale-down took effect, and none of which that is not known.
    pub(crate) fn has_not_scaled_down(&self) -> bool {
        let uncertain = self.failed.iter().filter(|(_, e)| e.is_uncertain());
        let mut tried = self.done.iter().chain(uncertain.map(|(step, _)| step));
        !tried.any(|step| matches!(step, Step::ScaleToZero(_) | Step::Shrink(_)))
    }
}

/// Writes to the cluster.
#[derive(Debug)]
pub(crate) struct Writer {
    cluster: Arc<Cluster>,
    clock: Clock,
    terms: Arc<Terms>,
    permissions: Arc<Permissions>,
    metrics: Arc<Metrics>,
    scale_locks: ScaleLocks,
}

impl Writer {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        clock: Clock,
        terms: Arc<Terms>,
        permissions: Arc<Permissions>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            cluster,
            clock,
            terms,
            permissions,
            metrics,
            scale_locks: ScaleLocks::default(),
        }
    }

    /// Carries out a plan. After a step that fails only slices are written: no Service's path waits for another's, or for
    /// what a webhook or a quota refuses.
    pub(crate) async fn apply(&self, snapshot: &Snapshot, plan: &Plan) -> Applied {
        let mut applied = Applied::default();
        for step in &plan.steps {
            if applied.failed.is_some() && !step.keeps_path() {
                continue;
            }
            self.cluster.queue.progressed(&snapshot.me.name);
            let result = match self.deadline(step) {
                Ok(deadline) => self.until(deadline).carry_out(snapshot, step).await,
                Err(error) => Err(error),
            };
            tracing::debug!(elastiservice = %snapshot.me.name, step = step.name(), ok = result.is_ok(), "step applied");
            match result {
                Ok(()) => applied.done.push(step.clone()),
                Err(error) => {
                    self.metrics.step_failed(step.name(), &error);
                    applied.failed.get_or_insert((step.clone(), error));
                }
            }
        }
        applied
    }

    /// The one write of a wake, on any replica: from zero up, if the target is still as it was observed.
    pub(crate) async fn scale_up(
        &self,
        name: &TargetName,
        target: &TargetView,
        replicas: u32,
    ) -> Result<(), Error> {
        let write = self.until(Instant::now() + TIMEOUT);
        write.scale(name, target, &target.version, replicas).await
    }

    /// Promises what `decide` finds can be promised now. No write of the target is in flight meanwhile, and none that was
    /// planned before scales it down afterwards. `None` if nothing can be promised, or a write hangs.
    pub(crate) async fn promise(
        &self,
        name: &TargetName,
        decide: impl FnOnce() -> Option<Promise>,
    ) -> Option<Promise> {
        let lock = timeout(PROMISE_TIMEOUT, self.scale_locks.lock(name)).await;
        let lock = lock.ok()?;
        let promise = decide()?;
        lock.promise(promise.until, self.clock.now());
        Some(promise)
    }

    /// Until when the last promise about a target lasts, or lasted.
    pub(crate) fn promised_until(&self, name: &TargetName) -> Option<Timestamp> {
        self.scale_locks.promised_until(name)
    }

    /// A promise about any target has not ended.
    pub(crate) fn has_promised(&self) -> bool {
        let ends = self.scale_locks.last_promise_ends();
        ends.is_some_and(|ends| self.clock.now() < ends)
    }

    /// Until when a step may be sent; an error if it is too late already.
    fn deadline(&self, step: &Step) -> Result<Instant, Error> {
        let Leadership::Leader { until } = self.terms.leadership() else {
            return Err(Error::NotLeader);
        };
        let now = self.clock.now();
        if now >= until {
            return Err(Error::NotLeader);
        }
        let ends = step.expires().unwrap_or(Timestamp::MAX).min(until);
        if now >= ends {
            return Err(Error::Expired);
        }
        Ok(self.clock.instant(ends).min(Instant::now() + TIMEOUT))
    }

    fn until(&self, deadline: Instant) -> Write<'_> {
        Write {
            writer: self,
            cluster: &self.cluster,
            deadline,
        }
    }
}

/// One write, which ends at a deadline.
struct Write<'a> {
    writer: &'a Writer,
    cluster: &'a Cluster,
    deadline: Instant,
}

impl Write<'_> {
    async fn carry_out(&self, snapshot: &Snapshot, step: &Step) -> Result<(), Error> {
        match step {
            Step::Other(name, step) => {
                let other = snapshot.other(name);
                let other = other.ok_or_else(|| Error::Missing(format!("the Service {name}")))?;
                self.step(snapshot, other, step).await
            }
            step => self.step(snapshot, &snapshot.ours, step).await,
        }
    }

    /// One step, about the Service whose objects these are.
    async fn step(&self, snapshot: &Snapshot, ours: &Ours, step: &Step) -> Result<(), Error> {
        let target = || {
            let target = snapshot.target.as_deref();
            target.ok_or_else(|| Error::Missing("the target".into()))
        };
        match step {
            Step::AddFinalizer => self.finalizers(&snapshot.me, true).await,
            Step::RemoveFinalizer(_) => self.finalizers(&snapshot.me, false).await,
            Step::EnsurePrivateService(shape) => {
                let service = render::private_service(&snapshot.me, &ours.service.name, shape);
                let path = services_path(&snapshot.me.name);
                let force = ours.has_private_service;
                self.apply::<ServiceView>(&path, &service, force).await
            }
            Step::Redirect(routed) => self.ensure_slices(snapshot, ours, routed.slices()).await,
            Step::EnsureNet(net) => self.ensure_slices(snapshot, ours, net.slices()).await,
            Step::HoldAutoscaler(pause)
            | Step::PinAutoscaler(pause)
            | Step::ReleaseAutoscaler(pause) => self.pause_keda(snapshot, pause).await,
            Step::Mark { pods, .. } => self.pods(snapshot, pods, render::mark).await,
            Step::Unmark(pods) => self.pods(snapshot, pods, render::unmark).await,
            Step::ResetCost(pods) => self.pods(snapshot, pods, render::reset_cost).await,
            Step::Shrink(group) => {
                let (name, version) = (&snapshot.target_name, group.version());
                self.scale(name, target()?, version, group.replicas()).await
            }
            Step::ScaleToZero(drained) => {
                let (name, version) = (&snapshot.target_name, drained.version());
                self.scale(name, target()?, version, 0).await
            }
            Step::Wake(replicas) | Step::RestoreReplicas(replicas) => {
                let (name, target) = (&snapshot.target_name, target()?);
                self.scale(name, target, &target.version, *replicas).await
            }
            Step::RemoveSlice(_) => {
                for (name, uid) in &ours.slices {
                    self.delete::<SliceView>(&slices_path(name), name, uid)
                        .await?;
                }
                Ok(())
            }
            Step::DeletePrivateService(_) => match &ours.private_service {
                Some((name, uid)) => {
                    let path = services_path(name);
                    self.delete::<ServiceView>(&path, name, uid).await
                }
                None => Ok(()),
            },
            Step::Other(name, _) => Err(Error::Missing(format!("the Service of {name}"))),
        }
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Value, Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let call = self.cluster.client.request::<Value>(request);
        match timeout_at(self.deadline, call).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Error::NoAnswer(
                "the API server did not answer in time".into(),
            )),
        }
    }

    async fn finalizers(&self, me: &Declared, ours: bool) -> Result<(), Error> {
        let path = elastiservices_path(&me.name);
        let patch = Patch::Merge(render::finalizers(me, ours));
        let request = Request::new(path).patch(&me.name.name, &patch_params(), &patch);
        let written = self.send(request).await;
        if !ours {
            let error = written.as_ref().err();
            self.writer.metrics.finalizer_removed(&me.name, error);
        }
        match written {
            Ok(object) if ours => self.cluster.cache_written::<Declared>(object),
            Ok(_) => self.cluster.store.set_finalized(me),
            Err(Error::Missing(_)) if !ours => self.cluster.store.set_finalized(me),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Server-side apply; `force` only onto what is ours already.
    async fn apply<K: CachedKind>(
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
        self.cluster.cache_written::<K>(written);
        Ok(())
    }

    /// The wanted slices first, then those of ours that are too many.
    async fn ensure_slices(
        &self,
        snapshot: &Snapshot,
        ours: &Ours,
        shapes: &[SliceShape],
    ) -> Result<(), Error> {
        let wanted = render::slices(&snapshot.me, &ours.service.name, shapes);
        let path = slices_path(&snapshot.me.name);
        for slice in &wanted {
            let mut slices = ours.slices.iter();
            let force = slices.any(|(name, _)| *name.name == *slice.name);
            self.apply::<SliceView>(&path, slice, force).await?;
        }
        for (name, uid) in &ours.slices {
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
        let kind = crate::store::autoscaler_kind(autoscaler.type_);
        let resource = self.cluster.kinds.get(&kind).ok_or_else(missing)?;
        let path = targets::path(&resource, Some(&snapshot.me.name.namespace));
        let patch = Patch::Merge(keda::patch(pause, version));
        let request = Request::new(path).patch(&autoscaler.name, &patch_params(), &patch);
        let written = self.send(request).await?;
        self.cluster.cache_written::<ScaledObject>(written);
        Ok(())
    }

    /// Changes the `Ready` condition of pods, or their deletion cost, each only if it is as it was observed. Both go
    /// through `pods/status`, which takes annotations too.
    async fn pods(
        &self,
        snapshot: &Snapshot,
        pods: &[PodRef],
        render: fn(&PodRef, Timestamp) -> Value,
    ) -> Result<(), Error> {
        let namespace = &snapshot.me.name.namespace;
        let path = k8s_openapi::api::core::v1::Pod::url_path(&(), Some(namespace));
        let all = pods.iter().map(|pod| {
            let patch = Patch::Strategic(render(pod, self.writer.clock.now()));
            let request = Request::new(path.as_str()).patch_subresource(
                "status",
                &pod.name,
                &patch_params(),
                &patch,
            );
            self.send(request)
        });
        let mut outcome = Ok(());
        // All at once: a pod that is out must not wait for the others.
        for written in futures::future::join_all(all).await {
            match written {
                Ok(pod) => self.cluster.cache_written::<PodView>(pod),
                Err(error) => {
                    if matches!(error, Error::Forbidden(_)) {
                        self.writer.permissions.may_not_mark(namespace);
                    }
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Writes the scale, if the target is still at this version. A wake and a reconcile may want the same at the same
    /// moment: the second one waits for the lock, and learns from the first one's write instead of a refusal.
    async fn scale(
        &self,
        name: &TargetName,
        target: &TargetView,
        version: &str,
        replicas: u32,
    ) -> Result<(), Error> {
        let missing = || Error::Missing("the target's kind".into());
        let resource = self.cluster.kinds.get(&name.kind).ok_or_else(missing)?;
        let lock = timeout_at(self.deadline, self.writer.scale_locks.lock(name)).await;
        let lock = lock.map_err(|_| Error::NoAnswer("another write of the target hangs".into()))?;
        let lowers = target.facts.replicas.is_none_or(|now| replicas < now);
        if lowers && lock.is_promised(self.writer.clock.now()) {
            // It was planned before a promise that has been given since.
            return Err(Error::Expired);
        }
        let cached = self.cluster.store.cache().target(name).cloned();
        if cached.is_some_and(|cached| *cached.version != *version) {
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
        let now = self.writer.clock.now();
        let after = after_scale(
            target,
            elasti_core::facts::replicas_of_scale(&scale),
            version,
            now,
        );
        self.cluster.cache_scaled(name, after);
        Ok(())
    }

    async fn delete<K: CachedKind>(&self, path: &str, name: &Name, uid: &str) -> Result<(), Error> {
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
                self.cluster.apply_change::<K>(Change::Gone(name.clone()));
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

fn services_path(sibling: &Name) -> String {
    k8s_openapi::api::core::v1::Service::url_path(&(), Some(&sibling.namespace))
}

fn slices_path(sibling: &Name) -> String {
    k8s_openapi::api::discovery::v1::EndpointSlice::url_path(&(), Some(&sibling.namespace))
}

fn elastiservices_path(sibling: &Name) -> String {
    elasti_api::ElastiService::url_path(&(), Some(&sibling.namespace))
}
