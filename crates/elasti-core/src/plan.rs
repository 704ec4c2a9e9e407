//! The planner, and the file to read first: what to do next for one service, and why.
//! It turns facts into an ordered list of steps; the operator carries them out.

use elasti_api::{ElastiServiceSpec, Handover, Phase, Reason};
use jiff::{SignedDuration, Timestamp};

use crate::desire::{self, Desire, desire};
use crate::facts::predecessor;
use crate::observed::{
    Autoscaler, Claim, DeletionCost, Leadership, Observed, Pod, PrivateServiceShape, Report,
    Service, ServiceKind, Standing, StopOrder, Target,
};
use crate::promise::Promise;
use crate::step::{
    CostChange, Drained, GroupDrained, Net, PodRef, Redirected, Restored, Routed, SliceGone, Step,
    deletion_deadline, deletion_timed_out,
};
use crate::why::{TARGET_NOT_FOUND, Why};
use crate::{autoscaler, contention, groups, idle, replicas, services, status, user_requests};

/// What to do next, the phase that the service is in, why, and when to reconcile again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In order; the operator stops at the first that fails, but for the slices of other Services, and plans again.
    pub steps: Vec<Step>,
    /// The phase of the service as observed.
    pub phase: Phase,
    /// Why, as a reason and a sentence.
    pub why: Why,
    /// Reconcile again by then, even if no event arrives.
    pub requeue_at: Option<Timestamp>,
    /// Ask every ready resolver for its activity, then plan again.
    pub ask_resolvers: bool,
    /// The reason for the wake may be older than the zero that something else wrote.
    pub reason_may_be_old: bool,
}

/// What to do next for one service.
#[must_use]
pub fn plan(spec: &ElastiServiceSpec, o: &Observed) -> Plan {
    let mut plan = if let Some(pod) = &o.predecessor {
        Plan::at(current_phase(o), left_to_predecessor(pod))
    } else if o.me.deleting_since.is_some() {
        finalize(spec, o)
    } else {
        match preconditions(spec, o) {
            Ok((service, target)) => manage(spec, service, target, o),
            Err(unmanageable) => leave(spec, unmanageable, o),
        }
    };
    plan.steps.sort_by_key(Step::order);
    if o.leadership == Leadership::Follower {
        plan.steps.clear();
        plan.ask_resolvers = false;
    }
    plan.requeue_at = earliest(plan.requeue_at, user_requests::sleep_due(o));
    let contention_ends = contention::ends_at(o).filter(|moment| *moment > o.now);
    plan.requeue_at = earliest(plan.requeue_at, contention_ends);
    plan.requeue_at = earliest(plan.requeue_at, desire::grace_ends(o));
    plan.requeue_at = plan.requeue_at.map(|moment| moment.max(o.now));
    plan
}

/// Two operators would undo each other's steps. Only wakes are still decided: nothing takes them back, and a request that
/// has reached a resolver of ours must not wait for the other operator's end.
fn left_to_predecessor(pod: &str) -> Why {
    let sentence = format!(
        "KubeElasti's operator still runs as pod {pod}; Elasti leaves the service to it until that pod is gone."
    );
    Why::new(Reason::Conflict, sentence)
}

/// The response to a wake request, on any replica of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeDecision {
    /// Scale the target to this many replicas, if it is still scaled to zero.
    Scale(u32),
    /// The target is not scaled to zero; what the leader promises about it.
    AlreadyAwake(Option<Promise>),
    /// This ElastiService must not touch the target.
    Refused(Why),
}

/// Decides a wake by `spec.replicas` of the target. Its status is not considered: pods that are still
/// terminating after a scale to zero must not suppress a wake.
#[must_use]
pub fn wake(spec: &ElastiServiceSpec, o: &Observed) -> WakeDecision {
    match preconditions(spec, o) {
        Err(
            Unmanageable::Untouchable(why) | Unmanageable::NoTarget(why) | Unmanageable::Rival(why),
        ) => WakeDecision::Refused(why),
        Err(Unmanageable::Unsupported(..)) | Ok(_) => match (o.replicas(), contention::pause(o)) {
            (Some(0), None) => WakeDecision::Scale(replicas::to_wake(spec, o)),
            (Some(0), Some(why)) => WakeDecision::Refused(why),
            _ => WakeDecision::AlreadyAwake(Promise::observe(o)),
        },
    }
}

