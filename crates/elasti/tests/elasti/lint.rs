//! `elasti lint`: good and bad files, without and with a cluster.

use crate::sandbox::Sandbox;
use crate::sandbox::installed::installed;
use elasti_fake_cluster::clock::Clock;
use elasti_fake_cluster::prometheus::{Prometheus, Reading};
use insta::assert_snapshot;
use jiff::Timestamp;
use serde_json::{Value, json};

const GOOD: &str = include_str!("../../../../deploy/examples/minimal.yaml");
const BAD: &str = include_str!("lint/bad.yaml");
const AROUND: &str = include_str!("lint/around.yaml");
const MISFITS: &str = include_str!("lint/misfits.yaml");
const DEFINITION: &str = include_str!("../../../../deploy/crd/elastiservices.yaml");

#[tokio::test]
async fn a_good_file_has_no_finding() {
    let sandbox = Sandbox::bare();
    sandbox.write("good.yaml", GOOD);
    assert_snapshot!(sandbox.type_in(&["lint", "--offline", "good.yaml"]).await);
}

#[tokio::test]
async fn every_problem_of_a_file_has_a_position_and_a_fix() {
    let sandbox = Sandbox::bare();
    sandbox.write("bad.yaml", BAD);
    assert_snapshot!(sandbox.type_in(&["lint", "--offline", "bad.yaml"]).await);
}

#[tokio::test]
async fn findings_are_data_too() {
    let sandbox = Sandbox::bare();
    sandbox.write("bad.yaml", BAD);
    let report = sandbox.json(&["lint", "--offline", "bad.yaml"]).await;
    assert_eq!(report["cluster"], "offline");
    assert_eq!(report["services"], 2);
    let first = &report["findings"][0];
    let keys: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "column", "field", "file", "fix", "line", "message", "object", "rule", "severity"
        ]
    );
    let count = |severity: &str| {
        let findings = report["findings"].as_array().unwrap().iter();
        findings.filter(|one| one["severity"] == severity).count()
    };
    assert_eq!(report["errors"], count("error"));
    assert_eq!(report["warnings"], count("warning"));
    let all = report["findings"].as_array().unwrap();
    assert!(
        all.iter()
            .all(|one| !one["fix"].as_str().unwrap().is_empty())
    );
}

#[tokio::test]
async fn wrong_usage_and_unusable_files_are_reported() {
    let sandbox = Sandbox::bare();
    sandbox.write("folder/a.yaml", GOOD);
    sandbox.write("folder/template.yaml", "a: {{ .Values.a }}\n{{- end }}\n");
    sandbox.write("folder/note.txt", "no YAML");
    sandbox.write("broken.yaml", "kind: ElastiService\n  name: [\n");
    sandbox.write(
        "other.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    );
    let mut printed = String::new();
    for arguments in [
        &["lint"][..],
        &["lint", "--offline", "absent.yaml"],
        &["lint", "--offline", "other.yaml"],
        &["lint", "--offline", "broken.yaml"],
        &["lint", "--offline", "folder"],
        &["lint", "--kubeconfig", "absent", "folder/a.yaml"],
        &["lint", "folder/a.yaml"],
        &["lint", "--offline", "-o", "name", "folder/a.yaml"],
    ] {
        printed += &sandbox.type_in(arguments).await;
    }
    printed += &sandbox.type_with(&["lint", "--offline", "-"], GOOD).await;
    assert_snapshot!(printed);
}

#[tokio::test]
async fn other_objects_in_the_files_count() {
    let sandbox = Sandbox::bare();
    sandbox.write("around.yaml", AROUND);
    sandbox.write("misfits.yaml", MISFITS);
    assert_snapshot!(
        sandbox
            .type_in(&["lint", "--offline", "around.yaml", "misfits.yaml"])
            .await
    );
}

#[tokio::test]
async fn a_service_that_does_not_fit_the_cluster_is_reported() {
    let sandbox = Sandbox::with_fake_cluster().await;
    sandbox.fake_cluster().install_rollouts_and_keda();
    sandbox.make_all(DEFINITION).await;
    sandbox.make_all(AROUND).await;
    sandbox.write("misfits.yaml", MISFITS);
    assert_snapshot!(sandbox.type_in(&["lint", "misfits.yaml"]).await);
}

#[tokio::test]
async fn a_change_that_the_cluster_would_reject_is_reported() {
    let sandbox = Sandbox::with_fake_cluster().await;
    sandbox.fake_cluster().install_rollouts_and_keda();
    sandbox.make_all(DEFINITION).await;
    sandbox.make_all(AROUND).await;
    let mut fits: Value = serde_saphyr::from_str(GOOD).unwrap();
    fits["metadata"]["name"] = json!("fits");
    fits["spec"]["service"] = json!("fits");
    fits["spec"]["scaleTargetRef"]["name"] = json!("fits");
    fits["spec"]["autoscaler"] = json!({"type": "hpa", "name": "fits"});
    sandbox.make(&fits).await;
    sandbox.write("same.yaml", &serde_saphyr::to_string(&fits).unwrap());
    let mut printed = sandbox.type_in(&["lint", "same.yaml"]).await;
    fits["spec"]["service"] = json!("ports");
    sandbox.write("other.yaml", &serde_saphyr::to_string(&fits).unwrap());
    printed += &sandbox.type_in(&["lint", "other.yaml"]).await;
    assert_snapshot!(printed);
}

/// Two Services of the same pods: the one that the ElastiService names, and one of both address families.
const DUAL: &str = "
apiVersion: v1
kind: Service
metadata: {name: my-api}
spec: {selector: {app: my-api}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: my-api-admin}
spec:
  selector: {app: my-api}
  ports: [{name: http, port: 81}, {name: dns, port: 53, protocol: UDP}]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: my-api}
