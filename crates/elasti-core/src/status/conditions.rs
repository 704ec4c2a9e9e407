//! The conditions of a status, by the Kubernetes conventions.

use elasti_api::names::condition;
use elasti_api::{Condition, ElastiServiceSpec, ElastiServiceStatus, Handover, Reason};
use jiff::Timestamp;

use super::{Crossed, Refusal, crossed, readings, whole_seconds};
use crate::contention;
use crate::coverage;
use crate::observed::{Author, Observed, Owned, Reading};
use crate::plan::Plan;
use crate::why::TARGET_NOT_FOUND;
use crate::{groups, services, user_requests};

/// One condition without its transition time.
struct Fact {
    type_: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// Every condition, with its last transition time.
pub(super) fn conditions(
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
    { facts.into_iter().chain(unmanaged(spec, o)) }
        .map(|fact| fact.into_condition(o, &previous.conditions))
        .chain(metrics_missing(spec, o, &previous.conditions))
        .collect()
}

/// Keeps the previous conditions that depend on triggers, where their status is unchanged.
pub(super) fn keep(next: &mut [Condition], previous: &[Condition]) {
    let about_triggers = [
        condition::READY,
        condition::TRIGGERS_HEALTHY,
        condition::ASLEEP,
    ];
    let kept = |c: &&mut Condition| about_triggers.contains(&c.type_.as_str());
    for condition in next.iter_mut().filter(kept) {
        let unread = condition.type_ == condition::TRIGGERS_HEALTHY;
        let before = previous.iter().find(|c| c.type_ == condition.type_);
        if let Some(before) = before.filter(|c| unread || c.status == condition.status) {
            condition.clone_from(before);
        }
    }
}

/// Something has to be written and is refused; no condition while nothing is.
pub(super) fn refused(
    o: &Observed,
    previous: &[Condition],
    refusal: &Refusal,
) -> Option<Condition> {
    match refusal {
        Refusal::None => None,
        Refusal::Unknown => {
            let mut previous = previous.iter();
            previous
                .find(|c| c.type_ == condition::STEP_FAILED)
                .cloned()
        }
        Refusal::Step { step, why } => {
            let message = format!("{step} is not possible: {why}. It is tried again.");
            let fact = Fact::new(condition::STEP_FAILED, true, step, message);
            Some(fact.into_condition(o, previous))
        }
    }
}

/// The facts cannot be read: the service is not ready, and where that is so its target is not found.
pub(super) fn set_unreadable(
    conditions: &mut Vec<Condition>,
    generation: i64,
    now: Timestamp,
    reason: Reason,
    sentence: &str,
) {
    let of_target = (reason == Reason::TargetNotFound).then_some(condition::TARGET_FOUND);
    for type_ in [condition::READY].into_iter().chain(of_target) {
        let before = conditions.iter().position(|c| c.type_ == type_);
        let since = before
            .and_then(|at| conditions.get(at))
            .filter(|c| c.status == "False")
            .map_or_else(
                || whole_seconds(now),
                |before| before.last_transition_time.clone(),
            );
        let next = Condition {
            type_: type_.to_owned(),
            status: "False".to_owned(),
            reason: reason.as_str().to_owned(),
            message: sentence.to_owned(),
            observed_generation: Some(generation),
            last_transition_time: since,
        };
        match before.and_then(|at| conditions.get_mut(at)) {
            Some(before) => *before = next,
            None => conditions.push(next),
        }
    }
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
            .map_or_else(|| whole_seconds(o.now), |c| c.last_transition_time.clone());
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

/// Elasti can manage this service.
fn ready(spec: &ElastiServiceSpec, o: &Observed, plan: &Plan) -> Fact {
    let reason = plan.why.reason;
    let trouble = reason.is_obstacle()
        || matches!(
            reason,
            Reason::Conflict
                | Reason::Unsupported
                | Reason::ServiceNotFound
                | Reason::TargetNotFound
                | Reason::AutoscalerNotFound
                | Reason::PortsExhausted
                | Reason::NoResolver
                | Reason::NodesWithoutResolver
                | Reason::InvalidWindow
                | Reason::TicksTooDense
        );
    let mut message = plan.why.sentence.clone();
    if !trouble && !o.may_mark && spec.handover.unwrap_or_default() == Handover::Drain {
        message.push_str(" The operator is not allowed to patch pods/status, so it hands over by redirect instead of drain.");
    }
    if let Some(ignored) = user_requests::ignored(o) {
        message = format!("{message} {ignored}");
    }
    if !trouble && let Some(service) = &o.service {
        for warning in coverage::warnings(service) {
            message = format!("{message} {}", warning.sentence);
        }
    }
    Fact::new(condition::READY, !trouble, reason.as_str(), message)
}

/// Services that lose their endpoints while the target sleeps; no condition where there are none.
fn unmanaged(spec: &ElastiServiceSpec, o: &Observed) -> Option<Fact> {
    let message = services::unmanaged(spec, o)?;
    let reason = Reason::Unsupported.as_str();
    Some(Fact::new(
        condition::UNMANAGED_SERVICES,
        true,
        reason,
        message,
    ))
}

/// Metrics that a query can do without, so that a wrong name reads as quiet for ever; no condition where there are none.
/// What was said of this spec stays until it is known anew, and at zero: there the service's own pods report nothing.
fn metrics_missing(
    spec: &ElastiServiceSpec,
    o: &Observed,
    previous: &[Condition],
) -> Option<Condition> {
    let found = readings::without_series(spec, o).filter(|_| o.replicas() != Some(0));
    let Some(found) = found else {
        let mut previous = previous.iter();
        let same = |c: &&Condition| {
            c.type_ == condition::METRICS_MISSING && c.observed_generation == Some(o.me.generation)
        };
        return previous.find(same).cloned();
    };
    if found.is_empty() {
        return None;
    }
    let message = format!(
        "{} A wrong name lets it sleep while it is in use: check the names, and that the app is scraped.",
        found.join(" ")
    );
    let fact = Fact::new(condition::METRICS_MISSING, true, "NoSeries", message);
    Some(fact.into_condition(o, previous))
}

fn found(o: &Observed) -> Fact {
    match o.target {
        Some(_) => Fact::new(condition::TARGET_FOUND, true, "Found", "The target exists."),
        None => Fact::new(
            condition::TARGET_FOUND,
            false,
            Reason::TargetNotFound.as_str(),
            TARGET_NOT_FOUND,
        ),
    }
}

fn triggers(o: &Observed) -> Fact {
    let unknown = o
        .readings
        .iter()
        .enumerate()
        .find_map(|(index, reading)| match reading {
            Reading::Unknown { why, .. } => {
                Some(format!("Trigger {index} has no usable reading: {why}."))
            }
            Reading::Active { .. } | Reading::Quiet { .. } | Reading::Unread => None,
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
            "Every trigger has a usable reading.",
        ),
    }
}

fn redirected(o: &Observed) -> Fact {
    match o.is_redirected() {
        true => Fact::new(
            condition::TRAFFIC_REDIRECTED,
            true,
            "Proxy",
            "The Service routes to the resolvers.",
        ),
        false => Fact::new(
            condition::TRAFFIC_REDIRECTED,
            false,
            "Serve",
            "The Service routes to its pods.",
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

/// Something else takes precedence.
pub(super) fn in_conflict(o: &Observed) -> bool {
    let foreign = matches!(o.slice, Owned::Foreign) || matches!(o.private_service, Owned::Foreign);
    o.rival.is_some() || o.predecessor.is_some() || foreign
}

fn conflict(o: &Observed, plan: &Plan) -> Fact {
    if in_conflict(o) {
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

/// Something else scaled the target from or to zero; reported until Elasti does, and that stands.
fn contended(o: &Observed, previous: &ElastiServiceStatus) -> Fact {
    let before = &o.me.remembered;
    let seen_before = before.last_sleep.is_some() || before.replicas.is_some();
    let crossed = crossed(o);
    let writer = match (crossed, o.target.as_ref().map(|t| &t.replicas_by)) {
        (Some(Crossed::Down), _) => contention::zeroed_by(o),
        (Some(Crossed::Up), Some(Author::Other(writer))) => Some(writer.as_str()),
        _ => None,
    };
    if let Some(why) = groups::pushed_back(o) {
        let reason = Reason::Contended.as_str();
        return Fact::new(condition::CONTENDED, true, reason, why.sentence);
    }
    let lasts = match crossed {
        None => contention::ends_at(o).is_none_or(|ends| o.now < ends),
        Some(Crossed::Up) => contention::goes_on(o),
        Some(Crossed::Down) => false,
    };
    match writer {
        Some(writer) if seen_before => {
            let message = format!("{writer} set replicas to {}.", o.replicas().unwrap_or(0));
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
            Some(still) if lasts => Fact::new(
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
