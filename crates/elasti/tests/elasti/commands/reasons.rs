//! `elasti why` in one situation after the other, each with the status that an operator writes for it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::fixture::{DEPLOYMENTS, ELASTI, Fixture, SERVICES, days_ago, saved, seconds_ago};

fn condition(type_: &str, holds: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": if holds { "True" } else { "False" }, "reason": reason,
        "message": message, "lastTransitionTime": days_ago(3),
    })
}

fn trigger(reading: &str, value: Option<&str>, message: Option<&str>) -> Value {
    let mut printed =
        json!({"type": "prometheus", "reading": reading, "threshold": "0.5", "since": days_ago(1)});
    printed["value"] = json!(value);
    printed["message"] = json!(message);
    if let Some(map) = printed.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    printed
}

/// Pods answer.
fn serving(reason: &str, sentence: &str) -> Value {
    json!({
        "phase": "Serving", "mode": "serve", "reason": reason, "replicas": 1, "observedGeneration": 1,
        "conditions": [condition("Ready", true, reason, sentence), condition("TrafficRedirected", false, "Serve", "s")],
    })
}

fn with(mut status: Value, more: Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        status[key] = value.clone();
    }
    status
}

fn quiet() -> Value {
    json!({"triggers": [trigger("quiet", Some("0.2"), None)], "quietSince": days_ago(1)})
}

/// One service, awake, with a resolver beside it.
async fn one(spec: Value, status: Value) -> Fixture {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.workload("web", 1, json!({})).await;
    fixture.declare("web", spec).await;
    fixture.status("web", status).await;
    fixture
}

