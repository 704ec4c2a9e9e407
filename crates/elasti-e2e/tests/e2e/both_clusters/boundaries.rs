//! What the operator leaves alone, and what it says when it cannot go on.

use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{Blueprint, MERGE, Target, TestEnv, blueprint, until};
use serde_json::json;
use tokio::time::sleep;

async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_slice_of_our_name_is_not_touched_and_the_conflict_is_reported() {
    let env = TestEnv::start().await;
    let name = names::resolver_slice("web", names::IpFamily::V4, 0);
    let foreign = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"whose": "mine"}},
        "addressType": "IPv4", "ports": [], "endpoints": [],
    });
    let home = env.home();
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{home}/endpointslices");
    let foreign = env.api().make(&path, foreign).await;
    let web = env.deploy("web").await;
    web.idle();
    until("the conflict is reported", async || {
        let conflict = web.condition(names::condition::CONFLICT).await;
        conflict.is_some_and(|(status, _)| status == "True")
    })
    .await;
    a_while().await;
    let slice = format!("{path}/{name}");
    assert_eq!(env.api().get(&slice).await, foreign, "not touched");
    assert_eq!(web.replicas().await, 1);
    env.api().delete(&slice).await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_private_service_is_not_touched() {
    let env = TestEnv::start().await;
    let name = names::private_service("web");
    let foreign = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 9}]}});
    let path = format!("/api/v1/namespaces/{}/services", env.home());
    let foreign = env.api().make(&path, foreign).await;
    let web = env.deploy("web").await;
    web.idle();
    until("the conflict is reported", async || {
        let conflict = web.condition(names::condition::CONFLICT).await;
        conflict.is_some_and(|(status, _)| status == "True")
    })
    .await;
    a_while().await;
    assert_eq!(env.api().get(&format!("{path}/{name}")).await, foreign);
    assert_eq!(web.replicas().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_elastiservices_on_one_service_the_older_takes_precedence() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    // Ages are whole seconds.
    sleep(Duration::from_millis(1100)).await;
    let mut younger = web.object().await;
    younger["metadata"] = json!({"name": "younger"});
    younger.as_object_mut().unwrap().remove("status");
    let home = env.home();
    let path = format!("/apis/elasti.truefoundry.com/v1alpha1/namespaces/{home}/elastiservices");
    env.api().make(&path, younger).await;
    let younger = format!("{path}/younger");
    until("the younger one steps back", async || {
        env.api().get(&younger).await["status"]["reason"] == "Conflict"
    })
    .await;
    web.fall_asleep().await;
    web.visit().await;
    // The younger one goes without doing harm.
    env.api().delete(&younger).await;
    until("it is gone", async || !env.api().exists(&younger).await).await;
    web.until_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elastiservice_without_its_target_or_service_can_be_deleted() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    env.api().delete(&web.target_path()).await;
    env.api()
        .delete(&format!("{}/web", web.core("services")))
        .await;
    env.api().delete(&web.path()).await;
    until("it is gone", async || web.object().await.is_null()).await;
    assert!(web.our_slices().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_a_sleeping_app_can_be_deleted_and_made_again_and_its_app_sleeps_and_wakes()
 {
    let env = TestEnv::start().await;
    for _ in 0..2 {
        let preview = format!("/api/v1/namespaces/{}", env.namespace("pr-42").await);
        let web = env
            .build(Blueprint {
                namespace: "pr-42",
                target: Target::Deployment,
                ..blueprint("web")
            })
            .await;
        web.until_serving().await;
        web.fall_asleep().await;
        web.visit().await;
        web.busy();
        web.until_serving().await;
        web.fall_asleep().await;
        env.api().delete(&preview).await;
        until("the namespace is gone", async || {
            !env.api().exists(&preview).await
        })
        .await;
    }
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owned_objects_that_someone_edits_or_deletes_are_repaired() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let slice = names::resolver_slice("web", names::IpFamily::V4, 0);
    let slice = format!("{}/{slice}", web.slices_path());
    let edit = json!({"metadata": {"labels": {names::SERVICE_NAME_LABEL: "elsewhere"}}});
    env.api().patch(&slice, MERGE, edit).await;
    until("the label is back", async || {
        web.resolver_slices().await.len() == 1
    })
    .await;
    env.api().delete(&slice).await;
    until("the slice is back", async || {
        web.resolver_slices().await.len() == 1
    })
    .await;
    let private = format!("{}/{}", web.core("services"), names::private_service("web"));
    env.api().delete(&private).await;
    until("the private Service is back", async || {
        env.api().exists(&private).await
    })
    .await;
    web.until_asleep().await;
    // A node that has not seen the new slice yet refuses.
    web.until_nodes_follow().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}
