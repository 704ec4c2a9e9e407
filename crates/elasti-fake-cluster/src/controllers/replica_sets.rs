//! ReplicaSets: as many pods as desired.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind, only_uid};
use super::workload::{
    FAILURE, compact, condition_of, controlled, has_ended, is_available, is_going, is_ready,
    owned_by, owner_key, unless_zero,
};
use crate::api_server::object::Object as _;
use crate::api_server::selector::Selector;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};

/// Pods that are refused are tried again after this long.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ReplicaSets;

impl Controller for ReplicaSets {
    const COMPONENT: &'static str = "replicaset-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::REPLICA_SETS, Kind::PODS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        if change.group_resource == Kind::PODS.group_resource() {
            owner_key(&change.object.value, "ReplicaSet")
        } else {
            vec![Key::from_object(&change.object.value)]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(set) = client.get(Kind::REPLICA_SETS, key) else {
            return Ok(None);
        };
        let owner = &set.value;
        let living = |pod: &Arc<Stored>| !is_going(&pod.value) && !has_ended(&pod.value);
        let mut pods: Vec<Arc<Stored>> = controlled(client, Kind::PODS, owner)
            .into_iter()
            .filter(living)
            .collect();
        let wanted = usize::try_from(owner.number("/spec/replicas").unwrap_or(1)).unwrap_or(0);
        let mut refused = None;
        if !is_going(owner) {
            for _ in pods.len()..wanted {
                match client.create(Kind::PODS, &key.namespace, &pod(owner)) {
                    Ok(_) => {}
                    Err(error @ ApiError::Forbidden { .. }) => {
                        refused = Some(error.to_string());
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            sort_for_deletion(&mut pods);
            for extra in pods.iter().take(pods.len().saturating_sub(wanted)) {
                client.delete(
                    Kind::PODS,
                    &Key::from_object(&extra.value),
                    &only_uid(extra.value.text("/metadata/uid")),
                )?;
            }
        }
        if let Some(message) = &refused {
            let error = format!("Error creating: {message}");
            client.warn(("apps/v1", "ReplicaSet"), owner, "FailedCreate", &error);
        }
        let later = report(client, key, refused.as_deref())?;
        Ok(refused.map_or(later, |_| Some(RETRY_INTERVAL)))
    }
}

/// Those that go first come first, as Kubernetes 1.34 ranks them (`ActivePodsWithRanks`): without a node, pending, not
/// ready, of the lower deletion cost, on a node with more of them, ready later, restarted more often, younger.
fn sort_for_deletion(pods: &mut [Arc<Stored>]) {
    let mut on_node: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter() {
        let node = pod.value.text("/spec/nodeName").to_owned();
        *on_node.entry(node).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let pod = &pod.value;
        let node = pod.text("/spec/nodeName");
        let cost = pod.text("/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost");
        let restarts = { pod.list("/status/containerStatuses").iter() }
            .filter_map(|one| one.number("/restartCount"))
            .max();
        let ready_since = condition_of(pod, "Ready").map(|one| one.text("/lastTransitionTime"));
        (
            (
                !node.is_empty(),
                pod.text("/status/phase") == "Running",
                is_ready(pod),
                cost.parse::<i64>().unwrap_or(0),
            ),
            Reverse(on_node.get(node).copied()),
            Reverse(ready_since.filter(|_| is_ready(pod)).map(str::to_owned)),
            Reverse(restarts),
            Reverse(pod.text("/metadata/creationTimestamp").to_owned()),
        )
    });
}

fn pod(owner: &Value) -> Value {
    let template = owner.at("/spec/template");
    let mut metadata = template.at("/metadata").clone();
    metadata.put(
        "/generateName",
        format!("{}-", owner.text("/metadata/name")),
    );
    metadata.put("/ownerReferences", owned_by(owner, "apps/v1", "ReplicaSet"));
    json!({"metadata": metadata, "spec": template.at("/spec")})
}

fn report(
    client: &ControllerClient,
    key: &Key,
    refused: Option<&str>,
) -> Result<Option<Duration>, ApiError> {
    let Some(set) = client.get(Kind::REPLICA_SETS, key) else {
        return Ok(None);
    };
    let owner = &set.value;
    let pods: Vec<Arc<Stored>> = controlled(client, Kind::PODS, owner)
        .into_iter()
        .filter(|pod| !is_going(&pod.value) && !has_ended(&pod.value))
        .collect();
    let min_ready = owner.number("/spec/minReadySeconds").unwrap_or(0);
    let count = |test: &dyn Fn(&Value) -> bool| {
        i64::try_from(pods.iter().filter(|pod| test(&pod.value)).count()).unwrap_or(0)
    };
    let labels = Selector::equalities(owner.at("/spec/template/metadata/labels"));
    let (ready, available) = (
        count(&is_ready),
        count(&|pod| is_available(client, pod, min_ready)),
    );
    // As in Kubernetes, the first refusal's words stay: each try names another pod, and a status that followed them
    // would be written, and so looked at, without end.
    let failure = refused.map(|message| match condition_of(owner, FAILURE) {
        Some(known) => json!([known]),
        None => json!([{
            "type": FAILURE, "status": "True", "reason": "FailedCreate", "message": message,
            "lastTransitionTime": client.timestamp(),
        }]),
    });
    let status = compact(json!({
        "conditions": failure,
        "replicas": pods.len(),
        "fullyLabeledReplicas": unless_zero(count(&|pod| labels.matches(pod))),
        "readyReplicas": unless_zero(ready),
        "availableReplicas": unless_zero(available),
        "observedGeneration": owner.number("/metadata/generation"),
    }));
    client.put_status(Kind::REPLICA_SETS, owner, status)?;
    Ok((available < ready).then(|| Duration::from_secs(1)))
}
