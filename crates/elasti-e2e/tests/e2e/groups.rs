//! Draining by groups: three pods on three nodes whose kubelets' ticks leave no gap in which all could be drained.

use std::collections::BTreeMap;
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, Blueprint, Target, TestEnv, blueprint};
use jiff::SignedDuration;
use serde_json::Value;

/// The nodes tick 0.85 s apart, so the widest stretch without a tick is 3.3 s; a drain needs 3.4 s.
async fn nodes_that_tick_too_often() -> TestEnv {
    let milliseconds = SignedDuration::from_millis;
    TestEnv::with(|config| {
        config.nodes = 3;
        config.tick = Duration::from_secs(5);
        config.times.tick_period = milliseconds(5_000);
        config.times.tick_timeout = milliseconds(7_500);
        config.times.settle = milliseconds(1_600);
        config.times.margin = milliseconds(900);
    })
    .await
}

/// What was seen of a sleep: the replicas in order, the pods in the order of their end, and those that were ready then.
#[derive(Debug, Default)]
struct Seen {
    replicas: Vec<u64>,
    ended: Vec<String>,
    ended_ready: Vec<String>,
}

impl Seen {
    /// A pod ends that was ready, or was not; `None` if its end was seen before.
    fn end(&mut self, name: String, was_ready: Option<bool>) {
        if let Some(was_ready) = was_ready {
            self.ended.push(name.clone());
            self.ended_ready.extend(was_ready.then_some(name));
        }
    }
}

/// Looks every few milliseconds until the app sleeps and its pods are gone.
async fn watch_it_fall_asleep(env: &TestEnv, app: &App) -> Seen {
    let pods = format!("/api/v1/namespaces/{}/pods", env.home());
    let mut seen = Seen::default();
    let mut ready: BTreeMap<String, bool> = BTreeMap::new();
    app.idle();
    let began = tokio::time::Instant::now();
    loop {
        let replicas = app.replicas().await;
        if seen.replicas.last() != Some(&replicas) {
            seen.replicas.push(replicas);
        }
        let items = env.api().items(&pods).await;
        // A pod may end faster than it is looked at.
        let there = |name: &String| items.iter().any(|pod| pod["metadata"]["name"] == **name);
        let gone: Vec<String> = ready.keys().filter(|name| !there(name)).cloned().collect();
        for name in gone {
            seen.end(name.clone(), ready.remove(&name));
        }
        for pod in &items {
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            match pod["metadata"]["deletionTimestamp"].is_null() {
                true => drop(ready.insert(name, is_ready(pod))),
                false => seen.end(name.clone(), ready.remove(&name)),
            }
        }
        if replicas == 0 && items.is_empty() {
            return seen;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{seen:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn three(name: &'static str, target: Target) -> Blueprint {
    let mut app = blueprint(name);
    app.target = target;
    app.replicas = 3;
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_on_three_nodes_sleeps_although_their_ticks_do_not_fit_together() {
    let env = nodes_that_tick_too_often().await;
    let web = env.build(three("web", Target::Deployment)).await;
    web.until_serving().await;
    let seen = watch_it_fall_asleep(&env, &web).await;
    assert_eq!(seen.ended_ready, [""; 0], "{seen:?}");
    assert!(seen.replicas.is_sorted_by(|a, b| a > b), "{seen:?}");
    web.until_asleep().await;
    assert_eq!(web.status().await.replicas_before_drain, None);
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_stateful_set_ends_its_pods_from_the_top_each_out_of_rotation() {
    let env = nodes_that_tick_too_often().await;
    let db = env.build(three("db", Target::StatefulSet)).await;
    db.until_serving().await;
    let seen = watch_it_fall_asleep(&env, &db).await;
    assert_eq!(seen.ended, ["db-2", "db-1", "db-0"], "{seen:?}");
    assert_eq!(seen.ended_ready, [""; 0], "{seen:?}");
    assert_eq!(seen.replicas, [3, 2, 1, 0]);
    db.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleep_that_is_cancelled_after_the_first_group_restores_the_replicas() {
    let env = nodes_that_tick_too_often().await;
    let web = env.build(three("web", Target::Deployment)).await;
    web.until_serving().await;
    web.idle();
    elasti_e2e::until("the first group is gone", async || {
        (1..3).contains(&web.replicas().await)
    })
    .await;
    web.busy();
    elasti_e2e::until("all replicas are back", async || web.replicas().await == 3).await;
    web.until_serving().await;
    elasti_e2e::until("nothing is left to restore", async || {
        web.status().await.replicas_before_drain.is_none()
    })
    .await;
    let pods = format!("/api/v1/namespaces/{}/pods", env.home());
    elasti_e2e::until("no pod is marked or cheap", async || {
        let pods = env.api().items(&pods).await;
        let cheap = |pod: &Value| {
            let annotations = &pod["metadata"]["annotations"];
            annotations[names::DELETION_COST_ANNOTATION].is_string()
        };
        pods.iter().all(|pod| is_ready(pod) && !cheap(pod))
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}
