//! The operator's metrics against the documentation and against those of KubeElasti.

use std::time::Duration;

use elasti_api::{Mode, Reason};
use elasti_testkit::predecessor_metrics::{RECORDED, families, lost};
use serde_json::json;

use super::{Metrics, Scaling};
use crate::error::Error;
use crate::name::Name;
use crate::slim::{Declared, FromObject as _};

fn declared(namespace: &str, name: &str, kind: &str, target: &str) -> Declared {
    Declared::from_object(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "1"},
        "spec": {
            "service": target,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
            "triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "1"}}],
        },
    }))
    .unwrap()
}

/// What happened when those of KubeElasti were recorded: one was woken, the other sleeps.
fn recorded_day() -> Metrics {
    let metrics = Metrics::new("elasti");
    let woken = declared("default", "target", "Deployment", "target");
    let asleep = declared(
        "keda-case",
        "target-elastiservice",
        "deployments",
        "target-deployment",
    );
    for me in [&woken, &asleep] {
        metrics.reconciled(&me.name, Duration::from_millis(12), None);
        metrics.set_watched(me, "deployments");
        metrics.target_changed(me);
        for mode in [Mode::Serve, Mode::Proxy] {
            metrics.status_written(&me.name, mode, None);
            metrics.set_state(&me.name, mode, 0);
        }
    }
    metrics.scaled(&woken, Scaling::Up, None);
    metrics.set_state(&woken.name, Mode::Serve, 0);
    metrics
}

#[test]
fn nothing_that_kubeelasti_shows_is_lost() {
    let theirs = families(RECORDED, "elasti_operator_");
    let ours = families(&recorded_day().encode(), "elasti_operator_");
    assert_eq!(theirs.len(), 7, "{theirs:?}");
    assert_eq!(lost(&theirs, &ours), Vec::<String>::new());
    // The values that are no counts.
    for family in ["elasti_operator_mode", "elasti_operator_informer_count"] {
        assert_eq!(ours[family].series, theirs[family].series, "{family}");
    }
}

#[test]
fn a_failure_has_its_kind_in_place_of_success() {
    let metrics = recorded_day();
    let me = declared("default", "target", "Deployment", "target");
    let error = Error::Forbidden("deployments.apps is forbidden: some long text".into());
    metrics.reconciled(&me.name, Duration::ZERO, Some(&error));
    metrics.finalizer_removed(&me.name, Some(&error));
    metrics.scaled(&me, Scaling::Down, Some(&error));
    let text = metrics.encode();
    for line in [
        "elasti_operator_reconcile_count{crd_name=\"default/target\",error=\"forbidden\"} 1",
        "elasti_operator_CRD_finalizer_counter{crd_name=\"default/target\",error=\"forbidden\"} 1",
        "elasti_operator_scale_write_counter{service_name=\"target\",namespace=\"default\",target=\"Deployment-target\",action=\"scaleDown\",error=\"forbidden\"} 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // KubeElasti counts wakes alone.
    let wakes = "elasti_operator_scale_counter{service_name=\"target\",namespace=\"default\",target=\"Deployment-target\",error=";
    let counted = text.lines().filter(|line| line.starts_with(wakes));
    assert_eq!(counted.count(), 1, "{text}");
}

#[test]
fn what_is_gone_leaves_no_series_and_an_operator_that_leads_no_more_no_state() {
    let metrics = recorded_day();
    metrics.set_cannot_drain(&Name::new("default", "target"), false);
    metrics.set_waking(&Name::new("default", "target"), Some(Reason::Starting));
    metrics.set_waking(&Name::new("default", "target"), Some(Reason::NotScheduled));
    let waking = metrics.encode();
    let waking = waking
        .lines()
        .filter(|line| line.starts_with("elasti_operator_waking{"));
    let waking: Vec<&str> = waking.collect();
    let labels = r#"crd_name="default/target",namespace="default",reason="NotScheduled""#;
    assert_eq!(waking, [format!("elasti_operator_waking{{{labels}}} 1")]);
    metrics.forget(&Name::new("default", "target"), "target");
    let text = metrics.encode();
    for gone in ["default/target", "target/default", "\"target\""] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    assert!(text.contains("elasti_operator_mode{crd_name=\"keda-case/target-elastiservice\"} 1\n"));
    metrics.forget_states();
    let me = declared(
        "keda-case",
        "target-elastiservice",
        "deployments",
        "target-deployment",
    );
    let handled = |text: &str| {
        let mut lines = text.lines().map(str::to_owned);
        lines.find(|line| line.starts_with("elasti_operator_informer_handler_counter{"))
    };
    let before = handled(&metrics.encode());
    assert!(before.is_some());
    metrics.target_changed(&me);
    let text = metrics.encode();
    assert_eq!(handled(&text), before, "only the leader counts");
    assert!(!text.contains("elasti_operator_mode{"), "{text}");
}

#[test]
fn every_family_is_documented() {
    let text = include_str!("../../../../docs/metrics.md");
    let encoded = Metrics::new("elasti").encode();
    let types = encoded
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let families: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    assert!(families.len() > 20, "{families:?}");
    for name in families {
        assert!(text.contains(&format!("| `{name}` |")), "{name}");
    }
}
