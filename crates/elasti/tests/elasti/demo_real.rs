//! `elasti demo --real` where it cannot run: one sentence says why, and nothing is left behind.
//! A real run needs a real cluster: both_clusters/demo.rs.

use std::process::Stdio;

use crate::sandbox::{DEFINITION, Sandbox, until};
use insta::assert_snapshot;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const DEMO: [&str; 3] = ["demo", "--real", "--once"];
const ROLES: &str = "rbac.authorization.k8s.io";

/// The namespaces that demos have made and not removed.
async fn left(sandbox: &Sandbox) -> Vec<String> {
    let all = sandbox.get("/api/v1/namespaces").await.unwrap();
    let names = all["items"].as_array().unwrap().iter();
    let names = names.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned());
    names
        .filter(|name| name.starts_with("elasti-demo-"))
        .collect()
}

/// An account with these rules, as (group, resource, verb).
async fn may(sandbox: &Sandbox, name: &str, rules: &[(&str, &str, &str)]) {
    sandbox.become_account(name).await;
    let rule = |(group, resource, verb): &(&str, &str, &str)| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    let role = json!({
        "apiVersion": format!("{ROLES}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    sandbox.make(&role).await;
    let binding = json!({
        "apiVersion": format!("{ROLES}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": ROLES, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    });
    sandbox.make(&binding).await;
}

#[tokio::test]
async fn without_a_cluster_or_without_elasti_it_says_what_to_do() {
    let mut printed = Sandbox::bare().type_in(&DEMO).await;
    let sandbox = Sandbox::with_fake_cluster().await;
    printed += &sandbox.type_in(&DEMO).await;
    sandbox.make_all(DEFINITION).await;
    printed += &sandbox.type_in(&DEMO).await;
    assert_snapshot!(printed);
    assert!(left(&sandbox).await.is_empty());
}

#[tokio::test]
async fn an_installation_that_cannot_run_it_is_reported() {
    let sandbox = Sandbox::with_chart().await;
    let mut printed = sandbox.type_in(&DEMO).await;
    let operator = "/apis/apps/v1/namespaces/elasti/deployments/elasti-operator-controller-manager";
    sandbox
        .patch(operator, &json!({"spec": {"replicas": 0}}))
        .await;
    until("no operator is ready", async || {
        let found = sandbox.get(operator).await.unwrap();
        found["status"]["readyReplicas"].as_u64().unwrap_or(0) == 0
    })
    .await;
    printed += &sandbox.type_in(&DEMO).await;
    printed += &sandbox.type_in(&["demo", "--image", "echo:1"]).await;
    assert_snapshot!(printed);
    assert!(left(&sandbox).await.is_empty());
}

#[tokio::test]
async fn a_missing_permission_is_named_and_nothing_is_created() {
    let sandbox = Sandbox::with_chart().await;
    let elasti = ("elasti.truefoundry.com", "elastiservices", "list");
    let deployments = ("apps", "deployments", "list");
    let pods = ("", "pods", "list");
    let proxy = ("", "pods/proxy", "get");
    let mut printed = String::new();
    for (name, rules) in [
        ("missing", &[][..]),
        ("reader", &[elasti, deployments, pods, proxy][..]),
    ] {
        may(&sandbox, name, rules).await;
        let prometheus = ["--prometheus", "http://prometheus:9090"];
        let words = [&DEMO[..], &prometheus, &["--kubeconfig", name]].concat();
        printed += &sandbox.type_in(&words).await;
    }
    assert_snapshot!(printed);
    assert!(left(&sandbox).await.is_empty());
}

/// Words that differ from run to run.
fn normalised(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end();
        words.push(match bare.strip_prefix("elasti-demo-") {
            Some(rest) => {
                let tail = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
                format!("elasti-demo-X{tail}{}", &word[bare.len()..])
            }
            None => word.to_owned(),
        });
    }
    let text = words.concat();
    // How long the removal of the namespace took does not matter here.
    let lines = text.lines().filter(|line| !line.contains("... "));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[tokio::test]
async fn a_step_that_times_out_ends_it_and_the_namespace_is_removed() {
    let sandbox = Sandbox::with_chart().await;
    let prometheus = ["--prometheus", "http://prometheus:9090"];
    let words = [&DEMO[..], &prometheus, &["--patience", "2s"]].concat();
    let printed = sandbox.type_in(&words).await;
    assert_snapshot!(normalised(&printed));
    assert!(left(&sandbox).await.is_empty());
}

#[tokio::test]
async fn ctrl_c_removes_what_was_made() {
    let sandbox = Sandbox::with_chart().await;
    let mut demo = Command::new(env!("CARGO_BIN_EXE_elasti"))
        .args(DEMO)
        .args(["--prometheus", "http://prometheus:9090"])
        .env_clear()
        .env("KUBECONFIG", sandbox.files.path().join("kubeconfig"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    while !lines
        .next_line()
        .await
        .unwrap()
        .unwrap()
        .starts_with("Watch:")
    {}
    assert_eq!(left(&sandbox).await.len(), 1);
    let id = demo.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().await;
    assert!(sent.unwrap().success());
    let ended = demo.wait().await.unwrap();
    assert_eq!(ended.code(), Some(1), "a single run was interrupted");
    let mut rest = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        rest += &line;
        rest.push('\n');
    }
    assert!(rest.contains("Stopped."), "{rest}");
    assert!(rest.contains("Removed: namespace elasti-demo-"), "{rest}");
    assert!(left(&sandbox).await.is_empty());
}
