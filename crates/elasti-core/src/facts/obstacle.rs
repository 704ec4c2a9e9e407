//! What keeps a pod from starting, from its status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;

use crate::observed::{Obstacle, ObstacleKind};

/// A pod that runs and is not ready for this long will not become ready by waiting.
pub const NEVER_READY_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// The longest message of another component that goes into a status.
const MESSAGE_CHARS: usize = 200;

/// A message of another component as a clause of ours.
pub(super) fn clause(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    text.chars().take(MESSAGE_CHARS).collect()
}

/// What keeps a pod from starting. The text must not change while the obstacle stays: each change is a write.
#[must_use]
pub fn obstacle(status: &core_v1::PodStatus) -> Option<Obstacle> {
    let unschedulable = status.conditions.iter().flatten().find(|c| {
        c.type_ == "PodScheduled"
            && c.status == "False"
            && c.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unschedulable {
        let message = condition.message.as_deref();
        return Some(Obstacle {
            kind: ObstacleKind::Unschedulable,
            message: clause(message.unwrap_or("no node takes it")),
        });
    }
    let init = status.init_container_statuses.iter().flatten();
    let main = status.container_statuses.iter().flatten();
    init.chain(main).find_map(of_container)
}

fn of_container(container: &core_v1::ContainerStatus) -> Option<Obstacle> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let (kind, message) = match waiting.reason.as_deref()? {
        "ImagePullBackOff"
        | "ErrImagePull"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => (
            ObstacleKind::ImagePull,
            format!("image {} cannot be pulled", clause(&container.image)),
        ),
        "CrashLoopBackOff" => (
            ObstacleKind::CrashLoop,
            format!("container {} starts and dies", container.name),
        ),
        "CreateContainerConfigError" | "CreateContainerError" => (
            ObstacleKind::Refused,
            clause(waiting.message.as_deref().unwrap_or("it cannot be created")),
        ),
        _ => return None,
    };
    Some(Obstacle { kind, message })
}

/// Since when a pod has run without being ready; `None` if it is ready or does not run.
pub(super) fn unready_since(status: &core_v1::PodStatus) -> Option<Timestamp> {
    let conditions = status.conditions.iter().flatten();
    conditions
        .filter(|c| c.type_ == super::pod::READY && c.status != "True")
        .filter(|_| status.phase.as_deref() == Some("Running"))
        .find_map(|c| c.last_transition_time.as_ref())
        .map(|t| t.0)
}

/// The obstacle of a pod that has run without being ready for too long.
pub(super) fn never_ready() -> Obstacle {
    Obstacle {
        kind: ObstacleKind::NeverReady,
        message: format!(
            "it has not become ready for {} s",
            NEVER_READY_AFTER.as_secs()
        ),
    }
}
