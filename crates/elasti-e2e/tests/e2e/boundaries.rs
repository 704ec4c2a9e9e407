//! What the operator leaves alone, and what it says when it cannot go on, where only the simulated cluster can show it.

use std::time::Duration;

use elasti_api::{Phase, names};
use elasti_e2e::{Blueprint, OPERATOR_USER, TestEnv, blueprint, get, until};
use elasti_fake_cluster::faults::{Calls, Verb, WatchFault};
use serde_json::json;
use tokio::time::sleep;

async fn a_while() {
    sleep(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_ports_run_out_the_next_service_waits_for_one_to_have_rested() {
    let env = TestEnv::with(|config| config.ports = 21_000..=21_000).await;
    let first = env.deploy("first").await;
    first.until_serving().await;
    let second = env.deploy("second").await;
    until("no port is left", async || {
        second.status().await.reason.as_deref() == Some("PortsExhausted")
    })
    .await;
    env.api().delete(&first.path()).await;
    until("the first is gone", async || first.object().await.is_null()).await;
    // Nothing happens to the second one meanwhile: it is reconciled again by itself.
    second.fall_asleep().await;
    second.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_zeroed_right_after_its_elasti_service_is_gone_stays_so() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    env.api().delete(&web.path()).await;
    until("the operator knows of the deletion", async || {
        let reason = web.status().await.reason;
        reason.as_deref() == Some("Deleting")
    })
    .await;
    // Its watch does not tell that the ElastiService is gone.
    let watches = Calls::all().verb(Verb::Watch).kind("elastiservices");
    let faults = env.fake_cluster().server.faults();
    faults.strike_event(1, watches.user(OPERATOR_USER), WatchFault::GoSilent);
    until("it is gone", async || web.object().await.is_null()).await;
    web.scale_by_hand(0).await;
    a_while().await;
    assert_eq!(web.replicas().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_watch_namespaces_every_call_stays_in_those_namespaces() {
    let env = TestEnv::with(|config| {
        config.namespaces = vec!["default".into(), "shop".into()];
        config.operators = 0;
    })
    .await;
    env.namespace("shop").await;
    env.namespace("beyond").await;
    env.add_operator().await;
    let apps = ["default", "shop"].map(|namespace| Blueprint {
        namespace,
        ..blueprint("web")
    });
    for app in apps {
        let app = env.build(app).await;
        app.until_serving().await;
        app.fall_asleep().await;
        app.visit().await;
    }
    let beyond = env
        .build(Blueprint {
            namespace: "beyond",
            ..blueprint("web")
        })
        .await;
    beyond.idle();
    a_while().await;
    assert_eq!(beyond.phase().await, None, "it is not managed");
    let mut calls = env.fake_cluster().server.faults().journal();
    calls.retain(|c| {
        let review = c.kind.ends_with("reviews");
        c.user == OPERATOR_USER && c.namespace.is_empty() && !c.kind.is_empty() && !review
    });
    assert!(calls.is_empty(), "{calls:?}");
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_mark_pods_it_hands_over_by_redirect_and_says_so() {
    let env = TestEnv::with(|config| config.operators = 0).await;
    // The simulated cluster answers access reviews by RBAC; what is not granted is not used.
    let account = json!({"metadata": {"name": "modest"}});
    let path = "/api/v1/namespaces/elasti/serviceaccounts";
    env.api().make(path, account).await;
    let client = env.client_as("modest").await;
    env.add_operator_with(client, |_| {}).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let journal = env.fake_cluster().server.faults().journal();
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
        env.api().items(&web.core("pods")).await.is_empty()
    })
    .await;
    a_while().await;
    web.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_sends_within_nodes_stays_awake_and_names_nodes_without_a_resolver() {
    let merge = "application/merge-patch+json";
    let policy = |policy: &str| json!({"spec": {"internalTrafficPolicy": policy}});
    for namespaces in [vec![], vec!["default".to_owned()]] {
        let sentence = match namespaces.is_empty() {
            true => "no resolver is ready on node-1, node-2;",
            false => "the operator may not read nodes",
        };
        let env = TestEnv::with(|config| config.namespaces = namespaces).await;
        let web = env.deploy("web").await;
        let service = format!("{}/web", web.core("services"));
        env.api().patch(&service, merge, policy("Local")).await;
        web.idle();
        until("it says why it stays awake", async || {
            let conditions = web.status().await.conditions;
            let mut ready = conditions
                .iter()
                .filter(|c| c.type_ == names::condition::READY);
            ready.any(|c| c.status == "False" && c.message.contains(sentence))
        })
        .await;
        a_while().await;
        assert!(web.replicas().await > 0);
        env.api().patch(&service, merge, policy("Cluster")).await;
        web.fall_asleep().await;
        env.requests().assert_nothing_lost();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_cannot_start_is_reported_at_once_and_by_name() {
    let env = TestEnv::with(|config| config.operators = 0).await;
    let mut broken = blueprint("web");
    broken.image = "missing:1";
    broken.starts = false;
    broken.replicas = 0;
    let web = env.build(broken).await;
    web.idle();
    env.add_operator().await;
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
async fn health_and_metrics_are_served() {
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let address = env.operator_address(0);
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
            "elasti_operator_mode{crd_name=\"default/web\"} 1",
            "elasti_operator_informer_count",
            "elasti_operator_informer_counter",
            "elasti_operator_informer_handler_counter",
            "elasti_operator_scale_write_counter{service_name=\"web\"",
        ] {
            assert!(
                answer.body.contains(name),
                "{name} is missing: {}",
                answer.body
            );
        }
    }
}
