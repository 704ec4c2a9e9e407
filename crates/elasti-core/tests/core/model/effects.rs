//! An operator of the modelled cluster reconciles, and carries out the steps of the real plan one write at a time.

use elasti_core::laws::{NodeView, ScaledDown, TraceEvent};
use jiff::SignedDuration;

use crate::model::actions::target_changed;
use crate::model::config::{COOLDOWN, Config, LEASE, Mistake};
use crate::model::observe::reconcile;
use crate::model::world::{
    Effect, Evidence, Keda, Kubelet, Order, Pending, Pod, TriggerState, World,
};

pub fn reconciles(config: &Config, w: &mut World, op: usize, s: usize) -> bool {
    let leads = w.lease.holder == op && w.lease.age < LEASE;
    if w.ops[op].pending.is_some() || !leads && !config.is(Mistake::OldLeaderGoesOn) {
        return false;
    }
    let seen = reconcile(config, w, op, s);
    w.ops[op] = seen.op;
    if seen.fresh {
        let svc = &mut w.svcs[s];
        svc.changed[op] = (false, 0);
        svc.second
            .iter_mut()
            .for_each(|one| one.changed[op] = false);
        svc.wake_request_served |= svc.wake_request.is_some() && svc.replicas != Some(0);
    }
    if !seen.effects.is_empty() {
        let stale = w.ops[op].frozen.as_ref().filter(|_| !seen.fresh);
        // A write is conditional on the version that was read.
        let target_changed = stale.is_some_and(|f| f[s].target_outdated);
        w.ops[op].pending = Some(Pending {
            svc: s,
            effects: seen.effects,
            target_changed,
            stale_pods: stale.map(|f| f[s].pods.clone()),
            evidence: seen.evidence,
        });
    }
    true
}

/// The operator carries out its next effect.
pub fn applies(config: &Config, w: &mut World, op: usize) -> bool {
    let Some(mut pending) = w.ops[op].pending.take() else {
        return false;
    };
    let (effect, valid_for) = pending.effects.remove(0);
    let s = pending.svc;
    let too_late = valid_for == Some(0) && !config.is(Mistake::OldLeaderGoesOn);
    let scales_down = effect.scales_down() || pending.scales_down();
    if too_late || !w.svcs[s].exists {
        w.ops[op].memory[s].scale_down_refused();
        return true;
    }
    judge_write(config, w, s, &effect);
    let accepted = apply_effect(config, w, op, &pending, effect);
    if !accepted && scales_down {
        w.ops[op].memory[s].scale_down_refused();
    }
    if accepted && !pending.effects.is_empty() {
        w.ops[op].pending = Some(pending);
    }
    true
}

fn judge_write(config: &Config, w: &mut World, s: usize, effect: &Effect) {
    if matches!(
        effect,
        Effect::Status(_) | Effect::AddFinalizer | Effect::RemoveFinalizer
    ) {
        return;
    }
    let ours = matches!(effect, Effect::EnsurePrivate | Effect::EnsureSlice(_));
    let foreign = ours && w.svcs[s].foreign;
    w.judge(&TraceEvent::Wrote {
        foreign,
        in_charge: !(w.predecessor || config.rivals && s > 0),
    });
}

