//! Wakes that fail in a town with a real operator: `elasti why` names the cause that was injected.
//! Never writes a status: the operator does.

use elasti_journeys::until;
use serde_json::{Value, json};

use crate::scene::{DEPLOYMENTS, Scene};

/// An app at zero whose trigger turns active, so that the operator wakes it.
async fn woken(pod: Value) -> Scene {
    let scene = Scene::attended().await;
    scene.workload("web", 0, pod).await;
    scene.declare("web", json!({})).await;
    until("it sleeps behind the resolver", async || {
        let status = &scene.object("web").await["status"];
        status["phase"] == "Asleep" && status["mode"] == "proxy"
    })
    .await;
    scene.reads("web", 12.5);
    scene
}

/// Waits for the operator's word, and asks why. Kubernetes' own words about a pod go on for a while; only what counts
/// is kept.
async fn told_once(scene: &Scene, reason: &str) -> String {
    until("the operator tells the cause", async || {
        scene.object("web").await["status"]["reason"] == reason
    })
    .await;
    let told = scene.types(&["why", "web"]).await;
    let wrong = told.split("What goes wrong\n").nth(1).unwrap_or(&told);
    let wrong = wrong.split("\n\n").next().unwrap_or_default();
    let code = told.lines().last().unwrap_or_default();
    let restarts = |line: &str| match line.split_once("was restarted ") {
        Some((head, tail)) => format!("{head}was restarted N {}", tail.split_once(' ').unwrap().1),
        None => line.to_owned(),
    };
    // On a busy machine a reading may be too old for a moment, which is told too: the injected cause comes first.
    let first = wrong.lines().take(1);
    let more = wrong
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("  !"));
    let lines: Vec<String> = first.chain(more).map(restarts).collect();
    format!("{}\n{code}", lines.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_cannot_be_pulled() {
    let scene = woken(json!({"image": "registry.example/missing:1"})).await;
    insta::assert_snapshot!(told_once(&scene, "ImagePull").await);
    let wake = scene.types(&["wake", "web", "--timeout", "60s"]).await;
    insta::assert_snapshot!("the_image_cannot_be_pulled_on_wake", wake);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_container_starts_and_dies() {
    let scene = woken(json!({"image": "crash-loop:1"})).await;
    insta::assert_snapshot!(told_once(&scene, "CrashLoop").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_takes_the_pod() {
    let scene = woken(json!({"nodeSelector": {"disk": "ssd"}})).await;
    insta::assert_snapshot!(told_once(&scene, "Unschedulable").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_refuses_the_pod() {
    let scene = woken(json!({"serviceAccountName": "nobody"})).await;
    insta::assert_snapshot!(told_once(&scene, "PodRefused").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_does_not_exist() {
    let scene = Scene::attended().await;
    scene.service("web", json!({})).await;
    scene.declare("web", json!({})).await;
    insta::assert_snapshot!(told_once(&scene, "TargetNotFound").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_resolver_is_ready() {
    let scene = Scene::with(|plot| plot.resolvers = 0).await;
    scene.resolver(false).await;
    scene.workload("web", 1, json!({})).await;
    scene.declare("web", json!({"cooldownPeriod": 1})).await;
    insta::assert_snapshot!(told_once(&scene, "NoResolver").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_goes_while_it_sleeps() {
    let scene = woken(json!({"image": "registry.example/missing:1"})).await;
    told_once(&scene, "ImagePull").await;
    scene.hood.api().delete(&format!("{DEPLOYMENTS}/web")).await;
    insta::assert_snapshot!(told_once(&scene, "TargetNotFound").await);
}
