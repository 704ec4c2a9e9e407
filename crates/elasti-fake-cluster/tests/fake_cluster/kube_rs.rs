//! kube-rs runs against the simulated cluster unchanged: over its socket with a kubeconfig, and in the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixture::a_server;
use elasti_fake_cluster::api_server::{ApiServer, Listening};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event as NewKubeEvent, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::{Controller, WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};

/// A client over a socket, from the kubeconfig text.
async fn over_socket(server: &ApiServer) -> (Listening, Client) {
    let listening = server.listen(0).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(listening.address)).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    (listening, Client::try_from(config).unwrap())
}

fn map(name: &str, value: &str) -> ConfigMap {
    let mut map = ConfigMap {
        data: Some(BTreeMap::from([("k".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    };
    map.metadata.name = Some(name.to_owned());
    map
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work)
        .await
        .expect("it happens in time")
}

#[tokio::test]
async fn the_typed_api_creates_reads_patches_and_deletes() {
    let server = a_server();
    let (_listening, client) = over_socket(&server).await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "34");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap();
    let patched = maps
        .patch(
            "a",
            &PatchParams::apply("ann").force(),
            &Patch::Apply(
                serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "2"}}),
            ),
        )
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap()["k"], "2");
    assert_eq!(
        maps.list(&ListParams::default().labels("none=here"))
            .await
            .unwrap()
            .items
            .len(),
        0
    );
    maps.delete("a", &Default::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn watchers_with_lists_and_with_streaming_lists_fill_a_reflector() {
    let server = a_server();
    for config in [
        watcher::Config::default(),
        watcher::Config::default().streaming_lists(),
    ] {
        let (_listening, client) = over_socket(&server).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        for name in ["a", "b"] {
            let _ = maps.create(&PostParams::default(), &map(name, "1")).await;
        }
        let (store, writer) = reflector::store();
        let mut events =
            Box::pin(reflector(writer, watcher(maps.clone(), config)).applied_objects());
        let mut names = Vec::new();
        while names.len() < 2 {
            names.push(within(events.try_next()).await.unwrap().unwrap().name_any());
        }
        names.sort();
        assert_eq!(names, ["a", "b"]);
        maps.patch(
            "b",
            &PatchParams::default(),
            &Patch::Merge(serde_json::json!({"data": {"k": "9"}})),
        )
        .await
        .unwrap();
        let changed = within(events.try_next()).await.unwrap().unwrap();
        assert_eq!(changed.data.unwrap()["k"], "9");
        assert_eq!(
            store.state().len(),
            2,
            "the reflector follows what was polled"
        );
        maps.delete("a", &Default::default()).await.unwrap();
        maps.delete("b", &Default::default()).await.unwrap();
    }
}

#[tokio::test]
async fn a_watcher_survives_410() {
    let server = a_server();
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    server.faults().strike(
        1,
        elasti_fake_cluster::faults::Calls::all().verb(elasti_fake_cluster::faults::Verb::Watch),
        elasti_fake_cluster::faults::Fault::Watch(elasti_fake_cluster::faults::WatchFault::Expire),
    );
    let mut events = Box::pin(
        watcher(maps.clone(), watcher::Config::default())
            .default_backoff()
            .applied_objects(),
    );
    let first = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            if let Some(Ok(object)) = events.next().await {
                seen.push(object.name_any());
            }
        }
        seen
    });
    // The first event breaks the watch; the relist shows the object nevertheless.
    while server
        .faults()
        .journal()
        .iter()
        .all(|call| call.verb != elasti_fake_cluster::faults::Verb::Watch)
    {
        tokio::task::yield_now().await;
    }
    maps.create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &map("b", "1"))
        .await
        .unwrap();
    let mut seen = within(first).await.unwrap();
    seen.sort();
    assert_eq!(seen, ["a", "b"]);
}

#[derive(Debug, thiserror::Error)]
#[error("reconcile: {0}")]
struct Failed(String);

