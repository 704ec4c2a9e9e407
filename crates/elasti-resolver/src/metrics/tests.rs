//! The resolver's metrics against those of KubeElasti, and against what docs/metrics.md says about each label.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use elasti_core::ports::ServiceKey;
use elasti_testkit::predecessor_metrics::{Family, Labels, RECORDED, families};
use http::{HeaderName, Method, Response, StatusCode};

use super::*;
use crate::table::ServiceStats;

const DOCUMENTED: &str = include_str!("../../../../docs/metrics.md");

/// Labels of KubeElasti that would grow without bound, or repeat others.
const LEFT_OUT: [&str; 3] = ["requestURI", "sourceHost", "targetHost"];

fn target() -> Destination {
    Destination {
        key: Arc::new(ServiceKey::new("default", "target")),
        listen_port: 10_000,
        stats: Arc::new(ServiceStats::default()),
    }
}

fn answered(status: StatusCode) -> Result<Response<Body>, Failure> {
    let mut response = Response::new(Body::from_text(""));
    *response.status_mut() = status;
    Ok(response)
}

fn metrics() -> Metrics {
    Metrics::new(&HostRoute {
        cluster_domain: "cluster.local".into(),
        host_header: Some(HeaderName::from_static("x-envoy-decorator-operation")),
    })
}

/// What happened when those of KubeElasti were recorded: a request on the host route woke a service.
fn recorded_day() -> BTreeMap<String, Family> {
    let (metrics, target) = (metrics(), target());
    metrics.host(Some(&target));
    metrics.host(None);
    metrics.wake(Ok(()));
    metrics.switched(&target.key, false);
    let took = Duration::from_secs(3);
    metrics.request(Some(&target), &Method::GET, &answered(StatusCode::OK), took);
    metrics.queued.with(&["default", "target"]).set(0);
    let text = metrics.encode(&RouteTable::default(), None);
    families(&text, "elasti_resolver_")
}

/// Rows of the table of labels: family and label.
fn documented() -> BTreeSet<(String, String)> {
    let (_, table) = DOCUMENTED.split_once("### Label by label").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let family = cells[1].trim().trim_matches('`').to_owned();
        let labels = cells[2]
            .split(',')
            .map(|label| label.trim().trim_matches('`'));
        let labels: Vec<String> = labels.map(str::to_owned).collect();
        labels.into_iter().map(move |label| (family.clone(), label))
    })
    .collect()
}

#[test]
fn every_name_of_kubeelasti_is_kept_and_every_label_explained() {
    let theirs = families(RECORDED, "elasti_resolver_");
    let ours = recorded_day();
    assert_eq!(theirs.len(), 4, "{theirs:?}");
    for (name, family) in &theirs {
        assert_eq!(ours[name].kind, family.kind, "{name}");
    }
    let mut seen = BTreeSet::new();
    let compared = ours.iter().filter(|(name, _)| {
        theirs.contains_key(*name) || *name == "elasti_resolver_traffic_switch_count"
    });
    for (name, family) in compared {
        let mut labels = family.label_names();
        labels.extend(theirs.get(name).into_iter().flat_map(Family::label_names));
        labels.remove("le");
        seen.extend(
            labels
                .iter()
                .map(|label| (name.clone(), (*label).to_owned())),
        );
    }
    assert_eq!(documented(), seen, "docs/metrics.md, label by label");
}

#[test]
fn series_of_kubeelasti_stay_without_what_is_unbounded() {
    let (theirs, ours) = (families(RECORDED, "elasti_resolver_"), recorded_day());
    let mut compared = 0;
    for name in [
        "elasti_resolver_incoming_requests",
        "elasti_resolver_queued_count",
        "elasti_resolver_operator_rpc_count",
    ] {
        for (sample, labels) in theirs[name].series.keys() {
            // An address of the cluster, taken for a service.
            if labels.get("namespace").is_some_and(|n| n == "96") {
                continue;
            }
            let mut bounded: Labels = labels.clone();
            bounded.retain(|label, _| !LEFT_OUT.contains(&label.as_str()));
            let key = (sample.clone(), bounded);
            assert!(ours[name].series.contains_key(&key), "{key:?}: {ours:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 5);
}

#[test]
fn what_clients_choose_makes_no_series_of_its_own() {
    let (metrics, target) = (metrics(), target());
    for name in ["BREW", "X-1", "X-2"] {
        let method = Method::from_bytes(name.as_bytes()).unwrap();
        let answer = answered(StatusCode::from_u16(799).unwrap());
        metrics.request(Some(&target), &method, &answer, Duration::ZERO);
    }
    let left = Err(Failure::ClientDisconnected);
    metrics.request(None, &Method::GET, &left, Duration::ZERO);
    let refused = Err(Failure::Deadline);
    metrics.request(Some(&target), &Method::PUT, &refused, Duration::ZERO);
    let text = metrics.encode(&RouteTable::default(), None);
    for line in [
        "count{namespace=\"default\",source=\"target\",target=\"elasti-target-pvt-34a04005bc\",method=\"other\",status=\"\",error=\"\"} 3\n",
        "count{namespace=\"default\",source=\"target\",target=\"elasti-target-pvt-34a04005bc\",method=\"PUT\",status=\"Service Unavailable\",error=\"HoldDeadline\"} 1\n",
        "count{namespace=\"\",source=\"\",target=\"\",method=\"GET\",status=\"\",error=\"ClientLeft\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let ended = EndedHold::now(tokio::time::Instant::now(), Some(Failure::Deadline));
    metrics.hold_ended(&target.key, CountedAs::Tls, &ended);
    metrics.relay(&target.key, CountedAs::Tls, None);
    let text = metrics.encode(&RouteTable::default(), None);
    let labels = "namespace=\"default\",source=\"target\",protocol=\"tls\"";
    for line in [
        format!("hold_seconds_count{{{labels},outcome=\"HoldDeadline\"}} 1\n"),
        format!("relay_count{{{labels},error=\"\"}} 1\n"),
    ] {
        assert!(text.contains(&line), "{line}: {text}");
    }
    metrics.forget(&target.key);
    let text = metrics.encode(&RouteTable::default(), None);
    assert!(!text.contains("source=\"target\""), "{text}");
}

#[test]
fn a_status_is_written_as_go_writes_it() {
    for (code, text) in [
        (200, "OK"),
        (203, "Non-Authoritative Information"),
        (404, "Not Found"),
        (413, "Request Entity Too Large"),
        (414, "Request URI Too Long"),
        (416, "Requested Range Not Satisfiable"),
        (503, "Service Unavailable"),
        (799, ""),
    ] {
        let status = StatusCode::from_u16(code).unwrap();
        assert_eq!(status_text(status), text, "{code}");
    }
}
