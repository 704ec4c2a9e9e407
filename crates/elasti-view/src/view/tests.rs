//! What a view shows of plain objects.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

use elasti_api::HistoryState;
use serde_json::{Value, json};

use super::*;
fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

fn service(spec: Value, status: Value) -> ElastiService {
    let mut object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": "web", "namespace": "shop", "generation": 1, "creationTimestamp": ago(36_000)},
        "spec": {
            "service": "web", "minTargetReplicas": 2, "cooldownPeriod": 900,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "web"},
            "triggers": [{"type": "prometheus", "metadata": {"query": "q", "threshold": "0.5"}}],
        },
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn workload(replicas: u32, ready: u32) -> Lookup<Workload> {
    requesting(replicas, ready, "250m")
}

fn requesting(replicas: u32, ready: u32, cpu: &str) -> Lookup<Workload> {
    let resources = json!({"requests": {"cpu": cpu, "memory": "512Mi"}});
    Lookup::Found(Workload::from_object(&json!({
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"resources": resources}]}}},
        "status": {"readyReplicas": ready},
    })))
}

fn shown(me: &ElastiService, target: &Lookup<Workload>) -> View {
    let now = now();
    view(Facts {
        me,
        target,
        held: None,
        now,
    })
}

fn trigger(reading: &str) -> Value {
    json!({"type": "prometheus", "reading": reading, "value": "0.2", "threshold": "0.5", "since": ago(300), "readAt": ago(12)})
}

fn ready(status: &str, message: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": "x", "message": message, "lastTransitionTime": ago(60)})
}

fn serving(reason: &str, quiet_for: Option<i64>, reading: &str) -> Value {
    json!({
        "phase": "Serving", "mode": "serve", "reason": reason, "replicas": 2, "observedGeneration": 1,
        "quietSince": quiet_for.map(ago), "triggers": [trigger(reading)],
        "conditions": [ready("True", "The operator's sentence.")],
    })
}

#[test]
fn a_cooldown_says_when_it_sleeps() {
    let me = service(json!({}), serving("CoolingDown", Some(300), "quiet"));
    let view = shown(&me, &workload(2, 2));
    assert_eq!(view.sleeps_at, Some(now() + SignedDuration::from_secs(600)));
    assert_eq!(view.blockers.len(), 1);
    assert_eq!(view.blockers[0].reason, "CoolingDown");
    assert_eq!((view.replicas, view.ready), (Some(2), Some(2)));
    assert_eq!(view.target.kind, "Deployment");
    assert!(!view.trouble);
}

#[test]
fn quiet_for_longer_than_the_cooldown_sleeps_now() {
    let me = service(json!({}), serving("Idle", Some(901), "quiet"));
    let view = shown(&me, &workload(2, 2));
    assert_eq!(view.blockers, []);
    assert_eq!(view.sleeps_at, Some(now()));
}

#[test]
fn an_active_trigger_blocks_without_an_end() {
    let me = service(json!({}), serving("TriggerActive", None, "active"));
    let view = shown(&me, &workload(2, 2));
    assert_eq!(view.sleeps_at, None);
    assert_eq!(view.blockers[0].reason, "TriggerActive");
    assert_eq!(view.triggers[0].value.as_deref(), Some("0.2"));
}

#[test]
fn all_that_blocks_is_told_not_only_the_first() {
    let spec =
        json!({"paused": true, "enabledPeriod": {"schedule": "0 20 * * *", "duration": "8h"}});
    let me = service(spec, serving("Paused", Some(300), "quiet"));
    let view = shown(&me, &workload(2, 2));
    let reasons: Vec<&str> = view
        .blockers
        .iter()
        .map(|one| one.reason.as_str())
        .collect();
    assert_eq!(reasons, ["OutsideWindow", "Paused", "CoolingDown"]);
    assert_eq!(view.sleeps_at, None, "it is not known when it is resumed");
}

#[test]
fn what_only_the_operator_sees_is_taken_from_its_word() {
    let me = service(json!({}), serving("NoResolver", Some(901), "quiet"));
    let view = shown(&me, &workload(2, 2));
    assert_eq!(view.blockers[0].sentence, "The operator's sentence.");
    assert_eq!(view.sleeps_at, None);
}

