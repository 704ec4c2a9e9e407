//! The status that follows from the facts and the plan.
//! It never states an intention as a fact, and it never changes when nothing else does.

use elasti_api::names::condition;
use elasti_api::{Condition, ElastiServiceSpec, ElastiServiceStatus, Handover, Mode, Reason, Time};
use jiff::Timestamp;

use crate::idle;
use crate::observed::{Author, Observed, Owned, PortsGiven, Reading, Report};
use crate::plan::Plan;

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
        conditions: conditions(spec, o, plan, previous),
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
        triggers: previous.triggers.clone(),
        last_wake: previous.last_wake.clone(),
        asleep_seconds: previous.asleep_seconds,
    };
    if next != *previous {
        next.last_reconciled_time = Some(whole(o.now));
        next.held = held(o);
    }
    next
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
        let quiet_since = idle::quiet_since(spec, o).ok();
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
                last_active.max(o.wake_requested_at.filter(|at| *at <= o.now)),
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

/// One condition before it has its transition time.
struct Fact {
    type_: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

fn conditions(
    spec: &ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    previous: &ElastiServiceStatus,
) -> Vec<Condition> {
    let facts = [
        ready(spec, o, plan),
        found(o),
        triggers(o),
        redirected(o),
        asleep(o, plan),
        conflict(o, plan),
        contended(o, previous),
    ];
    facts
        .into_iter()
        .map(|fact| fact.into_condition(o, &previous.conditions))
        .collect()
}

impl Fact {
    fn new(
        type_: &'static str,
        holds: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_,
            holds,
            reason,
            message: message.into(),
        }
    }

    fn into_condition(self, o: &Observed, previous: &[Condition]) -> Condition {
        let status = if self.holds { "True" } else { "False" };
        let since = previous
            .iter()
            .find(|c| c.type_ == self.type_ && c.status == status)
            .map_or_else(|| whole(o.now), |c| c.last_transition_time.clone());
        Condition {
            type_: self.type_.to_owned(),
            status: status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message,
            observed_generation: Some(o.me.generation),
            last_transition_time: since,
        }
    }
}

/// Elasti can do its work for this service.
fn ready(spec: &ElastiServiceSpec, o: &Observed, plan: &Plan) -> Fact {
    let reason = plan.why.reason;
    let trouble = matches!(
        reason,
        Reason::Conflict
            | Reason::Unsupported
            | Reason::ServiceNotFound
            | Reason::TargetNotFound
            | Reason::AutoscalerNotFound
            | Reason::PortsExhausted
            | Reason::NoResolver
            | Reason::InvalidWindow
            | Reason::ImagePull
            | Reason::CrashLoop
            | Reason::Unschedulable
            | Reason::PodRefused
            | Reason::NeverReady
    );
    let mut message = plan.why.sentence.clone();
    if !trouble && !o.may_mark && spec.handover.unwrap_or_default() == Handover::Drain {
        message.push_str(" The operator may not patch pods/status, so it hands over by redirect instead of drain.");
    }
    if !trouble && o.service.as_ref().is_some_and(|s| s.external_local) {
        message.push_str(" externalTrafficPolicy is Local: outside clients reach it only through nodes that run a resolver.");
    }
    Fact::new(condition::READY, !trouble, reason.as_str(), message)
}

fn found(o: &Observed) -> Fact {
    match o.target {
        Some(_) => Fact::new(condition::TARGET_FOUND, true, "Found", "The target exists."),
        None => Fact::new(
            condition::TARGET_FOUND,
            false,
            Reason::TargetNotFound.as_str(),
            "The target does not exist.",
        ),
    }
}

fn triggers(o: &Observed) -> Fact {
    let unknown = o
        .readings
        .iter()
        .enumerate()
        .find_map(|(index, reading)| match reading {
            Reading::Unknown { why } => {
                Some(format!("Trigger {index} gives no usable reading: {why}."))
            }
            Reading::Active { .. } | Reading::Quiet { .. } => None,
        });
    match unknown {
        Some(message) => Fact::new(
            condition::TRIGGERS_HEALTHY,
            false,
            Reason::TriggerUnknown.as_str(),
            message,
        ),
        None => Fact::new(
            condition::TRIGGERS_HEALTHY,
            true,
            "Read",
            "Every trigger gives a usable reading.",
        ),
    }
}

fn redirected(o: &Observed) -> Fact {
    match o.slice {
        Owned::Ours(_) => Fact::new(
            condition::TRAFFIC_REDIRECTED,
            true,
            "Proxy",
            "The Service points at the resolvers.",
        ),
        Owned::Missing | Owned::Foreign => Fact::new(
            condition::TRAFFIC_REDIRECTED,
            false,
            "Serve",
            "The Service points at its pods.",
        ),
    }
}

fn asleep(o: &Observed, plan: &Plan) -> Fact {
    let asleep = o.replicas() == Some(0);
    Fact::new(
        condition::ASLEEP,
        asleep,
        plan.why.reason.as_str(),
        plan.why.sentence.clone(),
    )
}

fn conflict(o: &Observed, plan: &Plan) -> Fact {
    let foreign = matches!(o.slice, Owned::Foreign) || matches!(o.private_service, Owned::Foreign);
    if o.rival.is_some() || foreign {
        return Fact::new(
            condition::CONFLICT,
            true,
            Reason::Conflict.as_str(),
            plan.why.sentence.clone(),
        );
    }
    Fact::new(
        condition::CONFLICT,
        false,
        "Alone",
        "Nothing else claims the Service or the target.",
    )
}

/// Someone else moved the target across zero; said until it crosses zero again by our hand.
fn contended(o: &Observed, previous: &ElastiServiceStatus) -> Fact {
    let before = &o.me.remembered;
    let seen_before = before.last_sleep.is_some() || before.replicas.is_some();
    let crossed = crossed(o).is_some();
    let author = o.target.as_ref().map(|t| (&t.replicas_by, t.replicas));
    match author {
        Some((Author::Other(name), replicas)) if crossed && seen_before => {
            let message = format!("{name} set replicas to {replicas}.");
            Fact::new(
                condition::CONTENDED,
                true,
                Reason::Contended.as_str(),
                message,
            )
        }
        _ => match previous
            .conditions
            .iter()
            .find(|c| c.type_ == condition::CONTENDED && c.status == "True")
        {
            Some(still) if !crossed => Fact::new(
                condition::CONTENDED,
                true,
                Reason::Contended.as_str(),
                still.message.clone(),
            ),
            _ => Fact::new(
                condition::CONTENDED,
                false,
                "Alone",
                "Nothing else writes the target's replicas.",
            ),
        },
    }
}
