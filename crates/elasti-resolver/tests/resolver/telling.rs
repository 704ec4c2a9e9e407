//! What a resolver tells of requests and of itself: metrics, spans of holds, and whom it wakes a service for.

use std::time::Duration;

use elasti_runtime::otlp;
use elasti_testkit::fixture::{Fixture, Response, TestService, http_get, send_raw, service, until};
use elasti_testkit::sentry_stub::{Behaviour, SentryStub};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const HELLO: [u8; 10] = [0x16, 3, 1, 0, 5, 1, 0, 0, 1, 3];
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn never_ready(seconds: u32) -> TestService {
    let mut never = service("cart");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": seconds}});
    never
}

async fn metric(fixture: &Fixture, name: &str) -> String {
    fixture.admin(&format!("/metrics?name={name}")).await.body
}

/// Sends bytes; waits until the other side has closed.
async fn until_closed(address: &str, bytes: &[u8]) {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(bytes).await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn holds_and_refusals_are_counted_for_http_tls_and_tcp() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(never_ready(1)).await;
    until_closed(&address, &HELLO).await;
    until_closed(&address, b"SET a 1\r\n").await;
    assert_eq!(http_get(&address, "/").await.code(), 503);
    let holds = metric(&fixture, "elasti_resolver_hold_seconds").await;
    let labels = "namespace=\"default\",source=\"cart\"";
    for protocol in ["http", "tls", "tcp"] {
        let series = format!("{{{labels},protocol=\"{protocol}\",outcome=\"HoldDeadline\"");
        let below = format!("elasti_resolver_hold_seconds_bucket{series},le=\"0.5\"}} 0\n");
        assert!(holds.contains(&below), "{protocol}: {holds}");
        let count = format!("elasti_resolver_hold_seconds_count{series}}} 1\n");
        assert!(holds.contains(&count), "{protocol}: {holds}");
    }
    let relays = metric(&fixture, "elasti_resolver_relay_count").await;
    for protocol in ["tls", "tcp"] {
        let series = format!("{{{labels},protocol=\"{protocol}\",error=\"HoldDeadline\"}} 1\n");
        assert!(relays.contains(&series), "{relays}");
    }
    let failures = metric(&fixture, "elasti_resolver_failures").await;
    let all = "{reason=\"HoldDeadline\",fault=\"service\"} 3\n";
    assert!(failures.contains(all), "{failures}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_held_is_counted_as_such() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(never_ready(600)).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    until("it is held", async || fixture.resolver().held() == 1).await;
    let open = metric(&fixture, "elasti_resolver_open_connections").await;
    assert!(
        open.ends_with("elasti_resolver_open_connections 1\n"),
        "{open}"
    );
    drop(client);
    until("its hold is counted", async || {
        let holds = metric(&fixture, "elasti_resolver_hold_seconds").await;
        holds.contains("protocol=\"http\",outcome=\"ClientLeft\"} 1\n")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn limits_and_how_near_they_are_can_be_scraped() {
    let group = tempfile::tempdir().unwrap();
    let path = group.path().to_owned();
    std::fs::write(path.join("memory.max"), "1000\n").unwrap();
    std::fs::write(path.join("memory.current"), "850\n").unwrap();
    let fixture = Fixture::with(|settings| settings.memory_group = path).await;
    until("the pressure is known", async || {
        let pressure = metric(&fixture, "elasti_resolver_memory_pressure").await;
        pressure.ends_with("elasti_resolver_memory_pressure 1\n")
    })
    .await;
    let all = fixture.admin("/metrics").await.body;
    let value = |name: &str| {
        let line = all.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {all}"))
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    assert!(value("process_open_fds ") > 3);
    assert!(value("process_max_fds ") > value("process_open_fds "));
    assert!(value("elasti_resolver_max_connections ") > 0);
    assert!(all.contains("# TYPE elasti_resolver_accept_error_count counter"));
}

fn traced(stub: &SentryStub) -> otlp::Settings {
    otlp::Settings {
        endpoint: format!("http://{}/v1/traces", stub.address())
            .parse()
            .unwrap(),
        headers: vec![("x-key".parse().unwrap(), "k3y".parse().unwrap())],
    }
}

async fn get_traced(address: &str, traceparent: &str) -> Response {
    let get = format!(
        "GET / HTTP/1.1\r\nHost: x\r\ntraceparent: {traceparent}\r\ntracestate: a=b\r\nConnection: close\r\n\r\n"
    );
    send_raw(address, &get).await
}

fn spans(stub: &SentryStub) -> Vec<Value> {
    let received = stub.received();
    let bodies = received.iter().map(|one| {
        assert_eq!(one.path(), "/v1/traces");
        assert_eq!(one.header("content-type"), Some("application/json"));
        assert_eq!(one.header("x-key"), Some("k3y"));
        serde_json::from_str::<Value>(&one.body).unwrap()
    });
    let spans = bodies.map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].clone());
    spans
        .flat_map(|spans| spans.as_array().unwrap().clone())
        .collect()
}

/// With a real clock: the collector is outside.
#[tokio::test]
async fn a_hold_is_a_span_of_its_requests_trace_and_the_pod_continues_it() {
    let collector = SentryStub::start(Behaviour::Accepts);
    let traces = traced(&collector);
    let fixture = Fixture::with(|settings| settings.traces = Some(traces)).await;
    let address = fixture.asleep(service("cart")).await;
    let sent = format!("00-{TRACE}-{PARENT}-01");
    let held = get_traced(&address, &sent).await.json();
    let passed_on = held["headers"]["traceparent"].as_str().unwrap().to_owned();
    assert_ne!(passed_on, sent, "the hold is its parent");
    assert_eq!(held["headers"]["tracestate"], "a=b");
    let again = get_traced(&address, &sent).await.json();
    assert_eq!(again["headers"]["traceparent"], sent, "it was not held");
    until("the span has arrived", async || {
        !spans(&collector).is_empty()
    })
    .await;
    let span = spans(&collector).remove(0);
    let id = span["spanId"].as_str().unwrap();
    assert_eq!(passed_on, format!("00-{TRACE}-{id}-01"));
    assert_eq!(
        (&span["traceId"], &span["parentSpanId"]),
        (&json!(TRACE), &json!(PARENT))
    );
    let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    let took = Duration::from_nanos(nanos("endTimeUnixNano") - nanos("startTimeUnixNano"));
    assert!(
        took >= Duration::from_millis(500),
        "it starts in a second: {took:?}"
    );
    let released = json!({"key": "elasti.outcome", "value": {"stringValue": "released"}});
    assert!(
        span["attributes"].as_array().unwrap().contains(&released),
        "{span}"
    );
    let counted = metric(&fixture, "elasti_resolver_span_count").await;
    assert!(counted.contains("{result=\"sent\"} 1\n"), "{counted}");
}

#[tokio::test]
async fn a_trace_that_is_not_sampled_and_one_without_an_exporter_pass_as_they_came() {
    let collector = SentryStub::start(Behaviour::Accepts);
    let traces = traced(&collector);
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    for (traces, sent) in [(Some(traces), unsampled), (None, sampled)] {
        let fixture = Fixture::with(|settings| settings.traces = traces).await;
        let address = fixture.asleep(service("cart")).await;
        let answer = get_traced(&address, &sent).await.json();
        assert_eq!(answer["headers"]["traceparent"], sent);
    }
    assert!(spans(&collector).is_empty());
}

#[tokio::test]
async fn spans_that_a_collector_does_not_take_are_dropped_and_counted_and_no_request_waits() {
    let away = SentryStub::start(Behaviour::Unreachable);
    let traces = traced(&away);
    let fixture = Fixture::with(|settings| settings.traces = Some(traces)).await;
    let address = fixture.asleep(never_ready(1)).await;
    // Without a trace of its own it begins one.
    assert_eq!(http_get(&address, "/").await.code(), 503);
    until("it is counted", async || {
        let counted = metric(&fixture, "elasti_resolver_span_count").await;
        counted.contains("{result=\"dropped\"} 1\n")
    })
    .await;
}

async fn woken_for(fixture: &Fixture) -> Value {
    until("it is woken", async || !fixture.operator.wakes().is_empty()).await;
    let wake = fixture.operator.received.lock()[0].wake.clone();
    serde_json::to_value(&wake).unwrap()["client"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_wake_tells_whom_it_is_for_without_the_query() {
    let fixture = Fixture::with(|settings| settings.wake_clients = true).await;
    let address = fixture.asleep(service("cart")).await;
    let get = "GET /pay/%00?card=secret HTTP/1.1\r\nHost: x\r\nUser-Agent: curl/8\r\nCookie: secret\r\nConnection: close\r\n\r\n";
    assert_eq!(send_raw(&address, get).await.code(), 200);
    let client = woken_for(&fixture).await;
    let from = client["address"].as_str().unwrap();
    assert!(from.parse::<std::net::IpAddr>().is_ok(), "{from}");
    let expected = json!({"protocol": "http", "method": "GET", "path": "/pay/%00", "userAgent": "curl/8", "address": from});
    assert_eq!(client, expected);
}

#[tokio::test(start_paused = true)]
async fn a_wake_by_tls_tells_the_address_alone() {
    let fixture = Fixture::with(|settings| settings.wake_clients = true).await;
    let address = fixture.asleep(never_ready(600)).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client.write_all(&HELLO).await.unwrap();
    let told = woken_for(&fixture).await;
    assert_eq!(told["protocol"], "tls");
    assert_eq!(told.as_object().unwrap().len(), 2, "{told}");
}

#[tokio::test(start_paused = true)]
async fn unless_it_is_set_to_a_wake_tells_nothing_of_a_request() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/a").await.code(), 200);
    assert_eq!(woken_for(&fixture).await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_delays_no_wake() {
    let fixture = Fixture::with(|settings| settings.wake_clients = true).await;
    let address = fixture.asleep(never_ready(600)).await;
    let silent = TcpStream::connect(&address).await.unwrap();
    let told = timeout(Duration::from_secs(60), woken_for(&fixture)).await;
    assert_eq!(told.unwrap()["protocol"], "tcp");
    sleep(Duration::from_millis(1)).await;
    drop(silent);
}