/// Why a service cannot be managed.
enum Unmanageable {
    /// Something is missing or belongs to someone else: change nothing.
    Untouchable(Why),
    /// There is no target: scale nothing, but keep the slice pointing at resolvers that are alive.
    NoTarget(Why),
    /// An older ElastiService takes precedence: restore what we changed.
    Rival(Why),
    /// The Service cannot be redirected: wake it and restore it.
    Unsupported(Why),
}

/// The Service and the target, if this ElastiService may manage them.
fn preconditions<'o>(
    spec: &ElastiServiceSpec,
    o: &'o Observed,
) -> Result<(&'o Service, &'o Target), Unmanageable> {
    if let Some(rival) = &o.rival {
        let claim = match rival.claim {
            Claim::Service => "Service",
            Claim::Target => "target",
        };
        let sentence = format!(
            "The older ElastiService {} manages the same {claim}; delete one of the two.",
            rival.name
        );
        return Err(Unmanageable::Rival(Why::new(Reason::Conflict, sentence)));
    }
    if o.namespace_terminating {
        return Err(Unmanageable::Untouchable(Why::new(
            Reason::Deleting,
            "The namespace is being deleted.",
        )));
    }
    if o.has_foreign_object() {
        return Err(Unmanageable::Untouchable(Why::new(
            Reason::Conflict,
            services::FOREIGN_OBJECT,
        )));
    }
    let Some(service) = &o.service else {
        return Err(Unmanageable::Untouchable(Why::new(
            Reason::ServiceNotFound,
            "The Service does not exist.",
        )));
    };
    if let Some(sentence) = unsupported(service, drains(spec, o)) {
        return Err(Unmanageable::Unsupported(Why::new(
            Reason::Unsupported,
            sentence,
        )));
    }
    match &o.target {
        Some(target) => Ok((service, target)),
        None => Err(Unmanageable::NoTarget(Why::new(
            Reason::TargetNotFound,
            TARGET_NOT_FOUND,
        ))),
    }
}

/// Why a Service of this shape cannot be redirected, or drained where the spec asks for a drain.
fn unsupported(service: &Service, drains: bool) -> Option<&'static str> {
    match service.kind {
        ServiceKind::Headless => Some(
            "The Service is headless: clients connect to the pods directly. Give it a cluster IP.",
        ),
        ServiceKind::ExternalName => {
            Some("The Service is of type ExternalName: it has no endpoints to redirect.")
        }
        ServiceKind::ClusterIp if service.selector.is_empty() => {
            Some("The Service has no selector, so Elasti cannot find its pods.")
        }
        ServiceKind::ClusterIp if !service.ports.iter().any(|p| p.tcp) => {
            Some("The Service has no TCP port, and only TCP can be held.")
        }
        ServiceKind::ClusterIp if service.publishes_unready && drains => Some(
            "The Service publishes pods that are not ready, so they cannot be drained. Remove publishNotReadyAddresses, or set `handover: redirect`.",
        ),
        ServiceKind::ClusterIp => None,
    }
}

/// The normal case: replicas and desire decide the direction.
fn manage(spec: &ElastiServiceSpec, service: &Service, target: &Target, o: &Observed) -> Plan {
    let desire = match desire(spec, o) {
        Desire::Sleep(why) if target.replicas > 0 => {
            unreachable_pods(o).map_or(Desire::Sleep(why), Desire::Stay)
        }
        other => other,
    };
    let mut plan = match (target.replicas, desire) {
        (0, desire) => at_zero(spec, service, desire, o),
        (_, Desire::Sleep(why)) => go_to_sleep(spec, service, why, o),
        (_, Desire::Stay(why) | Desire::Awake(why)) => {
            let plan = stay_awake(Some(service), why, o);
            // An operator that has just started may well continue the drain once it has read the triggers.
            match idle::unread(spec, o) {
                true => plan,
                false => plan.restoring_replicas(o),
            }
        }
    };
    plan.keep_asking(o);
    plan.ask_resolvers |= status::needs_reports(o);
    plan.steps.extend(upkeep(service, o));
    plan
}

/// What every managed service has in every phase.
fn upkeep(service: &Service, o: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    if !o.me.finalizer {
        steps.push(Step::AddFinalizer);
    }
    steps.extend(private_service(service, o));
    for (name, view) in o.other_views().filter(|(_, view)| is_managed(view)) {
        let step = { view.service.as_ref() }.and_then(|service| private_service(service, &view));
        steps.extend(step.map(|step| Step::Other(name.to_owned(), Box::new(step))));
    }
    steps
}

