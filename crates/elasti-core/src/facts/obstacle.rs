//! What keeps a pod from starting, and for how long that is waited for: one table from cause to patience.
//!
//! What may pass by itself is waited for until the hold deadline, and shown by a word that says so. What does not is
//! given up at once or after a short time, and held requests are answered with the word for that.

use elasti_api::{ElastiServiceSpec, Reason};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;

use crate::observed::{Obstacle, ObstacleKind};

/// An ordinary stage of a start (containers created, init containers, not ready yet) is worth a word after this long.
pub const SLOW_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// A kubelet pulls at once and again after 10 s: this long after the first pull the second one has failed too.
const TWO_PULLS: SignedDuration = SignedDuration::from_secs(20);
/// A kubelet restarts a container at once, after 10 s and after 20 s more.
const RESTARTS: i32 = 3;
/// The longest message of another component that goes into a status.
const MESSAGE_CHARS: usize = 200;

/// How long a cause is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as the request may be held.
    Deadline,
    /// This long after the pod could have started.
    For(SignedDuration),
    /// Until a container was restarted this often.
    Restarts(i32),
    /// Not at all.
    None,
}

/// One row of the table: what a cause is called while it may pass, what it is called when a wake has failed by it, and
/// when that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The word while it is waited for.
    pub waits: Reason,
    /// The word once it is not.
    pub fails: Reason,
    /// When that is, unless `spec.hold.failFastSeconds` says it.
    pub patience: Patience,
    /// A stage of every start: no word until it takes long.
    pub ordinary: bool,
}

/// The table.
#[must_use]
pub fn patience(kind: ObstacleKind) -> Row {
    use ObstacleKind as Kind;
    let (waits, fails, patience) = match kind {
        Kind::Unschedulable => (
            Reason::NotScheduled,
            Reason::Unschedulable,
            Patience::Deadline,
        ),
        Kind::Creating => (Reason::Starting, Reason::CannotStart, Patience::Deadline),
        Kind::Initializing => (
            Reason::Initializing,
            Reason::CannotStart,
            Patience::Deadline,
        ),
        Kind::ImagePull => (Reason::Pulling, Reason::ImagePull, Patience::Deadline),
        Kind::ImageMissing => (Reason::Pulling, Reason::ImagePull, Patience::For(TWO_PULLS)),
        Kind::ImageInvalid => (Reason::Pulling, Reason::ImagePull, Patience::None),
        Kind::Config => (
            Reason::Starting,
            Reason::PodRefused,
            Patience::For(TWO_PULLS),
        ),
        Kind::CrashLoop => (
            Reason::Restarting,
            Reason::CrashLoop,
            Patience::Restarts(RESTARTS),
        ),
        Kind::NeverReady => (Reason::NotReady, Reason::NeverReady, Patience::Deadline),
        Kind::Quota => (
            Reason::QuotaExceeded,
            Reason::PodRefused,
            Patience::Deadline,
        ),
        Kind::Webhook => (
            Reason::WebhookFailed,
            Reason::PodRefused,
            Patience::Deadline,
        ),
        Kind::Refused => (Reason::Starting, Reason::PodRefused, Patience::None),
    };
    Row {
        waits,
        fails,
        patience,
        ordinary: matches!(kind, Kind::Creating | Kind::Initializing | Kind::NeverReady),
    }
}

/// `spec.hold.failFastSeconds`.
#[must_use]
pub fn fail_fast(spec: &ElastiServiceSpec) -> Option<SignedDuration> {
    let seconds = spec.hold.as_ref()?.fail_fast_seconds?;
    Some(SignedDuration::from_secs(seconds.into()))
}

/// What keeps a pod from starting, as its objects say it. Time decides what that means.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// The cause.
    pub kind: ObstacleKind,
    /// In words that do not change while the cause stays: each change is a write.
    pub message: String,
    /// From when on it counts; unknown counts as long ago.
    pub since: Option<Timestamp>,
    /// How often the container was restarted.
    pub restarts: i32,
}

