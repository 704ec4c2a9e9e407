//! The status that follows from the facts and the plan.
//! It reports what was observed, never what is planned, and is written only when something changes.

mod asleep;
mod conditions;
mod history;
mod readings;
mod wakes;

use std::cmp::Reverse;

use elasti_api::names::condition;
use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, Mode, Phase, Reason, Time};
use jiff::Timestamp;

pub use history::{HISTORY_SPAN, MAX_HISTORY, forget_older, phase_state, state};
pub(crate) use wakes::needs_reports;

use crate::observed::{Observed, PortsGiven, Report};
use crate::plan::{self, Plan, drains};
use crate::step::Step;
use crate::{groups, idle, services, user_requests};

/// The status to write; equal to `previous` if there is nothing to write.
#[must_use]
pub fn status(
    spec: &ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
) -> ElastiServiceStatus {
    let times = Timestamps::after(spec, o, previous);
    let mut next = ElastiServiceStatus {
        last_reconciled_time: previous.last_reconciled_time.clone(),
        last_scaled_up_time: times.last_wake.map(whole_seconds),
        mode: Some(if o.is_redirected() {
            Mode::Proxy
        } else {
            Mode::Serve
        }),
        phase: Some(plan.phase),
        reason: Some(plan.why.reason.as_str().to_owned()),
        conditions: conditions::conditions(spec, o, plan, previous),
        observed_generation: Some(o.me.generation),
        replicas: o.replicas().and_then(|n| i32::try_from(n).ok()),
        replicas_before_drain: groups::to_remember(
            plan.phase == Phase::Draining && drains(spec, o),
            o,
        )
        .and_then(|n| i32::try_from(n).ok()),
        pause_left: (o.replicas() > Some(0) && plan::leaves_pause(o)).then_some(true),
        ports: match &o.ports {
            PortsGiven::Given(ports) => ports.clone(),
            PortsGiven::Exhausted => o.me.remembered.ports.clone(),
        },
        services: services::recorded(o),
        quiet_since: times.quiet_since.map(whole_seconds),
        last_active_time: times.last_active.map(whole_seconds),
        last_sleep_time: times.last_sleep.map(whole_seconds),
        held: previous.held,
        triggers: readings::changed(spec, o, &previous.triggers),
        last_wake: wakes::changed(spec, o, previous),
        failed_wake: wakes::failed(o, plan, previous),
        asleep_seconds: asleep::asleep_seconds(o, previous),
        current_sleep: asleep::current(spec, o, previous),
        saved: asleep::saved(o, previous),
        savings_calendar: asleep::calendar(o, previous),
        history: previous.history.clone(),
    };
    if unread_since_start(spec, o, plan, previous) {
        next.reason.clone_from(&previous.reason);
        conditions::keep(&mut next.conditions, &previous.conditions);
    }
    let quiet = (next.quiet_since.clone(), next.last_active_time.clone());
    if restores(plan) {
        next.quiet_since.clone_from(&previous.quiet_since);
        let before = &previous.last_active_time;
        next.last_active_time.clone_from(before);
    }
    if next != *previous {
        (next.quiet_since, next.last_active_time) = quiet;
        next.last_reconciled_time = Some(whole_seconds(o.now));
        next.held = held(o);
        readings::refresh(spec, o, &mut next.triggers);
        wakes::refresh(o, &mut next.last_wake);
        history::record(&mut next, o.now);
    }
    next
}

/// What the API server refused to write, if anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This step, for this reason.
    Step {
        /// The step's name.
        step: &'static str,
        /// Why, as a clause.
        why: String,
    },
    /// Nothing was refused.
    None,
    /// It did not come to it: what was refused before may still be.
    Unknown,
}

/// The same after the plan was carried out, with what was refused of it as the condition `StepFailed`.
#[must_use]
pub fn status_after(
    spec: &ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
    refusal: &Refusal,
) -> ElastiServiceStatus {
    // Whether there is anything else to write does not depend on it.
    let mut before = previous.clone();
    before
        .conditions
        .retain(|c| c.type_ != condition::STEP_FAILED);
    let mut next = status(spec, o, plan, &before);
    let refused = conditions::refused(o, &previous.conditions, refusal);
    next.conditions.extend(refused);
    if next.conditions != previous.conditions {
        next.last_reconciled_time = Some(whole_seconds(o.now));
    }
    next
}

