//! Draining by groups: which pods leave rotation next, so that no drain needs a moment that suits every node.
//! The target shrinks to its floor first; what is left is drained whole and scaled to zero.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use elasti_api::Reason;
use jiff::{SignedDuration, Timestamp};

use crate::contention;
use crate::observed::{Autoscaler, Observed, Pod, StopOrder};
use crate::stable_since::gap_needed;
use crate::why::{Why, clock};

/// What a drain by groups does next.
pub(crate) enum Next<'o> {
    /// Take these pods out of rotation; the others stay.
    Mark(Vec<&'o Pod>),
    /// Pods are out of rotation: scale down by as many as are proven to be.
    Shrink,
}

/// The target shrinks by groups now: its controller stops pods in a known order, and there are more than stay to the end.
/// Once a drain has begun this holds until its controller has stopped all pods that it should.
#[must_use]
pub fn apply(o: &Observed) -> bool {
    let Some(target) = &o.target else {
        return false;
    };
    let all = living(o).count();
    let wanted = usize::try_from(target.replicas).unwrap_or(usize::MAX);
    let still_stopping = begun(o) && all > wanted;
    match target.stops {
        StopOrder::Unknown => false,
        _ if target.replicas == 0 => false,
        // It must never be drained whole.
        StopOrder::HighestAlone if target.replicas > 1 => true,
        // Where the Service selects other pods, too, or not all of them, their number says nothing.
        _ => still_stopping || all == wanted && target.replicas > floor(o),
    }
}

/// How many pods stay until the scale to zero. Below its minimum an HPA scales up again; at zero it does nothing.
pub(crate) fn floor(o: &Observed) -> u32 {
    match o.autoscaler {
        _ if stops(o) == StopOrder::HighestAlone => 1,
        Autoscaler::Hpa { min_replicas } => min_replicas.max(1),
        Autoscaler::None | Autoscaler::Missing | Autoscaler::Keda(_) => 1,
    }
}

/// An ordered StatefulSet stops no pod until every lower one has been ready for its `minReadySeconds`; by then a kubelet's
/// tick may have undone the mark. It also starts none until then.
pub(crate) fn not_available_yet(o: &Observed) -> Option<Why> {
    let target = o.target.as_ref()?;
    let seconds = target.min_ready_seconds;
    if target.stops != StopOrder::HighestAlone || seconds == 0 {
        return None;
    }
    let complete = living(o).count() >= usize::try_from(target.replicas).unwrap_or(usize::MAX);
    let lower = by_ordinal(o).into_iter().skip(usize::from(complete));
    let late = lower.filter(|pod| pod.ready).find_map(|pod| {
        let available = available_at(pod, seconds);
        available
            .is_none_or(|at| o.now < at)
            .then_some((pod, available))
    });
    let (pod, until) = late?;
    let sentence = format!(
        "The StatefulSet neither starts nor stops a higher pod until {} has been ready for {seconds} s (`minReadySeconds`).",
        pod.name
    );
    let why = Why::new(Reason::Starting, sentence);
    Some(Why { until, ..why })
}

/// When a pod counts as available to every clock; `None` if it never does, because nothing tells since when it is ready.
fn available_at(pod: &Pod, min_ready_seconds: u32) -> Option<Timestamp> {
    let needed = SignedDuration::from_secs(i64::from(min_ready_seconds));
    let at = pod.ready_since?.checked_add(needed + READY_TIME_PRECISION);
    Some(at.unwrap_or(Timestamp::MAX))
}

/// The API server keeps the time of condition `Ready` in whole seconds.
const READY_TIME_PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// An ordered StatefulSet stops one pod at a time, so several of them cannot be scaled to zero by one write that is safe;
/// and it stops none while a lower one is not ready.
pub(crate) fn impossible(o: &Observed) -> Option<Why> {
    if stops(o) != StopOrder::HighestAlone {
        return None;
    }
    if matches!(o.autoscaler, Autoscaler::Hpa { min_replicas } if min_replicas > 1) {
        let sentence = "The HPA keeps more than one pod of a StatefulSet that stops them one after the other; set its `minReplicas` to 1, `podManagementPolicy` to Parallel, or `handover: redirect`.";
        return Some(Why::new(Reason::Unsupported, sentence));
    }
    if let Some(why) = unseen(o) {
        return Some(why);
    }
    let lower = by_ordinal(o).into_iter().skip(1);
    let stuck = |pod: &Pod| {
        Some((
            pod.name.clone(),
            pod.obstacle.clone().filter(|_| !pod.ready)?,
        ))
    };
    let (pod, obstacle) = lower.filter_map(stuck).next()?;
    let sentence = format!(
        "Pod {pod} is not ready: {}. Meanwhile the StatefulSet stops no higher pod; repair it, set `podManagementPolicy` to Parallel, or `handover: redirect`.",
        obstacle.message
    );
    Some(Why::new(obstacle.reason(), sentence))
}

