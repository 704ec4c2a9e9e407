//! Wakes that fail: `elasti why` names the cause that was injected, and the command that shows or fixes it.

use elasti_e2e::{App, Blueprint, blueprint, until};
use serde_json::{Value, json};

use super::user::User;
use crate::transcript::normalised;

/// An app that sleeps.
async fn asleep(change: impl FnOnce(&mut Blueprint)) -> (User, App) {
    let user = User::start().await;
    let mut web = blueprint("web");
    web.replicas = 0;
    web.in_use = false;
    change(&mut web);
    let web = user.env.build(web).await;
    web.until_asleep().await;
    web.until_nodes_follow().await;
    (user, web)
}

/// The same, with a request that wakes it and waits until the test is over.
async fn visited(change: impl FnOnce(&mut Blueprint)) -> (User, App) {
    let (user, web) = asleep(change).await;
    let visited = web.clone();
    tokio::spawn(async move { visited.get().await.map(drop) });
    (user, web)
}

/// For what would be waited for longer.
fn fail_fast() -> Value {
    json!({"hold": {"failFastSeconds": 5}})
}

/// Waits for the operator's word, and asks why.
async fn told_once(user: &User, web: &App, reason: &str) -> String {
    let mut printed = String::new();
    until(&format!("why tells {reason}"), async || {
        if web.status().await.reason.as_deref() != Some(reason) {
            return false;
        }
        let namespace = web.blueprint.namespace;
        printed = user.types(&["why", "web", "-n", namespace]).await;
        // A container that dies is started now and then, and nothing is wrong with it for that moment.
        printed.contains(&format!("!{reason}"))
    })
    .await;
    let wrong = printed.split("Problems\n").nth(1).unwrap_or(&printed);
    let wrong = wrong.split("\n\n").next().unwrap_or_default();
    // On a busy machine a reading may be too old for a moment, which is reported too: the injected cause comes first.
    let more = wrong.lines().skip(1);
    let more = more.take_while(|line| !line.starts_with("  !"));
    let lines = wrong.lines().take(1).chain(more);
    let lines: Vec<String> = lines.map(|line| stable(line, web)).collect();
    let code = printed.lines().last().unwrap_or_default();
    normalised(&format!("{}\n{code}", lines.join("\n")))
}

/// A line without what is the sandbox's own: its namespaces, its number of nodes, what its registry answers.
fn stable(line: &str, web: &App) -> String {
    let mut line = line.replace(web.blueprint.namespace, "NAMESPACE");
    if let Some((head, tail)) = line.split_once("was restarted ") {
        let after = tail.split_once(' ').unwrap().1;
        line = format!("{head}was restarted N {after}");
    }
    if let Some((head, _)) = line.split_once("failed to resolve reference") {
        line = format!("{head}failed to resolve reference ...");
    }
    if let Some((head, tail)) = line.split_once("dial tcp ") {
        let after = tail.split_once(": ").map_or("", |(_, after)| after);
        line = format!("{head}dial tcp ADDRESS: {after}");
    }
    for nodes in ["1", "2", "3"] {
        line = line.replace(&format!("0/{nodes} nodes are"), "0/N nodes are");
        line = line.replace(&format!(" {nodes} node(s)"), " N node(s)");
        line = line.replace(&format!(" {nodes} Preemption"), " N Preemption");
    }
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_image_cannot_be_pulled() {
    // Nothing listens there, on any machine.
    let image = json!({"image": "127.0.0.1:9/missing:1", "imagePullPolicy": "IfNotPresent"});
    let (user, web) = visited(|web| {
        web.pod = json!({"container": image});
        web.spec = fail_fast();
    })
    .await;
    insta::assert_snapshot!(told_once(&user, &web, "ImagePull").await);
    // `elasti wake` reports the same, at once. Between two pulls the pod is only starting, which is reported first.
    let namespace = web.blueprint.namespace;
    let mut wake = String::new();
    until("wake fails at once", async || {
        wake = user.types(&["wake", "web", "-n", namespace]).await;
        !wake.lines().any(|line| line.contains("starting"))
    })
    .await;
    let wake: Vec<String> = wake.lines().map(|line| stable(line, &web)).collect();
    insta::assert_snapshot!(
        "the_image_cannot_be_pulled_on_wake",
        normalised(&wake.join("\n"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_container_starts_and_dies() {
    let (user, web) = visited(|web| {
        web.image = "crash-loop:1";
        web.spec = fail_fast();
    })
    .await;
    insta::assert_snapshot!(told_once(&user, &web, "CrashLoop").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_takes_the_pod() {
    let (user, web) = visited(|web| web.pod = json!({"nodeSelector": {"disk": "ssd"}})).await;
    insta::assert_snapshot!(told_once(&user, &web, "NotScheduled").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_refuses_the_pod() {
    let (user, web) = visited(|web| web.pod = json!({"serviceAccountName": "missing"})).await;
    insta::assert_snapshot!(told_once(&user, &web, "PodRefused").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_never_becomes_ready() {
    let (user, web) = visited(|web| {
        web.image = "never-ready:1";
        web.spec = fail_fast();
    })
    .await;
    insta::assert_snapshot!(told_once(&user, &web, "NeverReady").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_does_not_exist() {
    let user = User::start().await;
    let web = user.env.build_without_target(blueprint("web")).await;
    insta::assert_snapshot!(told_once(&user, &web, "TargetNotFound").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_target_goes_while_it_sleeps() {
    let (user, web) = asleep(|_| {}).await;
    user.env.api().delete(&web.target_path()).await;
    insta::assert_snapshot!(told_once(&user, &web, "TargetNotFound").await);
}
