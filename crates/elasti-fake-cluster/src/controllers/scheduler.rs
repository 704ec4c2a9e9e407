//! The scheduler: every pod without a node gets the next ready one.

use std::time::Duration;

use serde_json::json;

use super::engine::{Change, Controller, ControllerClient, Kind};
use super::workload::{condition, is_going};
use crate::api_server::object::Object as _;
use crate::api_server::selector::Selector;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

/// Pods that fit nowhere are tried again after this long.
const RESYNC_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    turn: usize,
}

impl Controller for Scheduler {
    const COMPONENT: &'static str = "default-scheduler";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::PODS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        let pod = &change.object.value;
        let waits = pod.text("/spec/nodeName").is_empty() && !is_going(pod) && !change.deleted;
        if waits {
            vec![Key::from_object(pod)]
        } else {
            vec![]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(pod) = client.get(Kind::PODS, key) else {
            return Ok(None);
        };
        if !pod.value.text("/spec/nodeName").is_empty() || is_going(&pod.value) {
            return Ok(None);
        }
        let wanted = Selector::equalities(pod.value.at("/spec/nodeSelector"));
        let nodes = client.list(Kind::NODES, None);
        let count = nodes.len();
        let fit: Vec<_> = nodes
            .into_iter()
            .filter(|node| {
                condition(&node.value, "Ready") == "True"
                    && node.value.at("/spec/unschedulable") != true
                    && wanted.matches(&node.value)
            })
            .collect();
        let Some(node) = fit.get(self.turn % fit.len().max(1)) else {
            return unschedulable(client, key, count);
        };
        self.turn += 1;
        let binding = json!({"metadata": {"name": key.name}, "target": {"kind": "Node", "name": node.value.text("/metadata/name")}});
        client.post_subresource(Kind::PODS, key, "binding", &binding)?;
        Ok(None)
    }
}

fn unschedulable(
    client: &ControllerClient,
    key: &Key,
    nodes: usize,
) -> Result<Option<Duration>, ApiError> {
    let Some(pod) = client.get(Kind::PODS, key) else {
        return Ok(None);
    };
    if condition(&pod.value, "PodScheduled") != "False" {
        let message = match nodes {
            0 => "no nodes available to schedule pods".to_owned(),
            n => format!(
                "0/{n} nodes are available: {n} node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/{n} nodes are available: {n} Preemption is not helpful for scheduling."
            ),
        };
        client.warn(("v1", "Pod"), &pod.value, "FailedScheduling", &message);
        let mut status = pod.value.at("/status").clone();
        status.put("/conditions", json!([{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastProbeTime": null,
            "lastTransitionTime": client.timestamp(), "message": message,
        }]));
        client.put_status(Kind::PODS, &pod.value, status)?;
    }
    Ok(Some(RESYNC_INTERVAL))
}
