//! StatefulSets: numbered pods, one after the other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind, only_uid};
use super::workload::{
    compact, controlled, has_ended, is_available, is_going, is_ready, owned_by, owner_key,
    template_hash, unless_zero,
};
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};

const REVISION: &str = "/metadata/labels/controller-revision-hash";

#[derive(Debug)]
pub(crate) struct StatefulSets;

impl Controller for StatefulSets {
    const COMPONENT: &'static str = "statefulset-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::STATEFUL_SETS, Kind::PODS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        if change.group_resource == Kind::PODS.group_resource() {
            owner_key(&change.object.value, "StatefulSet")
        } else {
            vec![Key::from_object(&change.object.value)]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(set) = client.get(Kind::STATEFUL_SETS, key) else {
            return Ok(None);
        };
        let owner = &set.value;
        if !is_going(owner) {
            let pods = controlled(client, Kind::PODS, owner);
            // In order, no pod is stopped while one that stays is not available.
            let filled = fill(client, owner, &pods)?;
            let shrunk = match filled || is_parallel(owner) {
                true => shrink(client, owner, &pods)?,
                false => false,
            };
            if filled && shrunk {
                renew(client, owner, &pods)?;
            }
        }
        report(client, key)
    }
}

fn revision(owner: &Value) -> String {
    format!(
        "{}-{}",
        owner.text("/metadata/name"),
        template_hash(owner.at("/spec/template"))
    )
}

fn wanted(owner: &Value) -> i64 {
    owner.number("/spec/replicas").unwrap_or(1)
}

fn ordinal(pod: &Value) -> i64 {
    pod.text("/metadata/name")
        .rsplit('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(-1)
}

fn is_parallel(owner: &Value) -> bool {
    owner.text("/spec/podManagementPolicy") == "Parallel"
}

fn is_available_in(client: &ControllerClient, owner: &Value, pod: &Value) -> bool {
    let min_ready = owner.number("/spec/minReadySeconds").unwrap_or(0);
    is_available(client, pod, min_ready)
}

/// Creates the next missing pod; true when all are there and available.
fn fill(client: &ControllerClient, owner: &Value, pods: &[Arc<Stored>]) -> Result<bool, ApiError> {
    let mut settled = true;
    for number in 0..wanted(owner) {
        match pods.iter().find(|pod| ordinal(&pod.value) == number) {
            Some(pod) if has_ended(&pod.value) && !is_going(&pod.value) => {
                client.delete(
                    Kind::PODS,
                    &Key::from_object(&pod.value),
                    &only_uid(pod.value.text("/metadata/uid")),
                )?;
                settled = false;
            }
            Some(pod) if is_available_in(client, owner, &pod.value) && !is_going(&pod.value) => {}
            Some(_) => settled = false,
            None => {
                client.create(
                    Kind::PODS,
                    owner.text("/metadata/namespace"),
                    &pod(owner, number),
                )?;
                settled = false;
            }
        }
        if !settled && !is_parallel(owner) {
            return Ok(false);
        }
    }
    Ok(settled)
}

/// Deletes the highest pod too many; true when there is none. In order, one that is not available is deleted only if every
/// lower pod is available, and none while another one terminates.
fn shrink(
    client: &ControllerClient,
    owner: &Value,
    pods: &[Arc<Stored>],
) -> Result<bool, ApiError> {
    let mut extra: Vec<&Arc<Stored>> = pods
        .iter()
        .filter(|pod| ordinal(&pod.value) >= wanted(owner))
        .collect();
    extra.sort_by_key(|pod| std::cmp::Reverse(ordinal(&pod.value)));
    let available = |pod: &Stored| is_available_in(client, owner, &pod.value);
    let unavailable = pods.iter().filter(|pod| !available(pod));
    let first_unavailable = unavailable.map(|pod| ordinal(&pod.value)).min();
    for pod in &extra {
        let waits = first_unavailable.is_some_and(|lowest| lowest < ordinal(&pod.value));
        if waits && !available(pod) && !is_parallel(owner) {
            break;
        }
        if !is_going(&pod.value) {
            client.delete(
                Kind::PODS,
                &Key::from_object(&pod.value),
                &only_uid(pod.value.text("/metadata/uid")),
            )?;
        }
        if !is_parallel(owner) {
            break;
        }
    }
    Ok(extra.is_empty())
}

/// Replaces the highest pod of an old template.
fn renew(client: &ControllerClient, owner: &Value, pods: &[Arc<Stored>]) -> Result<(), ApiError> {
    if owner.text("/spec/updateStrategy/type") == "OnDelete" {
        return Ok(());
    }
    let partition = owner
        .number("/spec/updateStrategy/rollingUpdate/partition")
        .unwrap_or(0);
    let current = revision(owner);
    let outdated = pods
        .iter()
        .filter(|pod| pod.value.text(REVISION) != current && ordinal(&pod.value) >= partition);
    if let Some(pod) = outdated.max_by_key(|pod| ordinal(&pod.value)) {
        client.delete(
            Kind::PODS,
            &Key::from_object(&pod.value),
            &only_uid(pod.value.text("/metadata/uid")),
        )?;
    }
    Ok(())
}

fn pod(owner: &Value, number: i64) -> Value {
    let template = owner.at("/spec/template");
    let name = format!("{}-{number}", owner.text("/metadata/name"));
    let mut metadata = template.at("/metadata").clone();
    metadata.put("/labels/statefulset.kubernetes.io~1pod-name", name.as_str());
    metadata.put("/labels/apps.kubernetes.io~1pod-index", number.to_string());
    metadata.put("/labels/controller-revision-hash", revision(owner));
    metadata.put(
        "/ownerReferences",
        owned_by(owner, "apps/v1", "StatefulSet"),
    );
    let mut spec = template.at("/spec").clone();
    spec.put("/hostname", name.as_str());
    spec.put("/subdomain", owner.text("/spec/serviceName"));
    metadata.put("/name", name);
    json!({"metadata": metadata, "spec": spec})
}

fn report(client: &ControllerClient, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(set) = client.get(Kind::STATEFUL_SETS, key) else {
        return Ok(None);
    };
    let owner = &set.value;
    let pods = controlled(client, Kind::PODS, owner);
    let count = |test: &dyn Fn(&Value) -> bool| {
        i64::try_from(pods.iter().filter(|pod| test(&pod.value)).count()).unwrap_or(0)
    };
    let ready = count(&|pod| is_ready(pod) && !is_going(pod));
    let available = count(&|pod| is_available_in(client, owner, pod) && !is_going(pod));
    let current = revision(owner);
    let updated = count(&|pod| pod.text(REVISION) == current && !is_going(pod));
    let done = updated == count(&|_| true);
    let known = owner.text("/status/currentRevision");
    let before = if done || known.is_empty() {
        current.as_str()
    } else {
        known
    };
    let status = compact(json!({
        "replicas": pods.len(),
        "readyReplicas": unless_zero(ready),
        "availableReplicas": available,
        "currentReplicas": unless_zero(count(&|pod| pod.text(REVISION) == before)),
        "updatedReplicas": unless_zero(updated),
        "currentRevision": before, "updateRevision": current,
        "observedGeneration": owner.number("/metadata/generation"), "collisionCount": 0,
    }));
    client.put_status(Kind::STATEFUL_SETS, owner, status)?;
    // No event tells when a pod has been ready for long enough.
    Ok((available < ready).then(|| Duration::from_secs(1)))
}
