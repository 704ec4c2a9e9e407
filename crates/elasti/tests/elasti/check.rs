//! `elasti check`: a healthy installation, and every problem that it finds.

use crate::sandbox::installed::{ELASTI, LEASES, OPERATOR, SERVICES, SLICES, installed, slice};
use crate::sandbox::{Sandbox, until};
use elasti_api::names::{self, IpFamily};
use insta::assert_snapshot;
use serde_json::json;

/// Message and fix of the lines of one check that are not ok.
async fn trouble(sandbox: &Sandbox, check: &str) -> String {
    let report = sandbox.json(&["check"]).await;
    let lines = report["checks"].as_array().unwrap().iter();
    let bad = lines.filter(|line| line["check"] == check && line["verdict"] != "ok");
    let printed: Vec<String> = bad
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            format!("{}: {} | {}", text("verdict"), text("message"), text("fix"))
        })
        .collect();
    printed.join("\n")
}

#[tokio::test]
async fn an_installation_by_the_chart_passes() {
    let sandbox = installed().await;
    assert_snapshot!(sandbox.type_in(&["check"]).await);
    let report = sandbox.json(&["check", "-n", "elasti"]).await;
    assert_eq!(report["ok"], true);
    assert_eq!(report["failures"], 0);
}

#[tokio::test]
async fn an_empty_cluster_and_no_cluster_fail() {
    let sandbox = Sandbox::with_fake_cluster().await;
    let mut printed = sandbox.type_in(&["check"]).await;
    let bare = Sandbox::bare();
    bare.write("kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\ncurrent-context: a\n");
    let refused = bare.type_in(&["check", "--kubeconfig", "kubeconfig"]).await;
    assert!(
        refused.contains(
            "FAIL  cluster     the cluster does not answer: Connection refused; is it running"
        ),
        "{refused}"
    );
    assert!(refused.ends_with("[exit 1]\n"), "{refused}");
    printed += &bare.type_in(&["check", "--kubeconfig", "absent"]).await;
    printed += &bare.type_in(&["check", "--nonsense"]).await;
    assert_snapshot!(printed);
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "one problem after the other")]
async fn every_problem_is_named_with_its_fix() {
    let sandbox = installed().await;
    let mut printed = String::new();

    sandbox
        .delete(&format!(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{OPERATOR}"
        ))
        .await;
    printed += &format!("permissions\n{}\n", trouble(&sandbox, "permissions").await);

    let old =
        json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}});
    sandbox
        .patch(&format!("{LEASES}/{}", names::LEASE), &old)
        .await;
    let stale = trouble(&sandbox, "lease").await;
    assert!(
        stale.starts_with("fail: leader operator-1 has not renewed its lease for"),
        "{stale}"
    );
    sandbox.delete(&format!("{LEASES}/{}", names::LEASE)).await;
    printed += &format!("lease\n{}\n", trouble(&sandbox, "lease").await);

    sandbox
        .delete("/api/v1/namespaces/elasti/services/elasti-operator-controller-service")
        .await;
    printed += &format!("wake path\n{}\n", trouble(&sandbox, "wake-path").await);

    let name = names::resolver_slice("web", IpFamily::V4, 0);
    sandbox.delete(&format!("{SLICES}/{name}")).await;
    printed += &format!("no slice\n{}\n", trouble(&sandbox, "slices").await);
    slice(&sandbox, "web", &[json!("10.9.9.9")]).await;
    printed += &format!("stray slice\n{}\n", trouble(&sandbox, "slices").await);

    slice(&sandbox, "gone", &[json!("10.9.9.9")]).await;
    sandbox
        .make(&json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": names::private_service("gone")}, "spec": {"ports": [{"port": 80}]}}))
        .await;
    let labels = json!({"app": "elasti-resolver", "of": "predecessor"});
    sandbox
        .make(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "old-elasti-resolver", "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "example.com/elasti-resolver:v0.1.30"}]}}}}))
        .await;
    printed += &format!("leftovers\n{}\n", trouble(&sandbox, "leftovers").await);

    for namespace in ["elasti", "default"] {
        sandbox
            .make(
                &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
                "metadata": {"name": "closed", "namespace": namespace},
                "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
            )
            .await;
    }
    printed += &format!("network\n{}\n", trouble(&sandbox, "network").await);

    let dns = json!({"name": "dns", "port": 53, "protocol": "UDP"});
    sandbox
        .make(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}, dns], "internalTrafficPolicy": "Local",
        }}))
        .await;
    let both = json!(["IPv4", "IPv6"]);
    sandbox
        .make(&json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-admin"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"port": 81}], "ipFamilies": both, "ipFamilyPolicy": "RequireDualStack",
        }}))
        .await;
    sandbox
        .patch(
            &format!("{SERVICES}/web/status"),
            &json!({"status": {"services": [{"name": "web-admin"}]}}),
        )
        .await;
    printed += &format!("policies\n{}\n", trouble(&sandbox, "policies").await);

    let nameless = json!({"spec": {"triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "1"}}]}});
    sandbox.patch(&format!("{SERVICES}/web"), &nameless).await;
    printed += &format!("prometheus\n{}\n", trouble(&sandbox, "prometheus").await);

    sandbox
        .patch(
            &format!("{ELASTI}/elasti-resolver"),
            &json!({"spec": {"replicas": 0}}),
        )
        .await;
    until("no resolver is ready", async || {
        let found = sandbox
            .get(&format!("{ELASTI}/elasti-resolver"))
            .await
            .unwrap();
        found["status"]["readyReplicas"].as_i64().unwrap_or(0) == 0
    })
    .await;
    printed += &format!("resolver\n{}\n", trouble(&sandbox, "resolver").await);
    assert_snapshot!(printed);
    assert!(sandbox.type_in(&["check"]).await.ends_with("[exit 1]\n"));
}

/// What the user may not read is reported as not checked.
#[tokio::test]
async fn without_permissions_it_says_what_it_could_not_check() {
    let sandbox = installed().await;
    sandbox.become_account("missing").await;
    assert_snapshot!(sandbox.type_in(&["check", "--kubeconfig", "missing"]).await);
}

/// KubeElasti in place of Elasti, as its chart installs it.
async fn with_kube_elasti() -> Sandbox {
    let sandbox = installed().await;
    for name in [OPERATOR, "elasti-resolver"] {
        sandbox.delete(&format!("{ELASTI}/{name}")).await;
    }
    let deployment = |name: &str, label: (&str, &str), container: serde_json::Value| {
        let labels = json!({label.0: label.1, "app.kubernetes.io/instance": "elasti"});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "elasti", "labels": labels},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [container]},
            }},
        })
    };
    let operator = json!({
        "name": "manager", "image": "example.com/elasti-operator:v0.1.30", "command": ["/manager"],
        "args": ["--leader-elect", "--metrics-bind-address=0", "-zap-devel", "--zap-log-level", "debug", "--kubeconfig=/etc/kubeconfig"],
        "env": [
            {"name": "ELASTI_OPERATOR_DEPLOYMENT_NAME", "value": OPERATOR},
            {"name": "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER", "value": "Bearer x"},
        ],
    });
    let resolver = json!({
        "name": "proxy", "image": "example.com/elasti-resolver:v0.1.30", "command": ["/resolver"],
        "env": [
            {"name": "HEADER_FOR_HOST", "value": "X-Envoy-Decorator-Operation"},
            {"name": "REQ_TIMEOUT", "value": "600"},
        ],
    });
    let operator = deployment(OPERATOR, ("control-plane", "controller-manager"), operator);
    sandbox.make(&operator).await;
    let resolver = deployment("elasti-resolver", ("app", "elasti-resolver"), resolver);
    sandbox.make(&resolver).await;
    sandbox
}

