//! What happens to an installation of the chart on a real cluster, while requests are held and services are in use.

mod every_node;
mod migration;

use std::sync::atomic::Ordering;

use elasti_api::{Phase, names};
use elasti_e2e::{App, OPERATOR, RESOLVER, Target, TestEnv, blueprint, until};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::neighbours::a_version_that_is_not_served_harms_no_other_app;

/// An app whose pods are ready only once they are let in; it sleeps.
async fn asleep_behind_a_door(env: &TestEnv) -> App {
    let mut closed = blueprint("closed");
    closed.replicas = 0;
    closed.has_gate = true;
    let closed = env.build(closed).await;
    closed.idle();
    closed.until_asleep().await;
    // Until then its Service had no endpoint.
    closed.until_nodes_follow().await;
    closed
}

/// So many come, and wait.
async fn held(app: &App, visitors: usize) -> Vec<JoinHandle<()>> {
    let before = app.held().await;
    let waiting = (0..visitors).map(|_| app.visitor()).collect();
    until("they wait", async || app.held().await == before + visitors).await;
    waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn an_operator_that_starts_beside_a_version_that_is_not_served_harms_no_other_app() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    a_version_that_is_not_served_harms_no_other_app(&env, async || elasti.restart(OPERATOR).await)
        .await;
    println!("{} requests, none lost", env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn restarts_and_an_upgrade_under_load_and_with_held_requests_lose_nothing() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    let busy = env.deploy("busy").await;
    busy.until_serving().await;
    let (stop, coming) = busy.visitors();
    let closed = asleep_behind_a_door(&env).await;

    let mut waiting = held(&closed, 8).await;
    elasti.restart(OPERATOR).await;
    waiting.extend(held(&closed, 4).await);
    elasti.restart(RESOLVER).await;
    until("the new resolvers answer for it", async || {
        closed.slice_addresses().await == elasti.resolver_addresses().await
    })
    .await;
    let late = held(&closed, 4).await;
    let now = jiff::Timestamp::now().as_second();
    let mark = format!("global.podAnnotations.upgraded=at-{now}");
    elasti.install(&[&mark]).await;
    until("those of the upgrade answer for it", async || {
        closed.slice_addresses().await == elasti.resolver_addresses().await
    })
    .await;
    waiting.extend(late);
    assert!(
        waiting.iter().all(|visitor| !visitor.is_finished()),
        "no request was answered before the app was there"
    );

    closed.open_gates().await;
    for visitor in waiting {
        visitor.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    env.requests().assert_nothing_lost();
    println!("{} requests, none lost", env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn without_an_operator_a_target_that_is_zeroed_by_hand_holds_its_requests() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    let web = env.deploy("web").await;
    web.until_serving().await;
    until("all resolvers are in its net", async || {
        web.slice_addresses().await == elasti.resolver_addresses().await
    })
    .await;
    web.until_nodes_follow().await;
    let operators = elasti.replicas(OPERATOR).await;
    elasti.scale(OPERATOR, 0).await;
    web.scale_by_hand(0).await;
    until("its pods are gone", async || {
        env.api().items(&web.pods_path()).await.is_empty()
    })
    .await;
    web.until_nodes_follow().await;
    let waiting = held(&web, 3).await;
    elasti.scale(OPERATOR, operators).await;
    for visitor in waiting {
        visitor.await.unwrap();
    }
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn resolvers_are_scaled_from_one_to_three_and_back_under_load_and_no_client_notices() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    elasti.install(&["elastiResolver.replicas=1"]).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    until("one answers for it", async || {
        web.slice_addresses().await.len() == 1
    })
    .await;
    elasti.install(&["elastiResolver.replicas=3"]).await;
    until("all three answer for it", async || {
        let addresses = web.slice_addresses().await;
        addresses.len() == 3 && addresses == elasti.resolver_addresses().await
    })
    .await;
    assert_eq!(web.replicas().await, 0);

    let (stop, coming) = web.visitors();
    web.until_serving().await;
    elasti.install(&["elastiResolver.replicas=1"]).await;
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    web.until_asleep().await;
    until("one answers for it", async || {
        let addresses = web.slice_addresses().await;
        addresses.len() == 1 && addresses == elasti.resolver_addresses().await
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
    println!("{} requests, none lost", env.requests().all().len());
    elasti.install(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn helm_uninstall_wakes_everything_that_sleeps_and_an_installation_finds_it_again() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let elasti = env.installation();
    let mut apps = vec![env.deploy("one").await];
    for (name, target) in [("db", Target::StatefulSet), ("canary", Target::Rollout)] {
        let mut app = blueprint(name);
        app.target = target;
        apps.push(env.build(app).await);
    }
    let scaled_objects = format!(
        "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
        env.home()
    );
    let scaled_object = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "scaled"}, "spec": {"scaleTargetRef": {"name": "scaled"}},
    });
    env.api().make(&scaled_objects, scaled_object).await;
    let mut scaled = blueprint("scaled");
    scaled.spec = json!({"autoscaler": {"type": "keda", "name": "scaled"}});
    apps.push(env.build(scaled).await);
    let mut two = blueprint("two");
    two.ports = vec![("http", 80), ("admin", 81)];
    apps.push(env.build(two).await);
    let busy = env.deploy("busy").await;
    busy.until_serving().await;
    for app in &apps {
        app.until_serving().await;
        app.idle();
    }
    for app in &apps {
        app.until_asleep().await;
    }

    let (stop, coming) = busy.visitors();
    elasti.uninstall().await;
    for app in &apps {
        assert!(app.replicas().await > 0, "{} sleeps", app.blueprint.name);
        assert!(app.our_slices().await.is_empty());
        app.visit().await;
        assert!(!app.object().await.is_null(), "ElastiServices stay");
    }
    let scaled_object = env.api().get(&format!("{scaled_objects}/scaled")).await;
    let paused = &scaled_object["metadata"]["annotations"][names::KEDA_PAUSED_ANNOTATION];
    assert_ne!(*paused, json!("true"), "KEDA has it back");

    elasti.install(&[]).await;
    for app in &apps {
        app.until_asleep().await;
        app.visit().await;
    }
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    assert_eq!(busy.phase().await, Some(Phase::Serving));
    env.requests().assert_nothing_lost();
    println!("{} requests, none lost", env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn an_installation_for_one_namespace_sleeps_and_wakes_there_without_cluster_roles() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    let only = format!("global.allowedNamespaces={{{}}}", env.home());
    elasti.install(&[&only]).await;
    for kind in ["clusterroles", "clusterrolebindings"] {
        let ours = "labelSelector=app.kubernetes.io%2Fpart-of%3Delasti";
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{kind}?{ours}");
        let found = env.api().items(&path).await;
        assert!(found.is_empty(), "{found:?}");
    }
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.visit().await;
    web.fall_asleep().await;
    web.visit().await;
    web.busy();
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;

    env.namespace("beyond").await;
    let mut beyond = blueprint("beyond");
    beyond.namespace = "beyond";
    let beyond = env.build(beyond).await;
    beyond.idle();
    web.until_asleep().await;
    assert_eq!(beyond.phase().await, None, "it is not managed");
    beyond.visit().await;
    env.requests().assert_nothing_lost();
    elasti.install(&[]).await;
}

/// An overlay as a user would write it: his image, and triggers that are read every second.
fn overlay(of: &str, change: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("target/e2e/kustomize").join(of);
    std::fs::create_dir_all(&folder).unwrap();
    // Kustomize takes no absolute paths, so this stays in the repository wherever cargo builds.
    let up = "../".repeat(3 + of.split('/').count());
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{up}deploy/kustomize/{of}]\n\
         images: [{{name: elasti/elasti, newName: docker.io/local/elasti, newTag: dev}}]\n{change}"
    );
    std::fs::write(folder.join("kustomization.yaml"), text).unwrap();
    folder.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn kustomize_installs_and_uninstalls_as_the_chart_does() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    elasti.uninstall().await;
    let each_second = "patches:\n- target: {kind: Deployment, name: elasti-operator-controller-manager}\n  \
         patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: any}\n    \
         spec: {template: {spec: {containers: [{name: manager, env: [{name: POLLING_INTERVAL, value: 1s}]}]}}}\n";
    let default = overlay("overlays/default", each_second);
    elasti.kubectl(&["apply", "-k", &default]).await;
    for deployment in [OPERATOR, RESOLVER] {
        let name = format!("deployment/{deployment}");
        elasti
            .kubectl(&["rollout", "status", &name, "--timeout=120s"])
            .await;
    }
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.visit().await;
    web.fall_asleep().await;
    web.visit().await;
    web.busy();
    web.until_serving().await;
    web.fall_asleep().await;

    elasti
        .kubectl(&["apply", "-k", &overlay("uninstall", "")])
        .await;
    let done = "--for=condition=complete";
    let job = ["wait", done, "job/elasti-uninstall", "--timeout=5m"];
    elasti.kubectl(&job).await;
    elasti
        .kubectl(&["delete", "-k", &default, "--timeout=180s"])
        .await;
    assert!(web.replicas().await > 0, "it sleeps, and nothing wakes it");
    assert!(web.our_slices().await.is_empty());
    web.visit().await;
    env.requests().assert_nothing_lost();

    // The namespace was the overlay's, and went with it.
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"metadata": {"name": "elasti", "labels": labels}});
    env.api().make("/api/v1/namespaces", namespace).await;
    elasti.install(&[]).await;
}
