//! The Prometheus trigger: whatever a server answers, a service neither sleeps nor wakes by mistake.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::scripted_server::{Received, Reply, ScriptedServer, answer, one_series, until};
use elasti_api::{ElastiServiceSpec, Trigger};
use elasti_core::observed::Reading;
use elasti_fake_cluster::clock::Clock;
use elasti_fake_cluster::prometheus::{Prometheus as FakePrometheus, Reading as Served};
use elasti_operator::metrics::Metrics;
use elasti_operator::triggers::prometheus::{Prometheus, PrometheusSettings};
use elasti_operator::triggers::{Readings, Sources};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

const COOLDOWN: Duration = Duration::from_secs(900);
const POLL_INTERVAL: Duration = Duration::from_secs(30);

fn trigger(metadata: Value) -> Trigger {
    serde_json::from_value(json!({"type": "prometheus", "metadata": metadata})).unwrap()
}

/// A spec with these triggers.
fn spec(triggers: &[Trigger]) -> Arc<ElastiServiceSpec> {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"});
    let spec = json!({"service": "cart", "scaleTargetRef": target, "triggers": triggers});
    Arc::new(serde_json::from_value(spec).unwrap())
}

/// A trigger of the default server with threshold 0.5.
fn plain() -> Trigger {
    trigger(json!({"query": "load", "threshold": "0.5"}))
}

fn readings(settings: PrometheusSettings) -> (Readings<String>, mpsc::Receiver<String>) {
    let prometheus = Prometheus::new(settings).unwrap();
    Readings::start(
        Sources {
            prometheus,
            metrics: Arc::new(Metrics::new("elasti")),
        },
        POLL_INTERVAL,
    )
}

fn default_server(url: &str) -> PrometheusSettings {
    PrometheusSettings {
        server: Some(url.parse().unwrap()),
        ..PrometheusSettings::default()
    }
}

/// What one trigger of a server reads.
async fn read(settings: PrometheusSettings, trigger: Trigger) -> Reading {
    let (readings, _changed) = readings(settings);
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[trigger]), COOLDOWN);
    readings.read_now(&key).await;
    readings.get(&key).remove(0)
}

fn is_uptime(request: &Received) -> bool {
    request.query.contains("up{")
}

/// Plays `query` to the query, and `uptime` to the question for the uptime.
async fn server(query: Reply, uptime: Reply) -> ScriptedServer {
    ScriptedServer::start(move |request| {
        if is_uptime(request) {
            uptime.clone()
        } else {
            query.clone()
        }
    })
    .await
}

fn up() -> Reply {
    Reply::Bytes(answer(200, "", one_series("1")))
}

fn says(value: &str) -> Reply {
    Reply::Bytes(answer(200, "", one_series(value)))
}

fn body(text: &str) -> Reply {
    Reply::Bytes(answer(200, "", text))
}

/// A vector with this text as the value of its one series.
fn series(value: &str) -> Reply {
    body(&format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":{value}}}]}}}}"#
    ))
}

fn result(kind: &str, result: &str) -> Reply {
    body(&format!(
        r#"{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}"#
    ))
}