#[tokio::test]
async fn a_controller_with_a_finalizer_applies_and_cleans_up() {
    let server = a_server();
    let (_listening, client) = over_socket(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let reconcile = {
        let maps = maps.clone();
        move |object: Arc<ConfigMap>, counts: Arc<(AtomicUsize, AtomicUsize)>| {
            let maps = maps.clone();
            async move {
                finalizer(&maps, "example.io/tidy", object, |event| async move {
                    match event {
                        Finalizing::Apply(_) => counts.0.fetch_add(1, Ordering::SeqCst),
                        Finalizing::Cleanup(_) => counts.1.fetch_add(1, Ordering::SeqCst),
                    };
                    Ok::<_, Failed>(Action::await_change())
                })
                .await
                .map_err(|error| Failed(error.to_string()))
            }
        }
    };
    let controller = Controller::new(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(50)),
            counts.clone(),
        )
        .for_each(|_| async {});
    let running = tokio::spawn(controller);
    maps.create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap();
    within(async {
        while counts.0.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    })
    .await;
    maps.delete("a", &Default::default()).await.unwrap();
    within(async {
        while maps.get_opt("a").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    })
    .await;
    assert!(counts.1.load(Ordering::SeqCst) > 0);
    running.abort();
}

#[tokio::test]
async fn the_event_recorder_writes_events_that_both_groups_show() {
    let server = a_server();
    let (_listening, client) = over_socket(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let object = maps
        .create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap();
    let recorder = Recorder::new(
        client.clone(),
        Reporter {
            controller: "elasti".into(),
            instance: None,
        },
    );
    let received = NewKubeEvent {
        type_: EventType::Normal,
        reason: "Slept".into(),
        note: Some("no request came".into()),
        action: "Sleep".into(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder
            .publish(&received, &object.object_ref(&()))
            .await
            .unwrap();
    }
    let new: Api<NewEvent> = Api::default_namespaced(client.clone());
    let event = new
        .list(&ListParams::default().fields("regarding.name=a"))
        .await
        .unwrap()
        .items
        .remove(0);
    assert_eq!(
        (event.note.as_deref(), event.series.unwrap().count),
        (Some("no request came"), 2)
    );
    let core: Api<Event> = Api::default_namespaced(client);
    let event = core
        .list(&ListParams::default().fields("involvedObject.name=a,reason=Slept"))
        .await
        .unwrap()
        .items
        .remove(0);
    assert_eq!(
        (
            event.message.as_deref(),
            event.reporting_component.as_deref()
        ),
        (Some("no request came"), Some("elasti"))
    );
}

#[tokio::test]
async fn metadata_watchers_see_only_metadata() {
    let server = a_server();
    let (_listening, client) = over_socket(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap();
    let metadata: Api<PartialObjectMeta<ConfigMap>> = Api::default_namespaced(server.client());
    let mut events = Box::pin(watcher(metadata, watcher::Config::default()).applied_objects());
    assert_eq!(
        within(events.try_next()).await.unwrap().unwrap().name_any(),
        "a"
    );
    maps.create(&PostParams::default(), &map("b", "1"))
        .await
        .unwrap();
    assert_eq!(
        within(events.try_next()).await.unwrap().unwrap().name_any(),
        "b"
    );
}

#[tokio::test]
async fn over_a_socket_a_lost_answer_is_a_broken_connection() {
    use elasti_fake_cluster::faults::{Calls, Fault};
    let server = a_server();
    let (_listening, client) = over_socket(&server).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    server
        .faults()
        .strike(1, Calls::writes(), Fault::LoseAnswer);
    let lost = maps
        .create(&PostParams::default(), &map("a", "1"))
        .await
        .unwrap_err();
    assert!(!matches!(lost, kube::Error::Api(_)), "{lost}");
    assert!(
        maps.get_opt("a").await.unwrap().is_some(),
        "it was applied nevertheless"
    );
}

#[tokio::test]
async fn a_service_accounts_token_reviews_for_its_audience_only() {
    use k8s_openapi::api::authentication::v1::{
        TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec,
    };
    use k8s_openapi::api::core::v1::ServiceAccount;
    let server = a_server();
    let client = server.client();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("resolver".to_owned());
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let spec = TokenRequestSpec {
        audiences: vec!["elasti-operator".to_owned()],
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request("resolver", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token;
    let reviews: Api<TokenReview> = Api::all(client);
    for (audience, good) in [("elasti-operator", true), ("someone-else", false)] {
        let spec = TokenReviewSpec {
            token: Some(token.clone()),
            audiences: Some(vec![audience.to_owned()]),
        };
        let review = reviews
            .create(
                &PostParams::default(),
                &TokenReview {
                    spec,
                    ..TokenReview::default()
                },
            )
            .await
            .unwrap();
        let status = review.status.unwrap();
        assert_eq!(status.authenticated.unwrap_or(false), good);
        if good {
            assert_eq!(
                status.user.unwrap().username.as_deref(),
                Some("system:serviceaccount:default:resolver")
            );
        }
    }
}