fn apply_effect(
    config: &Config,
    w: &mut World,
    op: usize,
    pending: &Pending,
    effect: Effect,
) -> bool {
    let s = pending.svc;
    match effect {
        Effect::AddFinalizer => w.svcs[s].finalizer = true,
        Effect::EnsurePrivate => w.svcs[s].private = true,
        Effect::DeletePrivate => w.svcs[s].private = false,
        Effect::EnsureSlice(mask) => w.svcs[s].set_slice(Some(mask)),
        Effect::RemoveSlice => {
            // A deletion that has timed out may leave a service without pods.
            w.svcs[s].excused |= pending.evidence.pointless;
            let svc = &mut w.svcs[s];
            svc.net_gone |= svc.leaves_nothing(svc.slice, &svc.pods_at);
            svc.set_slice(None);
        }
        Effect::Keda(keda) => w.svcs[s].keda = Some(keda),
        // A write to a pod is conditional on its version.
        Effect::Mark(_) | Effect::Unmark(_) if pods_changed(w, op, pending) => return false,
        Effect::Mark(pods) => pods.into_iter().for_each(|i| mark(w, s, i)),
        Effect::Unmark(pods) => pods.into_iter().for_each(|i| unmark(w, s, i)),
        Effect::Shrink(to) => return scale_down(config, w, op, pending, to, false),
        Effect::Zero { by_redirect } => return scale_down(config, w, op, pending, 0, by_redirect),
        Effect::RestoreReplicas(to) => return restore_replicas(w, pending, to),
        // A write to the target is conditional on its version.
        Effect::Wake(_) if pending.target_changed => return false,
        Effect::Wake(n) => {
            let scaled = scale_up(config, w, s, n, &pending.evidence);
            if scaled {
                w.ops[op].wakes[s] = Some(0);
                w.svcs[s].wake_request_served = w.svcs[s].wake_request.is_some();
            }
            return scaled;
        }
        Effect::RemoveFinalizer => finalize(w, pending),
        Effect::Status(status) => {
            w.judge(&TraceEvent::StatusWritten {
                proxy: status.proxy,
                redirected: pending.evidence.redirected,
                asleep: status.asleep,
                was_zero: pending.evidence.zero,
            });
            w.svcs[s].status = status;
        }
        Effect::Second(effect) => apply_to_second(w, pending, &effect),
    }
    true
}

fn apply_to_second(w: &mut World, pending: &Pending, effect: &Effect) {
    let svc = &mut w.svcs[pending.svc];
    let leaves_nothing =
        { svc.second.as_ref() }.is_some_and(|one| svc.leaves_nothing(one.slice, &one.pods_at));
    let Some(second) = &mut svc.second else {
        return;
    };
    match effect {
        Effect::EnsurePrivate => second.private = true,
        Effect::DeletePrivate => second.private = false,
        Effect::EnsureSlice(mask) => second.set_slice(Some(*mask)),
        Effect::RemoveSlice => {
            svc.excused |= pending.evidence.pointless;
            second.net_gone |= leaves_nothing;
            second.set_slice(None);
        }
        other => unreachable!("not about a Service: {other:?}"),
    }
}

/// A pod has changed since the plan was made.
fn pods_changed(w: &World, op: usize, pending: &Pending) -> bool {
    let svc = &w.svcs[pending.svc];
    pending
        .stale_pods
        .as_ref()
        .map_or(svc.changed[op].1 != 0, |pods| *pods != svc.pods)
}

fn mark(w: &mut World, s: usize, i: usize) {
    if let Pod::Up { healthy, .. } = w.svcs[s].pods[i] {
        w.svcs[s].pods[i] = Pod::Up {
            ready: false,
            healthy,
            marked: true,
        };
        if w.svcs[s].kubelets[i] == Kubelet::Idle {
            w.svcs[s].kubelets[i] = Kubelet::Sometime(0);
        }
        w.svcs[s].pod_changed(i);
    }
}

fn unmark(w: &mut World, s: usize, i: usize) {
    if let Pod::Up {
        healthy,
        marked: true,
        ..
    } = w.svcs[s].pods[i]
    {
        w.judge(&TraceEvent::Unmarked {
            ready_by_itself: healthy,
        });
        w.svcs[s].pods[i] = Pod::Up {
            ready: true,
            healthy,
            marked: false,
        };
        w.svcs[s].kubelets[i] = Kubelet::Idle;
        w.svcs[s].ready_for[i] = 0;
        w.svcs[s].pod_changed(i);
    }
}

/// Each node's view, with only those pods that a scale-down stops.
fn views_of(w: &World, s: usize, stopped: &[usize]) -> Vec<NodeView> {
    let mut views = w.node_views(s);
    for (view, pods) in views.iter_mut().zip(&w.svcs[s].pods_at) {
        let seen = stopped.iter().filter(|i| pods.seen & (1 << **i) != 0);
        view.pods = seen.map(|i| w.svcs[s].pods[*i].answers()).collect();
    }
    views
}

