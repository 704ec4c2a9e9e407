//! Defects of the predecessor, each as what its users felt; here none of them happens.

use elasti_api::names;
use elasti_e2e::{MERGE, TestEnv, blueprint, until};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_a_wake_counts_what_is_asked_for_and_not_what_is_still_there() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    // The workload's controller is behind: it still counts a replica while none is asked for.
    let lie = json!({"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}});
    let path = format!("{}/status", web.target_path());
    env.api().patch(&path, MERGE, lie).await;
    web.visit().await;
    assert_eq!(web.replicas().await, 1);
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r18_without_min_target_replicas_a_wake_asks_for_one() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    assert_eq!(web.replicas().await, 1);
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r19_deleting_the_elastiservice_of_a_sleeping_app_leaves_an_app_that_answers() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    env.api().delete(&web.path()).await;
    // While it goes, and after.
    web.visit().await;
    until("the ElastiService is gone", async || {
        web.object().await.is_null()
    })
    .await;
    assert!(web.replicas().await > 0);
    assert!(web.our_slices().await.is_empty());
    until("the private Service is gone", async || {
        web.private_service().await.is_null()
    })
    .await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r21_the_private_service_never_gets_a_load_balancer_of_its_own() {
    let env = TestEnv::start().await;
    let mut exposed = blueprint("web");
    exposed.service = json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.7"]});
    let web = env.build(exposed).await;
    web.until_serving().await;
    let spec = web.private_service().await["spec"].clone();
    assert_eq!(spec["type"], "ClusterIP");
    for absent in [
        "externalIPs",
        "loadBalancerIP",
        "loadBalancerClass",
        "healthCheckNodePort",
    ] {
        assert_eq!(spec[absent], Value::Null, "{spec}");
    }
    assert_eq!(spec["ports"][0]["nodePort"], Value::Null, "{spec}");
    assert_eq!(spec["selector"], json!({"app": "web"}));
    web.fall_asleep().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r24_events_are_valid_and_stand_where_people_look() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    web.visit().await;
    let uid_of = |object: Value| object["metadata"]["uid"].clone();
    let target = env.api().get(&web.target_path()).await;
    for (kind, uid) in [
        ("ElastiService", uid_of(web.object().await)),
        ("Deployment", uid_of(target)),
    ] {
        until("both directions are reported", async || {
            let events = web.events(kind).await;
            let events = |text: &str| {
                let scaled = events
                    .iter()
                    .filter(|e| e["reason"] == names::event::SUCCESS_TO_SCALE);
                scaled
                    .clone()
                    .any(|e| e["note"].as_str().unwrap_or_default().contains(text))
            };
            events("to 0") && events("from 0 to 1")
        })
        .await;
        let mut events = web.events(kind).await;
        // Of a Deployment its own controller tells too.
        events.retain(|event| event["reportingController"] == names::EVENT_REPORTER);
        for event in events {
            assert!(
                ["Normal", "Warning"].contains(&event["type"].as_str().unwrap()),
                "{event}"
            );
            assert_eq!(event["regarding"]["uid"], uid, "{event}");
        }
    }
}
