//! A stand-in for Argo Rollouts on a real cluster: a Deployment of the same name does the work.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{ApiClient, MERGE};

/// Plays the controller of one Rollout until it is gone.
pub(crate) async fn play(api: ApiClient, path: String) {
    let deployments = path
        .replace("argoproj.io/v1alpha1", "apps/v1")
        .replace("rollouts", "deployments");
    let (deployments, name) = deployments.rsplit_once('/').unwrap_or_default();
    let deployment = format!("{deployments}/{name}");
    loop {
        let rollout = api.get(&path).await;
        if rollout.is_null() {
            return;
        }
        follow(&api, &rollout, deployments, &deployment).await;
        tell(&api, &rollout, &path, &deployment).await;
        sleep(Duration::from_millis(100)).await;
    }
}

async fn follow(api: &ApiClient, rollout: &Value, deployments: &str, deployment: &str) {
    let name = &rollout["metadata"]["name"];
    let found = api.get(deployment).await;
    if found.is_null() {
        let object = json!({"metadata": {"name": name}, "spec": rollout["spec"]});
        let sent = object.to_string();
        api.send("POST", deployments, "application/json", sent)
            .await;
    } else if found["spec"]["replicas"] != rollout["spec"]["replicas"] {
        let patch = json!({"spec": {"replicas": rollout["spec"]["replicas"]}});
        api.send("PATCH", deployment, MERGE, patch.to_string())
            .await;
    }
}

/// What `/scale` shows comes from the status.
async fn tell(api: &ApiClient, rollout: &Value, path: &str, deployment: &str) {
    let status = &api.get(deployment).await["status"];
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