/// A resolver finds the pods by the private Service, so without it nothing goes to sleep: what it holds would wait for ever.
/// A quota or a webhook may refuse it.
fn unreachable_pods(o: &Observed) -> Option<Why> {
    let mut others = o.other_views().filter(|(_, view)| is_managed(view));
    let missing = o.private_service.ours().is_none()
        || others.any(|(_, view)| view.private_service.ours().is_none());
    let sentence = "The private Service, by which resolvers find the pods, does not exist yet.";
    missing.then(|| Why::new(Reason::RouteNotReady, sentence))
}

fn private_service(service: &Service, o: &Observed) -> Option<Step> {
    let wanted = PrivateServiceShape::from(service);
    let differs = o.private_service.ours() != Some(&wanted);
    differs.then_some(Step::EnsurePrivateService(wanted))
}

/// Another Service of the pods is ours to change.
fn is_managed(view: &Observed) -> bool {
    view.standing != Standing::Left && !view.has_foreign_object()
}

/// Idle, with replicas: redirect, then drain by groups as far as possible, then drain the rest and scale to zero.
fn go_to_sleep(spec: &ElastiServiceSpec, service: &Service, idle: Why, o: &Observed) -> Plan {
    let mut plan = Plan::at(Phase::Redirecting, idle);
    plan.ask_resolvers = true;
    let routed = match Routed::observe(service, o) {
        Ok(routed) => routed,
        Err(why) => return plan.waiting(why),
    };
    if o.slice.ours().map(Vec::as_slice) != Some(routed.slices()) {
        plan.steps.push(Step::Redirect(routed.clone()));
    }
    plan.each_other(o, Plan::follow_down);
    plan.steps
        .extend(autoscaler::hold(&o.autoscaler, leaves_pause(o)).map(Step::HoldAutoscaler));
    let redirected = match Redirected::observe(&routed, o) {
        Ok(redirected) => redirected,
        Err(why) => return plan.waiting(why),
    };
    let drained = if drains(spec, o) {
        plan.phase = Phase::Draining;
        if groups::apply(o) {
            return plan.shrink(&redirected, o);
        }
        if let Err(why) = groups::last_is_alone(o) {
            return plan.waiting(why);
        }
        let pods = pod_refs(o, |p| p.ready && !p.terminating);
        if !pods.is_empty() {
            plan.steps.push(Step::Mark {
                redirected: redirected.clone(),
                pods,
            });
        }
        Drained::observe(&redirected, o)
    } else {
        Drained::observe_without_drain(&redirected, o)
    };
    match drained {
        Ok(drained) => {
            plan.steps.push(Step::ScaleToZero(drained));
            plan
        }
        Err(why) => plan.waiting(why),
    }
}

/// Scaled to zero: keep the resolvers in the path, and wake the target if it should be awake.
fn at_zero(spec: &ElastiServiceSpec, service: &Service, desire: Desire, o: &Observed) -> Plan {
    let closes = desire::window_closes(spec, o.now);
    let mut plan = match (desire, contention::pause(o)) {
        (Desire::Awake(_), Some(why)) => Plan::at(Phase::Asleep, why),
        (Desire::Awake(why), None) => {
            // A request that is still held and a reading that is taken now are newer than the zero.
            let may_be_old = matches!(why.reason, Reason::Traffic | Reason::TriggerActive);
            let mut plan = Plan::at(Phase::Waking, why);
            plan.reason_may_be_old = may_be_old && contention::zeroed_by(o).is_some();
            plan.steps.push(Step::Wake(replicas::to_wake(spec, o)));
            plan.steps.extend(release_autoscaler(o));
            plan
        }
        (Desire::Sleep(why) | Desire::Stay(why), _) => {
            let mut plan = Plan::at(Phase::Asleep, why_asleep(why, o));
            plan.steps
                .extend(autoscaler::pin(&o.autoscaler).map(Step::PinAutoscaler));
            plan
        }
    };
    plan.ask_resolvers |= contention::needs_reports(o);
    plan.keep_redirected(service, o);
    plan.each_other(o, Plan::follow_down);
    plan.requeue_at = earliest(plan.requeue_at, closes);
    plan
}

/// A cooldown says when a service may sleep; one that already does needs another sentence.
fn why_asleep(why: Why, o: &Observed) -> Why {
    if why.reason != Reason::CoolingDown {
        return why;
    }
    let asleep = match contention::zeroed_by(o) {
        Some(writer) => Why::new(
            Reason::Contended,
            format!("{writer} set replicas to 0; a request or an active trigger wakes it."),
        ),
        None => Why::new(
            Reason::Idle,
            "The target is scaled to zero; a request or an active trigger wakes it.",
        ),
    };
    Why {
        until: why.until,
        ..asleep
    }
}