impl Stall {
    /// What it means at this time, with `spec.hold.failFastSeconds`; nothing for an ordinary stage that is not slow.
    #[must_use]
    pub fn obstacle(&self, fail_fast: Option<SignedDuration>, now: Timestamp) -> Option<Obstacle> {
        let failed = self.fails_at(fail_fast).is_some_and(|at| at <= now);
        let shown = failed || self.shown_at().is_none_or(|at| at <= now);
        shown.then(|| Obstacle {
            kind: self.kind,
            message: self.message.clone(),
            failed,
        })
    }

    /// When it next means something else, if it stays as it is.
    pub(super) fn changes_at(
        &self,
        fail_fast: Option<SignedDuration>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let times = [self.shown_at(), self.fails_at(fail_fast)];
        times.into_iter().flatten().filter(|at| *at > now).min()
    }

    fn shown_at(&self) -> Option<Timestamp> {
        let since = self.since.filter(|_| patience(self.kind).ordinary)?;
        since.checked_add(SLOW_AFTER).ok()
    }

    /// When it counts as failed.
    fn fails_at(&self, fail_fast: Option<SignedDuration>) -> Option<Timestamp> {
        let since = self.since.unwrap_or(Timestamp::UNIX_EPOCH);
        let after = match (fail_fast, patience(self.kind).patience) {
            (Some(after), _) | (None, Patience::For(after)) => after,
            (None, Patience::None) => SignedDuration::ZERO,
            (None, Patience::Restarts(most)) if self.restarts >= most => SignedDuration::ZERO,
            (None, Patience::Restarts(_) | Patience::Deadline) => return None,
        };
        since.checked_add(after).ok()
    }
}

/// A message of another component as a clause of ours.
pub(super) fn clause(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    text.chars().take(MESSAGE_CHARS).collect()
}

/// What keeps a pod from starting.
#[must_use]
pub fn stall(pod: &core_v1::Pod) -> Option<Stall> {
    let status = pod.status.as_ref()?;
    let unschedulable = condition(status, "PodScheduled")
        .filter(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable"));
    if let Some(condition) = unschedulable {
        let message = condition.message.as_deref();
        let created = pod.metadata.creation_timestamp.as_ref();
        return Some(Stall {
            kind: ObstacleKind::Unschedulable,
            message: clause(message.unwrap_or("no node fits")),
            since: { condition.last_transition_time.as_ref() }
                .or(created)
                .map(|t| t.0),
            restarts: 0,
        });
    }
    let since = could_start_at(status);
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    let trouble = init.chain(main).find_map(|one| of_container(one, since));
    trouble.or_else(|| ordinary_stage(pod, status, since))
}

fn condition<'a>(status: &'a core_v1::PodStatus, type_: &str) -> Option<&'a core_v1::PodCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|c| c.type_ == type_)
}

/// Since when nothing but the container itself kept it from starting: its pod has a node and a network, and the
/// containers before it are done.
fn could_start_at(status: &core_v1::PodStatus) -> Option<Timestamp> {
    let steps = ["PodScheduled", "PodReadyToStartContainers", "Initialized"];
    let done = steps
        .into_iter()
        .filter_map(|step| condition(status, step))
        .filter(|c| c.status == "True");
    let times = done.filter_map(|c| c.last_transition_time.as_ref());
    times.map(|t| t.0).max()
}

fn of_container(container: &core_v1::ContainerStatus, since: Option<Timestamp>) -> Option<Stall> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let said = waiting.message.as_deref();
    let pulled = || format!("image {} cannot be pulled", clause(&container.image));
    let (kind, message) = match waiting.reason.as_deref()? {
        "InvalidImageName" | "ErrImageNeverPull" => (ObstacleKind::ImageInvalid, pulled()),
        "ImagePullBackOff" | "ErrImagePull" | "RegistryUnavailable" | "ImageInspectError" => {
            (pull_error(said.unwrap_or_default()), pulled())
        }
        "CrashLoopBackOff" => (
            ObstacleKind::CrashLoop,
            format!("container {} keeps crashing", container.name),
        ),
        "CreateContainerConfigError" | "CreateContainerError" => (
            ObstacleKind::Config,
            clause(said.unwrap_or("it cannot be created")),
        ),
        _ => return None,
    };
    Some(Stall {
        kind,
        message,
        since,
        restarts: container.restart_count,
    })
}