#[tokio::test]
async fn before_a_move_it_says_what_stands_against_it() {
    let sandbox = with_kube_elasti().await;
    assert_snapshot!(sandbox.type_in(&["check", "--migration"]).await);
}

#[tokio::test]
async fn after_a_move_it_says_what_is_left_to_move() {
    let sandbox = installed().await;
    assert_snapshot!(sandbox.type_in(&["check", "--migration"]).await);
    sandbox
        .make(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": names::resolver_slice("old", IpFamily::V4, 0), "labels": {
                names::SERVICE_NAME_LABEL: "old",
            }},
            "addressType": "IPv4", "ports": [{"port": 8012}], "endpoints": [{"addresses": ["10.9.9.9"]}],
        }))
        .await;
    let report = sandbox.json(&["check", "--migration"]).await;
    let mut lines = report["checks"].as_array().unwrap().iter();
    let adoption = lines.find(|line| line["check"] == "adoption").unwrap();
    assert_eq!(adoption["verdict"], "fail", "{adoption}");
}

#[tokio::test]
async fn before_an_install_the_cluster_and_your_permissions_are_checked() {
    let sandbox = Sandbox::with_fake_cluster().await;
    let printed = sandbox.type_in(&["check", "--pre"]).await;
    assert!(printed.contains("is new enough"), "{printed}");
    assert!(printed.contains("you may create everything"), "{printed}");
    assert!(printed.contains("ok: no problems found"), "{printed}");
    sandbox.become_account("reader").await;
    let printed = sandbox
        .type_in(&["check", "--pre", "--kubeconfig", "reader"])
        .await;
    assert!(
        printed.contains("FAIL  permissions you may not create customresourcedefinitions"),
        "{printed}"
    );
    let there = installed().await;
    let printed = there.type_in(&["check", "--pre"]).await;
    assert!(
        printed.contains("Elasti is installed already, as elasti/"),
        "{printed}"
    );
}

#[tokio::test]
async fn version_shows_program_operator_resolver_and_crd() {
    let sandbox = installed().await;
    let printed = sandbox.type_in(&["version"]).await;
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        format!("client    {version}"),
        format!("operator  {version} (elasti/elasti:{version} in elasti/{OPERATOR})"),
        "resolver  ".to_owned(),
        "crd       installed and served".to_owned(),
    ] {
        assert!(printed.contains(&line), "{line}: {printed}");
    }
    let bare = Sandbox::bare();
    let printed = bare.type_in(&["version", "--client"]).await;
    assert!(
        printed.contains(&format!("client    {version}")),
        "{printed}"
    );
    assert!(!printed.contains("operator"), "{printed}");
}

#[tokio::test]
async fn version_says_what_it_may_not_read_instead_of_calling_it_missing() {
    let sandbox = installed().await;
    sandbox.become_account("missing").await;
    let printed = sandbox
        .type_in(&["version", "--kubeconfig", "missing"])
        .await;
    let line = "operator  not checked: you may not read Deployments\n";
    assert!(printed.contains(line), "{printed}");
    assert!(printed.ends_with("[exit 1]\n"), "{printed}");
}
