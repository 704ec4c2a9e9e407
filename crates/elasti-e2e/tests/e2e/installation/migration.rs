//! A release of KubeElasti on a real cluster is replaced by ours, under load, and given back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_e2e::{App, Installation, MERGE, TestEnv, until};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, interval, sleep};

use crate::adoption::{left_asleep, left_awake, paused_scaled_object, slice_name};

/// A release under KubeElasti's names.
const OLD_CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/charts/kubeelasti");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn an_installation_adopts_what_kube_elasti_left_asleep() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    elasti.uninstall().await;
    let apps = [
        left_asleep(&env, "one", json!({})).await,
        left_asleep(&env, "two", json!({"minTargetReplicas": 2})).await,
    ];
    elasti.install(&[]).await;
    for app in &apps {
        until("the slice leads to our resolvers", async || {
            app.slice_addresses().await == elasti.resolver_addresses().await
        })
        .await;
        app.until_asleep().await;
        app.until_nodes_follow().await;
        app.visit().await;
    }
    env.requests().assert_nothing_lost();
    for app in &apps {
        env.api().delete(&app.path()).await;
        until("it is gone", async || app.object().await.is_null()).await;
        assert!(app.private_service().await.is_null());
        app.visit().await;
    }
    env.requests().assert_nothing_lost();
}

/// A request a second to each app, from now until `stop`; the request log has them, answered or not.
fn a_request_a_second(apps: &[App]) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let (apps, stop) = (apps.to_vec(), Arc::new(AtomicBool::new(false)));
    let stopped = stop.clone();
    let coming = tokio::spawn(async move {
        let (mut sent, mut second) = (JoinSet::new(), interval(Duration::from_secs(1)));
        while !stopped.load(Ordering::Relaxed) {
            second.tick().await;
            for app in apps.clone() {
                sent.spawn(async move { drop(app.get().await) });
            }
        }
        sent.join_all().await;
    });
    (stop, coming)
}

/// Prints and counts what was lost between two moments, by app and by what the client heard.
fn lost_between(env: &TestEnv, what: &str, from: Instant, to: Instant) -> usize {
    let mut all = env.requests().all();
    all.retain(|entry| (from..to).contains(&entry.sent_at));
    let mut lost = env.requests().lost();
    lost.retain(|entry| (from..to).contains(&entry.sent_at));
    println!("{what}: {} sent, {} lost", all.len(), lost.len());
    for entry in &lost {
        let at = entry.sent_at.duration_since(from).as_secs_f64();
        println!("  {} at {at:.1} s: {:?}", entry.app, entry.outcome);
    }
    lost.len()
}

/// What KubeElasti's operator does: the slices of services that sleep lead to its resolver.
async fn route_to(env: &TestEnv, apps: &[App], resolvers: &BTreeSet<String>) {
    let endpoints: Vec<Value> = { resolvers.iter() }
        .map(|address| json!({"addresses": [address]}))
        .collect();
    for app in apps {
        let path = format!("{}/{}", app.slices_path(), slice_name(app.blueprint.name));
        let patch = json!({"endpoints": endpoints, "ports": [{"name": "http", "port": 8012, "protocol": "TCP"}]});
        env.api().patch(&path, MERGE, patch).await;
    }
}

/// When a resolver is ready that is none of these.
async fn ready_resolver(elasti: &Installation, old: &BTreeSet<String>) -> Instant {
    until("another resolver is ready", async || {
        !elasti.resolver_addresses().await.is_subset(old)
    })
    .await;
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn a_release_of_kube_elasti_is_upgraded_in_place_under_load_and_rolled_back() {
    let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
    let elasti = env.installation();
    elasti.uninstall().await;
    elasti.install_other(OLD_CHART).await;
    let old = elasti.resolver_addresses().await;
    paused_scaled_object(&env, "scaled").await;
    let keda = json!({"autoscaler": {"type": "keda", "name": "scaled"}});
    let asleep = [
        left_asleep(&env, "one", json!({})).await,
        left_asleep(&env, "two", json!({"minTargetReplicas": 2})).await,
        left_asleep(&env, "three", json!({})).await,
        left_asleep(&env, "scaled", keda).await,
    ];
    let awake = [
        left_awake(&env, "four").await,
        left_awake(&env, "five").await,
    ];
    route_to(&env, &asleep, &old).await;
    let apps = [&asleep[..], &awake[..]].concat();
    for app in &apps {
        app.until_answering().await;
        app.until_nodes_follow().await;
    }

    let began = Instant::now();
    let (stop, coming) = a_request_a_second(&apps);
    let ((), ready) = tokio::join!(elasti.install(&[]), ready_resolver(&elasti, &old));
    for app in &apps {
        until("it is awake", async || app.replicas().await > 0).await;
        app.busy();
        app.until_serving().await;
    }
    let end = Instant::now();

    // Back: those in use stay awake under load, and one sleeps.
    let sleeper = &asleep[2..3];
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    sleeper[0].fall_asleep().await;
    let in_use = [&asleep[..2], &asleep[3..], &awake[..]].concat();
    let back = Instant::now();
    let (stop, coming) = a_request_a_second(&in_use);
    let ours = elasti.resolver_addresses().await;
    tokio::join!(elasti.roll_back(), async {
        ready_resolver(&elasti, &ours).await;
        let all = elasti.resolver_addresses().await;
        route_to(&env, sleeper, &all.difference(&ours).cloned().collect()).await;
    });
    sleeper[0].until_nodes_follow().await;
    sleeper[0].get().await.unwrap();
    sleep(Duration::from_secs(5)).await;
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    let rolled_back = Instant::now();
    assert_eq!(sleeper[0].replicas().await, 0, "it keeps sleeping");

    let before = lost_between(&env, "until our resolvers were ready", began, ready);
    let after = lost_between(&env, "from then on", ready, end);
    let on_the_way_back = lost_between(&env, "on the way back", back, rolled_back);
    assert_eq!((before, after, on_the_way_back), (0, 0, 0));
    elasti.install(&[]).await;
    sleeper[0].until_nodes_follow().await;
    sleeper[0].visit().await;
    env.requests().assert_nothing_lost();
}