/// What a registry says of an image that it does not have, or does not give to us. Anything else, a registry that does
/// not answer or has had enough, may pass.
fn pull_error(said: &str) -> ObstacleKind {
    const MISSING: [&str; 7] = [
        "not found",
        "manifest unknown",
        "name unknown",
        "does not exist",
        "denied",
        "unauthorized",
        "forbidden",
    ];
    let said = said.to_lowercase();
    // A name that does not resolve may be one of a cluster whose DNS is not up yet.
    let missing = MISSING.iter().any(|one| said.contains(one)) && !said.contains("no such host");
    match missing {
        true => ObstacleKind::ImageMissing,
        false => ObstacleKind::ImagePull,
    }
}

/// What the API server says when it does not create a workload's pods.
#[must_use]
pub fn refusal(message: &str, since: Option<Timestamp>) -> Stall {
    let kind = if message.contains("exceeded quota") {
        ObstacleKind::Quota
    } else if message.contains("failed calling webhook") {
        ObstacleKind::Webhook
    } else {
        ObstacleKind::Refused
    };
    Stall {
        kind,
        message: clause(message),
        since,
        restarts: 0,
    }
}

/// How far a pod is that has a node and no trouble, but is not ready.
fn ordinary_stage(
    pod: &core_v1::Pod,
    status: &core_v1::PodStatus,
    since: Option<Timestamp>,
) -> Option<Stall> {
    let ready = condition(status, super::pod::READY)?;
    if ready.status == "True" {
        return None;
    }
    let containers: Vec<&core_v1::ContainerStatus> =
        status.container_statuses.iter().flatten().collect();
    let state = |one: &core_v1::ContainerStatus| one.state.clone().unwrap_or_default();
    let (kind, message, since) = if condition(status, "Initialized")
        .is_some_and(|c| c.status != "True")
    {
        let words = "its init containers have not ended";
        (ObstacleKind::Initializing, words, since)
    } else if containers.iter().any(|one| state(one).waiting.is_some()) {
        let words = "its containers are not created; images are pulled and volumes attached before";
        (ObstacleKind::Creating, words, since)
    } else if super::pod::started(status) {
        let words = "its readiness probe has not passed since its containers started";
        // One that was ready before has the time of that.
        let left = ready.last_transition_time.as_ref().map(|t| t.0);
        (
            ObstacleKind::NeverReady,
            words,
            probed_since(pod, &containers).max(left),
        )
    } else {
        return None;
    };
    Some(Stall {
        kind,
        message: message.to_owned(),
        since: Some(since?),
        restarts: 0,
    })
}

/// From when on a pod should have been ready: its containers run, and each had the time that its own probes give it.
fn probed_since(pod: &core_v1::Pod, containers: &[&core_v1::ContainerStatus]) -> Option<Timestamp> {
    let specs = pod.spec.iter().flat_map(|spec| &spec.containers);
    let allowed = |name: &str| {
        let spec = specs.clone().find(|one| one.name == name);
        spec.map_or(SignedDuration::ZERO, startup_time)
    };
    let starts = containers.iter().filter_map(|one| {
        let running = one.state.as_ref()?.running.as_ref()?;
        let started = running.started_at.as_ref()?.0;
        started.checked_add(allowed(&one.name)).ok()
    });
    starts.max()
}

/// How long a container may take by its own probes before its readiness counts.
fn startup_time(container: &core_v1::Container) -> SignedDuration {
    let seconds = |value: Option<i32>, default: i32| i64::from(value.unwrap_or(default).max(0));
    let startup = container.startup_probe.as_ref().map_or(0, |probe| {
        let tries = seconds(probe.failure_threshold, 3).max(1);
        let period = seconds(probe.period_seconds, 10).max(1);
        let delay = seconds(probe.initial_delay_seconds, 0);
        delay.saturating_add(tries.saturating_mul(period))
    });
    let readiness = container.readiness_probe.as_ref();
    let delay = readiness.map_or(0, |probe| seconds(probe.initial_delay_seconds, 0));
    SignedDuration::from_secs(startup.saturating_add(delay))
}

#[cfg(test)]
mod tests;