macro_rules! why {
    ($fixture:expr) => {
        insta::assert_snapshot!($fixture.types(&["why", "web"]).await)
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn it_cools_down() {
    let status = with(serving("CoolingDown", "The operator's words."), quiet());
    why!(one(json!({}), status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_is_active() {
    let active = json!({"triggers": [trigger("active", Some("12.5"), None)]});
    let sentence = "Trigger 0 is at or above its threshold of 0.5.";
    why!(one(json!({}), with(serving("TriggerActive", sentence), active)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_gives_no_reading() {
    let message = "the server did not answer within 5 s";
    let unknown = json!({"triggers": [trigger("unknown", None, Some(message))]});
    let sentence = "Trigger 0 has no usable reading: the server did not answer within 5 s.";
    why!(
        one(
            json!({}),
            with(serving("TriggerUnknown", sentence), unknown)
        )
        .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_deleted_while_it_slept_is_not_said_to_stay_awake() {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.declare("web", json!({})).await;
    let status = with(
        serving("TargetNotFound", "The target does not exist."),
        quiet(),
    );
    let asleep = json!({"phase": "Asleep", "mode": "proxy"});
    fixture.status("web", with(status, asleep)).await;
    let said = fixture.types(&["why", "web"]).await;
    assert!(
        said.contains("There is nothing to put to sleep or to wake."),
        "{said}"
    );
    assert!(!said.contains("stays awake"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_old_a_reading_is_and_which_metrics_have_no_series_is_told() {
    let mut status = with(serving("CoolingDown", "The operator's words."), quiet());
    status["triggers"][0]["readAt"] = json!(seconds_ago(12 * 60 + 30));
    let missing = "Trigger 0 reads only what its query falls back on.";
    let warning = condition("MetricsMissing", true, "NoSeries", missing);
    status["conditions"].as_array_mut().unwrap().push(warning);
    let fixture = one(json!({}), status).await;
    let said = fixture.types(&["why", "web"]).await;
    assert!(
        said.contains("quiet for 24h: 0.2 < 0.5, read 12m"),
        "{said}"
    );
    assert!(said.contains(&format!("  Warning: {missing}")), "{said}");
    assert!(!said.contains("Problems"), "{said}");
    let message = "its last reading is stale, more than 90 s old.";
    let mut unknown = trigger("unknown", None, Some(message));
    unknown["readAt"] = json!(seconds_ago(200));
    let status = with(
        serving("TriggerUnknown", "The operator's words."),
        json!({"triggers": [unknown]}),
    );
    fixture.status("web", status).await;
    let said = fixture.types(&["why", "web"]).await;
    assert!(said.contains("unknown for 24h, read 3m"), "{said}");
    assert!(said.contains(message), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_has_no_trigger_reading_yet() {
    let status = with(
        serving("CoolingDown", "The operator's words."),
        json!({"quietSince": days_ago(1)}),
    );
    why!(one(json!({}), status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_paused_outside_its_window_and_cools_down() {
    // A window that is open for one minute a year, and not today.
    let today = jiff::Timestamp::now().strftime("%m").to_string();
    let month = if today == "06" { 12 } else { 6 };
    let spec = json!({"paused": true, "enabledPeriod": {"schedule": format!("0 0 1 {month} *"), "duration": "1m"}});
    let sentence = "The ElastiService is paused: `spec.paused` is true.";
    why!(one(spec, with(serving("Paused", sentence), quiet())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_window_cannot_be_read() {
    let spec = json!({"enabledPeriod": {"schedule": "0 0 30 2 *", "duration": "8h"}});
    let status = with(serving("InvalidWindow", "The operator's words."), quiet());
    why!(one(spec, status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_autoscaler_does_not_exist() {
    let spec = json!({"autoscaler": {"type": "hpa", "name": "web"}});
    let status = with(
        serving("AutoscalerNotFound", "The operator's words."),
        quiet(),
    );
    why!(one(spec, status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_carries_requests() {
    let status = with(
        serving(
            "Traffic",
            "Resolver elasti-resolver-1 has requests waiting or in flight.",
        ),
        quiet(),
    );
    why!(one(json!({}), with(status, json!({"held": 3}))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_wake_is_shown_by_its_parts() {
    let at = |ms: i64| {
        let asked: jiff::Timestamp = days_ago(2).parse().unwrap();
        (asked + jiff::SignedDuration::from_millis(ms))
            .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
            .to_string()
    };
    let wake = json!({"lastScaledUpTime": days_ago(2), "asleepSeconds": 433_000, "lastWake": {
        "by": "Traffic", "askedAt": at(0), "scaledAt": at(9), "scheduledAt": at(21), "startedAt": at(700),
        "readyAt": at(1400), "answeredAt": at(1404),
        "client": {"protocol": "http", "method": "GET", "path": "/items/7", "userAgent": "curl/8.5.0", "address": "10.244.1.7", "pod": "web-1", "namespace": "shop"},
    }});
    let status = with(
        with(serving("CoolingDown", "The operator's words."), quiet()),
        with(wake, saved(1, 433_000, None)),
    );
    why!(one(json!({}), status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_going_to_sleep() {
    let status = json!({
        "phase": "Draining", "mode": "proxy", "reason": "Draining", "replicas": 1, "observedGeneration": 1,
        "quietSince": days_ago(8), "triggers": [trigger("quiet", Some("0"), None)],
        "conditions": [
            condition("Ready", true, "Draining", "Pods leave rotation."),
            condition("TrafficRedirected", true, "Proxy", "s"),
        ],
    });
    why!(one(json!({}), status).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_sleeps_until_its_window_ends() {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.workload("web", 0, json!({})).await;
    // Once a year, since an hour ago.
    let opened = Timestamp::now() - SignedDuration::from_hours(1);
    let schedule = opened.strftime("%M %H %d %m *").to_string();
    let spec =
        json!({"minTargetReplicas": 2, "enabledPeriod": {"schedule": schedule, "duration": "49h"}});
    fixture.declare("web", spec).await;
    let sentence = "Every trigger has been quiet for longer than the cooldown.";
    let status = json!({
        "phase": "Asleep", "mode": "proxy", "reason": "Idle", "replicas": 0, "observedGeneration": 1,
        "lastSleepTime": days_ago(5), "asleepSeconds": 433_000, "triggers": [trigger("quiet", Some("0"), None)],
        "conditions": [condition("Ready", true, "Idle", sentence)],
    });
    let status = with(status, saved(2, 433_000, Some(days_ago(5))));
    fixture.status("web", status).await;
    let printed = fixture.types(&["why", "web"]).await;
    // Hours, and the minutes that the test has taken.
    let printed: Vec<String> = printed
        .lines()
        .map(|line| match line.split_once("or in ") {
            Some((head, tail)) => format!("{head}or in N {}", tail.split_once(' ').unwrap().1),
            None => line.to_owned(),
        })
        .collect();
    insta::assert_snapshot!(printed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operator_has_processed_it() {
    let fixture = Fixture::unattended().await;
    fixture.workload("web", 1, json!({})).await;
    fixture.declare("web", json!({})).await;
    fixture.resolver(true).await;
    why!(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_service_does_not_exist() {
    let status = with(
        serving("ServiceNotFound", "The Service does not exist."),
        quiet(),
    );
    let fixture = one(json!({}), status).await;
    fixture.env.api().delete(&format!("{SERVICES}/web")).await;
    why!(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_service_is_headless() {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.target("web", 1, json!({})).await;
    fixture.service("web", json!({"clusterIP": "None"})).await;
    fixture.declare("web", json!({})).await;
    let sentence =
        "The Service is headless: clients connect to the pods directly. Give it a cluster IP.";
    let mut status = with(serving("Unsupported", sentence), quiet());
    status["conditions"] = json!([condition("Ready", false, "Unsupported", sentence)]);
    fixture.status("web", status).await;
    why!(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_one_claims_the_same_service() {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.workload("older", 1, json!({})).await;
    fixture.declare("older", json!({})).await;
    fixture.target("web", 1, json!({})).await;
    fixture.declare("web", json!({"service": "older"})).await;
    // Both are of the same second, or the older is: then the name decides, as in the operator.
    let status = with(
        serving("CoolingDown", "The operator has not seen it yet."),
        quiet(),
    );
    fixture.status("web", status).await;
    why!(fixture);
}

/// A pod that runs, and that no kubelet has.
async fn never_ready_pod(fixture: &Fixture) {
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "web-by-hand", "labels": {"app": "web"}},
        "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "echo:1"}]},
    });
    fixture.env.api().make(pods, pod).await;
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": seconds_ago(600)}],
        "containerStatuses": [{"name": "app", "image": "echo:1", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}}],
    }});
    let path = format!("{pods}/web-by-hand/status");
    fixture
        .env
        .api()
        .patch(&path, elasti_e2e::STRATEGIC, status)
        .await;
    let event = json!({
        "metadata": {"name": "web-by-hand.1"}, "type": "Warning", "reason": "Unhealthy",
        "message": "Readiness probe failed: HTTP probe failed with statuscode: 503",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web-by-hand"},
        "firstTimestamp": seconds_ago(500), "lastTimestamp": seconds_ago(20), "count": 40,
    });
    fixture
        .env
        .api()
        .make("/api/v1/namespaces/default/events", event)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_never_becomes_ready() {
    let fixture = Fixture::unattended().await;
    fixture.resolver(true).await;
    fixture.workload("web", 0, json!({})).await;
    let fail_fast = json!({"hold": {"failFastSeconds": 1}});
    fixture.declare("web", fail_fast).await;
    never_ready_pod(&fixture).await;
    let replicas =
        json!({"spec": {"replicas": 1, "template": {"spec": {"nodeSelector": {"no": "where"}}}}});
    fixture
        .env
        .api()
        .patch(&format!("{DEPLOYMENTS}/web"), elasti_e2e::MERGE, replicas)
        .await;
    // The Deployment's own pod waits for a node that does not exist: two causes at once.
    let sentence = "Pod web-by-hand cannot start: its readiness probe has not passed since its containers started.";
    fixture.status("web", json!({
        "phase": "Waking", "mode": "proxy", "reason": "NeverReady", "replicas": 1, "observedGeneration": 1, "held": 2,
        "lastScaledUpTime": days_ago(1), "triggers": [trigger("quiet", Some("0"), None)], "quietSince": days_ago(9),
        "conditions": [condition("Ready", false, "NeverReady", sentence)],
    })).await;
    elasti_e2e::until("no node takes the other pod", async || {
        let pods = fixture
            .env
            .api()
            .items("/api/v1/namespaces/default/pods")
            .await;
        let waits = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
        pods.iter().any(waits)
    })
    .await;
    why!(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_given_as_data() {
    let active = json!({"triggers": [trigger("active", Some("12.5"), None)]});
    let sentence = "Trigger 0 is at or above its threshold of 0.5.";
    let fixture = one(json!({}), with(serving("TriggerActive", sentence), active)).await;
    insta::assert_snapshot!(fixture.types(&["why", "web", "-o", "json"]).await);
    assert!(fixture.env.api().exists(&format!("{ELASTI}/web")).await);
}
