//! Each cause as Kubernetes shows it, how long it is waited for, and what it is called before and after.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn condition(type_: &str, status: &str, seconds_ago: i64) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": ago(seconds_ago)})
}

/// A pod that was given a node this many seconds ago, with one container in this state.
fn pod_since(seconds: i64, initialized: bool, restarts: i32, state: Value) -> core_v1::Pod {
    let initialized = if initialized { "True" } else { "False" };
    let container = json!({"name": "app", "image": "x:1", "imageID": "", "ready": false,
        "restartCount": restarts, "state": state});
    let conditions = [
        condition("Ready", "False", seconds),
        condition("PodScheduled", "True", seconds),
        condition("Initialized", initialized, seconds),
    ];
    let status =
        json!({"phase": "Pending", "conditions": conditions, "containerStatuses": [container]});
    serde_json::from_value(json!({"metadata": {"name": "web-1"}, "status": status})).unwrap()
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn unschedulable(seconds: i64) -> core_v1::Pod {
    let mut one = condition("PodScheduled", "False", seconds);
    one["reason"] = json!("Unschedulable");
    one["message"] = json!("0/2 nodes are available.");
    let status = json!({"phase": "Pending", "conditions": [one]});
    serde_json::from_value(json!({"metadata": {"name": "web-1"}, "status": status})).unwrap()
}

/// Its cause, and the word for it after so many seconds.
fn word(stall: Option<Stall>, fail_fast: Option<i64>) -> Option<(ObstacleKind, &'static str)> {
    let stall = stall?;
    let fail_fast = fail_fast.map(SignedDuration::from_secs);
    let obstacle = stall.obstacle(fail_fast, now())?;
    Some((stall.kind, obstacle.reason().as_str()))
}

type Found = Option<(ObstacleKind, &'static str)>;

/// What is found after so many seconds, by the table and with `failFastSeconds: 30`.
fn check(what: &str, stall: impl Fn(i64) -> Option<Stall>, rows: &[(i64, Found, Found)]) {
    for (seconds, by_table, overridden) in rows {
        assert_eq!(
            word(stall(*seconds), None),
            *by_table,
            "{what}, {seconds} s"
        );
        assert_eq!(
            word(stall(*seconds), Some(30)),
            *overridden,
            "{what}, {seconds} s, overridden"
        );
    }
}

/// A pod whose container waits like this.
fn waits_like(reason: &str, message: &str) -> impl Fn(i64) -> Option<Stall> {
    let state = waiting(reason, message);
    move |seconds| stall(&pod_since(seconds, true, 0, state.clone()))
}

/// A cause, with the words for it before and after.
fn words(kind: ObstacleKind, before: &'static str, after: &'static str) -> (Found, Found) {
    (Some((kind, before)), Some((kind, after)))
}

#[test]
fn a_node_is_waited_for() {
    let (waits, fails) = words(ObstacleKind::Unschedulable, "NotScheduled", "Unschedulable");
    let rows = [
        (0, waits, waits),
        (29, waits, waits),
        (30, waits, fails),
        (3000, waits, fails),
    ];
    check("no node", |seconds| stall(&unschedulable(seconds)), &rows);
}

#[test]
fn a_registry_is_waited_for_and_an_image_that_it_does_not_have_only_for_two_pulls() {
    let (waits, fails) = words(ObstacleKind::ImagePull, "Pulling", "ImagePull");
    for said in [
        "Back-off pulling image: ErrImagePull: 429 Too Many Requests",
        "dial tcp 10.0.0.1:443: i/o timeout",
        "dial tcp: lookup registry: no such host: not found",
    ] {
        let rows = [(0, waits, waits), (3000, waits, fails)];
        check(said, waits_like("ImagePullBackOff", said), &rows);
    }
    let (waits, fails) = words(ObstacleKind::ImageMissing, "Pulling", "ImagePull");
    for said in [
        "x:1: not found",
        "manifest unknown",
        "pull access denied",
        "401 Unauthorized",
    ] {
        let rows = [(19, waits, waits), (20, fails, waits), (30, fails, fails)];
        check(said, waits_like("ErrImagePull", said), &rows);
    }
    let (waits, fails) = words(ObstacleKind::ImageInvalid, "Pulling", "ImagePull");
    let rows = [(0, fails, waits), (30, fails, fails)];
    check("no name", waits_like("InvalidImageName", ""), &rows);
}

#[test]
fn what_a_container_needs_may_come_a_little_later() {
    let (waits, fails) = words(ObstacleKind::Config, "Starting", "PodRefused");
    let missing = waits_like("CreateContainerConfigError", "configmap \"web\" not found");
    check(
        "no ConfigMap",
        missing,
        &[(19, waits, waits), (20, fails, waits)],
    );
}

#[test]
fn a_crash_loop_is_given_up_by_its_restarts() {
    let (waits, fails) = (
        Some((ObstacleKind::CrashLoop, "Restarting")),
        Some((ObstacleKind::CrashLoop, "CrashLoop")),
    );
    let back_off = || waiting("CrashLoopBackOff", "back-off 40s");
    for (restarts, by_table) in [(1, waits), (2, waits), (3, fails), (9, fails)] {
        let stall = stall(&pod_since(10, true, restarts, back_off()));
        assert_eq!(word(stall, None), by_table, "{restarts}");
    }
    let stall = stall(&pod_since(30, true, 1, back_off())).unwrap();
    assert!(
        !stall.message.contains("40s"),
        "it changes with every attempt"
    );
    assert_eq!(word(Some(stall), Some(30)), fails);
}

#[test]
fn an_ordinary_stage_has_no_word_until_it_takes_long() {
    let creating = || waiting("ContainerCreating", "");
    for (initialized, kind, word_) in [
        (true, ObstacleKind::Creating, "Starting"),
        (false, ObstacleKind::Initializing, "Initializing"),
    ] {
        let at = |seconds| stall(&pod_since(seconds, initialized, 0, creating()));
        let (waits, fails) = (Some((kind, word_)), Some((kind, "CannotStart")));
        let rows = [
            (0, None, None),
            (30, None, fails),
            (59, None, fails),
            (60, waits, fails),
        ];
        check(word_, at, &rows);
    }
}

/// A pod that has a node for 900 s, and a container that runs for so many seconds.
fn running(seconds: i64, probes: Value, left_rotation: i64) -> core_v1::Pod {
    let mut pod = pod_since(
        900,
        true,
        0,
        json!({"running": {"startedAt": ago(seconds)}}),
    );
    let conditions = pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions[0].last_transition_time = serde_json::from_value(json!(ago(left_rotation))).unwrap();
    let mut container = json!({"name": "app"});
    for (name, probe) in probes.as_object().unwrap() {
        container[name] = probe.clone();
    }
    pod.spec = serde_json::from_value(json!({"containers": [container]})).unwrap();
    pod
}

#[test]
fn readiness_counts_from_the_start_of_the_containers_and_after_what_their_probes_allow() {
    let (waits, fails) = (
        Some((ObstacleKind::NeverReady, "NotReady")),
        Some((ObstacleKind::NeverReady, "NeverReady")),
    );
    let check = |probes: Value, rows: &[(i64, Found, Found)]| {
        let at = |seconds| stall(&running(seconds, probes.clone(), 900));
        check(&probes.to_string(), at, rows);
    };
    let rows = [
        (29, None, None),
        (30, None, fails),
        (59, None, fails),
        (60, waits, fails),
    ];
    check(json!({}), &rows);
    let delay = json!({"readinessProbe": {"initialDelaySeconds": 100}});
    check(
        delay,
        &[(129, None, None), (130, None, fails), (160, waits, fails)],
    );
    let startup = json!({"startupProbe": {"failureThreshold": 18, "periodSeconds": 10, "initialDelaySeconds": 5}});
    check(
        startup,
        &[(214, None, None), (215, None, fails), (245, waits, fails)],
    );
    let defaults = json!({"startupProbe": {}});
    check(
        defaults,
        &[(59, None, None), (60, None, fails), (90, waits, fails)],
    );
    // One that was ready until a moment ago.
    assert_eq!(word(stall(&running(800, json!({}), 20)), Some(30)), None);
}

#[test]
fn what_the_api_server_refuses_is_told_apart_by_its_words() {
    let quota = "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1";
    let webhook = "Internal error occurred: failed calling webhook \"policy\": connection refused";
    for (said, kind, before, after) in [
        (quota, ObstacleKind::Quota, "QuotaExceeded", "PodRefused"),
        (
            webhook,
            ObstacleKind::Webhook,
            "WebhookFailed",
            "PodRefused",
        ),
    ] {
        let at = |seconds| Some(refusal(said, Some(ago(seconds))));
        let (waits, fails) = (Some((kind, before)), Some((kind, after)));
        check(said, at, &[(0, waits, waits), (3000, waits, fails)]);
    }
    let denied = refusal(
        "admission webhook \"policy\" denied the request: no",
        Some(now()),
    );
    let fails = Some((ObstacleKind::Refused, "PodRefused"));
    assert_eq!(word(Some(denied), None), fails);
}

#[test]
fn the_time_of_the_next_change_is_known() {
    let next = |stall: Option<Stall>, fail_fast: Option<i64>| {
        let at = stall
            .unwrap()
            .changes_at(fail_fast.map(SignedDuration::from_secs), now());
        at.map(|at| at.duration_since(now()).as_secs())
    };
    assert_eq!(next(stall(&unschedulable(5)), None), None);
    assert_eq!(next(stall(&unschedulable(5)), Some(30)), Some(25));
    assert_eq!(next(stall(&unschedulable(31)), Some(30)), None);
    let creating = || waiting("ContainerCreating", "");
    assert_eq!(
        next(stall(&pod_since(5, true, 0, creating())), None),
        Some(55)
    );
    let missing = || waiting("ErrImagePull", "not found");
    assert_eq!(
        next(stall(&pod_since(5, true, 0, missing())), None),
        Some(15)
    );
}

#[test]
fn a_cause_that_may_pass_is_held_for_and_one_that_has_failed_is_not() {
    for kind in ObstacleKind::ALL {
        let row = patience(kind);
        assert!(!row.waits.is_obstacle(), "{kind:?}");
        assert!(row.fails.is_obstacle() && !row.fails.is_delay(), "{kind:?}");
    }
}

#[test]
fn the_docs_have_the_table() {
    let docs = include_str!("../../../../../docs/answers.md");
    for kind in ObstacleKind::ALL {
        let Row {
            waits,
            fails,
            patience,
            ..
        } = patience(kind);
        let after = match patience {
            Patience::Deadline => "hold deadline".to_owned(),
            Patience::For(time) => format!("{} s", time.as_secs()),
            Patience::Restarts(times) => format!("{times} restarts"),
            Patience::None => "at once".to_owned(),
        };
        let row = format!("| `{waits}` | {after} | `{fails}` |");
        assert!(docs.contains(&row), "{kind:?}: {row}");
    }
    let rows = docs
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(" | hold deadline | "));
    let waited = ObstacleKind::ALL
        .into_iter()
        .filter(|one| patience(*one).patience == Patience::Deadline);
    assert_eq!(rows.count(), waited.count());
}