/// Awake: pods back into rotation, then resolvers out of the path.
fn stay_awake(service: Option<&Service>, why: Why, o: &Observed) -> Plan {
    let mut plan = Plan::at(current_phase(o), why);
    plan.steps.extend(release_autoscaler(o));
    plan.unmark(o);
    let restored = plan.restore(service, o);
    plan.each_other(o, |part, view| {
        let managed = view.service.as_ref().filter(|_| service.is_some());
        // Its own slices decide when it is restored; what it waits for is when to look again.
        drop(part.restore(managed, view));
    });
    if restored.is_err()
        && let Some(stuck) = obstacle(o).filter(|_| plan.phase == Phase::Waking)
    {
        plan.why = stuck;
    }
    plan
}

/// KubeElasti records nothing beside its pause, which an owner may write just so. At zero it goes with the wake, or KEDA
/// would undo the wake; that of a target that was awake before it is its owner's.
fn release_autoscaler(o: &Observed) -> Option<Step> {
    let Autoscaler::Keda(pause) = &o.autoscaler else {
        return None;
    };
    let ours = pause.before.is_some() || o.replicas() == Some(0) || leaves_pause(o);
    let released = autoscaler::release(&o.autoscaler).filter(|_| ours)?;
    Some(Step::ReleaseAutoscaler(released))
}

/// The target was at zero under a pause that KubeElasti records nowhere. Once it is awake the status keeps that until the
/// pause is gone: its release may fail, or has to wait for the end of KubeElasti's operator.
pub(crate) fn leaves_pause(o: &Observed) -> bool {
    let Autoscaler::Keda(pause) = &o.autoscaler else {
        return false;
    };
    let before = &o.me.remembered;
    // A status of KubeElasti has no replicas.
    let was_at_zero = before.replicas.is_none_or(|n| n == 0);
    predecessor::left_pause(pause) && (was_at_zero || before.pause_left)
}

/// The phase of a service that is not going to sleep.
fn current_phase(o: &Observed) -> Phase {
    let pod_up = o.in_rotation() || o.pods.iter().any(|p| !p.terminating && p.containers_ready);
    match (o.replicas().unwrap_or(0), o.is_redirected()) {
        (0, true) => Phase::Asleep,
        (0, false) if o.target.is_some() => Phase::Asleep,
        (_, false) => Phase::Serving,
        (_, true) if pod_up => Phase::Restoring,
        (_, true) => Phase::Waking,
    }
}

/// A service that cannot be managed: restore what we changed, as far as that is safe.
fn leave(spec: &ElastiServiceSpec, unmanageable: Unmanageable, o: &Observed) -> Plan {
    match unmanageable {
        Unmanageable::Untouchable(why) => Plan::at(current_phase(o), why),
        Unmanageable::NoTarget(why) => {
            let mut plan = Plan::at(current_phase(o), why);
            if let (Some(service), Some(_)) = (&o.service, o.slice.ours()) {
                plan.keep_redirected(service, o);
                plan.each_other(o, Plan::follow_down);
                plan.keep_asking(o);
            }
            plan
        }
        Unmanageable::Rival(why) if o.slice.ours().is_none() => {
            let mut plan = Plan::at(current_phase(o), why);
            plan.each_other(o, |_, _| {});
            plan
        }
        Unmanageable::Rival(why) => stay_awake(None, why, o),
        Unmanageable::Unsupported(why) => {
            let mut plan = stay_awake(None, why, o).restoring_replicas(o);
            if o.replicas() == Some(0) && o.slice.ours().is_some() && contention::pause(o).is_none()
            {
                plan.steps.insert(0, Step::Wake(replicas::to_wake(spec, o)));
                plan.phase = Phase::Waking;
            }
            plan
        }
    }
}

