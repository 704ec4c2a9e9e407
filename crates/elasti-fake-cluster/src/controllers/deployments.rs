//! Deployments: ReplicaSets of the present and of past templates, rolled over within the allowed bounds.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind, only_uid};
use super::workload::{
    FAILURE, compact, condition_of, controlled, is_going, owned_by, owner_key, portion,
    template_hash, unless_zero,
};
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";

#[derive(Debug)]
pub(crate) struct Deployments;

impl Controller for Deployments {
    const COMPONENT: &'static str = "deployment-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::DEPLOYMENTS, Kind::REPLICA_SETS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        if change.group_resource == Kind::DEPLOYMENTS.group_resource() {
            vec![Key::from_object(&change.object.value)]
        } else {
            owner_key(&change.object.value, "Deployment")
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(deployment) = client.get(Kind::DEPLOYMENTS, key) else {
            return Ok(None);
        };
        let deployment = &deployment.value;
        if !is_going(deployment) {
            let (new, old) = sets(client, deployment);
            match new {
                Some(new) => roll_over(client, deployment, &new, &old)?,
                None if deployment.at("/spec/paused") == true => {}
                None => create_set(client, deployment, &old)?,
            }
            delete_old_revisions(client, deployment, &old)?;
        }
        report(client, key)
    }
}

/// The ReplicaSet of the present template and those of past ones.
fn sets(client: &ControllerClient, deployment: &Value) -> (Option<Arc<Stored>>, Vec<Arc<Stored>>) {
    let hash = template_hash(deployment.at("/spec/template"));
    let all = controlled(client, Kind::REPLICA_SETS, deployment);
    let (mut new, old): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|set| set.value.text(&format!("/metadata/labels/{HASH}")) == hash);
    (new.pop(), old)
}

fn replicas(set: &Value) -> i64 {
    set.number("/spec/replicas").unwrap_or(0)
}

fn sum(sets: &[Arc<Stored>], read: impl Fn(&Value) -> i64) -> i64 {
    sets.iter().map(|set| read(&set.value)).sum()
}

/// How many pods may be too many and too few.
fn bounds(deployment: &Value) -> (i64, i64) {
    let wanted = replicas(deployment);
    let strategy = deployment.at("/spec/strategy/rollingUpdate");
    let surge = portion(strategy.at("/maxSurge"), wanted, true);
    let missing = portion(strategy.at("/maxUnavailable"), wanted, false);
    // Both zero would never move.
    if surge == 0 && missing == 0 {
        (0, 1)
    } else {
        (surge, missing.min(wanted))
    }
}

fn create_set(
    client: &ControllerClient,
    deployment: &Value,
    old: &[Arc<Stored>],
) -> Result<(), ApiError> {
    let recreate = deployment.text("/spec/strategy/type") == "Recreate";
    if recreate
        && sum(old, |set| {
            replicas(set).max(set.number("/status/replicas").unwrap_or(0))
        }) > 0
    {
        return old.iter().try_for_each(|set| scale(client, &set.value, 0));
    }
    let hash = template_hash(deployment.at("/spec/template"));
    let (surge, _) = bounds(deployment);
    let room = replicas(deployment) + surge - sum(old, replicas);
    let first = if recreate {
        replicas(deployment)
    } else {
        room.clamp(0, replicas(deployment))
    };
    let revision = 1 + old
        .iter()
        .filter_map(|set| set.value.text(REVISION).parse::<i64>().ok())
        .max()
        .unwrap_or(0);
    let mut template = deployment.at("/spec/template").clone();
    template.put(&format!("/metadata/labels/{HASH}"), hash.as_str());
    let mut selector = deployment.at("/spec/selector").clone();
    selector.put(&format!("/matchLabels/{HASH}"), hash.as_str());
    let mut set = json!({
        "metadata": {
            "name": format!("{}-{hash}", deployment.text("/metadata/name")),
            "labels": template.at("/metadata/labels"),
            "ownerReferences": owned_by(deployment, "apps/v1", "Deployment"),
        },
        "spec": {"replicas": first, "selector": selector, "template": template},
    });
    set.put(REVISION, revision.to_string());
    if let Some(seconds) = deployment.number("/spec/minReadySeconds") {
        set.put("/spec/minReadySeconds", seconds);
    }
    client.create(
        Kind::REPLICA_SETS,
        deployment.text("/metadata/namespace"),
        &set,
    )?;
    Ok(())
}

/// One step of a rollout (or of plain scaling).
fn roll_over(
    client: &ControllerClient,
    deployment: &Value,
    new: &Arc<Stored>,
    old: &[Arc<Stored>],
) -> Result<(), ApiError> {
    let wanted = replicas(deployment);
    if deployment.text("/spec/strategy/type") == "Recreate" {
        old.iter()
            .try_for_each(|set| scale(client, &set.value, 0))?;
        let left = sum(old, |set| set.number("/status/replicas").unwrap_or(0));
        return if left == 0 {
            scale(client, &new.value, wanted)
        } else {
            Ok(())
        };
    }
    let (surge, missing) = bounds(deployment);
    let old_total = sum(old, replicas);
    let current = replicas(&new.value);
    let next = if current > wanted {
        wanted
    } else {
        (wanted + surge - old_total).clamp(current.min(wanted), wanted)
    };
    scale(client, &new.value, next)?;
    // Old pods go as far as enough others are available.
    let available = |set: &Value| {
        set.number("/status/availableReplicas")
            .unwrap_or(0)
            .min(replicas(set))
    };
    let enough = wanted - missing;
    let mut spare = (available(&new.value).min(next) + sum(old, available) - enough).max(0);
    for set in old {
        let sick = replicas(&set.value) - available(&set.value);
        let healthy = available(&set.value).min(spare);
        spare -= healthy;
        scale(client, &set.value, replicas(&set.value) - sick - healthy)?;
    }
    Ok(())
}

