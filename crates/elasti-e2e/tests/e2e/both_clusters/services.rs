//! All Services of an app's pods: each has its net, is held while the app sleeps, and wakes it.

use std::time::Duration;

use elasti_api::{Phase, names};
use elasti_e2e::{App, TestEnv, blueprint, until};
use serde_json::json;
use tokio::time::sleep;

async fn until_it_has_a_net(service: &App) {
    until("its net is there", async || {
        !service.our_slices().await.is_empty()
    })
    .await;
    assert!(service.resolver_slices().await.is_empty(), "no redirect");
}

async fn until_redirected(service: &App) {
    until("it goes to the resolvers", async || {
        !service.resolver_slices().await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_of_one_deployment_both_sleep_and_wake_it() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    let admin = web.add_service("admin", json!({})).await;
    web.until_serving().await;
    until_it_has_a_net(&admin).await;
    sleep(env.settle()).await;
    // Visitors of both on its way down.
    web.idle();
    for phase in [Phase::Redirecting, Phase::Draining] {
        web.until_phase(phase).await;
        tokio::join!(admin.visit(), web.visit());
    }
    web.until_asleep().await;
    assert_eq!(admin.resolver_slices().await.len(), 1);
    // Each of them wakes it.
    for service in [&admin, &web, &admin] {
        web.until_nodes_follow().await;
        service.visit().await;
        assert!(web.replicas().await > 0);
        web.until_asleep().await;
    }
    web.busy();
    web.until_serving().await;
    until("both go to their pods", async || {
        admin.resolver_slices().await.is_empty()
    })
    .await;
    tokio::join!(admin.visit(), web.visit());
    env.api().delete(&web.path()).await;
    until("it is gone", async || web.object().await.is_null()).await;
    assert!(admin.our_slices().await.is_empty());
    assert!(admin.private_service().await.is_null());
    tokio::join!(admin.visit(), web.visit());
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_deleted_or_selects_other_pods_keeps_nothing_of_ours() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    let admin = web.add_service("admin", json!({})).await;
    let extra = web.add_service("extra", json!({})).await;
    web.until_serving().await;
    web.fall_asleep().await;
    until_redirected(&admin).await;
    until_redirected(&extra).await;
    let elsewhere = json!({"spec": {"selector": {"app": "elsewhere"}}});
    let path = format!("{}/admin", web.core("services"));
    env.api().patch(&path, elasti_e2e::MERGE, elsewhere).await;
    env.api()
        .delete(&format!("{}/extra", web.core("services")))
        .await;
    for service in [&admin, &extra] {
        until("nothing of ours is left", async || {
            service.our_slices().await.is_empty() && service.private_service().await.is_null()
        })
        .await;
    }
    until("the status forgets them", async || {
        web.status().await.services.is_empty()
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_headless_service_is_named_and_blocks_sleep_where_the_spec_says_so() {
    let env = TestEnv::start().await;
    let mut web = blueprint("web");
    web.spec = json!({"unmanagedServices": "block"});
    let web = env.build(web).await;
    let peers = json!({"clusterIP": "None"});
    let peers = web.add_service("peers", peers).await;
    web.until_serving().await;
    let named = names::condition::UNMANAGED_SERVICES;
    until("the condition names it", async || {
        let status = web.status().await;
        let mut conditions = status.conditions.iter();
        conditions.any(|c| c.type_ == named && c.message.contains("peers"))
    })
    .await;
    web.idle();
    until("it says why it does not sleep", async || {
        web.status().await.reason.as_deref() == Some("Unsupported")
    })
    .await;
    assert!(web.replicas().await > 0);
    web.edit(json!({"unmanagedServices": "allow"})).await;
    web.until_asleep().await;
    assert!(peers.our_slices().await.is_empty());
    assert_eq!(web.condition(named).await.unwrap().0, "True");
    env.api()
        .delete(&format!("{}/peers", web.core("services")))
        .await;
    until("the condition goes with it", async || {
        web.condition(named).await.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_pods_of_another_owner_serve_keeps_the_net_only() {
    let env = TestEnv::start().await;
    let group = json!({"group": "shop"});
    let mut web = blueprint("web");
    web.labels = group.clone();
    let web = env.build(web).await;
    let mut zoo = blueprint("zoo");
    zoo.labels = group.clone();
    let zoo = env.build(zoo).await;
    let shared = json!({"selector": group});
    let shared = web.add_service("shared", shared).await;
    web.until_serving().await;
    zoo.until_serving().await;
    until_it_has_a_net(&shared).await;
    web.fall_asleep().await;
    web.until_nodes_follow().await;
    assert!(shared.resolver_slices().await.is_empty(), "the net only");
    shared.visit().await;
    assert_eq!(web.replicas().await, 0, "the other owner's pod answered");
    // Without the other owner's pods it goes to the resolvers, and wakes.
    env.api().delete(&zoo.path()).await;
    until("it is gone", async || zoo.object().await.is_null()).await;
    zoo.scale_by_hand(0).await;
    until_redirected(&shared).await;
    web.until_nodes_follow().await;
    sleep(Duration::from_millis(500)).await;
    shared.visit().await;
    assert!(web.replicas().await > 0);
    env.requests().assert_nothing_lost();
}

/// Of two ElastiServices for one target the older manages it, and with it the Service that the younger names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_a_younger_elastiservice_for_the_same_target_is_held_and_wakes_it() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    let admin = web.add_service("admin", json!({})).await;
    web.until_serving().await;
    until_it_has_a_net(&admin).await;
    // Times of creation are in whole seconds, and of two the same age the first by name is the older.
    let younger = json!({"scaleTargetRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
    sleep(Duration::from_millis(1_100)).await;
    let mut second = admin.clone();
    second.blueprint.spec = younger;
    second.manage().await;
    until("the younger one says so", async || {
        second.status().await.reason.as_deref() == Some("Conflict")
    })
    .await;
    web.fall_asleep().await;
    until_redirected(&admin).await;
    admin.visit().await;
    web.busy();
    web.until_serving().await;
    env.api().delete(&second.path()).await;
    until("it is gone", async || second.object().await.is_null()).await;
    web.fall_asleep().await;
    until_redirected(&admin).await;
    admin.visit().await;
    env.requests().assert_nothing_lost();
}
