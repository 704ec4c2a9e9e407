//! Errors and conventions of kubectl: kubeconfigs, contexts, permissions, names, colour.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::fixture::Fixture;

/// A kubeconfig without its user.
const KEYLESS: &str = "current-context: old
contexts: [{name: old, context: {cluster: old, user: old}}]
clusters: [{name: old, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]";

/// From now on the kubeconfig is that of a service account with these rules in its namespace.
pub async fn as_account(fixture: &Fixture, name: &str, rules: Value) {
    let api = fixture.env.api();
    let here = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.make(accounts, json!({"metadata": {"name": name}}))
        .await;
    api.make(
        &format!("{here}/roles"),
        json!({"metadata": {"name": name}, "rules": rules}),
    )
    .await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    api.make(&format!("{here}/rolebindings"), binding).await;
    let answer = api
        .make(
            &format!("{accounts}/{name}/token"),
            json!({"spec": {"expirationSeconds": 86_400}}),
        )
        .await;
    let token = answer["status"]["token"].as_str().unwrap();
    let fake_cluster = fixture.env.fake_cluster();
    let config = fake_cluster
        .server
        .kubeconfig_with_token(fake_cluster.address(), token);
    std::fs::write(fixture.kubeconfig(), config).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_with_the_rule_that_grants_it() {
    let fixture = Fixture::with(|config| {
        config.operators = 0;
        config.resolvers = 0;
        config.api.enforce_rbac = true;
    })
    .await;
    fixture.workload("web", 0, json!({})).await;
    fixture.declare("web", json!({})).await;
    let read = json!([{"apiGroups": ["elasti.truefoundry.com"], "resources": ["elastiservices"], "verbs": ["get"]}]);
    as_account(&fixture, "reader", read).await;
    let mut transcript = String::new();
    for arguments in [
        &["pause", "web"] as &[&str],
        &["wake", "web"],
        &["sleep", "--all"],
        &["top", "--once"],
    ] {
        transcript.push_str(&fixture.types(arguments).await);
        transcript.push('\n');
    }
    insta::assert_snapshot!(transcript);
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_cannot_be_reached_or_are_not_ours() {
    let fixture = Fixture::unattended().await;
    let bare = elasti_fake_cluster::FakeCluster::start(Default::default(), 0)
        .await
        .unwrap();
    std::fs::write(fixture.files.path().join("bare"), bare.kubeconfig()).unwrap();
    let closed = fixture.env.fake_cluster().kubeconfig();
    let address = fixture.env.fake_cluster().address().to_string();
    std::fs::write(
        fixture.files.path().join("closed"),
        closed.replace(&address, "127.0.0.1:1"),
    )
    .unwrap();
    let wrong = fixture
        .env
        .fake_cluster()
        .kubeconfig()
        .replace("fake-cluster-admin", "another-user");
    std::fs::write(fixture.files.path().join("wrong"), wrong).unwrap();
    std::fs::write(fixture.files.path().join("broken"), "clusters: 5").unwrap();
    // `no key` in base64.
    let keyless = "{client-certificate-data: bm8ga2V5, client-key-data: bm8ga2V5}";
    let keyless = format!("{KEYLESS}\nusers: [{{name: old, user: {keyless}}}]");
    std::fs::write(fixture.files.path().join("keyless"), keyless).unwrap();
    let file = |name: &str| fixture.files.path().join(name).display().to_string();
    let mut transcript = String::new();
    for (name, arguments) in [
        ("bare", &["list"] as &[&str]),
        ("bare", &["why", "web"]),
        ("closed", &["list"]),
        ("wrong", &["list"]),
        ("broken", &["list"]),
        ("keyless", &["list"]),
        ("none", &["list"]),
        ("config", &["list", "--context", "nowhere"]),
        (
            "config",
            &["list", "--context", "fake-cluster", "-n", "default"],
        ),
        ("config", &["why", "missing"]),
        ("config", &["why"]),
        ("config", &["wyh", "web"]),
    ] {
        let file = file(name);
        let mut whole = arguments.to_vec();
        whole.extend(["--kubeconfig", &file]);
        let arguments = if arguments == ["wyh", "web"] {
            arguments
        } else {
            &whole
        };
        transcript.push_str(&fixture.types(arguments).await);
        transcript.push('\n');
    }
    insta::assert_snapshot!(transcript);
    let alone = fixture
        .elasti(&["list"])
        .env_clear()
        .env("HOME", fixture.files.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(
        said.starts_with(
            "elasti: no cluster is configured: set KUBECONFIG or pass --kubeconfig FILE"
        ),
        "{said}"
    );
    assert_eq!(alone.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_plugin_of_kubectl_by_its_name() {
    let fixture = Fixture::unattended().await;
    let plugin = fixture.files.path().join("kubectl-elasti");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_elasti"), &plugin).unwrap();
    let help = Command::new(&plugin)
        .args(["why", "--help"])
        .output()
        .await
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: kubectl elasti why"), "{help}");
    let mut list = Command::new(&plugin);
    let list = list.args(["list"]).env("KUBECONFIG", fixture.kubeconfig());
    let printed = fixture
        .printed(&["list"], list.stdout(Stdio::piped()))
        .await;
    assert!(
        printed.contains("No ElastiServices found in namespace default."),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_help_has_an_example_and_the_exit_codes() {
    let fixture = Fixture::unattended().await;
    for command in ["list", "why", "wake", "sleep", "pause", "resume", "top"] {
        let help = fixture.types(&[command, "--help"]).await;
        assert!(help.contains("Example: elasti "), "{help}");
        assert!(help.contains("Exit codes: 0 success, 1 problem"), "{help}");
        assert!(help.contains("--kubeconfig"), "{help}");
        assert!(!help.contains('\x1b'), "colour without a terminal: {help}");
    }
}
