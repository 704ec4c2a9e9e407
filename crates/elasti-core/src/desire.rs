//! Should this service sleep, be awake, or stay as it is?
//! The phase plays no part: the same facts give the same desire at every point of a service's life.

use elasti_api::{ElastiServiceSpec, Reason};
use jiff::Timestamp;

use crate::coverage;
use crate::groups;
use crate::idle;
use crate::observed::{Autoscaler, Observed, PortsGiven, Report};
use crate::plan::{ASK_INTERVAL, drains};
use crate::schedule::{ActiveWindows, WindowState};
use crate::services;
use crate::step;
use crate::user_requests::{self, Requester};
use crate::why::{Why, clock};

/// What the facts call for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desire {
    /// Zero replicas.
    Sleep(Why),
    /// Do not put it to sleep, but do not wake it either.
    Stay(Why),
    /// Keep it awake, or wake it.
    Awake(Why),
}

/// One reason not to sleep, if the facts give it.
type Rule = fn(&ElastiServiceSpec, &Observed) -> Option<Why>;

/// What wakes a sleeping service; the first that holds is reported.
const WAKES: [Rule; 6] = [
    |_, o| held_now(o),
    wake_requested,
    |_, o| idle::active_trigger(o),
    outside_window,
    |_, o| no_resolver_for_long(o),
    |_, o| gap_for_long(o),
];

/// What prevents sleep but wakes nothing; the first that holds is reported.
const KEEPS_AWAKE: [Rule; 8] = [
    misconfigured,
    |_, o| some_would_not_be_answered(o),
    |spec, o| idle::idle(spec, o).err(),
    |_, o| resolvers_respond(o).err(),
    |spec, o| pods_are_stable(spec, o).err(),
    |spec, o| groups::not_available_yet(o).filter(|_| drains(spec, o)),
    |spec, o| groups::impossible(o).filter(|_| drains(spec, o)),
    |spec, o| groups::pushed_back(o).filter(|_| drains(spec, o)),
];

/// What the facts call for.
#[must_use]
pub fn desire(spec: &ElastiServiceSpec, o: &Observed) -> Desire {
    if let Some(why) = must_be_awake(spec, o) {
        return Desire::Awake(why);
    }
    if let Some(why) = first(&KEEPS_AWAKE, spec, o) {
        return Desire::Stay(why);
    }
    match idle::idle(spec, o) {
        Ok(why) => Desire::Sleep(why),
        Err(why) => Desire::Stay(why),
    }
}

/// A reason that wakes a sleeping service.
pub(crate) fn must_be_awake(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    first(&WAKES, spec, o)
}

fn first(rules: &[Rule], spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    rules.iter().find_map(|rule| rule(spec, o))
}

/// Everything that keeps the service from sleeping, not only the first: empty exactly if it may sleep.
#[must_use]
pub fn blockers(spec: &ElastiServiceSpec, o: &Observed) -> Vec<Why> {
    let mut found: Vec<Why> = Vec::new();
    for rule in WAKES.iter().chain(&KEEPS_AWAKE) {
        // Two rules may give the same reason.
        if let Some(why) = rule(spec, o)
            && !found.iter().any(|one| one.reason == why.reason)
        {
            found.push(why);
        }
    }
    found
}

/// What only a change to the spec or the cluster resolves.
fn misconfigured(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    if spec.paused == Some(true) {
        return Some(Why::new(
            Reason::Paused,
            "The ElastiService is paused: `spec.paused` is true.",
        ));
    }
    if let Err(invalid) = ActiveWindows::of_spec(spec) {
        return Some(Why::new(
            Reason::InvalidWindow,
            format!("{invalid}; the service does not sleep until this is fixed."),
        ));
    }
    if o.autoscaler == Autoscaler::Missing {
        let sentence = "The autoscaler named in the ElastiService does not exist.";
        return Some(Why::new(Reason::AutoscalerNotFound, sentence));
    }
    if o.ports == PortsGiven::Exhausted {
        return Some(Why::new(Reason::PortsExhausted, step::PORTS_EXHAUSTED));
    }
    services::blocked(spec, o)
}

/// Requests wait at a resolver right now.
fn held_now(o: &Observed) -> Option<Why> {
    o.resolvers
        .iter()
        .find_map(|resolver| match &resolver.report {
            Report::Seen { at, held, .. }
                if *held > 0 && o.since(*at) <= o.settings.report_fresh =>
            {
                let sentence = format!("Resolver {} is holding requests.", resolver.name);
                Some(Why::new(Reason::Traffic, sentence))
            }
            Report::Seen { .. } | Report::NotAsked | Report::Unreachable => None,
        })
}

