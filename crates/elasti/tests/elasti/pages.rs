//! `elasti crd`, `completion` and `man`.

use crate::sandbox::Sandbox;
use insta::assert_snapshot;
use serde_json::json;

const DEFINITION: &str = include_str!("../../../../deploy/crd/elastiservices.yaml");

#[tokio::test]
async fn the_crd_is_the_one_that_is_deployed_and_a_cluster_takes_it() {
    let sandbox = Sandbox::with_fake_cluster().await;
    let text = sandbox.type_in(&["crd"]).await;
    assert_eq!(text, format!("$ elasti crd\n{DEFINITION}[exit 0]\n"));
    let json = sandbox.json(&["crd"]).await;
    sandbox.make(&json).await;
    assert_snapshot!(
        sandbox
            .type_in(&["crd", "-o", "name", "--install-hint"])
            .await
    );
}

#[tokio::test]
async fn completion_is_installed_by_one_command() {
    let sandbox = Sandbox::bare();
    let mut printed = String::new();
    for shell in ["bash", "zsh", "fish", "powershell", "tcsh"] {
        printed += &sandbox.type_in(&["completion", shell, "--install"]).await;
    }
    assert_snapshot!(printed);
    for (file, has) in [
        (
            ".local/share/bash-completion/completions/elasti",
            "complete -F _elasti",
        ),
        (".zfunc/_elasti", "#compdef elasti"),
        (".config/fish/completions/elasti.fish", "complete -c elasti"),
    ] {
        let text = std::fs::read_to_string(sandbox.files.path().join(file)).unwrap();
        assert!(text.contains(has) && text.contains("lint"), "{file}");
    }
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let text = sandbox.type_in(&["completion", shell]).await;
        assert!(
            text.contains("uninstall-hook") && text.ends_with("[exit 0]\n"),
            "{shell}"
        );
    }
}

/// The real bash, if there is one: every Debian has it.
#[tokio::test]
async fn bash_completes_commands_with_it() {
    let sandbox = Sandbox::bare();
    sandbox.type_in(&["completion", "bash", "--install"]).await;
    let script = "source .local/share/bash-completion/completions/elasti
        COMP_WORDS=(elasti li); COMP_CWORD=1; _elasti elasti li elasti; echo ${COMPREPLY[@]}";
    let ended = tokio::process::Command::new("bash")
        .args(["--norc", "-c", script])
        .current_dir(sandbox.files.path())
        .output()
        .await
        .unwrap();
    let words = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(
        words.trim(),
        "lint list",
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

/// A cluster with three services in two namespaces.
async fn with_services() -> Sandbox {
    let sandbox = Sandbox::with_fake_cluster().await;
    sandbox.make_all(DEFINITION).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    sandbox.make(&namespace).await;
    for (namespace, name) in [("default", "web"), ("default", "worker"), ("shop", "cart")] {
        sandbox
            .make(&json!({
                "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
            }))
            .await;
    }
    sandbox
}

#[tokio::test]
async fn names_of_services_and_namespaces_are_completed_from_the_cluster() {
    let sandbox = with_services().await;
    let completed = async |arguments: &[&str]| {
        let printed = sandbox.type_in(&[&["complete"], arguments].concat()).await;
        let (_, names) = printed.split_once('\n').unwrap();
        let names = names.strip_suffix("[exit 0]\n").unwrap();
        names.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["services"]).await, ["web", "worker"]);
    assert_eq!(completed(&["services", "--", "wo"]).await, ["worker"]);
    assert_eq!(completed(&["services", "-n", "shop"]).await, ["cart"]);
    assert_eq!(completed(&["namespaces", "--", "sh"]).await, ["shop"]);
    // `kubectl elasti why -n shop TAB`: the last line tells kubectl not to add names of files.
    let words = ["kubectl", "--", "why", "-n", "shop", ""];
    assert_eq!(completed(&words).await, ["cart", ":4"]);
    assert_eq!(
        completed(&["kubectl", "--", "why", "-n", "sh"]).await,
        ["shop", ":4"]
    );
    // What goes wrong is an empty list, and nothing on the terminal.
    assert!(
        completed(&["services", "--kubeconfig", "absent"])
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn bash_completes_names_with_it() {
    let sandbox = with_services().await;
    sandbox.type_in(&["completion", "bash", "--install"]).await;
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_elasti"));
    let path = format!(
        "{}:{}",
        folder.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let script = "source .local/share/bash-completion/completions/elasti
        COMP_WORDS=(elasti why wo); COMP_CWORD=2; _elasti_names elasti wo why; echo ${COMPREPLY[@]}";
    let ended = tokio::process::Command::new("bash")
        .args(["--norc", "-c", script])
        .current_dir(sandbox.files.path())
        .env("KUBECONFIG", "kubeconfig")
        .env("PATH", path)
        .output()
        .await
        .unwrap();
    let words = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(
        words.trim(),
        "worker",
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let sandbox = Sandbox::bare();
    let printed = sandbox.type_in(&["man", "--folder", "man1"]).await;
    let pages: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("wrote man1/"))
        .collect();
    for page in [
        "elasti.1",
        "elasti-lint.1",
        "elasti-check.1",
        "elasti-operator.1",
    ] {
        assert!(pages.contains(&page), "{printed}");
        let text = std::fs::read_to_string(sandbox.files.path().join("man1").join(page)).unwrap();
        assert!(
            text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
            "{page}"
        );
    }
    let one = sandbox.type_in(&["man", "lint"]).await;
    assert!(one.contains(".TH elasti-lint 1"), "{one}");
    let wrong = sandbox.type_in(&["man", "dance"]).await;
    assert!(
        wrong.contains(
            "! elasti: there is no command \"dance\"; there are: demo, check, completion"
        ),
        "{wrong}"
    );
    assert!(wrong.ends_with("[exit 2]\n"), "{wrong}");
}