/// The ElastiService is being deleted: wake, wait for a ready pod, restore, clean up, remove the finalizer.
fn finalize(spec: &ElastiServiceSpec, o: &Observed) -> Plan {
    let mut plan = Plan::at(
        current_phase(o),
        Why::new(Reason::Deleting, "The ElastiService is being deleted."),
    );
    if !o.me.finalizer {
        return plan;
    }
    let in_charge = o.rival.is_none();
    let asleep = o.replicas() == Some(0) && !o.namespace_terminating && !deletion_timed_out(o);
    if in_charge {
        if asleep {
            plan.phase = Phase::Waking;
            plan.steps.push(Step::Wake(replicas::to_wake(spec, o)));
        }
        plan.steps.extend(release_autoscaler(o));
        plan = plan.restoring_replicas(o);
        plan.unmark(o);
    }
    match plan.remove_slices(o) {
        Some(Ok(())) => return plan,
        Some(Err(why)) => return plan.waiting_to_finalize(why, o).by_deletion_deadline(o),
        None if in_charge && asleep => return plan.by_deletion_deadline(o),
        None => {}
    }
    match SliceGone::observe(o) {
        Ok(gone) => {
            let delete = |part: &mut Plan, view: &Observed| {
                if view.private_service.ours().is_some() {
                    part.steps.push(Step::DeletePrivateService(gone.clone()));
                }
            };
            delete(&mut plan, o);
            plan.each_other(o, delete);
            plan.with(Step::RemoveFinalizer(gone))
        }
        Err(why) => plan.waiting(why),
    }
}

impl Plan {
    /// A step of this plan is safe only on current facts: the operator must read everything again from the API
    /// server, plan again, and carry out only that second plan.
    #[must_use]
    pub fn needs_fresh_facts(&self) -> bool {
        self.reason_may_be_old || self.steps.iter().any(Step::needs_fresh_facts)
    }

    /// A step of this plan takes pods out of rotation or stops them, because the service is quiet.
    #[must_use]
    pub fn takes_down(&self) -> bool {
        self.steps.iter().any(Step::takes_down)
    }

    /// A step of this plan must not stand on readings from before: they do not show that the service is quiet now, nor
    /// that a trigger is active since the zero that something else wrote. What brings pods back otherwise need not wait.
    #[must_use]
    pub fn needs_fresh_readings(&self) -> bool {
        self.steps
            .iter()
            .any(|step| self.step_needs_fresh_readings(step))
    }

    /// The same about one of its steps. An autoscaler that is released would wake the target, too.
    fn step_needs_fresh_readings(&self, step: &Step) -> bool {
        let by_old_reading = self.reason_may_be_old && self.why.reason == Reason::TriggerActive;
        let wakes = matches!(step, Step::Wake(_) | Step::ReleaseAutoscaler(_));
        step.takes_down() || (by_old_reading && wakes)
    }

    /// Only those of its steps that keep the path of a Service, and are safe on the facts that it was made by: they need
    /// not wait until readings have come.
    #[must_use]
    pub fn ahead_of_readings(&self) -> Self {
        let mut ahead = self.clone();
        ahead
            .steps
            .retain(|step| step.keeps_path() && !step.needs_fresh_facts());
        ahead
    }

    /// The same plan for when triggers could not be read anew: what needs that waits for another attempt, and nothing else
    /// does.
    #[must_use]
    pub fn without_fresh_readings(mut self, now: Timestamp) -> Self {
        if !self.needs_fresh_readings() {
            return self;
        }
        let mut steps = std::mem::take(&mut self.steps);
        steps.retain(|step| !self.step_needs_fresh_readings(step));
        self.steps = steps;
        if self.phase == Phase::Waking {
            self.phase = Phase::Asleep;
        }
        let again = now.checked_add(READ_AGAIN_PAUSE).ok();
        self.requeue_at = earliest(self.requeue_at, again);
        self.why = Why::new(Reason::TriggerUnknown, NOT_READ_AGAIN);
        self
    }

    /// It wakes the target only because no resolver is ready for some of its clients.
    #[must_use]
    pub fn wakes_for_lack_of_resolvers(&self) -> bool {
        let lack = matches!(
            self.why.reason,
            Reason::NoResolver | Reason::NodesWithoutResolver
        );
        lack && self.steps.iter().any(|step| matches!(step, Step::Wake(_)))
    }

    /// The same plan, but the wake is for a later reconcile; an autoscaler that it releases would wake the target, too.
    #[must_use]
    pub fn without_wake_until(mut self, moment: Timestamp) -> Self {
        self.steps
            .retain(|step| !matches!(step, Step::Wake(_) | Step::ReleaseAutoscaler(_)));
        self.phase = Phase::Asleep;
        self.requeue_at = earliest(self.requeue_at, Some(moment));
        self
    }

    fn at(phase: Phase, why: Why) -> Self {
        let requeue_at = why.until;
        Self {
            steps: Vec::new(),
            phase,
            why,
            requeue_at,
            ask_resolvers: false,
            reason_may_be_old: false,
        }
    }

