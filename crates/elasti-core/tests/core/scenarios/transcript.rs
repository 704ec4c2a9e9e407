//! Steps, plans and statuses as the transcripts print them.

use elasti_api::{Condition, ElastiServiceStatus, LastWake, Mode, TriggerStatus};
use elasti_core::Step;
use elasti_core::observed::{KedaPause, SliceShape};
use elasti_core::step::PodRef;
use jiff::Timestamp;

use crate::scenarios::operator::Reconciled;

pub fn clock(moment: Timestamp) -> String {
    moment.strftime("%H:%M:%S%.3f").to_string()
}

pub fn step(step: &Step) -> String {
    match step {
        Step::AddFinalizer => "add the finalizer".into(),
        Step::EnsurePrivateService(_) => "write the private Service".into(),
        Step::Redirect(routed) => {
            format!("route the Service to {} too", addresses(routed.slices()))
        }
        Step::EnsureNet(net) => format!("keep {} as a net", addresses(net.slices())),
        Step::HoldAutoscaler(pause) => format!("hold KEDA: {}", annotations(pause)),
        Step::Mark { pods, .. } => format!("take {} out of rotation", names(pods)),
        Step::Shrink(group) => format!("scale down to {}", group.replicas()),
        Step::RestoreReplicas(n) => format!("scale back to {n}"),
        Step::ScaleToZero(_) => "scale to 0".into(),
        Step::PinAutoscaler(pause) => format!("pin KEDA: {}", annotations(pause)),
        Step::Wake(n) => format!("scale to {n}"),
        Step::ReleaseAutoscaler(pause) => format!("release KEDA: {}", annotations(pause)),
        Step::Unmark(pods) => format!("put {} back into rotation", names(pods)),
        Step::ResetCost(pods) => format!("reset the deletion cost of {}", names(pods)),
        Step::RemoveSlice(_) => "route the Service to its pods only".into(),
        Step::DeletePrivateService(_) => "delete the private Service".into(),
        Step::RemoveFinalizer(_) => "remove the finalizer".into(),
        Step::Other(name, other) => format!("for {name}: {}", self::step(other)),
    }
}

fn addresses(slices: &[SliceShape]) -> String {
    let all = slices.iter().flat_map(|s| s.endpoints.keys());
    let all: Vec<String> = all.map(ToString::to_string).collect();
    all.join(" and ")
}

fn annotations(pause: &KedaPause) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".into());
    format!(
        "paused {}, paused-replicas {}",
        shown(&pause.paused),
        shown(&pause.paused_replicas)
    )
}

/// One reconcile in one line: phase, mode, replicas, reason, sentence.
pub fn summary(reconcile: &Reconciled) -> String {
    let mode = match reconcile.status.mode {
        Some(Mode::Proxy) => "proxy",
        Some(Mode::Serve) => "serve",
        None => "-",
    };
    let replicas = reconcile
        .status
        .replicas
        .map_or("-".into(), |n| n.to_string());
    let phase = format!("{:?}", reconcile.plan.phase);
    let why = &reconcile.plan.why;
    format!(
        "{phase:<12} {mode}  {replicas}  {}: {}",
        why.reason, why.sentence
    )
}

/// The conditions whose status differs from before, as far as they say more than phase and mode do.
pub fn changed_conditions(before: &[Condition], now: &[Condition]) -> Vec<String> {
    let shown = [
        "Ready",
        "TargetFound",
        "TriggersHealthy",
        "Conflict",
        "Contended",
    ];
    let normal = |c: &Condition| (c.status == "True") == shown[..3].contains(&c.type_.as_str());
    now.iter()
        .filter(|c| shown.contains(&c.type_.as_str()))
        .filter(|c| match before.iter().find(|b| b.type_ == c.type_) {
            Some(was) => was.status != c.status,
            None => !normal(c),
        })
        .map(|c| format!("{} is {}: {}", c.type_, c.status, c.message))
        .collect()
}

/// The whole status, for the end of a transcript.
pub fn full_status(status: &ElastiServiceStatus) -> Vec<String> {
    let mut lines: Vec<String> = status
        .conditions
        .iter()
        .map(|c| {
            let since = clock(c.last_transition_time.0);
            format!(
                "{:<17} {:<5} since {since}  {}: {}",
                c.type_, c.status, c.reason, c.message
            )
        })
        .collect();
    let times = [
        ("quietSince", &status.quiet_since),
        ("lastActiveTime", &status.last_active_time),
        ("lastSleepTime", &status.last_sleep_time),
        ("lastScaledUpTime", &status.last_scaled_up_time),
    ];
    let set = times
        .iter()
        .filter_map(|(name, time)| time.as_ref().map(|t| format!("{name} {}", clock(t.0))));
    lines.push(set.collect::<Vec<String>>().join(", "));
    lines.extend(status.triggers.iter().map(trigger));
    lines.extend(status.last_wake.as_ref().map(wake));
    lines.extend(status.asleep_seconds.map(|n| format!("asleepSeconds {n}")));
    let states = status.history.iter();
    let states = states.map(|one| format!("{:?} {}", one.state, clock(one.since.0)));
    lines.push(format!("history {}", states.collect::<Vec<_>>().join(", ")));
    lines
}

fn trigger(log: &TriggerStatus) -> String {
    let since = clock(log.since.0);
    let value = log.value.as_deref().unwrap_or("-");
    let threshold = log.threshold.as_deref().unwrap_or("-");
    let message = log.message.as_deref().unwrap_or_default();
    let line = format!(
        "trigger {} {} {value}/{threshold} since {since} {message}",
        log.kind, log.reading
    );
    line.trim_end().to_owned()
}

fn wake(log: &LastWake) -> String {
    let moments = [
        ("scaled", &log.scaled_at),
        ("scheduled", &log.scheduled_at),
        ("started", &log.started_at),
        ("ready", &log.ready_at),
        ("answered", &log.answered_at),
    ];
    let seen = moments
        .iter()
        .filter_map(|(name, at)| at.as_ref().map(|at| format!(", {name} {}", clock(at.0))));
    let asked = clock(log.asked_at.0);
    format!(
        "lastWake by {}, asked {asked}{}",
        log.by,
        seen.collect::<String>()
    )
}

pub fn names(pods: &[PodRef]) -> String {
    pods.iter()
        .map(|pod| pod.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}