#[test]
fn a_status_without_readings_is_understood_by_its_quiet_time() {
    let mut status = serving("CoolingDown", Some(300), "quiet");
    status.as_object_mut().unwrap().remove("triggers");
    let view = shown(&service(json!({}), status), &workload(2, 2));
    assert_eq!(view.blockers[0].reason, "CoolingDown");
    assert_eq!(view.triggers[0].reading, "unread");
    assert_eq!(view.triggers[0].threshold.as_deref(), Some("0.5"));
}

#[test]
fn an_operator_that_has_just_begun_has_not_read_its_triggers_and_that_is_no_doubt() {
    let mut status = serving("TriggerUnknown", None, "unknown");
    let view = shown(&service(json!({}), status.clone()), &workload(2, 2));
    assert_eq!(view.triggers[0].reading, "unread");
    assert_eq!(
        view.blockers[0].sentence,
        "Not every trigger has been read yet."
    );
    status["triggers"][0]["message"] = json!("the server is down.");
    let view = shown(&service(json!({}), status), &workload(2, 2));
    assert_eq!(view.triggers[0].reading, "unknown");
    assert_eq!(
        view.blockers[0].sentence,
        "Trigger 0 has no usable reading: the server is down."
    );
}

/// Asleep for two hours, and for three before.
fn sleeping() -> Value {
    json!({
        "phase": "Asleep", "mode": "proxy", "reason": "Idle", "replicas": 0, "observedGeneration": 1,
        "lastSleepTime": ago(7200), "asleepSeconds": 10_800, "conditions": [ready("True", "s")],
        "saved": {
            "podSeconds": 21_600, "cpuMillicoreSeconds": 5_400_000, "memoryMebibyteSeconds": 11_059_200,
            "resourceSeconds": {"nvidia.com/gpu": 3600},
        },
        "currentSleep": {
            "since": ago(7200), "pods": 2, "cpuMillicores": 250, "memoryBytes": 536_870_912,
            "resources": {"nvidia.com/gpu": 1},
        },
    })
}

#[test]
fn sleep_is_counted_with_the_one_that_goes_on_and_saves_what_the_status_adds_up() {
    let view = shown(&service(json!({}), sleeping()), &workload(0, 0));
    assert_eq!(
        view.asleep,
        Asleep {
            seconds: 18_000,
            share: 0.5
        }
    );
    assert_eq!(
        view.saved,
        Saved {
            pod_hours: 10.0,
            cpu_hours: 2.5,
            gib_hours: 5.0,
            resource_hours: [("nvidia.com/gpu".to_owned(), 5.0)].into(),
        }
    );
    assert_eq!(view.since, Some(now() - SignedDuration::from_secs(7200)));
    assert_eq!((view.sleeps_at, view.blockers.len()), (None, 0));
}

#[test]
fn months_and_days_come_from_the_status_and_the_sleep_that_goes_on() {
    let mut status = sleeping();
    status["savingsCalendar"] = json!({
        "since": ago(18_000), "lastDay": "2026-03-01", "podSecondsByDay": [3600, 18_000],
        "months": [{"month": "2026-02", "asleepSeconds": 1800, "saved": {"podSeconds": 3600}}],
    });
    let view = shown(&service(json!({}), status), &workload(0, 0));
    let calendar = view.saved_calendar.unwrap();
    let months = calendar.months.iter();
    let months: Vec<_> = months
        .map(|one| (one.month.as_str(), one.asleep_seconds, one.saved.pod_hours))
        .collect();
    assert_eq!(months, [("2026-02", 1800, 1.0), ("2026-03", 7200, 4.0)]);
    assert_eq!(calendar.last_day.as_deref(), Some("2026-03-02"));
    assert_eq!(calendar.pod_hours_by_day, [1.0, 5.0, 4.0]);
    assert_eq!(
        calendar.since,
        Some(now() - SignedDuration::from_secs(18_000))
    );
}

#[test]
fn a_change_of_requests_changes_nothing_that_was_saved() {
    let me = service(json!({}), sleeping());
    let before = shown(&me, &workload(0, 0)).saved;
    assert_eq!(shown(&me, &requesting(0, 0, "64")).saved, before);
    let more_pods = service(json!({"minTargetReplicas": 50}), sleeping());
    assert_eq!(shown(&more_pods, &workload(0, 0)).saved, before);
    assert_eq!(shown(&me, &Lookup::Unknown).saved, before);
}

#[test]
fn what_was_saved_before_it_was_recorded_is_not_invented() {
    let mut status = sleeping();
    for field in ["saved", "currentSleep"] {
        status.as_object_mut().unwrap().remove(field);
    }
    let view = shown(&service(json!({}), status), &workload(0, 0));
    assert_eq!(
        (view.asleep.seconds, view.saved),
        (18_000, Saved::default())
    );
}