/// The controller stops the highest pod, which no Service may select: only what is selected can be drained.
fn unseen(o: &Observed) -> Option<Why> {
    let wanted = usize::try_from(o.replicas()?).unwrap_or(usize::MAX);
    let seen = living(o).count();
    (seen < wanted).then(|| {
        let sentence = format!(
            "{seen} of the {wanted} pods of the StatefulSet are there and selected by a Service with a cluster IP, and it stops them one after the other; add a Service that selects all of them, set `podManagementPolicy` to Parallel, or `handover: redirect`."
        );
        Why::new(Reason::Unsupported, sentence)
    })
}

/// A scale-down of ours is recorded in the status, and nothing else has written the replicas since.
fn begun(o: &Observed) -> bool {
    o.me.remembered.replicas_before_drain.is_some() && contention::written_by(o).is_none()
}

/// The replicas to go back to when a drain by groups is cancelled; `None` if nothing is to be undone, or if something
/// else has written the replicas since.
#[must_use]
pub fn to_restore(o: &Observed) -> Option<u32> {
    let before = o.me.remembered.replicas_before_drain?;
    let lowered = o.replicas().is_some_and(|now| 0 < now && now < before);
    (lowered && begun(o)).then_some(before)
}

/// What the status must remember of the replicas: those before the first scale-down, until they are restored, the target
/// is at zero, or something else has written them.
#[must_use]
pub(crate) fn to_remember(draining: bool, o: &Observed) -> Option<u32> {
    let before = o.me.remembered.replicas_before_drain;
    let target = o.target.as_ref()?;
    if to_restore(o).is_some() {
        return before;
    }
    let begins = draining && apply(o) && target.stops != StopOrder::Unsettled;
    begins.then_some(target.replicas)
}

/// Something else scales up whenever a drain has begun: the next one waits, longer each time.
pub(crate) fn pushed_back(o: &Observed) -> Option<Why> {
    let back = o.stable_since.pushed_back?;
    let writer = contention::written_by(o)?;
    let until = back
        .at
        .checked_add(pause(back.times, o.settings.contention_pause));
    let until = until.unwrap_or(Timestamp::MAX);
    (o.now < until).then(|| {
        let sentence = format!(
            "{writer} scaled up while the service was being put to sleep; the next attempt waits until {}.",
            clock(until)
        );
        Why::new(Reason::Contended, sentence).until(until)
    })
}

/// Doubles each time, up to 64 times the first.
fn pause(times: u32, first: SignedDuration) -> SignedDuration {
    first.saturating_mul(1 << times.saturating_sub(1).min(6))
}

/// The next group, or what it waits for.
pub(crate) fn next(o: &Observed) -> Result<Next<'_>, Why> {
    controller_caught_up(o)?;
    // A pod that cannot start may stand below those that the controller stops first.
    if living(o).any(|pod| !pod.ready) && !victims(o)?.is_empty() {
        return Ok(Next::Shrink);
    }
    let mut candidates = candidates(o);
    candidates.retain(|pod| pod.ready);
    let due = |pod: &Pod| o.stable_since.next_tick(&pod.node, &o.settings, o.now);
    let unknown: Vec<&Pod> = { candidates.iter().copied() }
        .filter(|pod| due(pod).is_none())
        .collect();
    if !unknown.is_empty() {
        // Only a mark that is undone shows when a kubelet ticks.
        return Ok(Next::Mark(unknown));
    }
    let has_room = |pod: &&Pod| {
        due(pod).is_some_and(|tick| tick.duration_since(o.now) >= gap_needed(&o.settings))
    };
    let group: Vec<&Pod> = match stops(o) {
        StopOrder::HighestAlone | StopOrder::HighestFirst => { candidates.iter().copied() }
            .take_while(has_room)
            .collect(),
        _ => { candidates.iter().copied() }.filter(has_room).collect(),
    };
    if group.is_empty() {
        let sentence =
            "Waiting until the kubelets' status ticks leave room to take the next pods out.";
        let next = candidates.iter().filter_map(|pod| due(pod)).min();
        let wait = Why::new(Reason::Draining, sentence);
        return Err(wait.until(next.unwrap_or(o.now).max(o.now + TICK_POLL_INTERVAL)));
    }
    Ok(Next::Mark(group))
}