fn scale(client: &ControllerClient, set: &Value, to: i64) -> Result<(), ApiError> {
    if replicas(set) != to {
        client.merge(
            Kind::REPLICA_SETS,
            &Key::from_object(set),
            &json!({"spec": {"replicas": to}}),
        )?;
    }
    Ok(())
}

/// Empty ReplicaSets beyond the history limit go, oldest first.
fn delete_old_revisions(
    client: &ControllerClient,
    deployment: &Value,
    old: &[Arc<Stored>],
) -> Result<(), ApiError> {
    let limit = usize::try_from(
        deployment
            .number("/spec/revisionHistoryLimit")
            .unwrap_or(10),
    )
    .unwrap_or(10);
    let mut empty: Vec<&Arc<Stored>> = old
        .iter()
        .filter(|set| {
            replicas(&set.value) == 0 && set.value.number("/status/replicas").unwrap_or(0) == 0
        })
        .collect();
    empty.sort_by_key(|set| set.value.text(REVISION).parse::<i64>().unwrap_or(0));
    for set in empty.iter().take(empty.len().saturating_sub(limit)) {
        client.delete(
            Kind::REPLICA_SETS,
            &Key::from_object(&set.value),
            &only_uid(set.value.text("/metadata/uid")),
        )?;
    }
    Ok(())
}

fn report(client: &ControllerClient, key: &Key) -> Result<Option<Duration>, ApiError> {
    let Some(stored) = client.get(Kind::DEPLOYMENTS, key) else {
        return Ok(None);
    };
    let deployment = &stored.value;
    let (new, old) = sets(client, deployment);
    let every: Vec<Arc<Stored>> = new.iter().chain(&old).cloned().collect();
    let count = |field: &str| {
        sum(&every, |set| {
            set.number(&format!("/status/{field}")).unwrap_or(0)
        })
    };
    let wanted = replicas(deployment);
    let (total, ready, available) = (
        count("replicas"),
        count("readyReplicas"),
        count("availableReplicas"),
    );
    let updated = new
        .as_ref()
        .map_or(0, |set| set.value.number("/status/replicas").unwrap_or(0));
    let (_, missing) = bounds(deployment);
    let complete = new.is_some() && updated == wanted && total == updated && available == updated;
    let name = new
        .as_ref()
        .map_or("", |set| set.value.text("/metadata/name"));
    let enough = available >= wanted - missing;
    let now = client.timestamp();
    let mut conditions = conditions(deployment, &now, enough, complete, name).to_vec();
    // What refuses the pods of a ReplicaSet is reported by its Deployment too.
    let failure = every
        .iter()
        .find_map(|set| condition_of(&set.value, FAILURE));
    conditions.extend(failure.map(|one| {
        let (reason, message) = (one.text("/reason"), one.text("/message"));
        condition(deployment, &now, FAILURE, "True", reason, message)
    }));
    let status = compact(json!({
        "observedGeneration": deployment.number("/metadata/generation"),
        "replicas": unless_zero(total), "updatedReplicas": unless_zero(updated), "readyReplicas": unless_zero(ready),
        "availableReplicas": unless_zero(available), "unavailableReplicas": unless_zero((wanted.max(total) - available).max(0)),
        "conditions": conditions,
    }));
    // The revision goes through the status subresource, so that it does not count as a change of the spec.
    let mut next = deployment.clone();
    if let Some(new) = &new {
        next.put(REVISION, new.value.text(REVISION));
    }
    client.put_status(Kind::DEPLOYMENTS, &next, status)?;
    Ok(None)
}

/// Available and Progressing.
fn conditions(
    deployment: &Value,
    now: &str,
    enough: bool,
    complete: bool,
    set: &str,
) -> [Value; 2] {
    let (status, reason, message) = if enough {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let (why, text) = if complete {
        (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{set}\" has successfully progressed."),
        )
    } else {
        (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{set}\" is progressing."),
        )
    };
    [
        condition(deployment, now, "Available", status, reason, message),
        condition(deployment, now, "Progressing", "True", why, &text),
    ]
}

/// A condition whose times only move when it changes.
fn condition(
    deployment: &Value,
    now: &str,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Value {
    let known = deployment
        .list("/status/conditions")
        .iter()
        .find(|one| one.text("/type") == kind);
    let same = known.filter(|one| one.text("/status") == status);
    let unchanged =
        same.filter(|one| one.text("/reason") == reason && one.text("/message") == message);
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": same.map_or(now, |one| one.text("/lastTransitionTime")),
        "lastUpdateTime": unchanged.map_or(now, |one| one.text("/lastUpdateTime")),
    })
}
