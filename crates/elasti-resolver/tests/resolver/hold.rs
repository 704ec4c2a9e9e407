//! Held requests: what waits, what is refused and why, and what becomes of a client that disconnects.

use std::sync::atomic::Ordering;
use std::time::Duration;

use elasti_api::{PromisedPod, WakePromise, names};
use elasti_core::waiting_room::Limits;
use elasti_testkit::fixture::{
    Fixture, HTTP, PODS, READER, Response, SERVICES, STRATEGIC, TestPort, http_get, send_raw,
    service, until,
};
use http_body_util::{BodyExt as _, Empty};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::pods::{hollow, pod_address, serve_in_place};

const NEVER: &str = "never-ready:1";

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_held_frees_its_slot_and_is_not_forwarded_r8() {
    let fixture = Fixture::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "30";
    let address = fixture.asleep(slow).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    until("it is held", async || fixture.resolver().held() == 1).await;
    assert_eq!(
        fixture
            .admin("/queue-status?namespace=default&service=cart")
            .await
            .json(),
        json!({"queueStatus": 1})
    );
    let left = Instant::now();
    drop(client);
    until("its slot is free", async || fixture.resolver().held() == 0).await;
    assert!(
        left.elapsed() <= Duration::from_millis(100),
        "{:?}",
        left.elapsed()
    );
    until("the wake stays", async || {
        fixture.operator.wakes() == ["cart"]
    })
    .await;
    assert_eq!(http_get(&address, "/later").await.json()["path"], "/later");
    let metrics = fixture.admin("/metrics").await.body;
    let answered = "elasti_resolver_incoming_requests_count{namespace=\"default\",source=\"cart\",target=\"elasti-cart-pvt-1c42ddc028\",method=\"GET\",status=\"OK\",error=\"\"} 1";
    assert!(metrics.contains(answered), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_with_a_half_sent_body_frees_its_slot_too() {
    let fixture = Fixture::start().await;
    let mut probed = service("cart");
    probed.image = NEVER;
    probed.spec =
        json!({"probeResponse": [{"path": {"value": "/healthz"}, "response": {"status": 200}}]});
    let address = fixture.asleep(probed).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        .await
        .unwrap();
    until("it is held", async || fixture.resolver().held() == 1).await;
    drop(client);
    until("its slot is free", async || fixture.resolver().held() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_held_until_its_deadline_gets_503_with_a_reason() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = NEVER;
    never.spec = json!({"hold": {"timeoutSeconds": 7}});
    let address = fixture.asleep(never).await;
    let asked = Instant::now();
    let answer = http_get(&address, "/").await;
    let waited = asked.elapsed();
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(answer.header(names::REASON_HEADER), Some("HoldDeadline"));
    assert!(answer.body.ends_with("still starting.\n"), "{answer:?}");
    assert!(
        waited >= Duration::from_secs(7) && waited < Duration::from_secs(8),
        "{waited:?}"
    );
    assert_eq!(fixture.resolver().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn probe_rules_are_answered_without_waking() {
    let fixture = Fixture::start().await;
    let mut probed = service("cart");
    probed.spec = json!({"probeResponse": [{"path": {"type": "Exact", "value": "/healthz"}, "response": {"status": 204}}]});
    let address = fixture.asleep(probed).await;
    assert_eq!(http_get(&address, "/healthz").await.code(), 204);
    assert!(fixture.operator.wakes().is_empty());
    assert!(fixture.api_client.items(PODS).await.is_empty());
    assert_eq!(
        http_get(&address, "/healthz/x").await.code(),
        200,
        "anything else wakes"
    );
    assert_eq!(fixture.operator.wakes(), ["cart"]);
    assert_eq!(
        http_get(&address, "/healthz").await.code(),
        200,
        "awake, the pod answers"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_probe_rule_matches_is_no_use_asleep_or_awake_and_everything_else_is() {
    let readers = [READER.to_owned()];
    let fixture = Fixture::with(|settings| settings.activity_readers = readers.into()).await;
    let mut probed = service("cart");
    probed.spec = json!({"probeResponse": [{"path": {"type": "Exact", "value": "/healthz"}, "response": {"status": 204}}]});
    fixture.asleep(probed).await;
    // Not by way of the Service: once a pod is ready, that leads to the pod as well.
    let address = format!("{}:{}", fixture.address, HTTP.listen);
    let unused_for = async || fixture.activity().await.services[0].last_connection_millis_ago;
    assert_eq!(http_get(&address, "/healthz").await.code(), 204);
    assert_eq!(unused_for().await, None, "asleep");
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(unused_for().await.is_some());

    sleep(Duration::from_secs(60)).await;
    assert_eq!(http_get(&address, "/healthz").await.code(), 200);
    assert!(unused_for().await > Some(59_000), "awake");
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(unused_for().await < Some(59_000));

    // What is no HTTP cannot be matched.
    sleep(Duration::from_secs(60)).await;
    let mut tls = TcpStream::connect(&address).await.unwrap();
    tls.write_all(&[0x16, 0x03, 0x01, 0x00]).await.unwrap();
    until("it counts", async || unused_for().await < Some(59_000)).await;
    sleep(Duration::from_secs(60)).await;
    let silent = TcpStream::connect(&address).await.unwrap();
    until("it counts", async || unused_for().await < Some(59_000)).await;
    drop((tls, silent));
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_retried_until_the_operator_is_back() {
    let mut fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    fixture.operator.close();
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    sleep(Duration::from_secs(60)).await;
    assert!(!client.is_finished());
    fixture.operator.open().await;
    fixture.operator.code.store(500, Ordering::Relaxed);
    until("the operator got it", async || {
        fixture.operator.wakes().len() >= 2
    })
    .await;
    fixture.operator.code.store(200, Ordering::Relaxed);
    assert_eq!(client.await.unwrap().code(), 200);
    let metrics = fixture.admin("/metrics").await.body;
    for result in ["unreachable", "refused", ""] {
        let line = format!("elasti_resolver_operator_rpc_count{{error=\"{result}\"}}");
        assert!(metrics.contains(&line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wake_shows_the_token_of_the_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "first\n").unwrap();
    let file = path.clone();
    let fixture = Fixture::with(|settings| settings.token_file = Some(file)).await;
    let address = fixture.asleep(service("cart")).await;
    std::fs::write(&path, "second\n").unwrap();
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let received = fixture.operator.received.lock().clone();
    assert_eq!(received[0].authorization.as_deref(), Some("Bearer second"));
    assert_eq!(
        (received[0].wake.namespace.as_str(), received[0].wake.count),
        ("default", 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_start_fails_fast_with_its_reason() {
    let fixture = Fixture::start().await;
    let mut missing = service("cart");
    missing.image = "missing:1";
    let address = fixture.asleep(missing).await;
    let client = {
        let address = address.clone();
        tokio::spawn(async move { http_get(&address, "/").await })
    };
    until("it is held", async || fixture.resolver().held() == 1).await;
    fixture
        .status("cart", json!({"phase": "Waking", "reason": "ImagePull"}))
        .await;
    let answer = client.await.unwrap();
    assert_eq!(answer.code(), 503);
    assert_eq!(answer.header(names::REASON_HEADER), Some("ImagePull"));
    let next = http_get(&address, "/").await;
    assert_eq!(
        next.header(names::REASON_HEADER),
        Some("ImagePull"),
        "at once: {next:?}"
    );
}

async fn flood(address: &str, count: usize) -> JoinSet<Response> {
    let mut all = JoinSet::new();
    for at in 0..count {
        let address = address.to_owned();
        all.spawn(async move { http_get(&address, &format!("/{at}")).await });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn one_services_flood_never_refuses_anothers_first_request_r6() {
    let limits = Limits {
        shared_requests: 20,
        ..Limits::default()
    };
    let fixture = Fixture::with(|settings| settings.limits = limits).await;
    let mut noisy = service("noisy");
    noisy.image = NEVER;
    let noisy = fixture.asleep(noisy).await;
    let mut quiet = service("quiet");
    quiet.ports = vec![TestPort {
        listen: 20_002,
        ..HTTP
    }];
    let quiet = fixture.asleep(quiet).await;
    let mut flooding = flood(&noisy, 100).await;
    // One of its own and half of the pool of 20 wait; the rest is refused at once.
    for _ in 0..89 {
        let refused = flooding.join_next().await.unwrap().unwrap();
        assert_eq!(refused.code(), 503);
        assert_eq!(refused.header(names::REASON_HEADER), Some("SharedFull"));
    }
    assert_eq!(fixture.resolver().held(), 11);
    let answer = http_get(&quiet, "/first").await;
    assert_eq!(
        (answer.code(), &answer.json()["path"]),
        (200, &"/first".into())
    );
    assert_eq!(fixture.resolver().held(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_herd_is_answered_whole_by_the_first_pod_and_frees_every_slot_r5() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let mut herd = flood(&address, 300).await;
    let mut paths = std::collections::BTreeSet::new();
    while let Some(answer) = herd.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.code(), 200, "{answer:?}");
        paths.insert(answer.json()["path"].as_str().unwrap().to_owned());
    }
    assert_eq!(paths.len(), 300, "each exactly once");
    assert_eq!(fixture.resolver().held(), 0);
    assert_eq!(fixture.operator.wakes(), ["cart"], "one wake for all");
}

#[tokio::test(start_paused = true)]
async fn services_of_one_name_in_two_namespaces_wake_apart_r7() {
    let fixture = Fixture::start().await;
    fixture.namespace("shop").await;
    let mut one = service("cart");
    one.start_seconds = "60";
    let one = fixture.asleep(one).await;
    let mut other = service("cart");
    other.namespace = "shop";
    other.ports = vec![TestPort {
        listen: 20_002,
        ..HTTP
    }];
    let other = fixture.asleep(other).await;
    let slow = tokio::spawn(async move { http_get(&one, "/one").await });
    until("the first is held", async || fixture.resolver().held() == 1).await;
    assert_eq!(http_get(&other, "/other").await.json()["path"], "/other");
    assert!(!slow.is_finished(), "the other one did not wait for it");
    assert_eq!(slow.await.unwrap().json()["path"], "/one");
    let received = fixture.operator.received.lock().clone();
    for namespace in ["default", "shop"] {
        assert!(received.iter().any(|one| one.wake.namespace == namespace));
    }
}

/// The only pod of a service that was woken before.
struct OnlyPod<'a> {
    fixture: &'a Fixture,
    name: String,
    uid: String,
}

impl<'a> OnlyPod<'a> {
    async fn find(fixture: &'a Fixture) -> Self {
        let pod = &fixture.api_client.items(PODS).await[0]["metadata"];
        let text = |field: &str| pod[field].as_str().unwrap().to_owned();
        Self {
            fixture,
            name: text("name"),
            uid: text("uid"),
        }
    }

    async fn set_ready(&self, status: &str, reason: &str) {
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": reason}]}});
        let path = format!("{PODS}/{}/status", self.name);
        self.fixture.api_client.patch(&path, STRATEGIC, body).await;
    }

    /// Takes it out of rotation, and waits until the slices follow.
    async fn mark(&self) {
        self.set_ready("False", names::DRAIN_REASON).await;
        until("the slices follow", async || {
            let slices = elasti_testkit::fixture::SLICES;
            let slices = self.fixture.api_client.items(slices).await;
            !slices.iter().any(|slice| {
                slice["endpoints"][0]["conditions"]["ready"] == true
                    && slice["endpoints"][0]["targetRef"].is_object()
            })
        })
        .await;
    }

    async fn is_marked(&self) -> bool {
        let path = format!("{PODS}/{}", self.name);
        let pod = self.fixture.api_client.get(&path).await;
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["reason"] == names::DRAIN_REASON)
    }

    async fn unmark(&self) {
        self.set_ready("True", "").await;
    }

    fn promise(&self) {
        *self.fixture.operator.promise.lock() = Some(WakePromise {
            millis: 5000,
            pods: vec![PromisedPod {
                name: self.name.clone(),
                uid: self.uid.clone(),
            }],
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_marked_pod_is_not_used_until_it_is_unmarked() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let pod = OnlyPod::find(&fixture).await;
    pod.mark().await;
    let client = tokio::spawn(async move { http_get(&address, "/held").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    until("the operator got the wake", async || {
        fixture.operator.wakes().len() == 2
    })
    .await;
    assert!(!client.is_finished());
    pod.unmark().await;
    assert_eq!(client.await.unwrap().json()["path"], "/held");
}

#[tokio::test(start_paused = true)]
async fn a_promised_pod_answers_although_it_is_marked() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let pod = OnlyPod::find(&fixture).await;
    pod.mark().await;
    pod.promise();
    assert_eq!(http_get(&address, "/first").await.json()["path"], "/first");
    assert_eq!(http_get(&address, "/next").await.json()["path"], "/next");
    let wakes = fixture.operator.wakes().len();
    assert_eq!(wakes, 2, "one to start it, one for the promise");
    assert!(pod.is_marked().await, "it was not the mark's removal");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_used_as_soon_as_it_is_ready_though_the_slices_are_late() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    fixture
        .fake_cluster
        .controllers
        .lags
        .set_endpoint_slices(Duration::from_secs(500));
    let answer = http_get(&address, "/").await;
    assert_eq!(answer.code(), 200, "{answer:?}");
    assert_eq!(
        http_get(&address, "/again").await.code(),
        200,
        "and so is the next"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_died_without_notice_is_not_the_clients_problem_r11() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    // The slices still show the pod that is being stopped: connections are refused there. The nodes follow the same
    // slices, so the client connects to the resolver itself, as one does whose node is late.
    let resolver = format!("{}:{}", fixture.address, HTTP.listen);
    fixture
        .fake_cluster
        .controllers
        .lags
        .set_endpoint_slices(Duration::from_secs(30));
    fixture.api_client.scale("cart", 0).await;
    until("no pod is left", async || {
        fixture.api_client.items(PODS).await.is_empty()
    })
    .await;
    let answer = http_get(&resolver, "/late").await;
    assert_eq!(
        (answer.code(), &answer.json()["path"]),
        (200, &"/late".into())
    );
    assert_eq!(fixture.operator.wakes(), ["cart", "cart"]);
}

#[tokio::test(start_paused = true)]
async fn the_host_route_reaches_managed_services_only_r16() {
    let fixture = Fixture::start().await;
    fixture.asleep(service("cart")).await;
    let unmanaged = json!({"metadata": {"name": "unmanaged"}, "spec": {"selector": {"app": "cart"}, "ports": [{"port": 80}]}});
    fixture.api_client.make(SERVICES, unmanaged).await;
    let route = format!("{}:8012", fixture.address);
    let to = |host: &str| format!("GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    assert_eq!(
        send_raw(&route, &to("cart.default.svc.cluster.local:80"))
            .await
            .json()["path"],
        "/x"
    );
    assert_eq!(send_raw(&route, &to("cart.default")).await.code(), 200);
    for host in [
        "unmanaged.default",
        "elasti-resolver-service.elasti",
        "localhost",
        "cart",
        "cart.default.svc.other",
    ] {
        let answer = send_raw(&route, &to(host)).await;
        assert_eq!(answer.code(), 404, "{host}");
        assert_eq!(answer.header(names::REASON_HEADER), Some("NotManaged"));
    }
    let metrics = fixture.admin("/metrics").await.body;
    assert!(
        metrics.contains("elasti_resolver_host_extraction_count{source=\"cart.default.svc.cluster.local\",extractionType=\"cache-hit\",hostHeader=\"\",error=\"\"} 2\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("elasti_resolver_host_extraction_count{source=\"\",extractionType=\"error\",hostHeader=\"\",error=\"NotManaged\"} 5\n"),
        "{metrics}"
    );
    for text in ["localhost", "unmanaged", "/x"] {
        assert!(
            !metrics.contains(text),
            "no label from user text (R10): {text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn memory_near_its_limit_lets_only_first_requests_wait_and_then_accepts_nothing() {
    let group = tempfile::tempdir().unwrap();
    let set_usage = |current: u32| {
        std::fs::write(group.path().join("memory.current"), current.to_string()).unwrap();
    };
    std::fs::write(group.path().join("memory.max"), "1000").unwrap();
    set_usage(850);
    let path = group.path().to_owned();
    let fixture = Fixture::with(|settings| settings.memory_group = path).await;
    let mut never = service("cart");
    never.image = NEVER;
    let address = fixture.asleep(never).await;
    let _first = flood(&address, 1).await;
    until("the first is held", async || fixture.resolver().held() == 1).await;
    let second = http_get(&address, "/").await;
    assert_eq!(second.code(), 503);
    assert_eq!(second.header(names::REASON_HEADER), Some("MemoryHigh"));
    set_usage(950);
    sleep(Duration::from_secs(2)).await;
    let mut waiting = flood(&address, 2).await;
    sleep(Duration::from_secs(30)).await;
    assert!(waiting.try_join_next().is_none(), "none is served");
    assert_eq!(fixture.resolver().held(), 1);
    set_usage(100);
    until("they are served", async || fixture.resolver().held() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_back_from_a_pod_they_did_not_reach_stay_admitted() {
    let group = tempfile::tempdir().unwrap();
    let set_usage = |current: u32| {
        std::fs::write(group.path().join("memory.current"), current.to_string()).unwrap();
    };
    std::fs::write(group.path().join("memory.max"), "1000").unwrap();
    set_usage(100);
    let path = group.path().to_owned();
    let fixture = Fixture::with(|settings| settings.memory_group = path).await;
    // Ready at once, though nothing listens there.
    let address = fixture.asleep(hollow("cart")).await;
    let mut held = flood(&address, 5).await;
    let pod = pod_address(&fixture).await;
    until("all are held", async || fixture.resolver().held() == 5).await;
    set_usage(850);
    sleep(Duration::from_secs(5)).await;
    assert!(held.try_join_next().is_none(), "none was refused");
    serve_in_place(pod, async |_| http::Response::new(Empty::new().boxed())).await;
    while let Some(answer) = held.join_next().await {
        assert_eq!(answer.unwrap().code(), 200);
    }
}