/// How often to look again for a tick that is due.
const TICK_POLL_INTERVAL: SignedDuration = SignedDuration::from_millis(200);

/// The target's controller has seen the last change, and has stopped the pods of the last group: until then it might stop
/// pods of the next one instead.
pub(crate) fn controller_caught_up(o: &Observed) -> Result<(), Why> {
    let wanted = o.replicas().and_then(|n| usize::try_from(n).ok());
    if stops(o) == StopOrder::Unsettled || Some(living(o).count()) != wanted {
        return Err(Why::new(Reason::Draining, NOT_FOLLOWED));
    }
    others_stopped(o)
}

/// The last pod of an ordered StatefulSet goes alone: if several were out of rotation, its controller would stop none.
pub(crate) fn last_is_alone(o: &Observed) -> Result<(), Why> {
    if stops(o) == StopOrder::HighestAlone && living(o).count() > 1 {
        return Err(Why::new(Reason::Draining, NOT_FOLLOWED));
    }
    Ok(())
}

const NOT_FOLLOWED: &str = "The target's controller has not followed its last change yet.";

/// An ordered StatefulSet stops no pod while another one terminates.
pub(crate) fn others_stopped(o: &Observed) -> Result<(), Why> {
    let going = o.pods.iter().find(|pod| pod.terminating);
    match going.filter(|_| stops(o) == StopOrder::HighestAlone) {
        Some(pod) => {
            let sentence = format!(
                "Pod {} is stopping; the StatefulSet stops no other one meanwhile.",
                pod.name
            );
            Err(Why::new(Reason::Draining, sentence))
        }
        None => Ok(()),
    }
}

/// The pods that the next scale-down stops, if they are all out of rotation: the controller chooses among no others.
pub(crate) fn victims(o: &Observed) -> Result<Vec<&Pod>, Why> {
    let above_floor = o.replicas().unwrap_or(0).saturating_sub(floor(o));
    let above_floor = usize::try_from(above_floor).unwrap_or(usize::MAX);
    let unready: Vec<&Pod> = living(o).filter(|pod| !pod.ready).collect();
    let from_top = || by_ordinal(o).into_iter().take_while(|pod| !pod.ready);
    match stops(o) {
        StopOrder::UnreadyFirst => Ok(unready),
        StopOrder::HighestFirst => Ok(from_top().take(above_floor).collect()),
        StopOrder::HighestAlone => match (unready.as_slice(), from_top().next()) {
            ([one], Some(top)) if one.name == top.name => {
                not_available_yet(o).map_or(Ok(vec![top]), Err)
            }
            _ => {
                let sentence = "A lower pod of the StatefulSet is not ready, so it would not stop a higher one.";
                Err(Why::new(Reason::Draining, sentence))
            }
        },
        StopOrder::Unknown | StopOrder::Unsettled => Ok(Vec::new()),
    }
}

/// The pods that need not stay to the end.
fn candidates(o: &Observed) -> Vec<&Pod> {
    let floor = usize::try_from(floor(o)).unwrap_or(usize::MAX);
    let all = living(o).count();
    match stops(o) {
        StopOrder::HighestAlone => by_ordinal(o).into_iter().take(1).collect(),
        StopOrder::HighestFirst => {
            let above_floor = all.saturating_sub(floor);
            by_ordinal(o).into_iter().take(above_floor).collect()
        }
        _ => by_node(o).into_iter().skip(floor).collect(),
    }
}

/// The highest ordinal first.
fn by_ordinal(o: &Observed) -> Vec<&Pod> {
    let ordinal = |pod: &Pod| {
        let (_, number) = pod.name.rsplit_once('-')?;
        number.parse::<u64>().ok()
    };
    let mut pods: Vec<&Pod> = living(o).collect();
    pods.sort_by_key(|pod| Reverse(ordinal(pod)));
    pods
}

/// The pods that stay to the end first: on as few nodes as possible, and on those with most pods, whose ticks are learned
/// from the others.
fn by_node(o: &Observed) -> Vec<&Pod> {
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in living(o) {
        *on_node.entry(&pod.node).or_default() += 1;
    }
    let mut pods: Vec<&Pod> = living(o).collect();
    pods.sort_by_key(|pod| {
        let neighbours = on_node.get(pod.node.as_str()).copied();
        (Reverse(neighbours), pod.node.as_str(), pod.name.as_str())
    });
    pods
}

fn stops(o: &Observed) -> StopOrder {
    o.target.as_ref().map(|t| t.stops).unwrap_or_default()
}

fn living(o: &Observed) -> impl Iterator<Item = &Pod> {
    o.pods.iter().filter(|pod| !pod.terminating)
}