#[derive(Debug, PartialEq)]
enum Expect {
    Active,
    Quiet,
    Unknown(&'static str),
    Unread,
}

fn matches(expect: &Expect, reading: &Reading) -> bool {
    match (expect, reading) {
        (Expect::Active, Reading::Active { .. }) | (Expect::Quiet, Reading::Quiet { .. }) => true,
        (Expect::Unknown(part), Reading::Unknown { why, .. }) => why.contains(part),
        (Expect::Unread, Reading::Unread) => true,
        _ => false,
    }
}

const NO_ANSWER: &str = "not that of a Prometheus server";

fn samples() -> Vec<Case> {
    use Expect::{Active, Quiet, Unknown};
    let not_finite = || Unknown("not a finite number");
    vec![
        ("below the threshold", says("0.25"), Quiet),
        ("zero", says("0"), Quiet),
        ("minus zero", says("-0"), Quiet),
        ("negative", says("-3"), Quiet),
        (
            "a hair below the threshold",
            says("0.49999999999999994"),
            Quiet,
        ),
        ("equal to the threshold", says("0.5"), Active),
        ("equal, as an exponent", says("5e-1"), Active),
        ("above", says("7"), Active),
        ("above, as an exponent", says("1.5e+06"), Active),
        ("NaN", says("NaN"), not_finite()),
        ("+Inf", says("+Inf"), not_finite()),
        ("-Inf", says("-Inf"), not_finite()),
        ("more than fits", says("1e999"), not_finite()),
        ("an empty text", says(""), Unknown(NO_ANSWER)),
        ("a padded number", says(" 0"), Unknown(NO_ANSWER)),
        ("a decimal comma", says("0,1"), Unknown(NO_ANSWER)),
        ("a hexadecimal number", says("0x0"), Unknown(NO_ANSWER)),
        (
            "a value that is no text",
            series("[1,0.1]"),
            Unknown(NO_ANSWER),
        ),
        ("no timestamp", series(r#"["0.1"]"#), Unknown(NO_ANSWER)),
        (
            "a timestamp as text",
            series(r#"["1","0.1"]"#),
            Unknown(NO_ANSWER),
        ),
        (
            "a third entry",
            series(r#"[1,"0.1","0.1"]"#),
            Unknown(NO_ANSWER),
        ),
        ("a value that is null", series("null"), Unknown(NO_ANSWER)),
    ]
}

/// What is answered, and what is made of it.
type Case = (&'static str, Reply, Expect);

/// Results other than one sample.
fn results() -> Vec<Case> {
    use Expect::Unknown;
    let one = ONE_SERIES;
    let several = result("vector", &format!("[{one},{one}]"));
    let histogram = r#"[{"metric":{},"histogram":[1,{"count":"0","sum":"0"}]}]"#;
    let no_vector = || Unknown("does not give an instant vector");
    vec![
        (
            "no series",
            result("vector", "[]"),
            Unknown("gives no series"),
        ),
        ("two series", several, Unknown("several series")),
        ("a scalar", result("scalar", r#"[1,"0"]"#), no_vector()),
        ("a string", result("string", r#"[1,"0"]"#), no_vector()),
        (
            "a matrix",
            result("matrix", r#"[{"metric":{},"values":[[1,"0"]]}]"#),
            no_vector(),
        ),
        (
            "a native histogram",
            result("vector", histogram),
            Unknown(NO_ANSWER),
        ),
        (
            "a result that is null",
            result("vector", "null"),
            Unknown(NO_ANSWER),
        ),
        (
            "a result that is an object",
            result("vector", one),
            Unknown(NO_ANSWER),
        ),
    ]
}

/// What surrounds a result.
fn envelopes() -> Vec<Case> {
    use Expect::{Quiet, Unknown};
    let error = r#"{"status":"error","errorType":"bad_data","error":"x","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0"]}]}}"#;
    vec![
        (
            "status error with code 200",
            body(error),
            Unknown("could not evaluate"),
        ),
        (
            "no data",
            body(r#"{"status":"success"}"#),
            Unknown(NO_ANSWER),
        ),
        (
            "data that is null",
            body(r#"{"status":"success","data":null}"#),
            Unknown(NO_ANSWER),
        ),
        (
            "no type",
            body(r#"{"status":"success","data":{"result":[]}}"#),
            Unknown(NO_ANSWER),
        ),
        (
            "no status",
            body(r#"{"data":{"resultType":"vector","result":[]}}"#),
            Unknown(NO_ANSWER),
        ),
        (
            "two statuses",
            with(r#","status":"error""#),
            Unknown(NO_ANSWER),
        ),
        (
            "warnings",
            with(r#","warnings":["a store was away"]"#),
            Unknown("may be incomplete"),
        ),
        (
            "an empty list of warnings",
            with(r#","warnings":[]"#),
            Quiet,
        ),
        (
            "infos",
            with(r#","infos":["might not be a counter"]"#),
            Quiet,
        ),
        (
            "keys of a later version",
            with(r#","later":{"a":[1]}"#),
            Quiet,
        ),
    ]
}

/// Bodies that are not JSON, or not an object.
fn bodies() -> Vec<Case> {
    use Expect::Unknown;
    vec![
        ("a list", body("[]"), Unknown(NO_ANSWER)),
        ("nothing", body(""), Unknown(NO_ANSWER)),
        (
            "HTML",
            body("<html><body>Sign in</body></html>"),
            Unknown(NO_ANSWER),
        ),
        (
            "JSON that is cut",
            body(r#"{"status":"success","data":{"resu"#),
            Unknown(NO_ANSWER),
        ),
        ("words behind the JSON", with("} {"), Unknown(NO_ANSWER)),
        (
            "brackets without end",
            body(&"[".repeat(100_000)),
            Unknown(NO_ANSWER),
        ),
        (
            "bytes that are no text",
            Reply::Bytes(answer(200, "", [0xff, 0xfe, 0])),
            Unknown(NO_ANSWER),
        ),
    ]
}

const ONE_SERIES: &str = r#"{"metric":{},"value":[1,"0"]}"#;

/// A good answer with something more in it.
fn with(more: &str) -> Reply {
    let vector = format!(r#""data":{{"resultType":"vector","result":[{ONE_SERIES}]}}"#);
    body(&format!(r#"{{"status":"success",{vector}{more}}}"#))
}

fn transports() -> Vec<Case> {
    use Expect::Unknown;
    let quiet = one_series("0");
    let code = |code: u16| Reply::Bytes(answer(code, "", one_series("0")));
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    let mut short = head("content-length: 5000\r\n");
    short.extend_from_slice(quiet.as_bytes());
    let mut cut = head("content-length: 20\r\n");
    cut.extend_from_slice(quiet.as_bytes());
    let large = format!("{}{quiet}", " ".repeat(1 << 20));
    let endless_chunks = (
        head("transfer-encoding: chunked\r\n"),
        b"4\r\n    \r\n".to_vec(),
    );
    let bomb = Reply::Bytes(answer(200, "content-encoding: gzip\r\n", gzip(&quiet)));
    let mut half_chunk = head("transfer-encoding: chunked\r\n");
    half_chunk.extend_from_slice(b"ffff\r\n{\"status\"");
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(100_000));
    let mut slow_body = head("content-length: 5000\r\n");
    slow_body.extend_from_slice(b"{");
    let early = || Unknown("ended early");
    let in_time = || Unknown("did not answer in time");
    vec![
        ("500 with a quiet body", code(500), Unknown("code 500")),
        ("503 with a quiet body", code(503), Unknown("code 503")),
        ("404 with a quiet body", code(404), Unknown("code 404")),
        ("401 with a quiet body", code(401), Unknown("code 401")),
        ("201 with a quiet body", code(201), Unknown("code 201")),
        ("206 with a quiet body", code(206), Unknown("code 206")),
        ("a length that is too long", Reply::Bytes(short), early()),
        (
            "a length that is too short",
            Reply::Bytes(cut),
            Unknown(NO_ANSWER),
        ),
        ("more than a mebibyte", body(&large), Unknown("too large")),
        (
            "chunks without end",
            Reply::Endless(endless_chunks.0, endless_chunks.1),
            Unknown("too large"),
        ),
        ("a packed body", bomb, Unknown(NO_ANSWER)),
        ("half a chunk", Reply::Bytes(half_chunk), early()),
        ("closed without a word", Reply::Bytes(vec![]), early()),
        (
            "half a head",
            Reply::Bytes(b"HTTP/1.1 200".to_vec()),
            early(),
        ),
        (
            "not HTTP",
            Reply::Bytes(b"220 smtp ready\r\n".to_vec()),
            early(),
        ),
        (
            "headers without end",
            Reply::Bytes(many_headers.into_bytes()),
            early(),
        ),
        ("silence", Reply::Hang(vec![]), in_time()),
        ("silence after the head", Reply::Hang(slow_body), in_time()),
        (
            "a byte a second",
            Reply::Drip(answer(200, "", &quiet)),
            in_time(),
        ),
    ]
}

/// In gzip's stored form: unpacked, it is the text.
fn gzip(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(!length).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(&(!crc).to_le_bytes());
    bytes.extend_from_slice(&u32::from(length).to_le_bytes());
    bytes
}

#[tokio::test(start_paused = true)]
async fn no_answer_of_a_server_makes_a_service_sleep_or_wake_by_mistake() {
    let table: Vec<_> = [samples(), results(), envelopes(), bodies(), transports()]
        .into_iter()
        .flatten()
        .collect();
    assert!(table.len() >= 60, "{}", table.len());
    let mut wrong = Vec::new();
    for (name, play, expect) in table {
        let server = server(play, up()).await;
        let reading = read(default_server(&server.url()), plain()).await;
        if !matches(&expect, &reading) {
            wrong.push(format!("{name}: {reading:?}, not {expect:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_not_up_for_the_whole_cooldown_is_not_believed() {
    let empty = || result("vector", "[]");
    let error = || Reply::Bytes(answer(500, "", one_series("1")));
    for (name, uptime, part) in [
        (
            "down for a while, or just restarted",
            says("0"),
            "was not up for the whole cooldown",
        ),
        (
            "up for a part",
            says("0.5"),
            "was not up for the whole cooldown",
        ),
        (
            "more than up",
            says("2"),
            "was not up for the whole cooldown",
        ),
        (
            "no such series",
            empty(),
            "its uptime is not known: no sample of `up`; check metadata.uptimeFilter",
        ),
        ("NaN", says("NaN"), "its uptime is not known"),
        (
            "two series",
            result(
                "vector",
                r#"[{"metric":{},"value":[1,"1"]},{"metric":{},"value":[1,"1"]}]"#,
            ),
            "its uptime is not known",
        ),
        (
            "an error with a good body",
            error(),
            "its uptime is not known: the server answered with code 500",
        ),
        (
            "silence",
            Reply::Hang(vec![]),
            "its uptime is not known: the server did not answer in time",
        ),
        ("closed", Reply::Bytes(vec![]), "its uptime is not known"),
    ] {
        for value in ["0", "7"] {
            let server = server(says(value), uptime.clone()).await;
            let reading = read(default_server(&server.url()), plain()).await;
            assert!(
                matches(&Expect::Unknown(part), &reading),
                "{name}, {value}: {reading:?}"
            );
            let low = value == "0" && part.contains("whole cooldown");
            let said = matches!(reading, Reading::Unknown { quiet_now, .. } if quiet_now);
            assert_eq!(said, low, "{name}, {value}: {reading:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_question_is_that_of_the_contract() {
    let server = server(says("0"), up()).await;
    let settings = default_server(&format!("{}/tenant/1/?dedup=true", server.url()));
    let trigger = trigger(json!({
        "query": "sum(rate(x{a=\"b&c\"}[1m])) or vector(0)", "threshold": 0.5,
        "uptimeFilter": "job=\"prom\"", "headers": {"X-Scope-OrgID": "shop"},
    }));
    assert!(matches(&Expect::Quiet, &read(settings, trigger).await));
    let received = server.received();
    // A round may have asked too, and then whether x has series.
    let query = "sum(rate(x{a=\"b&c\"}[1m])) or vector(0)";
    let uptime = "min_over_time((max(up{job=\"prom\"}) or vector(0))[900s:60s])";
    let queries: BTreeSet<&str> = { received.iter() }
        .map(|one| one.query.as_str())
        .filter(|query| !query.starts_with("count("))
        .collect();
    assert_eq!(queries, [query, uptime].into());
    for one in &received {
        assert_eq!(one.path, "/tenant/1/api/v1/query");
        assert!(
            one.head.starts_with("GET ") && one.head.contains("dedup=true"),
            "{}",
            one.head
        );
        assert_eq!(one.header("x-scope-orgid"), Some("shop"));
        assert_eq!(one.header("accept-encoding"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_one_answer_survives_into_the_next_r13() {
    let stage = Arc::new(AtomicUsize::new(0));
    let reached = stage.clone();
    let server = ScriptedServer::start(move |request| {
        if is_uptime(request) {
            return up();
        }
        match reached.load(Ordering::SeqCst) {
            0 => says("0"),
            1 => body(r#"{"status":"success"}"#),
            2 => says("7"),
            _ => body(r#"{"status":"success","data":{"resultType":"vector","result":[{}]}}"#),
        }
    })
    .await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[plain()]), COOLDOWN);
    let no_answer = || Expect::Unknown(NO_ANSWER);
    let expected = [Expect::Quiet, no_answer(), Expect::Active, no_answer()];
    for (at, expect) in expected.into_iter().enumerate() {
        stage.store(at, Ordering::SeqCst);
        readings.read_now(&key).await;
        let reading = readings.get(&key).remove(0);
        assert!(matches(&expect, &reading), "{reading:?}, not {expect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redirect_is_not_followed() {
    for code in [301, 302, 303, 307, 308] {
        let other = server(says("0"), up()).await;
        let location = format!("location: {}/api/v1/query?query=load\r\n", other.url());
        let server = server(Reply::Bytes(answer(code, &location, one_series("0"))), up()).await;
        let reading = read(default_server(&server.url()), plain()).await;
        assert_eq!(
            reading,
            Reading::Unknown {
                why: format!("the server answered with code {code}"),
                quiet_now: false,
            }
        );
        assert_eq!(other.connections(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_operators_credential_goes_to_the_operators_own_server_only_r23() {
    let tenant = json!({"Authorization": "Bearer tenant"});
    for (own, path, headers, expected) in [
        (false, "", json!({}), None),
        (false, "", tenant.clone(), Some("Bearer tenant")),
        (true, "/other", json!({}), None),
        (true, "", json!({}), Some("Bearer operator")),
        (true, "/", json!({}), Some("Bearer operator")),
        (true, "", tenant, Some("Bearer tenant")),
    ] {
        let (default, foreign) = (server(says("0"), up()).await, server(says("0"), up()).await);
        let settings = PrometheusSettings {
            authorization: Some("Bearer operator".parse().unwrap()),
            any_address: true,
            ..default_server(&default.url())
        };
        let (used, silent) = if own {
            (&default, &foreign)
        } else {
            (&foreign, &default)
        };
        let address = format!("{}{path}", used.url());
        let trigger = trigger(
            json!({"query": "load", "threshold": "0.5", "serverAddress": address, "headers": headers}),
        );
        assert!(matches(&Expect::Quiet, &read(settings, trigger).await));
        assert!(used.received().len() >= 2 && silent.received().is_empty());
        for one in used.received() {
            assert_eq!(one.header("authorization"), expected, "{address} {headers}");
        }
    }
    let default = server(says("0"), up()).await;
    let settings = PrometheusSettings {
        authorization: Some("Bearer operator".parse().unwrap()),
        ..default_server(&default.url())
    };
    assert!(matches(&Expect::Quiet, &read(settings, plain()).await));
    for one in default.received() {
        assert_eq!(one.header("authorization"), Some("Bearer operator"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_trigger_cannot_reach_what_only_the_operator_can() {
    let local = server(says("0"), up()).await;
    let default = server(says("0"), up()).await;
    let port = local.address.port();
    for (address, part) in [
        (format!("http://127.0.0.1:{port}"), "loopback"),
        (format!("http://localhost:{port}"), "loopback"),
        (format!("http://127.1:{port}"), "loopback"),
        (format!("http://[::ffff:127.0.0.1]:{port}"), "loopback"),
        (format!("https://127.0.0.1:{port}"), "loopback"),
        (
            "http://169.254.169.254/latest/meta-data".into(),
            "link-local",
        ),
        ("http://100.100.100.200".into(), "metadata"),
        ("http://[fd00:ec2::254]".into(), "metadata"),
        ("http://0.0.0.0:8080".into(), "single server"),
        ("file:///etc/passwd".into(), "must start with http"),
        ("http://".into(), "not an http or https address"),
        (format!("{}/other", default.url()), "loopback"),
    ] {
        let at = trigger(json!({"query": "load", "threshold": "0.5", "serverAddress": address}));
        let reading = read(default_server(&default.url()), at).await;
        assert!(
            matches(&Expect::Unknown(part), &reading),
            "{address}: {reading:?}"
        );
    }
    assert_eq!((local.connections(), default.connections()), (0, 0));
    let reading = read(default_server(&default.url()), plain()).await;
    assert!(
        matches(&Expect::Quiet, &reading),
        "the operator's own server may be anywhere"
    );
}

#[tokio::test(start_paused = true)]
async fn where_any_address_will_do_a_trigger_reaches_what_only_the_operator_can() {
    let local = server(says("0"), up()).await;
    let at = trigger(json!({"query": "load", "threshold": "0.5", "serverAddress": local.url()}));
    let settings = PrometheusSettings {
        any_address: true,
        ..PrometheusSettings::default()
    };
    assert!(matches(&Expect::Quiet, &read(settings, at).await));
    assert!(local.connections() > 0);
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_be_used_are_reported_and_nothing_is_sent() {
    let server = server(says("0"), up()).await;
    for (metadata, part) in [
        (json!({"threshold": "1"}), "metadata.query is missing"),
        (json!({"query": "x", "threshold": "NaN"}), "not a number"),
        (
            json!({"query": "x", "threshold": "1", "headers": {"Host": "a"}}),
            "headers.Host cannot be sent",
        ),
        (
            json!({"query": "x", "threshold": "1", "headers": {"a b": "a"}}),
            "headers.a b cannot be sent",
        ),
        (
            json!({"query": "x", "threshold": "1", "headers": {"a": "x\ny"}}),
            "headers.a cannot be sent",
        ),
    ] {
        let reading = read(default_server(&server.url()), trigger(metadata.clone())).await;
        assert!(
            matches(&Expect::Unknown(part), &reading),
            "{metadata}: {reading:?}"
        );
    }
    assert_eq!(server.connections(), 0);
    let nowhere = read(PrometheusSettings::default(), plain()).await;
    assert!(
        matches(&Expect::Unknown("no server is known"), &nowhere),
        "{nowhere:?}"
    );
    let closed = read(default_server("http://127.0.0.1:1"), plain()).await;
    assert!(
        matches(&Expect::Unknown("cannot be reached"), &closed),
        "{closed:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_round_asks_for_each_uptime_seldom_and_for_few_things_at_once() {
    let slow =
        |value: &str| Reply::After(Duration::from_secs(1), answer(200, "", one_series(value)));
    let (query, uptime) = (slow("0"), slow("1"));
    let server = server(query, uptime).await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let keys: Vec<String> = (0..50).map(|at| format!("shop/{at}")).collect();
    for (at, key) in keys.iter().enumerate() {
        let cooldown = if at < 25 { COOLDOWN } else { COOLDOWN * 2 };
        let own = trigger(json!({"query": format!("load_{at}"), "threshold": "0.5"}));
        readings.track(key, "shop", &spec(&[own, plain()]), cooldown);
    }
    until("all are read", async || {
        let quiet = |one: &Reading| matches(&Expect::Quiet, one);
        keys.iter().all(|key| readings.get(key).iter().all(quiet))
    })
    .await;
    let received = server.received();
    let uptimes = received.iter().filter(|request| is_uptime(request)).count();
    assert!((2..=20).contains(&uptimes), "{uptimes}");
    let same = received.iter().filter(|request| request.query == "load");
    assert!(same.count() <= 2, "identical queries are asked once");
    let own = received.iter().filter(|one| one.query.starts_with("load_"));
    assert_eq!(own.count(), 50);
    assert_eq!(server.most_at_once(), 6, "half of all for one namespace");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_delays_only_its_own_services_and_is_not_pressed() {
    let silent = server(Reply::Hang(vec![]), up()).await;
    let good = server(says("0"), up()).await;
    let (readings, _changed) = readings(PrometheusSettings {
        any_address: true,
        ..default_server(&good.url())
    });
    let at_silent =
        trigger(json!({"query": "load", "threshold": "0.5", "serverAddress": silent.url()}));
    let key = |at: usize| format!("shop/{at}");
    for at in 0..100 {
        let trigger = if at % 2 == 0 {
            plain()
        } else {
            at_silent.clone()
        };
        readings.track(&key(at), "shop", &spec(&[trigger]), COOLDOWN);
    }
    until("the good ones are read", async || {
        (0..100)
            .step_by(2)
            .all(|at| matches(&Expect::Quiet, &readings.get(&key(at))[0]))
    })
    .await;
    let waits = Expect::Unread;
    assert!(
        (1..100)
            .step_by(2)
            .all(|at| matches(&waits, &readings.get(&key(at))[0]))
    );
    until("the silent ones are given up", async || {
        let late = Expect::Unknown("did not answer in time");
        (1..100)
            .step_by(2)
            .all(|at| matches(&late, &readings.get(&key(at))[0]))
    })
    .await;
    assert!(silent.received().len() <= 6, "{}", silent.received().len());
    // The next round presses it no more than the first.
    until("it is asked again", async || silent.received().len() > 6).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(silent.received().len() <= 12, "{}", silent.received().len());
}

/// A server, and 50 objects of `aaa` with 32 triggers each at it, which get no answer.
async fn pressed() -> (ScriptedServer, Readings<String>) {
    let server = ScriptedServer::start(|request| match request.query.starts_with("slow") {
        true => Reply::Hang(vec![]),
        false => says(if is_uptime(request) { "1" } else { "0" }),
    })
    .await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let slow = |at: usize| trigger(json!({"query": format!("slow_{at}"), "threshold": "0.5"}));
    for object in 0..50 {
        let triggers: Vec<Trigger> = (0..32).map(|at| slow(100 * object + at)).collect();
        readings.track(&format!("aaa/{object}"), "aaa", &spec(&triggers), COOLDOWN);
    }
    until("the neighbour presses the server", async || {
        server.received().len() > 5
    })
    .await;
    (server, readings)
}

/// The neighbour's trigger has its turns with those of the other, as if there were none.
#[tokio::test(start_paused = true)]
async fn without_turns_slow_queries_of_one_namespace_keep_a_neighbour_unread() {
    let (_server, readings) = pressed().await;
    let key = "shop/cart".to_owned();
    readings.track(&key, "aaa", &spec(&[plain()]), COOLDOWN);
    for _ in 0..6 {
        tokio::time::sleep(POLL_INTERVAL / 2).await;
        let reading = &readings.get(&key)[0];
        assert!(!matches(&Expect::Quiet, reading), "{reading:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_queries_of_one_namespace_make_no_other_reading_old() {
    let (_server, readings) = pressed().await;
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[plain()]), COOLDOWN);
    until("it is read nonetheless", async || {
        matches(&Expect::Quiet, &readings.get(&key)[0])
    })
    .await;
    for _ in 0..20 {
        tokio::time::sleep(POLL_INTERVAL / 2).await;
        let reading = &readings.get(&key)[0];
        assert!(matches(&Expect::Quiet, reading), "{reading:?}");
    }
}

/// Otherwise the same ones would get no turn in any round, and their services would never sleep.
#[tokio::test(start_paused = true)]
async fn where_a_round_is_too_short_for_all_those_with_the_oldest_readings_go_first() {
    // 6 at a time, 3 s each: fewer than 50 in a round.
    let server = ScriptedServer::start(|request| match is_uptime(request) {
        true => up(),
        false => Reply::After(Duration::from_secs(3), answer(200, "", one_series("0"))),
    })
    .await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let keys: Vec<String> = (0..60).map(|n| format!("shop/{n}")).collect();
    for key in &keys {
        let query = format!("load{{of=\"{key}\"}}");
        let own = trigger(json!({"query": query, "threshold": "0.5"}));
        readings.track(key, "shop", &spec(&[own]), COOLDOWN);
    }
    tokio::time::sleep(6 * POLL_INTERVAL).await;
    let is_quiet = |key: &&String| matches!(readings.get(key).as_slice(), [Reading::Quiet { .. }]);
    let quiet = keys.iter().filter(is_quiet).count();
    assert_eq!(quiet, keys.len());
}

#[tokio::test(start_paused = true)]
async fn what_a_decision_waits_for_does_not_wait_for_rounds_and_ends() {
    let server = ScriptedServer::start(|request| match request.query.as_str() {
        "quick" => says("0"),
        _ if is_uptime(request) => up(),
        _ => Reply::Hang(vec![]),
    })
    .await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let slow = |at: usize| trigger(json!({"query": format!("slow_{at}"), "threshold": "0.5"}));
    let quick = trigger(json!({"query": "quick", "threshold": "0.5"}));
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[quick, slow(999)]), COOLDOWN);
    until("both are read in a round", async || {
        let read = readings.get(&key);
        read.iter().all(|one| !matches(&Expect::Unread, one))
    })
    .await;
    // Of the same namespace, so that only the lane helps.
    for object in 0..6 {
        let triggers: Vec<Trigger> = (0..32).map(|at| slow(100 * object + at)).collect();
        readings.track(
            &format!("shop/{object}"),
            "shop",
            &spec(&triggers),
            COOLDOWN,
        );
    }
    let asked = |query: &str| {
        let received = server.received();
        received
            .iter()
            .filter(|one| one.query.starts_with(query))
            .count()
    };
    until("the rounds press the server", async || asked("slow") > 6).await;
    let before = asked("quick");
    let started = tokio::time::Instant::now();
    readings.read_now(&key).await;
    let read = readings.get(&key);
    assert!(matches(&Expect::Quiet, &read[0]), "{read:?}");
    assert!(matches(&Expect::Unknown("in time"), &read[1]), "{read:?}");
    assert_eq!(asked("quick"), before + 1);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(11), "a decision goes on");
}

#[tokio::test(start_paused = true)]
async fn rounds_go_on_and_only_changes_are_announced() {
    let prometheus = FakePrometheus::start(Clock::starting_at(Timestamp::now()))
        .await
        .unwrap();
    let _steps = tokio::spawn(crate::scripted_server::small_steps());
    prometheus.set("load", Served::Value(0.1));
    let url = format!("http://{}", prometheus.address);
    let (readings, mut changed) = readings(default_server(&url));
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[plain()]), COOLDOWN);
    let unread = &readings.get(&key)[0];
    assert!(matches(&Expect::Unread, unread), "{unread:?}");

    assert_eq!(changed.recv().await.as_deref(), Some("shop/cart"));
    assert!(matches(&Expect::Quiet, &readings.get(&key)[0]));

    prometheus.set("load", Served::Value(0.2));
    let silence = tokio::time::timeout(Duration::from_secs(100), changed.recv()).await;
    assert!(silence.is_err(), "a value on the same side is no change");
    assert_eq!(
        readings.get(&key)[0],
        Reading::Quiet {
            value: 0.2,
            threshold: 0.5
        }
    );

    for (served, expect) in [
        (Served::Value(9.0), Expect::Active),
        (Served::Fails(503), Expect::Unknown("code 503")),
        (Served::Empty, Expect::Unknown("gives no series")),
        (
            Served::Several(vec![0.0, 0.0]),
            Expect::Unknown("several series"),
        ),
        (Served::Value(0.0), Expect::Quiet),
    ] {
        prometheus.set("load", served);
        assert_eq!(changed.recv().await.as_deref(), Some("shop/cart"));
        let reading = readings.get(&key).remove(0);
        assert!(matches(&expect, &reading), "{reading:?}, not {expect:?}");
    }

    let other = trigger(json!({"query": "load", "threshold": "0"}));
    readings.track(&key, "shop", &spec(&[other.clone(), plain()]), COOLDOWN);
    let unread = readings.get(&key);
    assert_eq!(unread.len(), 2);
    assert!(unread.iter().all(|one| matches(&Expect::Unread, one)));
    readings.read_now(&key).await;
    let read = readings.get(&key);
    assert!(
        matches(&Expect::Active, &read[0]) && matches(&Expect::Quiet, &read[1]),
        "{read:?}"
    );

    readings.forget(&key);
    assert!(readings.get(&key).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_only_the_operators_credential_may_read_is_compared_but_not_shown() {
    let server = server(says("7"), up()).await;
    let with_credential = |show_values| PrometheusSettings {
        authorization: Some("Bearer x".parse().unwrap()),
        show_values,
        ..default_server(&server.url())
    };
    let value = |reading: Reading| match reading {
        Reading::Active { value, .. } => value.is_finite().then_some(value),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(read(with_credential(false), plain()).await), None);
    assert_eq!(value(read(with_credential(true), plain()).await), Some(7.0));
    let without = default_server(&server.url());
    assert_eq!(value(read(without, plain()).await), Some(7.0));
    let own =
        json!({"query": "load", "threshold": "0.5", "headers": {"authorization": "Bearer y"}});
    let own = read(with_credential(false), trigger(own)).await;
    assert_eq!(value(own), Some(7.0), "asked with the tenant's own");
}

#[tokio::test(start_paused = true)]
async fn where_servers_are_listed_no_other_is_asked() {
    let (listed, other) = (server(says("0"), up()).await, server(says("0"), up()).await);
    let at = |address: &str| {
        trigger(json!({"query": "load", "threshold": "0.5", "serverAddress": address}))
    };
    let settings = |allowed: &[String]| PrometheusSettings {
        allowed: allowed.iter().map(|one| one.parse().unwrap()).collect(),
        any_address: true,
        ..default_server(&other.url())
    };
    let only = settings(&[format!("{}/tenant", listed.url())]);
    let refused = Expect::Unknown("not one of elastiController.allowedPrometheusServers");
    let url = listed.url();
    for (address, expect) in [
        (format!("{url}/tenant"), &Expect::Quiet),
        (format!("{url}/tenant/a"), &Expect::Quiet),
        (url.clone(), &refused),
        (format!("{url}/tenants"), &refused),
        (format!("{url}/tenant/../b"), &refused),
        ("http://elsewhere.example:9090".to_owned(), &refused),
    ] {
        let reading = read(only.clone(), at(&address)).await;
        assert!(matches(expect, &reading), "{address}: {reading:?}");
    }
    let own = read(only, plain()).await;
    assert!(
        matches(&Expect::Quiet, &own),
        "the operator's own is always allowed"
    );
    let any = read(settings(&[]), at(&url)).await;
    assert!(matches(&Expect::Quiet, &any));
}

#[tokio::test(start_paused = true)]
async fn all_addresses_of_one_server_share_its_permits() {
    let server = server(Reply::Hang(vec![]), up()).await;
    let (readings, _changed) = readings(PrometheusSettings {
        any_address: true,
        ..PrometheusSettings::default()
    });
    let at = |number: usize| {
        let address = format!("{}/?n={number}", server.url());
        trigger(json!({"query": "load", "threshold": "0.5", "serverAddress": address}))
    };
    let triggers: Vec<Trigger> = (0..32).map(at).collect();
    readings.track(&"aaa/0".to_owned(), "aaa", &spec(&triggers), COOLDOWN);
    until("it is asked", async || !server.received().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(server.most_at_once(), 6, "half of all for one namespace");
}

/// Each server is a namespace's own, so that no bound of one namespace holds.
#[tokio::test(start_paused = true)]
async fn without_a_bound_for_each_namespace_silent_servers_cost_six_connections_each() {
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(server(Reply::Hang(vec![]), up()).await);
    }
    let (readings, _changed) = readings(PrometheusSettings {
        any_address: true,
        ..PrometheusSettings::default()
    });
    for (at, server) in silent.iter().enumerate() {
        let slow = |query: usize| {
            trigger(
                json!({"query": format!("slow_{query}"), "threshold": "0.5", "serverAddress": server.url()}),
            )
        };
        let triggers: Vec<Trigger> = (0..8).map(slow).collect();
        let namespace = format!("aaa-{at}");
        readings.track(&format!("aaa/{at}"), &namespace, &spec(&triggers), COOLDOWN);
    }
    until("72 queries are in flight, and not 12", async || {
        let connections = silent.iter().map(ScriptedServer::connections);
        connections.sum::<usize>() >= 72
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_namespace_has_only_so_many_queries_in_flight_whatever_servers_it_names() {
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(server(Reply::Hang(vec![]), up()).await);
    }
    let good = server(says("0"), up()).await;
    let (readings, _changed) = readings(PrometheusSettings {
        any_address: true,
        ..default_server(&good.url())
    });
    for (at, server) in silent.iter().enumerate() {
        let slow = |query: usize| {
            trigger(
                json!({"query": format!("slow_{query}"), "threshold": "0.5", "serverAddress": server.url()}),
            )
        };
        let triggers: Vec<Trigger> = (0..8).map(slow).collect();
        readings.track(&format!("aaa/{at}"), "aaa", &spec(&triggers), COOLDOWN);
    }
    let connections = || {
        silent
            .iter()
            .map(ScriptedServer::connections)
            .sum::<usize>()
    };
    until("they are asked", async || connections() >= 12).await;
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[plain()]), COOLDOWN);
    until("a neighbour is read", async || {
        matches(&Expect::Quiet, &readings.get(&key)[0])
    })
    .await;
    assert_eq!(connections(), 12, "before the first of them ends");
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_turn_does_not_come_leaves_a_good_reading_and_says_that_it_was_not_read() {
    let server = ScriptedServer::start(|request| match request.query.as_str() {
        "load" => says("0"),
        _ if is_uptime(request) => up(),
        _ => Reply::Hang(vec![]),
    })
    .await;
    let (readings, _changed) = readings(default_server(&server.url()));
    let key = "shop/cart".to_owned();
    readings.track(&key, "shop", &spec(&[plain()]), COOLDOWN);
    assert!(readings.read_now(&key).await);
    let hostile: Vec<String> = (0..16).map(|at| format!("aaa-{at}/web")).collect();
    let slow = |at: usize| trigger(json!({"query": format!("slow_{at}"), "threshold": "0.5"}));
    let triggers: Vec<Trigger> = (0..8).map(slow).collect();
    for one in &hostile {
        let (namespace, _) = one.split_once('/').unwrap();
        readings.track(one, namespace, &spec(&triggers), COOLDOWN);
    }
    let others = futures::future::join_all(hostile.iter().map(|one| readings.read_now(one)));
    let (_, all_read) = futures::join!(others, readings.read_now(&key));
    assert!(!all_read);
    let reading = readings.get(&key).remove(0);
    assert!(matches(&Expect::Quiet, &reading), "{reading:?}");
}

/// What a server has of these metrics: none ever, series now, or series that have ended.
fn series_server(known: &'static [(&'static str, bool)]) -> impl Fn(&Received) -> Reply {
    move |request: &Received| {
        let query = request.query.as_str();
        let Some(metric) = query.strip_prefix("count(") else {
            return says(if is_uptime(request) { "1" } else { "0" });
        };
        let past = metric.starts_with("last_over_time(");
        let found = known
            .iter()
            .any(|(name, now)| metric.contains(name) && (past || *now));
        match found {
            true => says("3"),
            false => result("vector", "[]"),
        }
    }
}

fn counts(server: &ScriptedServer) -> usize {
    let received = server.received();
    { received.iter() }
        .filter(|one| one.query.starts_with("count("))
        .count()
}

#[tokio::test(start_paused = true)]
async fn metrics_that_a_query_can_do_without_are_named_if_they_have_had_no_series() {
    let server =
        ScriptedServer::start(series_server(&[("requests_total", true), ("ended", false)])).await;
    let (readings, mut changed) = readings(default_server(&server.url()));
    let key = "shop/cart".to_owned();
    let queries = [
        "sum(requests_total) or vector(0)",
        "sum(reqests_total) + sum(other_name) or vector(0)",
        "sum(ended) or vector(0)",
        "sum(no_fallback)",
    ];
    let triggers: Vec<Trigger> = queries
        .iter()
        .map(|query| trigger(json!({"query": query, "threshold": "0.5"})))
        .collect();
    readings.track(&key, "shop", &spec(&triggers), COOLDOWN);
    let found = || -> Vec<Option<Vec<String>>> {
        let last = readings.last(&key).into_iter();
        last.map(|last| last.without_series).collect()
    };
    until("every metric is checked", async || {
        found().iter().all(Option::is_some)
    })
    .await;
    let none = || Some(Vec::new());
    let wrong = Some(vec!["reqests_total".to_owned(), "other_name".to_owned()]);
    assert_eq!(found(), [none(), wrong.clone(), none(), none()]);
    let is_quiet = |one: &Reading| matches!(one, Reading::Quiet { .. });
    assert!(readings.get(&key).iter().all(is_quiet), "it is a warning");
    assert!(changed.recv().await.is_some());
    // Not every round asks, and what had series once is not asked for again.
    let asked = counts(&server);
    assert_eq!(asked, 1 + 4 + 2);
    for _ in 0..2 {
        assert_eq!(counts(&server), asked);
        tokio::time::advance(Duration::from_secs(1700)).await;
        tokio::time::sleep(2 * POLL_INTERVAL).await;
    }
    tokio::time::advance(Duration::from_secs(100)).await;
    tokio::time::sleep(2 * POLL_INTERVAL).await;
    assert_eq!(
        counts(&server),
        asked + 4,
        "after an hour, the missing ones"
    );
    assert_eq!(found()[1], wrong);
    // Another query is another trigger.
    let right = trigger(json!({"query": queries[0], "threshold": "0.5"}));
    readings.track(&key, "shop", &spec(&[right]), COOLDOWN);
    until("it is checked anew", async || found() == [none()]).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_certain_answer_or_the_right_to_see_values_nothing_is_said_of_metrics() {
    let query = trigger(json!({"query": "sum(wrong) or vector(0)", "threshold": "0.5"}));
    let key = "shop/cart".to_owned();
    let failing = ScriptedServer::start(|request| match request.query.starts_with("count(") {
        true => Reply::Bytes(answer(503, "", "")),
        false => says(if is_uptime(request) { "1" } else { "0" }),
    })
    .await;
    let (unsure, _changed) = readings(default_server(&failing.url()));
    unsure.track(&key, "shop", &spec(std::slice::from_ref(&query)), COOLDOWN);
    until("it was asked", async || counts(&failing) > 0).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(counts(&failing), 1);
    assert_eq!(unsure.last(&key)[0].without_series, None);
    // With the operator's credential, whether a metric exists is not for the author of a trigger.
    let secret = ScriptedServer::start(series_server(&[])).await;
    let settings = PrometheusSettings {
        authorization: Some("Bearer x".parse().unwrap()),
        ..default_server(&secret.url())
    };
    let (hidden, _changed) = readings(settings);
    hidden.track(&key, "shop", &spec(&[query]), COOLDOWN);
    until("it is read", async || {
        matches(&Expect::Quiet, &hidden.get(&key)[0])
    })
    .await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(counts(&secret), 0);
    assert_eq!(hidden.last(&key)[0].without_series, None);
}
