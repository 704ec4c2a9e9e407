//! Services with several ports, of which one has no pod: what is sent there waits, and keeps nothing else waiting.

use std::time::Duration;

use elasti_api::names;
use elasti_testkit::fixture::{Fixture, HTTP, TestPort, TestService, http_get, service, until};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// A port whose name no container has, so that no pod is behind it.
const ABSENT: TestPort = TestPort {
    name: "metrics",
    port: 81,
    listen: 20_002,
    app_protocol: None,
};

fn with_an_absent_port() -> TestService {
    let mut two = service("cart");
    two.ports.push(ABSENT);
    two.container = json!({"ports": [{"name": "http", "containerPort": 8080}]});
    two.spec = json!({"hold": {"timeoutSeconds": 60}});
    two
}

fn direct(fixture: &Fixture, port: TestPort) -> String {
    format!("{}:{}", fixture.address, port.listen)
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_port_without_a_pod_waits_until_its_deadline_and_delays_no_other_port() {
    let fixture = Fixture::start().await;
    fixture.asleep(with_an_absent_port()).await;
    let absent = direct(&fixture, ABSENT);
    let began = Instant::now();
    let waits = tokio::spawn(async move { http_get(&absent, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    for _ in 0..5 {
        let answer = http_get(&direct(&fixture, HTTP), "/").await;
        assert_eq!(answer.code(), 200, "{answer:?}");
        assert_eq!(fixture.resolver().held(), 1, "the other one waits on");
        sleep(Duration::from_secs(5)).await;
    }
    let answer = waits.await.unwrap();
    assert_eq!(answer.code(), 503);
    assert_eq!(answer.header(names::REASON_HEADER), Some("HoldDeadline"));
    assert!(began.elapsed() >= Duration::from_secs(60));
    let metrics = fixture.admin("/metrics").await.body;
    let held = "outcome=\"HoldDeadline\"} 1\n";
    assert!(metrics.contains(held), "it is held once: {metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_request_held_for_a_port_that_is_gone_is_refused_at_once() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    let moved = json!([{"name": "http", "port": 80, "listenPort": 20_007}]);
    fixture.status("cart", json!({"ports": moved})).await;
    let answer = client.await.unwrap();
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(
        answer.header(names::REASON_HEADER),
        Some("ServiceDeleted"),
        "{answer:?}"
    );
}