fn scale_down(
    config: &Config,
    w: &mut World,
    op: usize,
    pending: &Pending,
    to: u8,
    by_redirect: bool,
) -> bool {
    let s = pending.svc;
    let reckless = config.is(Mistake::OldLeaderGoesOn);
    // Promises and writes share a lock: one that was planned before the promise is not sent after it.
    if w.ops[op].promised[s] > 0 && !config.is(Mistake::ZeroUnderPromise) {
        return false;
    }
    let refused = pending.target_changed;
    if w.svcs[s].replicas.is_none_or(|n| n <= to) || refused && !reckless {
        return false;
    }
    // All at once, also where the controller will stop them one after the other.
    let stopped = w.svcs[s].stops(Order::UnreadyFirst, usize::from(to));
    let facts = ScaledDown {
        nodes: views_of(w, s, &stopped),
        pods_in_slices: { stopped.iter() }.any(|i| w.svcs[s].own.seen & (1 << *i) != 0),
        busy_when_decided: pending.evidence.busy,
        resolver_silent_when_decided: pending.evidence.silent,
        quiet_when_decided: pending.evidence.reading == TriggerState::Quiet
            || pending.evidence.reading == TriggerState::Unknown
                && config.restarted_source
                && pending.evidence.sleep_requested_since_wake,
        since_wake: pending
            .evidence
            .since_wake
            .map(|a| SignedDuration::from_secs(i64::from(a))),
        since_ready: pending
            .evidence
            .since_ready
            .map(|a| SignedDuration::from_secs(i64::from(a))),
        since_raised: pending
            .evidence
            .since_raised
            .map(|a| SignedDuration::from_secs(i64::from(a))),
        sleep_requested_since_wake: pending.evidence.sleep_requested_since_wake,
        cooldown: SignedDuration::from_secs(i64::from(COOLDOWN)),
        writer_leads: w.lease.holder == op && w.lease.age < LEASE,
        by_redirect,
        promised: (0..w.svcs[s].pods.len()).any(|i| w.is_promised(s, i)),
    };
    w.judge(&TraceEvent::ScaledDown(facts));
    let svc = &mut w.svcs[s];
    svc.lent = svc.lent.or(svc.replicas).filter(|_| to > 0);
    svc.replicas = Some(to);
    svc.by_us = true;
    svc.recorded &= to > 0;
    svc.written = 0;
    svc.owed = (!by_redirect).then_some((to, 0));
    if by_redirect {
        // The user chose the handover that can lose a connection.
        w.svcs[s].excused = true;
    }
    target_changed(w, s);
    true
}

/// The write is conditional on the target's version.
fn restore_replicas(w: &mut World, pending: &Pending, to: u8) -> bool {
    let s = pending.svc;
    let Some(from) = w.svcs[s].replicas.filter(|_| !pending.target_changed) else {
        return false;
    };
    w.judge(&TraceEvent::ReplicasRestored {
        from: u32::from(from),
        to: u32::from(to),
        had: w.svcs[s].lent.map(u32::from),
    });
    let svc = &mut w.svcs[s];
    (svc.replicas, svc.by_us, svc.written, svc.lent) = (Some(to), true, 0, None);
    target_changed(w, s);
    true
}

pub fn scale_up(config: &Config, w: &mut World, s: usize, n: u8, evidence: &Evidence) -> bool {
    let Some(from) = w.svcs[s].replicas else {
        return false;
    };
    // The write is conditional: from zero only.
    if from != 0 && !config.is(Mistake::WakeLowers) {
        return false;
    }
    w.judge(&TraceEvent::Woke {
        from: u32::from(from),
        to: u32::from(n),
        justified: evidence.wake_justified,
        against_younger_zero: evidence.against_younger_zero,
    });
    let svc = &mut w.svcs[s];
    (svc.replicas, svc.by_us, svc.written, svc.woken) = (Some(n), true, 0, Some(0));
    svc.served = None;
    target_changed(w, s);
    true
}

fn finalize(w: &mut World, pending: &Pending) {
    let s = pending.svc;
    let svc = &w.svcs[s];
    let event = TraceEvent::FinalizerRemoved {
        leftovers: svc.slice.is_some() || svc.private || { svc.second.iter() }
            .any(|one| one.slice.is_some() || one.private),
        awake_or_pointless: svc.replicas != Some(0) && svc.lent.is_none()
            || pending.evidence.pointless
            || !svc.by_us,
        keda_paused_by_us: svc.keda.is_some_and(Keda::is_paused),
    };
    w.judge(&event);
    w.svcs[s].finalizer = false;
    w.svcs[s].exists = false;
    for r in 0..w.res.len() {
        w.res[r].routes[s].listens = false;
        w.res[r].routes[s].listens_second = false;
    }
}
