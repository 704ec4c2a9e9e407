//! The status that follows from the facts and the plan.
//! It never states an intention as a fact, and it never changes when nothing else does.

mod conditions;
mod readings;
mod wakes;

use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, Mode, Reason, Time};
use jiff::Timestamp;

use crate::observed::{Observed, PortsGiven, Report};
use crate::plan::Plan;
use crate::{idle, user_requests};

/// The status to write; equal to `previous` when there is nothing to say.
#[must_use]
pub fn status(
    spec: &ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
) -> ElastiServiceStatus {
    let stamps = Stamps::after(spec, o);
    let mut next = ElastiServiceStatus {
        last_reconciled_time: previous.last_reconciled_time.clone(),
        last_scaled_up_time: stamps.last_wake.map(whole),
        mode: Some(if o.slice.ours().is_some() {
            Mode::Proxy
        } else {
            Mode::Serve
        }),
        phase: Some(plan.phase),
        reason: Some(plan.why.reason.as_str().to_owned()),
        conditions: conditions::conditions(spec, o, plan, previous),
        observed_generation: Some(o.me.generation),
        replicas: o.replicas().and_then(|n| i32::try_from(n).ok()),
        ports: match &o.ports {
            PortsGiven::Given(ports) => ports.clone(),
            PortsGiven::Exhausted => o.me.remembered.ports.clone(),
        },
        quiet_since: stamps.quiet_since.map(whole),
        last_active_time: stamps.last_active.map(whole),
        last_sleep_time: stamps.last_sleep.map(whole),
        held: previous.held,
        triggers: readings::turned(spec, o, &previous.triggers),
        last_wake: wakes::turned(spec, o, previous),
        asleep_seconds: wakes::asleep_seconds(o, previous),
    };
    if no_news_yet(spec, o, plan, previous) {
        next.reason.clone_from(&previous.reason);
        conditions::keep(&mut next.conditions, &previous.conditions);
    }
    if next != *previous {
        next.last_reconciled_time = Some(whole(o.now));
        next.held = held(o);
        readings::refresh(spec, o, &mut next.triggers);
        wakes::refresh(o, &mut next.last_wake);
    }
    next
}

/// After a start the triggers are unread for a moment. What the status said of them before is neither better nor
/// worse known for that, so it stays, and a restart with a thousand services is not two thousand writes.
fn no_news_yet(
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

/// A moment as the API server keeps it: in whole seconds. A finer one would differ from what is read
/// back, and so be written again at every look.
fn whole(moment: Timestamp) -> Time {
    Time(Timestamp::from_second(moment.as_second()).unwrap_or(moment))
}

/// How many wait, by what the resolvers last said. It changes with every request,
/// so it is told along with other news and is never a reason to write.
fn held(o: &Observed) -> Option<u32> {
    let said = o
        .resolvers
        .iter()
        .filter_map(|resolver| match &resolver.report {
            Report::Seen { held, .. } => Some(*held),
            Report::NotAsked | Report::Unreachable => None,
        });
    said.reduce(u32::saturating_add)
}

/// The moments that outlive a restart.
struct Stamps {
    quiet_since: Option<Timestamp>,
    last_active: Option<Timestamp>,
    last_wake: Option<Timestamp>,
    last_sleep: Option<Timestamp>,
}

impl Stamps {
    fn after(spec: &ElastiServiceSpec, o: &Observed) -> Self {
        let before = &o.me.remembered;
        let quiet_since = match idle::quiet_since(spec, o) {
            Ok(since) => Some(since),
            // Whether it is still quiet is told by the first reading.
            Err(_) if idle::unread(spec, o) => before.quiet_since,
            Err(_) => None,
        };
        let turned = quiet_since.is_some() != before.quiet_since.is_some();
        let last_active = if turned || before.last_active.is_none() {
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
            None => {}
        }
        Self {
            quiet_since,
            last_active: clamp(
                last_active.max(user_requests::wake_asked_at(o).filter(|at| *at <= o.now)),
                o,
            ),
            last_wake,
            last_sleep,
        }
    }
}

/// The target was last seen on the other side of zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crossed {
    Down,
    Up,
}

/// Which way the target has crossed zero since the status was written, even if nobody watched.
fn crossed(o: &Observed) -> Option<Crossed> {
    let was_zero = o.me.remembered.was_at_zero();
    match o.replicas()? {
        0 if !was_zero => Some(Crossed::Down),
        n if n > 0 && was_zero => Some(Crossed::Up),
        _ => None,
    }
}

/// A stamp from the future (the clock was set back) would block sleep until then.
fn clamp(stamp: Option<Timestamp>, o: &Observed) -> Option<Timestamp> {
    stamp.map(|at| at.min(o.now))
}
