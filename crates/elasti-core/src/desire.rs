//! Should this service sleep, be awake, or stay as it is?
//! It never looks at phases or steps: the same facts give the same wish, wherever the service is in its life.

use elasti_api::{ElastiServiceSpec, Reason};
use jiff::Timestamp;

use crate::idle;
use crate::observed::{Autoscaler, Observed, PortsGiven, Report};
use crate::plan::{ASK_AGAIN, drains};
use crate::schedule::{ActiveWindow, Standing};
use crate::step;
use crate::user_requests;
use crate::why::{Why, clock};

/// What the facts ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Desire {
    /// Zero replicas.
    Sleep(Why),
    /// No sleep; but what sleeps is not woken for this.
    Stay(Why),
    /// Awake, even if that means to wake it.
    Awake(Why),
}

/// One reason not to sleep, if the facts give it.
type Rule = fn(&ElastiServiceSpec, &Observed) -> Option<Why>;

/// What wakes a sleeping service; the first that holds is told.
const WAKES: [Rule; 5] = [
    |_, o| held_now(o),
    wake_requested,
    |_, o| idle::active_trigger(o),
    outside_window,
    |_, o| no_resolver_for_long(o),
];

/// What forbids sleep but wakes nothing; the first that holds is told.
const KEEPS_AWAKE: [Rule; 4] = [
    ruled_out,
    |spec, o| idle::idle(spec, o).err(),
    |_, o| resolvers_answer(o).err(),
    |spec, o| pods_are_settled(spec, o).err(),
];

/// What the facts ask for.
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

/// Everything that keeps the service from sleeping, not only the first of it: empty exactly if it may sleep.
#[must_use]
pub fn against_sleep(spec: &ElastiServiceSpec, o: &Observed) -> Vec<Why> {
    let mut found: Vec<Why> = Vec::new();
    for rule in WAKES.iter().chain(&KEEPS_AWAKE) {
        // What two rules say is said once.
        if let Some(why) = rule(spec, o)
            && !found.iter().any(|one| one.reason == why.reason)
        {
            found.push(why);
        }
    }
    found
}

/// What no passing of time changes.
fn ruled_out(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    if spec.paused == Some(true) {
        return Some(Why::new(
            Reason::Paused,
            "The ElastiService is paused: `spec.paused` is true.",
        ));
    }
    if let Some(Err(invalid)) = window(spec) {
        return Some(Why::new(
            Reason::InvalidWindow,
            format!("{invalid}; until it is corrected, the service never sleeps."),
        ));
    }
    if o.autoscaler == Autoscaler::Missing {
        let sentence = "The autoscaler that the ElastiService names does not exist.";
        return Some(Why::new(Reason::AutoscalerNotFound, sentence));
    }
    if o.ports == PortsGiven::Exhausted {
        return Some(Why::new(Reason::PortsExhausted, step::PORTS_EXHAUSTED));
    }
    None
}

/// Requests wait at a resolver right now.
fn held_now(o: &Observed) -> Option<Why> {
    o.resolvers
        .iter()
        .find_map(|resolver| match &resolver.report {
            Report::Seen { at, held, .. }
                if *held > 0 && o.since(*at) <= o.settings.report_fresh =>
            {
                let sentence = format!("Resolver {} holds requests.", resolver.name);
                Some(Why::new(Reason::Traffic, sentence))
            }
            Report::Seen { .. } | Report::NotAsked | Report::Unreachable => None,
        })
}

/// A wake was asked for after the service was last put to sleep, within the cooldown, and no sleep since.
fn wake_requested(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    let at = user_requests::wake_asked_at(o)?;
    let answered = o.me.remembered.last_sleep.is_some_and(|slept| slept > at);
    let called_off = user_requests::sleep_asked_after(o, at).is_some();
    if answered || called_off || o.since(at) >= idle::cooldown(spec) {
        return None;
    }
    let why = Why::new(
        Reason::WakeRequested,
        format!("A wake was asked for at {}.", clock(at)),
    );
    Some(
        why.until(
            at.checked_add(idle::cooldown(spec))
                .unwrap_or(Timestamp::MAX),
        ),
    )
}

fn outside_window(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    let window = window(spec)?.ok()?;
    match window.standing(o.now) {
        Standing::Inside { .. } => None,
        Standing::Outside { until } => {
            let sentence = format!(
                "Sleep is allowed only inside the active window, which opens at {}.",
                clock(until)
            );
            Some(Why::new(Reason::OutsideWindow, sentence).until(until))
        }
    }
}

fn window(spec: &ElastiServiceSpec) -> Option<Result<ActiveWindow, crate::schedule::WindowError>> {
    spec.enabled_period.as_ref().map(ActiveWindow::parse)
}

/// When the window around `now` closes, so that a sleeping service is woken on time.
#[must_use]
pub fn window_closes(spec: &ElastiServiceSpec, now: Timestamp) -> Option<Timestamp> {
    match window(spec)?.ok()?.standing(now) {
        Standing::Inside { until } => Some(until),
        Standing::Outside { .. } => None,
    }
}

fn no_resolver_for_long(o: &Observed) -> Option<Why> {
    let since = o.stable_since.no_resolver_since?;
    (o.since(since) >= o.settings.resolver_grace).then(|| {
        let sentence = format!(
            "No resolver has been ready since {}, so nothing may sleep.",
            clock(since)
        );
        Why::new(Reason::NoResolver, sentence)
    })
}

fn resolvers_answer(o: &Observed) -> Result<(), Why> {
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
            Err(Why::new(Reason::ResolverUnreachable, sentence).until(o.now + ASK_AGAIN))
        }
        None => Ok(()),
    }
}

/// No pod is on its way up, and the nodes leave room for a drain.
fn pods_are_settled(spec: &ElastiServiceSpec, o: &Observed) -> Result<(), Why> {
    let starting = o
        .pods
        .iter()
        .find(|p| !p.terminating && !p.ready && !p.marked && p.obstacle.is_none());
    if let Some(pod) = starting {
        return Err(Why::new(
            Reason::Starting,
            format!("Pod {} is on its way up.", pod.name),
        ));
    }
    if o.stable_since.too_dense_on.is_some() && drains(spec, o) {
        return Err(step::too_dense());
    }
    Ok(())
}
