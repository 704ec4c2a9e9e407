//! `elasti lint`: good and bad files, without and with a cluster.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
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
