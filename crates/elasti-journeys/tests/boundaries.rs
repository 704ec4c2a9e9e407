//! What the operator leaves alone, and what it says when it cannot go on.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::time::Duration;

use elasti_api::{Phase, names};
use elasti_journeys::{
    Blueprint, MERGE, Neighbourhood, OPERATOR_USER, Target, blueprint, get, until,
};
use elasti_town::faults::Verb;
use serde_json::json;
use tokio::time::sleep;

async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_slice_of_our_name_is_not_touched_and_the_conflict_is_told() {
    let hood = Neighbourhood::start().await;
    let name = names::resolver_slice("web", names::IpFamily::V4, 0);
    let foreign = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"whose": "mine"}},
        "addressType": "IPv4", "ports": [], "endpoints": [],
    });
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let foreign = hood.api().make(path, foreign).await;
    let web = hood.deploy("web").await;
    web.idle();
    until("the conflict is told", async || {
        let conflict = web.condition(names::condition::CONFLICT).await;
        conflict.is_some_and(|(status, _)| status == "True")
    })
    .await;
    a_while().await;
    let slice = format!("{path}/{name}");
    assert_eq!(hood.api().get(&slice).await, foreign, "not touched");
    assert_eq!(web.replicas().await, 1);
    hood.api().delete(&slice).await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_private_service_is_not_touched() {
    let hood = Neighbourhood::start().await;
    let name = names::private_service("web");
    let foreign = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 9}]}});
    let path = "/api/v1/namespaces/default/services";
    let foreign = hood.api().make(path, foreign).await;
    let web = hood.deploy("web").await;
    web.idle();
    until("the conflict is told", async || {
        let conflict = web.condition(names::condition::CONFLICT).await;
        conflict.is_some_and(|(status, _)| status == "True")
    })
    .await;
    a_while().await;
    assert_eq!(hood.api().get(&format!("{path}/{name}")).await, foreign);
    assert_eq!(web.replicas().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_elastiservices_on_one_service_the_older_has_the_say() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    // Ages are whole seconds.
    sleep(Duration::from_millis(1100)).await;
    let mut younger = web.object().await;
    younger["metadata"] = json!({"name": "younger"});
    younger.as_object_mut().unwrap().remove("status");
    let path = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";
    hood.api().make(path, younger).await;
    let younger = format!("{path}/younger");
    until("the younger one steps back", async || {
        hood.api().get(&younger).await["status"]["reason"] == "Conflict"
    })
    .await;
    web.fall_asleep().await;
    web.visit().await;
    // The younger one goes without doing harm.
    hood.api().delete(&younger).await;
    until("it is gone", async || !hood.api().exists(&younger).await).await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_ports_run_out_the_next_service_waits_for_one_to_have_rested() {
    let hood = Neighbourhood::with(|plot| plot.ports = 21_000..=21_000).await;
    let first = hood.deploy("first").await;
    first.until_serving().await;
    let second = hood.deploy("second").await;
    until("no port is left", async || {
        second.status().await.reason.as_deref() == Some("PortsExhausted")
    })
    .await;
    hood.api().delete(&first.path()).await;
    until("the first is gone", async || first.object().await.is_null()).await;
    // Nothing happens to the second one meanwhile: it looks again by itself.
    second.fall_asleep().await;
    second.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_watch_namespaces_every_call_stays_in_those_namespaces() {
    let hood = Neighbourhood::with(|plot| {
        plot.namespaces = vec!["default".into(), "shop".into()];
        plot.operators = 0;
    })
    .await;
    hood.namespace("shop").await;
    hood.namespace("beyond").await;
    hood.add_operator().await;
    let apps = ["default", "shop"].map(|namespace| Blueprint {
        namespace,
        ..blueprint("web")
    });
    for app in apps {
        let app = hood.build(app).await;
        app.until_serving().await;
        app.fall_asleep().await;
        app.visit().await;
    }
    let beyond = hood
        .build(Blueprint {
            namespace: "beyond",
            ..blueprint("web")
        })
        .await;
    beyond.idle();
    a_while().await;
    assert_eq!(beyond.phase().await, None, "nobody manages it");
    let mut calls = hood.town().server.faults().journal();
    calls.retain(|c| {
        let review = c.kind.ends_with("reviews");
        c.user == OPERATOR_USER && c.namespace.is_empty() && !c.kind.is_empty() && !review
    });
    assert!(calls.is_empty(), "{calls:?}");
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_mark_pods_it_hands_over_by_redirect_and_says_so() {
    let hood = Neighbourhood::with(|plot| plot.operators = 0).await;
    // The town answers access reviews by RBAC; what is not granted is not used.
    let account = json!({"metadata": {"name": "modest"}});
    let path = "/api/v1/namespaces/elasti/serviceaccounts";
    hood.api().make(path, account).await;
    let client = hood.client_as("modest").await;
    hood.add_operator_with(client, |_| {}).await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let journal = hood.town().server.faults().journal();
    let marks = journal
        .iter()
        .filter(|c| c.kind == "pods" && c.verb == Verb::Patch);
    let modest = "system:serviceaccount:elasti:modest";
    assert_eq!(marks.filter(|c| c.user == modest).count(), 0);
    let status = web.status().await;
    let ready = status
        .conditions
        .iter()
        .find(|c| c.type_ == names::condition::READY);
    assert!(ready.unwrap().message.contains("pods/status"), "{ready:?}");
    // Without a drain the pods end while nodes may still send to them; that is why the drain is the default.
    until("the pods are gone", async || {
        hood.api().items(&web.core("pods")).await.is_empty()
    })
    .await;
    a_while().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_cannot_start_is_told_at_once_and_by_name() {
    let hood = Neighbourhood::with(|plot| plot.operators = 0).await;
    let mut broken = blueprint("web");
    broken.image = "missing:1";
    broken.starts = false;
    broken.replicas = 0;
    let web = hood.build(broken).await;
    web.idle();
    hood.add_operator().await;
    web.until_asleep().await;
    let answer = web.get().await.unwrap();
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(
        answer.header(names::REASON_HEADER),
        Some("ImagePull"),
        "{answer:?}"
    );
    let status = web.status().await;
    assert_eq!(status.phase, Some(Phase::Waking), "{status:?}");
    until("an Event says so", async || {
        let events = web.events("ElastiService").await;
        events
            .iter()
            .any(|e| e["reason"] == names::event::WAKE_STUCK)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_elastiservice_without_its_target_or_service_can_be_deleted() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    hood.api().delete(&web.target_path()).await;
    hood.api()
        .delete(&format!("{}/web", web.core("services")))
        .await;
    hood.api().delete(&web.path()).await;
    until("it is gone", async || web.object().await.is_null()).await;
    assert!(web.resolver_slices().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_a_sleeping_app_can_be_deleted() {
    let hood = Neighbourhood::start().await;
    hood.namespace("shop").await;
    let web = hood
        .build(Blueprint {
            namespace: "shop",
            target: Target::Deployment,
            ..blueprint("web")
        })
        .await;
    web.until_serving().await;
    web.fall_asleep().await;
    hood.api().delete("/api/v1/namespaces/shop").await;
    until("the namespace is gone", async || {
        !hood.api().exists("/api/v1/namespaces/shop").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owned_objects_that_someone_edits_or_deletes_are_repaired() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let slice = names::resolver_slice("web", names::IpFamily::V4, 0);
    let slice = format!("{}/{slice}", web.slices_path());
    let edit = json!({"metadata": {"labels": {names::SERVICE_NAME_LABEL: "elsewhere"}}});
    hood.api().patch(&slice, MERGE, edit).await;
    until("the label is back", async || {
        web.resolver_slices().await.len() == 1
    })
    .await;
    hood.api().delete(&slice).await;
    until("the slice is back", async || {
        web.resolver_slices().await.len() == 1
    })
    .await;
    let private = format!("{}/{}", web.core("services"), names::private_service("web"));
    hood.api().delete(&private).await;
    until("the private Service is back", async || {
        hood.api().exists(&private).await
    })
    .await;
    web.until_asleep().await;
    web.visit().await;
    hood.ledger().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_metrics_are_served() {
    let hood = Neighbourhood::start().await;
    let web = hood.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let address = hood.operator_address(0);
    for path in ["/healthz", "/readyz"] {
        let answer = get(&format!("{address}:8081"), path).await.unwrap();
        assert_eq!(answer.code(), 200, "{answer:?}");
    }
    for port in [8013, 8080] {
        let answer = get(&format!("{address}:{port}"), "/metrics").await.unwrap();
        for name in [
            "elasti_operator_reconcile_count",
            "elasti_operator_CRD_finalizer_counter",
            "elasti_operator_CRD_update_counter",
            "elasti_operator_mode{crd_name=\"web\",namespace=\"default\"} 0",
            "elasti_operator_informer_count",
            "elasti_operator_informer_counter",
            "elasti_operator_informer_handler_counter",
            "elasti_operator_scale_counter{service_name=\"web\"",
        ] {
            assert!(
                answer.body.contains(name),
                "{name} is missing: {}",
                answer.body
            );
        }
    }
}