#[test]
fn a_wake_is_told_by_its_parts_and_a_gap_counts_for_the_next() {
    let at = |ms: i64| {
        (now() - SignedDuration::from_secs(60) + SignedDuration::from_millis(ms)).to_string()
    };
    let mut status = serving("CoolingDown", Some(60), "quiet");
    status["lastWake"] = json!({
        "by": "Traffic", "askedAt": at(0), "scaledAt": at(12), "startedAt": at(700), "readyAt": at(650), "answeredAt": at(705),
    });
    let wake = shown(&service(json!({}), status), &workload(2, 2))
        .last_wake
        .unwrap();
    let parts: Vec<(&str, i64)> = wake.parts.iter().map(|part| (part.name, part.ms)).collect();
    assert_eq!(
        parts,
        [
            ("scaled", 12),
            ("started", 688),
            ("ready", 0),
            ("answered", 5)
        ]
    );
    assert_eq!(wake.cold_start_ms, Some(705));
    assert!(wake.finished);
}

#[test]
fn a_service_that_nobody_looked_at_and_one_without_a_target_are_trouble() {
    let view = shown(&service(json!({}), json!({})), &Lookup::Unknown);
    assert!(view.trouble && view.reason == "Unseen", "{view:?}");
    assert_eq!((view.phase, view.target.found), (None, None));
    let me = service(json!({}), serving("CoolingDown", Some(300), "quiet"));
    let view = shown(&me, &Lookup::Missing);
    assert!(view.trouble && view.reason == "TargetNotFound", "{view:?}");
}

#[test]
fn a_wake_that_fails_is_a_failure_until_one_succeeds() {
    let failed = json!({"reason": "ImagePull", "message": "No such image.", "at": ago(60)});
    for (phase, ready_is, failed, state) in [
        ("Waking", "True", Value::Null, HistoryState::Waking),
        ("Waking", "False", failed.clone(), HistoryState::Failed),
        ("Asleep", "True", failed.clone(), HistoryState::Failed),
        ("Waking", "True", failed, HistoryState::Failed),
        ("Serving", "False", Value::Null, HistoryState::Failed),
        ("Draining", "True", Value::Null, HistoryState::Awake),
    ] {
        let status = json!({"phase": phase, "reason": "x", "failedWake": failed, "conditions": [ready(ready_is, "s")]});
        let view = shown(&service(json!({}), status), &workload(1, 0));
        assert_eq!(view.state(), Some(state), "{phase}");
    }
}

#[test]
fn its_data_keeps_its_shape() {
    let me = service(json!({}), serving("CoolingDown", Some(300), "quiet"));
    let view = shown(&me, &workload(2, 1));
    insta::assert_snapshot!(serde_json::to_string_pretty(&view).unwrap());
}

/// `kubectl get els` prints the status: a view that sees only the target must not contradict it.
#[test]
fn what_the_operator_reports_before_a_missing_target_stands() {
    let ready = |reason: &str| json!([{"type": "Ready", "status": "False", "reason": reason, "message": "As reported.", "lastTransitionTime": ago(60)}]);
    for reason in ["Conflict", "ServiceNotFound", "Unsupported"] {
        let me = service(
            json!({}),
            json!({"phase": "Serving", "reason": reason, "conditions": ready(reason)}),
        );
        let view = shown(&me, &Lookup::Missing);
        assert_eq!((view.reason.as_str(), view.trouble), (reason, true));
        assert_eq!(view.sentence, "As reported.");
    }
    let me = service(json!({}), json!({"phase": "Serving", "reason": "Idle"}));
    assert_eq!(shown(&me, &Lookup::Missing).reason, "TargetNotFound");
}

/// Its target is put to sleep by another ElastiService, and so it neither sleeps nor saves.
#[test]
fn a_conflicting_duplicate_does_not_sleep() {
    let me = service(
        json!({}),
        json!({
            "phase": "Serving", "reason": "Conflict", "replicas": 0, "lastSleepTime": ago(36_000),
            "currentSleep": {"since": ago(36_000), "pods": 2, "cpuMillicores": 250},
        }),
    );
    let view = shown(&me, &workload(0, 0));
    assert_eq!(view.asleep.seconds, 0);
    assert_eq!(view.saved, Saved::default());
    assert_eq!(view.blockers[0].reason, "Conflict");
}