spec:
  selector: {matchLabels: {app: my-api}}
  template:
    metadata: {labels: {app: my-api}}
    spec: {containers: [{name: app, image: 'echo:1', readinessProbe: {tcpSocket: {port: 80}}}]}
";

#[tokio::test]
async fn other_services_of_the_targets_pods_are_checked_with_their_address_families() {
    let sandbox = installed().await;
    sandbox.write("good.yaml", GOOD);
    sandbox.write("dual.yaml", DUAL);
    let printed = sandbox.type_in(&["lint", "good.yaml", "dual.yaml"]).await;
    for finding in [
        "error: spec.service: Service my-api-admin: The Service has IPv6, and no ready resolver has an IPv6 address\n    fix: give the resolvers both families, or the Service only one\n",
        "warning: spec.service: Service my-api-admin: Port 53 of the Service is not TCP",
    ] {
        assert!(printed.contains(finding), "{finding}: {printed}");
    }
    // Without a cluster no address of a resolver is known.
    let printed = sandbox
        .type_in(&["lint", "--offline", "good.yaml", "dual.yaml"])
        .await;
    assert!(!printed.contains("IPv6"), "{printed}");
}

#[tokio::test]
async fn a_metric_without_series_is_reported_if_a_prometheus_is_named() {
    let prometheus = Prometheus::start(Clock::starting_at(Timestamp::now()))
        .await
        .unwrap();
    let sandbox = Sandbox::bare();
    sandbox.write("good.yaml", GOOD);
    let url = format!("http://{}", prometheus.address);
    let lint = ["lint", "--offline", "--prometheus", &url, "good.yaml"];
    let printed = sandbox.type_in(&lint).await;
    let finding = "warning: spec.triggers[0].metadata.query: metric http_requests_total has no series in Prometheus, so the query always reads as idle";
    assert!(printed.contains(finding), "{printed}");

    prometheus.set("count(http_requests_total)", Reading::Value(3.0));
    let printed = sandbox.type_in(&lint).await;
    assert!(printed.contains("0 errors, 0 warnings"), "{printed}");

    prometheus.set("count(http_requests_total)", Reading::Fails(503));
    let printed = sandbox.type_in(&lint).await;
    assert!(
        printed.contains("Prometheus answered with code 503; check the address of --prometheus"),
        "{printed}"
    );
    drop(prometheus);
    let printed = sandbox.type_in(&lint).await;
    assert!(
        printed.contains("Prometheus does not answer: "),
        "{printed}"
    );
    assert!(!printed.ends_with("[exit 0]\n"), "{printed}");
}
