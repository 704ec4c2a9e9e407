//! What is shown of each pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use serde::Serialize;

use elasti_core::facts::{PodFacts, PodId};

/// One pod of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its node; absent while it has none.
    pub node: Option<String>,
    /// It is ready, or would be but for a drain.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// What it is doing, in a few words.
    pub state: String,
}

impl PodView {
    pub(super) fn from_object(
        object: &core_v1::Pod,
        fail_fast: Option<SignedDuration>,
        now: Timestamp,
    ) -> Self {
        let facts = PodFacts::from_object(object);
        let pod = facts.pod(PodId::from_object(object), fail_fast, now);
        let state = if pod.terminating {
            "terminating".to_owned()
        } else if facts.ended {
            "ended".to_owned()
        } else if pod.ready {
            "ready".to_owned()
        } else if pod.marked {
            "out of rotation, to be stopped".to_owned()
        } else if let Some(obstacle) = &pod.obstacle {
            obstacle.message.clone()
        } else {
            starting(object, pod.node.is_empty())
        };
        Self {
            name: pod.name,
            node: Some(pod.node).filter(|node| !node.is_empty()),
            ready: pod.ready || pod.marked,
            terminating: pod.terminating,
            state,
        }
    }
}

/// How far a pod without an obstacle is.
fn starting(pod: &core_v1::Pod, unscheduled: bool) -> String {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let mut waiting = containers
        .into_iter()
        .flatten()
        .filter_map(|one| one.state.as_ref()?.waiting.as_ref()?.reason.clone());
    match (unscheduled, waiting.next()) {
        (true, _) => "waits for a node".to_owned(),
        (false, Some(reason)) => format!("starts ({reason})"),
        (false, None) => "runs, not ready yet".to_owned(),
    }
}
