//! `elasti check` as people type it: an installation as the chart makes it, and every way in which it can be ill.
//! Never looks inside the binary.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod ground;

use elasti_api::names::{self, IpFamily};
use ground::installed::{ELASTI, LEASES, OPERATOR, SERVICES, SLICES, installed, slice};
use ground::{Ground, until};
use insta::assert_snapshot;
use serde_json::json;

/// Message and fix of the lines of one check that are not ok.
async fn trouble(ground: &Ground, check: &str) -> String {
    let report = ground.json(&["check"]).await;
    let lines = report["checks"].as_array().unwrap().iter();
    let bad = lines.filter(|line| line["check"] == check && line["verdict"] != "ok");
    let told: Vec<String> = bad
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            format!("{}: {} | {}", text("verdict"), text("message"), text("fix"))
        })
        .collect();
    told.join("\n")
}

#[tokio::test]
async fn an_installation_as_the_chart_makes_it_is_well() {
    let ground = installed().await;
    assert_snapshot!(ground.type_in(&["check"]).await);
    let report = ground.json(&["check", "-n", "elasti"]).await;
    assert_eq!(report["ok"], true);
    assert_eq!(report["failures"], 0);
}

#[tokio::test]
async fn an_empty_cluster_and_no_cluster_fail() {
    let ground = Ground::with_fake_cluster().await;
    let mut told = ground.type_in(&["check"]).await;
    let bare = Ground::bare();
    bare.write("kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\ncurrent-context: a\n");
    let refused = bare.type_in(&["check", "--kubeconfig", "kubeconfig"]).await;
    assert!(
        refused.contains("FAIL  cluster     the API server does not answer"),
        "{refused}"
    );
    assert!(refused.ends_with("[exit 1]\n"), "{refused}");
    told += &bare.type_in(&["check", "--kubeconfig", "absent"]).await;
    told += &bare.type_in(&["check", "--nonsense"]).await;
    assert_snapshot!(told);
}

#[tokio::test]
async fn every_illness_is_named_with_its_cure() {
    let ground = installed().await;
    let mut told = String::new();

    ground
        .delete(&format!(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{OPERATOR}"
        ))
        .await;
    told += &format!("rights\n{}\n", trouble(&ground, "rights").await);

    let old =
        json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}});
    ground
        .patch(&format!("{LEASES}/{}", names::LEASE), &old)
        .await;
    let stale = trouble(&ground, "lease").await;
    assert!(
        stale.starts_with("fail: operator-1 leads by name, but has not renewed its lease for"),
        "{stale}"
    );
    ground.delete(&format!("{LEASES}/{}", names::LEASE)).await;
    told += &format!("lease\n{}\n", trouble(&ground, "lease").await);

    ground
        .delete("/api/v1/namespaces/elasti/services/elasti-operator-controller-service")
        .await;
    told += &format!("wake path\n{}\n", trouble(&ground, "wake-path").await);

    let name = names::resolver_slice("web", IpFamily::V4, 0);
    ground.delete(&format!("{SLICES}/{name}")).await;
    told += &format!("no slice\n{}\n", trouble(&ground, "slices").await);
    slice(&ground, "web", &[json!("10.9.9.9")]).await;
    told += &format!("stray slice\n{}\n", trouble(&ground, "slices").await);

    slice(&ground, "gone", &[json!("10.9.9.9")]).await;
    ground
        .make(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": names::private_service("gone")}, "spec": {"ports": [{"port": 80}]}}))
        .await;
    let labels = json!({"app": "elasti-resolver", "of": "predecessor"});
    ground
        .make(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "old-elasti-resolver", "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "example.com/elasti-resolver:v0.1.30"}]}}}}))
        .await;
    told += &format!("remains\n{}\n", trouble(&ground, "remains").await);

    for namespace in ["elasti", "default"] {
        ground
            .make(
                &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "closed", "namespace": namespace},
                "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
            )
            .await;
    }
    told += &format!("network\n{}\n", trouble(&ground, "network").await);

    let nameless = json!({"spec": {"triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "1"}}]}});
    ground.patch(&format!("{SERVICES}/web"), &nameless).await;
    told += &format!("prometheus\n{}\n", trouble(&ground, "prometheus").await);

    ground
        .patch(
            &format!("{ELASTI}/elasti-resolver"),
            &json!({"spec": {"replicas": 0}}),
        )
        .await;
    until("no resolver is ready", async || {
        let found = ground
            .get(&format!("{ELASTI}/elasti-resolver"))
            .await
            .unwrap();
        found["status"]["readyReplicas"].as_i64().unwrap_or(0) == 0
    })
    .await;
    told += &format!("resolver\n{}\n", trouble(&ground, "resolver").await);
    assert_snapshot!(told);
    assert!(ground.type_in(&["check"]).await.ends_with("[exit 1]\n"));
}

/// Someone who may not look is told what was not checked, and nothing is guessed.
#[tokio::test]
async fn without_rights_it_says_what_it_could_not_check() {
    let ground = installed().await;
    ground.become_account("nobody").await;
    assert_snapshot!(ground.type_in(&["check", "--kubeconfig", "nobody"]).await);
}