/// The status of a service of which the facts cannot be read, with what to do about it. Everything else is as it was known.
#[must_use]
pub fn status_without_facts(
    previous: &ElastiServiceStatus,
    generation: i64,
    now: Timestamp,
    reason: Reason,
    sentence: &str,
) -> ElastiServiceStatus {
    let mut next = ElastiServiceStatus {
        observed_generation: Some(generation),
        reason: Some(reason.as_str().to_owned()),
        ..previous.clone()
    };
    conditions::set_unreadable(&mut next.conditions, generation, now, reason, sentence);
    if next != *previous {
        next.last_reconciled_time = Some(whole_seconds(now));
        history::record(&mut next, now);
    }
    next
}

/// The resolvers are about to leave the path, and the reconcile after that writes the status anyway: whether it is quiet
/// is no reason to write it twice within milliseconds.
fn restores(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| match step {
        Step::EnsureNet(net) => net.replaces_redirect(),
        Step::RemoveSlice(_) => true,
        _ => false,
    })
}

/// After a start the triggers are unread for a moment. What the status says about them stays until they are read,
/// so that a restart with a thousand services does not cause two thousand writes.
fn unread_since_start(
    spec: &ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
) -> bool {
    idle::unread(spec, o)
        && previous.observed_generation == Some(o.me.generation)
        && previous.phase == Some(plan.phase)
        && plan.why.reason == Reason::TriggerUnknown
}

/// A time as the API server stores it: in whole seconds. A finer one would differ from what is read
/// back, and be written again by every reconcile.
fn whole_seconds(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// How many requests wait, by the resolvers' last reports. It changes with every request,
/// so it is written along with other changes and is never a reason to write.
fn held(o: &Observed) -> Option<u32> {
    let reported = o
        .resolvers
        .iter()
        .filter_map(|resolver| match &resolver.report {
            Report::Seen { held, .. } => Some(*held),
            Report::NotAsked | Report::Unreachable => None,
        });
    reported.reduce(u32::saturating_add)
}

/// The times that outlive a restart.
struct Timestamps {
    quiet_since: Option<Timestamp>,
    last_active: Option<Timestamp>,
    last_wake: Option<Timestamp>,
    last_sleep: Option<Timestamp>,
}

impl Timestamps {
    fn after(spec: &ElastiServiceSpec, o: &Observed, previous: &ElastiServiceStatus) -> Self {
        let before = &o.me.remembered;
        let quiet_since = match idle::quiet_since(spec, o) {
            Ok(since) => Some(since),
            // The first reading decides whether it is still quiet.
            Err(_) if idle::unread(spec, o) => before.quiet_since,
            Err(_) => None,
        };
        let changed = quiet_since.is_some() != before.quiet_since.is_some();
        let last_active = if changed || before.last_active.is_none() {
            Some(quiet_since.unwrap_or(o.now))
        } else {
            before
                .last_active
                .max(quiet_since.filter(|since| Some(*since) > before.quiet_since))
        };
        let (mut last_wake, mut last_sleep) =
            (clamp(before.last_wake, o), clamp(before.last_sleep, o));
        match crossed(o) {
            Some(Crossed::Down) => last_sleep = Some(o.now),
            Some(Crossed::Up) => last_wake = Some(o.now),
            None if asleep::begins(o, previous) => last_sleep = Some(o.now),
            None => {}
        }
        Self {
            quiet_since,
            last_active: clamp(
                last_active.max(user_requests::wake_requested_at(o).filter(|at| *at <= o.now)),
                o,
            ),
            last_wake,
            last_sleep,
        }
    }
}

/// In which direction the target has crossed zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crossed {
    Down,
    Up,
}

/// Whether the target has crossed zero since the status was written, even if no operator watched.
fn crossed(o: &Observed) -> Option<Crossed> {
    let was_zero = o.me.remembered.was_at_zero();
    match o.replicas()? {
        0 if !was_zero => Some(Crossed::Down),
        n if n > 0 && was_zero => Some(Crossed::Up),
        _ => None,
    }
}

/// A time in the future (the clock was set back) would block sleep until then.
fn clamp(time: Option<Timestamp>, o: &Observed) -> Option<Timestamp> {
    time.map(|at| at.min(o.now))
}

/// How urgently a service's slices must follow the resolvers, the most urgent first: while it is routed to them before
/// while it is not, and what was in use lately before what was not.
#[must_use]
pub fn need(status: &ElastiServiceStatus) -> impl Ord + use<> {
    let last_used = status.last_active_time.as_ref().map(|time| time.0);
    (status.mode != Some(Mode::Proxy), Reverse(last_used))
}