/// A wake was requested after the service was last put to sleep and within the cooldown, and no sleep since.
fn wake_requested(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    let (at, requester) = user_requests::unanswered_wake(o)?;
    let answered = o.me.remembered.last_sleep.is_some_and(|slept| slept > at);
    let cancelled = user_requests::sleep_requested_after(o, at).is_some();
    if answered || cancelled || o.since(at) >= idle::cooldown(spec) {
        return None;
    }
    let why = match requester {
        Requester::User => Why::new(
            Reason::WakeRequested,
            format!("A wake was requested at {}.", clock(at)),
        ),
        Requester::Resolver => Why::new(
            Reason::WokenByRequest,
            format!("A request that arrived at {} woke the service.", clock(at)),
        ),
    };
    Some(
        why.until(
            at.checked_add(idle::cooldown(spec))
                .unwrap_or(Timestamp::MAX),
        ),
    )
}

fn outside_window(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    let windows = ActiveWindows::of_spec(spec).ok()??;
    if windows.is_open(o.now) {
        return None;
    }
    match windows.state_at(o.now) {
        WindowState::Inside { .. } => None,
        WindowState::Outside { until } => {
            let sentence = format!(
                "Sleep is allowed only inside the active window, which opens at {}.",
                windows.describe(until)
            );
            Some(Why::new(Reason::OutsideWindow, sentence).until(until))
        }
    }
}

/// When the window around `now` closes, so that a sleeping service is woken on time.
#[must_use]
pub fn window_closes(spec: &ElastiServiceSpec, now: Timestamp) -> Option<Timestamp> {
    match ActiveWindows::of_spec(spec).ok()??.state_at(now) {
        WindowState::Inside { until } => Some(until),
        WindowState::Outside { .. } => None,
    }
}

pub(crate) fn no_resolver_for_long(o: &Observed) -> Option<Why> {
    let since = o.stable_since.no_resolver_since?;
    (o.since(since) >= o.settings.resolver_grace).then(|| {
        let sentence = format!(
            "No resolver has been ready since {}, so the service must stay awake.",
            clock(since)
        );
        Why::new(Reason::NoResolver, sentence)
    })
}

/// Not every client would reach a resolver; a sleeping service is woken for that after the grace time.
fn some_would_not_be_answered(o: &Observed) -> Option<Why> {
    let gap = coverage::gap(o)?;
    let since = o.stable_since.gap_since.unwrap_or(o.now);
    match since.checked_add(o.settings.resolver_grace) {
        Ok(wakes_at) if o.replicas() == Some(0) && wakes_at > o.now => Some(gap.until(wakes_at)),
        _ => Some(gap),
    }
}

/// A sleeping service that some clients cannot wake is woken, but not for a resolver that is just being replaced.
fn gap_for_long(o: &Observed) -> Option<Why> {
    let since = o.stable_since.gap_since?;
    coverage::gap(o).filter(|_| o.since(since) >= o.settings.resolver_grace)
}

/// When the grace time for resolvers ends, after which a sleeping service is woken. No event tells of it, and what else
/// is told first may have no end.
pub(crate) fn grace_ends(o: &Observed) -> Option<Timestamp> {
    if o.replicas() != Some(0) {
        return None;
    }
    let since = &o.stable_since;
    let began = [since.no_resolver_since, since.gap_since]
        .into_iter()
        .flatten();
    let ends = began.filter_map(|at| at.checked_add(o.settings.resolver_grace).ok());
    ends.filter(|moment| *moment > o.now).min()
}

fn resolvers_respond(o: &Observed) -> Result<(), Why> {
    if let Some(since) = o.stable_since.no_resolver_since {
        let grace_ends = since
            .checked_add(o.settings.resolver_grace)
            .unwrap_or(Timestamp::MAX);
        return Err(Why::new(Reason::NoResolver, "No resolver is ready.").until(grace_ends));
    }
    match o
        .ready_resolvers()
        .find(|r| r.report == Report::Unreachable)
    {
        Some(silent) => {
            let sentence = format!("Resolver {} does not answer the operator.", silent.name);
            Err(Why::new(Reason::ResolverUnreachable, sentence).until(o.now + ASK_INTERVAL))
        }
        None => Ok(()),
    }
}

/// No pod is starting, and the kubelets' ticks leave room for a drain.
fn pods_are_stable(spec: &ElastiServiceSpec, o: &Observed) -> Result<(), Why> {
    let starting = o
        .pods
        .iter()
        .find(|p| !p.terminating && !p.ready && !p.marked && p.obstacle.is_none());
    if let Some(pod) = starting {
        return Err(Why::new(
            Reason::Starting,
            format!("Pod {} is starting.", pod.name),
        ));
    }
    if o.stable_since.too_dense_on.is_some() && drains(spec, o) && !groups::apply(o) {
        return Err(step::too_dense());
    }
    Ok(())
}
