//! `elasti uninstall-hook` as Helm runs it: sleeping services are awake afterwards, and nothing of ours is left in the path.

use std::process::Output;

use crate::process::elasti;
use elasti_api::names;
use elasti_testkit::fixture::{
    self, DEPLOYMENTS, ELASTI, Fixture, MERGE, SLICES, http_get as ask, service,
};
use serde_json::{Value, json};

async fn hook(fixture: &Fixture, patience_seconds: &str) -> Output {
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, fixture.fake_cluster.kubeconfig()).unwrap();
    elasti(&["uninstall-hook", "--patience-seconds", patience_seconds])
        .args(["--operator-namespace", "default", "--operator", "operator"])
        .args(["--settle-seconds", "1"])
        .env("KUBECONFIG", &kubeconfig)
        .output()
        .await
        .unwrap()
}

async fn finalize(fixture: &Fixture, name: &str) {
    let finalizers = json!([names::FINALIZER, "example.com/other"]);
    let patch = json!({"metadata": {"finalizers": finalizers}});
    fixture
        .api_client
        .patch(&format!("{ELASTI}/{name}"), MERGE, patch)
        .await;
}

async fn our_slices(fixture: &Fixture) -> usize {
    let label = format!(
        "{}={}",
        names::SLICE_MANAGED_BY_LABEL,
        names::SLICE_MANAGED_BY_ELASTI
    );
    fixture
        .api_client
        .items(&format!("{SLICES}?labelSelector={label}"))
        .await
        .len()
}

#[tokio::test]
async fn what_sleeps_is_awake_afterwards_and_answers_without_a_resolver_r14() {
    let mut fixture = Fixture::start().await;
    fixture
        .api_client
        .make(DEPLOYMENTS, json!({
            "metadata": {"name": "operator"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "operator"}}, "template": {
                "metadata": {"labels": {"app": "operator"}},
                "spec": {"containers": [{"name": "app", "image": "echo:1"}]}}},
        }))
        .await;
    let mut cart = service("cart");
    cart.spec = json!({"minTargetReplicas": 2});
    let address = fixture.asleep(cart).await;
    finalize(&fixture, "cart").await;
    assert_eq!(our_slices(&fixture).await, 1);

    let ended = hook(&fixture, "300").await;

    assert_eq!(
        ended.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let replicas = async |name: &str| {
        fixture
            .api_client
            .get(&format!("{DEPLOYMENTS}/{name}"))
            .await["spec"]["replicas"]
            .clone()
    };
    assert_eq!(replicas("cart").await, 2);
    assert_eq!(replicas("operator").await, 0);
    assert_eq!(our_slices(&fixture).await, 0);
    let me = fixture.api_client.get(&format!("{ELASTI}/cart")).await;
    assert_eq!(me["metadata"]["finalizers"], json!(["example.com/other"]));
    drop(fixture.resolver.take());
    fixture::until("its pods answer", async || {
        ask(&address, "/").await.code() == 200
    })
    .await;
}

#[tokio::test]
async fn a_target_that_does_not_start_keeps_its_resolver_and_is_named() {
    let fixture = Fixture::start().await;
    let mut slow = service("slow");
    slow.start_seconds = "3600";
    fixture.asleep(slow).await;
    finalize(&fixture, "slow").await;

    let ended = hook(&fixture, "3").await;

    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("default/slow: no pod is ready"), "{said}");
    assert_eq!(our_slices(&fixture).await, 1);
    let me = fixture.api_client.get(&format!("{ELASTI}/slow")).await;
    assert_eq!(
        me["metadata"]["finalizers"],
        json!([names::FINALIZER, "example.com/other"])
    );
}

/// As KubeElasti makes it, with the same addresses.
fn as_of_kube_elasti(slice: &Value) -> Value {
    let endpoints = slice["endpoints"].as_array().unwrap().iter();
    let bare: Vec<Value> = endpoints
        .map(|one| json!({"addresses": one["addresses"]}))
        .collect();
    json!({
        "metadata": {"name": slice["metadata"]["name"], "labels": {names::SERVICE_NAME_LABEL: "cart"}},
        "addressType": "IPv4",
        "ports": slice["ports"],
        "endpoints": bare,
    })
}

#[tokio::test]
async fn a_slice_of_kube_elasti_that_nobody_has_adopted_goes_too() {
    let fixture = Fixture::start().await;
    fixture.asleep(service("cart")).await;
    let name = names::resolver_slice("cart", names::IpFamily::V4, 0);
    let path = format!("{SLICES}/{name}");
    let ours = fixture.api_client.get(&path).await;
    fixture.api_client.delete(&path).await;
    let left = as_of_kube_elasti(&ours);
    fixture.api_client.make(SLICES, left).await;

    let ended = hook(&fixture, "300").await;

    assert_eq!(ended.status.code(), Some(0));
    assert!(fixture.api_client.get(&path).await.is_null());
}