    fn with(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Takes the next group of pods out of rotation, or scales down by those that are out.
    fn shrink(mut self, redirected: &Redirected, o: &Observed) -> Self {
        match groups::next(o) {
            Ok(groups::Next::Mark(pods)) => {
                let sentence = format!(
                    "{} of {} pods are being taken out of rotation.",
                    pods.len(),
                    o.replicas().unwrap_or(0)
                );
                let mut pods = pod_refs(o, |p| pods.iter().any(|pod| pod.uid == p.uid));
                // A StatefulSet stops pods by their ordinals, whatever they cost.
                if o.target.as_ref().map(|t| t.stops) == Some(StopOrder::UnreadyFirst) {
                    pods = with_cost(pods, o, DeletionCost::Unset, CostChange::Lower);
                }
                self.steps.push(Step::Mark {
                    redirected: redirected.clone(),
                    pods,
                });
                self.waiting(Why::new(Reason::Draining, sentence))
            }
            Ok(groups::Next::Shrink) => match GroupDrained::observe(redirected, o) {
                Ok(group) => self.with(Step::Shrink(group)),
                Err(why) => self.waiting(why),
            },
            Err(why) => self.waiting(why),
        }
    }

    /// A cancelled sleep: first of all the replicas that it took away.
    fn restoring_replicas(mut self, o: &Observed) -> Self {
        if let Some(replicas) = groups::to_restore(o) {
            self.steps.insert(0, Step::RestoreReplicas(replicas));
        }
        self
    }

    /// The phase is not complete: this is what it waits for.
    fn waiting(mut self, why: Why) -> Self {
        self.requeue_at = earliest(self.requeue_at, why.until);
        self.why = why;
        self
    }

    /// A deletion in progress: what keeps the pods from starting, or else what it waits for.
    fn waiting_to_finalize(self, why: Why, o: &Observed) -> Self {
        let stuck = obstacle(o).filter(|_| self.phase == Phase::Waking);
        let why = Why {
            reason: Reason::Deleting,
            ..why
        };
        self.waiting(stuck.unwrap_or(why))
    }

    /// Reconcile again when the deletion stops waiting for a ready pod.
    fn by_deletion_deadline(mut self, o: &Observed) -> Self {
        self.requeue_at = earliest(self.requeue_at, deletion_deadline(o));
        self
    }

    /// A resolver that does not listen yet, or that had requests when it was last asked, is asked again
    /// soon, because no event announces the change; sooner still at zero without a redirect, where nothing answers.
    fn keep_asking(&mut self, o: &Observed) {
        let busy = idle::traffic(o).is_some();
        let unrouted = |o: &Observed| o.ready_resolvers().any(|r| !has_route(r, o));
        let mut others = o.other_views().filter(|(_, view)| is_managed(view));
        let unrouted = unrouted(o) || others.any(|(_, view)| unrouted(&view));
        // A report that is too old proves nothing, and no event tells when to ask again.
        let stale = self.ask_resolvers && o.ready_resolvers().any(|r| !is_fresh(r, o));
        if !busy && !unrouted && !stale {
            return;
        }
        self.ask_resolvers = true;
        let unanswered = o.replicas() == Some(0) && o.slice.ours().is_none();
        let wait = if unanswered {
            ASK_INTERVAL_UNANSWERED
        } else {
            ASK_INTERVAL
        };
        self.requeue_at = earliest(self.requeue_at, o.now.checked_add(wait).ok());
    }

    /// Takes our marks off, but only from pods that are ready without them and that no controller is about to stop.
    fn unmark(&mut self, o: &Observed) {
        let pods = pod_refs(o, |p| p.marked && p.containers_ready && !p.terminating);
        let pods = with_cost(pods, o, DeletionCost::Lowest, CostChange::Remove);
        let cheap = |p: &Pod| p.deletion_cost == DeletionCost::Lowest && !p.marked;
        let cheap = pod_refs(o, |p| cheap(p) && !p.terminating);
        let cheap = with_cost(cheap, o, DeletionCost::Lowest, CostChange::Remove);
        match zero_may_be_acted_on_until(o) {
            _ if pods.is_empty() && cheap.is_empty() => {}
            Some(moment) if o.now < moment => {
                self.requeue_at = earliest(self.requeue_at, Some(moment));
            }
            _ => {
                let unmark = (!pods.is_empty()).then_some(Step::Unmark(pods));
                let reset = (!cheap.is_empty()).then_some(Step::ResetCost(cheap));
                self.steps.extend(unmark.into_iter().chain(reset));
            }
        }
    }

    /// The same for every other Service of the pods, by its own facts. Nothing is done about one that is not ours to
    /// change; of one that is no longer ours, what is left goes.
    fn each_other(&mut self, o: &Observed, act: impl Fn(&mut Self, &Observed)) {
        for (name, view) in o
            .other_views()
            .filter(|(_, view)| !view.has_foreign_object())
        {
            let mut part = Self::at(self.phase, Why::new(self.why.reason, ""));
            match view.standing {
                Standing::Left if o.me.deleting_since.is_none() => part.leave_service(&view),
                _ => act(&mut part, &view),
            }
            let other = |step| Step::Other(name.to_owned(), Box::new(step));
            self.steps.extend(part.steps.into_iter().map(other));
            self.requeue_at = earliest(self.requeue_at, part.requeue_at);
        }
    }

    /// Another Service while the target goes to sleep or is scaled to zero: to the resolvers, unless pods of other owners
    /// serve it.
    fn follow_down(&mut self, o: &Observed) {
        match (&o.service, o.standing) {
            (Some(service), Standing::Own) => self.keep_redirected(service, o),
            (service, _) => drop(self.restore(service.as_ref(), o)),
        }
    }

    /// A Service that no longer selects the target's pods: our slice goes at once, the private Service after it.
    fn leave_service(&mut self, o: &Observed) {
        if o.slice.ours().is_some() {
            let gone = Restored::pointless(o).map(Step::RemoveSlice);
            return self.steps.extend(gone);
        }
        if o.private_service.ours().is_some() {
            match SliceGone::observe(o) {
                Ok(gone) => self.steps.push(Step::DeletePrivateService(gone)),
                Err(why) => self.requeue_at = earliest(self.requeue_at, why.until),
            }
        }
    }

    /// Our slices of every Service go, each as soon as its own endpoints allow it; `None` if all are gone.
    fn remove_slices(&mut self, o: &Observed) -> Option<Result<(), Why>> {
        let mut waits: Option<Result<(), Why>> = None;
        let views = { o.other_views() }.map(|(name, view)| (Some(name), view));
        for (name, view) in views.chain([(None, o.clone())]) {
            if view.slice.ours().is_none() {
                continue;
            }
            let step = match Restored::pointless(&view).map_or_else(|| Restored::observe(&view), Ok)
            {
                Ok(restored) => Step::RemoveSlice(restored),
                Err(why) => {
                    waits = Some(Err(why));
                    continue;
                }
            };
            waits = waits.or(Some(Ok(())));
            self.steps.push(match name {
                Some(name) => Step::Other(name.to_owned(), Box::new(step)),
                None => step,
            });
        }
        waits
    }

    /// The resolvers out of the path of one Service as soon as that is safe, as a net where it may have one; until then
    /// they stay in it.
    fn restore(&mut self, service: Option<&Service>, o: &Observed) -> Result<(), Why> {
        let restored = match service.filter(|s| s.allows_net()) {
            Some(service) => self.ensure_net(service, o),
            None => self.remove_slice(o),
        };
        if let Err(wait) = &restored {
            self.requeue_at = earliest(self.requeue_at, wait.until);
            if let Some(service) = service.filter(|_| o.is_redirected()) {
                self.keep_redirected(service, o);
            }
        }
        restored
    }

    /// The resolvers out of the path, and ready to catch what reaches no pod. A net without a resolver would let clients
    /// hang that should be refused.
    fn ensure_net(&mut self, service: &Service, o: &Observed) -> Result<(), Why> {
        if desire::no_resolver_for_long(o).is_some() && !o.is_redirected() {
            return self.remove_slice(o);
        }
        let net = Net::observe(service, o)?;
        if o.slice.ours().map(Vec::as_slice) != Some(net.slices()) {
            self.steps.push(Step::EnsureNet(net));
        }
        Ok(())
    }

    /// The resolvers out of the path, with no net.
    fn remove_slice(&mut self, o: &Observed) -> Result<(), Why> {
        if o.slice.ours().is_some() {
            self.steps.push(Step::RemoveSlice(Restored::observe(o)?));
        }
        Ok(())
    }

    /// Keeps the slice pointing at the ready resolvers that listen. With none, the slice stays as it is:
    /// an empty one refuses every connection, an old one may still reach a living resolver.
    fn keep_redirected(&mut self, service: &Service, o: &Observed) {
        match Routed::observe(service, o) {
            Ok(routed) if o.slice.ours().map(Vec::as_slice) != Some(routed.slices()) => {
                self.steps.push(Step::Redirect(routed));
            }
            Ok(_) => {}
            Err(why) => {
                self.requeue_at = earliest(self.requeue_at, why.until);
                if self.phase == Phase::Asleep && o.slice.ours().is_none() {
                    self.why = why;
                }
            }
        }
    }
}

/// Replicas that were just written may have been zero a moment before: a controller that saw the zero still stops pods,
/// and a pod put back into rotation meanwhile would lose requests. After this moment controllers have caught up.
pub(crate) fn zero_may_be_acted_on_until(o: &Observed) -> Option<Timestamp> {
    let target = o.target.as_ref().filter(|target| target.replicas > 0);
    let written = target.and_then(|target| match target.replicas_at {
        Some(recorded) => recorded.checked_add(FIELD_MANAGER_TIME_PRECISION).ok(),
        None => o.stable_since.replicas_at,
    });
    // That may be another process's write; our own writes are known more precisely.
    let last = written.max(o.stable_since.zeroed_at)?;
    last.checked_add(o.settings.settle).ok()
}

/// The API server records the times of field managers in whole seconds.
const FIELD_MANAGER_TIME_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// How soon to ask a resolver again.
pub(crate) const ASK_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// How soon triggers are read again whose server had no turn for them: each attempt waits for up to 10 s.
const READ_AGAIN_PAUSE: SignedDuration = SignedDuration::from_secs(5);
/// What waits is said without a count or a time: it is the same sentence after each attempt, and written once.
const NOT_READ_AGAIN: &str = "Not every trigger could be read again right before the next step: the turn to ask its server did not come in time.";
/// How soon to ask again while nothing answers for the service.
const ASK_INTERVAL_UNANSWERED: SignedDuration = SignedDuration::from_secs(1);

/// Drain is the default; without permission to mark pods only the redirect is left.
pub(crate) fn drains(spec: &ElastiServiceSpec, o: &Observed) -> bool {
    o.may_mark && spec.handover.unwrap_or_default() == Handover::Drain
}

/// What keeps the pods of a wake from starting.
pub(crate) fn obstacle(o: &Observed) -> Option<Why> {
    let pods = o.pods.iter().filter(|p| !p.terminating);
    let stuck = pods.filter_map(|p| p.obstacle.as_ref().map(|obstacle| (p, obstacle)));
    // While one of them may still start, requests are held for it.
    let (pod, obstacle) = stuck.min_by_key(|(_, obstacle)| obstacle.failed)?;
    let others_start =
        { o.pods.iter() }.any(|p| !p.terminating && !p.marked && !p.ready && p.obstacle.is_none());
    if obstacle.failed && others_start {
        return None;
    }
    Some(Why::new(obstacle.reason(), obstacle.sentence(&pod.name)))
}

/// The resolver has reported that it listens on the recorded ports, and not at a time that is still
/// in the future because the clock was set back.
fn has_route(resolver: &crate::observed::Resolver, o: &Observed) -> bool {
    let wanted = elasti_api::RouteGeneration::from_ports(&o.me.remembered.ports);
    matches!(&resolver.report, Report::Seen { route: Some(route), at, .. } if *route == wanted && *at <= o.now)
}

/// The resolver's last report is recent enough to prove something.
fn is_fresh(resolver: &crate::observed::Resolver, o: &Observed) -> bool {
    matches!(&resolver.report, Report::Seen { at, .. } if o.since(*at) <= o.settings.report_fresh)
}

fn pod_refs(o: &Observed, which: impl Fn(&Pod) -> bool) -> Vec<PodRef> {
    let pods = o.pods.iter().filter(|p| which(p));
    pods.map(|p| PodRef {
        name: p.name.clone(),
        version: p.version.clone(),
        cost: CostChange::Keep,
    })
    .collect()
}

/// The same pods, with a change of the cost of those that have this one.
fn with_cost(
    mut pods: Vec<PodRef>,
    o: &Observed,
    cost: DeletionCost,
    change: CostChange,
) -> Vec<PodRef> {
    let has =
        |pod: &PodRef| { o.pods.iter() }.any(|p| p.name == pod.name && p.deletion_cost == cost);
    for pod in pods.iter_mut().filter(|pod| has(pod)) {
        pod.cost = change;
    }
    pods
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
