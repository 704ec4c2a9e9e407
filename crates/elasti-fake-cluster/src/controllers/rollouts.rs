//! A stand-in for Argo Rollouts: one ReplicaSet a template, scaled through `/scale`; no canary, no analysis.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind};
use super::workload::{
    compact, controlled, is_going, owned_by, owner_key, template_hash, unless_zero,
};
use crate::api_server::object::Object as _;
use crate::api_server::scale::selector_text;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};

const HASH: &str = "rollouts-pod-template-hash";

#[derive(Debug)]
pub(crate) struct Rollouts;

/// The definition, as open as Argo's is detailed.
pub(crate) fn definition() -> Value {
    super::stand_in_definition(
        "argoproj.io",
        "Rollout",
        "rollouts",
        "ro",
        &json!({
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.HPAReplicas", "labelSelectorPath": ".status.selector"},
        }),
    )
}

impl Controller for Rollouts {
    const COMPONENT: &'static str = "rollouts-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::ROLLOUTS, Kind::REPLICA_SETS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        if change.group_resource == Kind::ROLLOUTS.group_resource() {
            vec![Key::from_object(&change.object.value)]
        } else {
            owner_key(&change.object.value, "Rollout")
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(rollout) = client.get(Kind::ROLLOUTS, key) else {
            return Ok(None);
        };
        let rollout = &rollout.value;
        if is_going(rollout) {
            return Ok(None);
        }
        let hash = template_hash(rollout.at("/spec/template"));
        let sets = controlled(client, Kind::REPLICA_SETS, rollout);
        let wanted = rollout.number("/spec/replicas").unwrap_or(1);
        let is_new =
            |set: &Arc<Stored>| set.value.text(&format!("/metadata/labels/{HASH}")) == hash;
        if !sets.iter().any(is_new) {
            client.create(
                Kind::REPLICA_SETS,
                &key.namespace,
                &replica_set(rollout, &hash, wanted),
            )?;
        }
        let ready = |set: &Value| set.number("/status/readyReplicas").unwrap_or(0);
        let new_is_ready = sets
            .iter()
            .any(|set| is_new(set) && ready(&set.value) >= wanted);
        for set in &sets {
            // Old pods leave when the new ones are ready.
            let to = if is_new(set) {
                wanted
            } else if new_is_ready {
                0
            } else {
                continue;
            };
            if set.value.number("/spec/replicas") != Some(to) {
                client.merge(
                    Kind::REPLICA_SETS,
                    &Key::from_object(&set.value),
                    &json!({"spec": {"replicas": to}}),
                )?;
            }
        }
        report(client, rollout, &sets)
    }
}

fn replica_set(rollout: &Value, hash: &str, replicas: i64) -> Value {
    let mut template = rollout.at("/spec/template").clone();
    template.put(&format!("/metadata/labels/{HASH}"), hash);
    let mut selector = rollout.at("/spec/selector").clone();
    selector.put(&format!("/matchLabels/{HASH}"), hash);
    json!({
        "metadata": {
            "name": format!("{}-{hash}", rollout.text("/metadata/name")), "labels": template.at("/metadata/labels"),
            "ownerReferences": owned_by(rollout, "argoproj.io/v1alpha1", "Rollout"),
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}

fn report(
    client: &ControllerClient,
    rollout: &Value,
    sets: &[Arc<Stored>],
) -> Result<Option<Duration>, ApiError> {
    let sum = |field: &str| {
        sets.iter()
            .filter_map(|set| set.value.number(&format!("/status/{field}")))
            .sum::<i64>()
    };
    let (total, ready) = (sum("replicas"), sum("readyReplicas"));
    let wanted = rollout.number("/spec/replicas").unwrap_or(1);
    let status = compact(json!({
        "replicas": unless_zero(total), "readyReplicas": unless_zero(ready), "availableReplicas": unless_zero(sum("availableReplicas")),
        "HPAReplicas": total, "selector": selector_text(rollout.at("/spec/selector")),
        "observedGeneration": rollout.number("/metadata/generation").unwrap_or(0).to_string(),
        "phase": if ready >= wanted && total == wanted { "Healthy" } else { "Progressing" },
    }));
    client.put_status_of(
        Kind::ROLLOUTS,
        "argoproj.io/v1alpha1",
        "Rollout",
        rollout,
        status,
    )?;
    Ok(None)
}
