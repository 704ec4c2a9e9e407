//! A stand-in for Argo Rollouts on a real cluster: one ReplicaSet, named, labelled and owned as Argo does it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{ApiClient, MERGE};

/// The label that tells a Rollout's ReplicaSets apart, and its value: the template of a test never changes.
const LABEL: &str = "rollouts-pod-template-hash";
const HASH: &str = "5d8f7c";

/// Plays the controller of one Rollout until it is gone; its ReplicaSet goes with it.
pub(crate) async fn play(api: ApiClient, path: String) {
    let sets = path
        .replace("argoproj.io/v1alpha1", "apps/v1")
        .replace("rollouts", "replicasets");
    let (sets, name) = sets.rsplit_once('/').unwrap_or_default();
    let set = format!("{sets}/{name}-{HASH}");
    loop {
        let rollout = api.get(&path).await;
        if rollout.is_null() {
            return;
        }
        follow(&api, &rollout, sets, &set).await;
        tell(&api, &rollout, &path, &set).await;
        sleep(Duration::from_millis(100)).await;
    }
}

async fn follow(api: &ApiClient, rollout: &Value, sets: &str, set: &str) {
    let found = api.get(set).await;
    let replicas = &rollout["spec"]["replicas"];
    if found.is_null() {
        let sent = replica_set(rollout).to_string();
        api.send("POST", sets, "application/json", sent).await;
    } else if found["spec"]["replicas"] != *replicas {
        let patch = json!({"spec": {"replicas": replicas}});
        api.send("PATCH", set, MERGE, patch.to_string()).await;
    }
}

fn replica_set(rollout: &Value) -> Value {
    let name = rollout["metadata"]["name"].as_str().unwrap_or_default();
    let mut spec = json!({
        "replicas": rollout["spec"]["replicas"],
        "selector": rollout["spec"]["selector"],
        "template": rollout["spec"]["template"],
    });
    spec["selector"]["matchLabels"][LABEL] = json!(HASH);
    spec["template"]["metadata"]["labels"][LABEL] = json!(HASH);
    let owner = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": name,
        "uid": rollout["metadata"]["uid"], "controller": true,
    });
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": format!("{name}-{HASH}"), "ownerReferences": [owner]},
        "spec": spec,
    })
}

/// What `/scale` shows comes from the status.
async fn tell(api: &ApiClient, rollout: &Value, path: &str, set: &str) {
    let status = &api.get(set).await["status"];
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    let app = rollout["spec"]["selector"]["matchLabels"]["app"].as_str();
    let events = json!({
        "HPAReplicas": count("replicas"),
        "replicas": count("replicas"),
        "readyReplicas": count("readyReplicas"),
        "availableReplicas": count("availableReplicas"),
        "selector": format!("app={}", app.unwrap_or_default()),
    });
    if rollout["status"] != events {
        let patch = json!({"status": events}).to_string();
        api.send("PATCH", &format!("{path}/status"), MERGE, patch)
            .await;
    }
}
