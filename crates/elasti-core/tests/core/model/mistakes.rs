//! Planners that are wrong on purpose, to see whether the laws catch them.

use elasti_api::Phase;
use elasti_core::Plan;
use elasti_core::observed::{OtherService, Settings};
use elasti_core::stable_since::StableSince;
use jiff::SignedDuration;

use crate::model::config::{Config, Mistake};
use crate::model::world::{ALL_PODS, Age, Effect, NET, Pod, Svc, TriggerState};

/// The settings, or those of an operator that ignores kubelet ticks.
pub fn settings(config: &Config) -> Settings {
    let right = config.settings();
    if config.is(Mistake::TickInsideSettle) {
        let never = SignedDuration::from_hours(1);
        return Settings {
            tick_timeout: SignedDuration::ZERO,
            tick_period: never,
            ..right
        };
    }
    right
}

/// What has been observed over time, or what an operator remembers that forgets what others wrote.
pub fn memory(config: &Config, mut right: StableSince) -> StableSince {
    match config.mistake {
        Mistake::FightsAZero => right.served_wake = None,
        Mistake::IgnoresRaises => right.raised_at = None,
        Mistake::ForgetsWakes => right.left_zero_at = None,
        Mistake::UndoesOthersScaleDowns => right.by_other = false,
        Mistake::RestoresAtFirstPod => {
            let first = right.in_rotation_since.values().min().copied();
            let others = first.map(|since| ("others".to_owned(), since));
            right.in_rotation_since.extend(others);
        }
        _ => {}
    }
    right
}

/// Our slice, or what an operator reads that takes a net for a redirect on the way down.
pub fn slice(config: &Config, read: &Svc, mask: u8) -> u8 {
    let down = [Phase::Redirecting, Phase::Draining, Phase::Asleep];
    let goes_down = read.status.phase.is_some_and(|phase| down.contains(&phase));
    if config.is(Mistake::NetInsteadOfRedirect) && goes_down {
        return mask & !NET;
    }
    mask
}

/// The other Services of the pods, or what an operator knows of them that cares for one Service only.
pub fn others(config: &Config, second: Option<OtherService>) -> Vec<OtherService> {
    let known = second.filter(|_| !config.is(Mistake::SecondServiceInTheDark));
    let mut others: Vec<OtherService> = known.into_iter().collect();
    if config.is(Mistake::DrainsTheFirstServiceOnly) {
        for other in &mut others {
            other.endpoints.clear();
            "old".clone_into(&mut other.endpoints_version);
        }
    }
    others
}

/// Changes the effects of the real plan.
pub fn alter(config: &Config, read: &Svc, plan: &Plan, effects: &mut Vec<(Effect, Option<Age>)>) {
    let ready: Vec<usize> = which(read, Pod::ready);
    let zero = Effect::Zero { by_redirect: false };
    match config.mistake {
        Mistake::RestoresOnPodReadiness if plan.phase == Phase::Restoring && !ready.is_empty() => {
            net_now(read, effects);
        }
        Mistake::RestoresAtFirstSight
            if plan.phase == Phase::Restoring && read.own.seen & ALL_PODS != 0 =>
        {
            net_now(read, effects);
        }
        Mistake::AdoptsNothing if read.slice == Some(0) => {
            effects.retain(|(e, _)| !matches!(e, Effect::EnsureSlice(_)));
        }
        Mistake::KeepsNoNet => {
            effects.retain(|(e, _)| !matches!(e, Effect::EnsureSlice(mask) if mask & NET != 0));
        }
        Mistake::NetInsteadOfRedirect => redirect_as_net(effects),
        Mistake::UnmarksSickPods if matches!(plan.phase, Phase::Restoring | Phase::Waking) => {
            let sick = which(read, |p| p.marked() && !p.answers());
            if !sick.is_empty() {
                effects.push((Effect::Unmark(sick), None));
            }
        }
        Mistake::UnmarksPodsAboutToStop
            if matches!(plan.phase, Phase::Restoring | Phase::Waking) =>
        {
            let well = which(read, |p| p.marked() && p.answers());
            if !well.is_empty() {
                effects.push((Effect::Unmark(well), None));
            }
        }
        Mistake::ScalesBeforeRedirect if plan.phase == Phase::Redirecting => {
            *effects = vec![(zero, None)]
        }
        Mistake::MarksBeforeNodesFollow
            if plan.phase == Phase::Redirecting && read.slice.is_some() && !ready.is_empty() =>
        {
            effects.push((Effect::Mark(ready), None));
        }
        Mistake::WakeLowers if plan.phase == Phase::Serving && read.replicas == Some(2) => {
            effects.push((Effect::Wake(1), None));
        }
        Mistake::RemovesFinalizerAtOnce if read.deleting.is_some() && read.finalizer => {
            *effects = vec![(Effect::RemoveFinalizer, None)];
        }
        Mistake::DeletionNeedsTarget if read.deleting.is_some() && read.replicas.is_none() => {
            effects.clear();
        }
        Mistake::Flaps
            if plan.phase == Phase::Serving
                && read.reading == TriggerState::Active
                && read.private =>
        {
            effects.push((Effect::EnsureSlice(3), None));
        }
        Mistake::CountsUndoneMarks if read.status.before.is_some() => {
            let marks = |(effect, _): &(Effect, Option<Age>)| match effect {
                Effect::Mark(pods) => u8::try_from(pods.len()).ok(),
                _ => None,
            };
            if let (Some(count), Some(replicas)) = (effects.iter().find_map(marks), read.replicas) {
                *effects = vec![(Effect::Shrink(replicas.saturating_sub(count)), None)];
            }
        }
        _ => {}
    }
}

fn net_now(read: &Svc, effects: &mut Vec<(Effect, Option<Age>)>) {
    effects.retain(|(e, _)| !matches!(e, Effect::EnsureSlice(_)));
    let net = read.slice.map(|mask| Effect::EnsureSlice(NET | mask));
    effects.extend(net.map(|net| (net, None)));
}

fn redirect_as_net(effects: &mut [(Effect, Option<Age>)]) {
    for (effect, _) in effects {
        if let Effect::EnsureSlice(mask) = effect {
            *mask |= NET;
        }
    }
}

fn which(read: &Svc, pod: impl Fn(Pod) -> bool) -> Vec<usize> {
    (0..read.pods.len())
        .filter(|i| pod(read.pods[*i]))
        .collect()
}
