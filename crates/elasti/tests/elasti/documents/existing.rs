//! Whether a command that a page shows can be one: our parser takes it, and what it names is in the repository.

use std::path::Path;

use serde_json::Value;

use super::commands::Shown;
use super::page::root;

pub(super) fn chart_values() -> Value {
    let text = std::fs::read_to_string(root().join("deploy/helm/elasti/values.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

impl Shown {
    pub(super) fn check(&self) -> Result<(), String> {
        for stage in self.stages() {
            let words: Vec<&str> = stage.iter().map(String::as_str).collect();
            match words.as_slice() {
                ["elasti", rest @ ..] | ["kubectl", "elasti", rest @ ..] => elasti(rest)?,
                ["cargo", rest @ ..] => cargo(rest)?,
                ["helm", rest @ ..] => helm(rest)?,
                ["kubectl", rest @ ..] => kubectl(rest)?,
                // Whether it may stand there at all is said by its class.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parsed by the real parser; `…` stands for what everybody knows.
fn elasti(words: &[&str]) -> Result<(), String> {
    // Any command is meant.
    if words.first() == Some(&"COMMAND") {
        return Ok(());
    }
    // The name of a command alone speaks of it.
    if let [] | [_] = words {
        let command = elasti::command_line();
        let name = words.first().copied().unwrap_or("check");
        let known = name.starts_with(['-', '…']) || command.find_subcommand(name).is_some();
        return known
            .then_some(())
            .ok_or_else(|| format!("no command {name}"));
    }
    let words = words.iter().filter(|word| **word != "…");
    let parsed =
        elasti::command_line().try_get_matches_from(std::iter::once(&"elasti").chain(words));
    match parsed {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()),
    }
}

fn cargo(words: &[&str]) -> Result<(), String> {
    match words {
        ["xtask", task, rest @ ..] => {
            let tasks = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
            let known = [format!("[\"{task}\""), format!("\"{task}\",")];
            if !known.iter().any(|known| tasks.contains(known)) {
                return Err(format!("xtask has no {task}"));
            }
            rest.iter().try_for_each(|word| flag_of_xtask(word))
        }
        ["run", rest @ ..] => {
            let (before, after) = match rest.iter().position(|word| *word == "--") {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, &[][..]),
            };
            match before.iter().position(|word| *word == "-p") {
                Some(at) => {
                    let name = before.get(at + 1).unwrap_or(&"");
                    package(name)?;
                    example(name, before)
                }
                None => elasti(after),
            }
        }
        ["test", "-p", name, ..] => package(name),
        [
            "install" | "build" | "test" | "deny" | "fmt" | "clippy" | "fuzz" | "mutants"
            | "+nightly",
            ..,
        ] => Ok(()),
        _ => Err("no such use of cargo is known".to_owned()),
    }
}

/// A flag that some task reads; brackets stand around what may be left out.
fn flag_of_xtask(word: &str) -> Result<(), String> {
    let flag = word.trim_matches(['[', ']']);
    let read = |text: String| text.contains(&format!("\"{flag}\""));
    let known = !flag.starts_with("--") || sources(&root().join("xtask/src")).any(read);
    known
        .then_some(())
        .ok_or_else(|| format!("no task of xtask reads {flag}"))
}

fn sources(folder: &Path) -> Box<dyn Iterator<Item = String>> {
    let entries = std::fs::read_dir(folder).unwrap();
    Box::new(entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path),
            false => Box::new(std::fs::read_to_string(path).into_iter()),
        }
    }))
}

fn package(name: &str) -> Result<(), String> {
    match root().join("crates").join(name).join("Cargo.toml").exists() {
        true => Ok(()),
        false => Err(format!("no package {name}")),
    }
}

fn example(package: &str, words: &[&str]) -> Result<(), String> {
    let Some(at) = words.iter().position(|word| *word == "--example") else {
        return Ok(());
    };
    let name = words.get(at + 1).unwrap_or(&"");
    let folder = format!("crates/{package}/examples/{name}");
    let files = [format!("{folder}.rs"), format!("{folder}/main.rs")];
    match files.iter().any(|file| root().join(file).exists()) {
        true => Ok(()),
        false => Err(format!("{folder} does not exist")),
    }
}

/// Options that take a value, so that the value is not taken for a word.
const HELM_VALUES: [&str; 8] = [
    "--set",
    "--set-string",
    "--namespace",
    "-n",
    "--values",
    "-f",
    "--timeout",
    "--version",
];

fn helm(words: &[&str]) -> Result<(), String> {
    let (verb, rest) = words.split_first().ok_or("no verb")?;
    if ![
        "install",
        "upgrade",
        "uninstall",
        "template",
        "get",
        "list",
        "rollback",
        "history",
    ]
    .contains(verb)
    {
        return Err(format!("helm has no {verb}"));
    }
    let values = chart_values();
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        if HELM_VALUES.contains(word) {
            let value = rest.next().ok_or("an option without its value")?;
            if word.starts_with("--set") {
                set(value, &values)?;
            }
        } else if word.starts_with("deploy/") && !root().join(word).join("Chart.yaml").exists() {
            return Err(format!("{word} is no chart"));
        }
    }
    Ok(())
}

fn set(assignment: &str, values: &Value) -> Result<(), String> {
    let (path, _) = assignment.split_once('=').ok_or("--set without =")?;
    let mut at = values;
    for part in path.split('.') {
        let name = part.split(['[', '{']).next().unwrap_or_default();
        at = at
            .get(name)
            .ok_or_else(|| format!("the chart has no value {path}"))?;
    }
    Ok(())
}

/// The kinds that docs speak of, as kubectl takes them.
const KINDS: [&str; 39] = [
    "all",
    "role",
    "rolebinding",
    "serviceaccount",
    "clusterrole",
    "clusterrolebinding",
    "els",
    "elastiservice",
    "elastiservices",
    "elasti",
    "pod",
    "pods",
    "service",
    "services",
    "svc",
    "deployment",
    "deployments",
    "deploy",
    "statefulset",
    "statefulsets",
    "rollout",
    "hpa",
    "scaledobject",
    "scaledobjects",
    "endpointslice",
    "endpointslices",
    "lease",
    "leases",
    "events",
    "namespace",
    "node",
    "nodes",
    "crd",
    "secret",
    "replicaset",
    "resourcequota",
    "networkpolicies",
    "customresourcedefinition",
    "job",
];

/// Options that take a value.
const KUBECTL_VALUES: [&str; 14] = [
    "-n",
    "--namespace",
    "-l",
    "--selector",
    "-o",
    "--output",
    "-f",
    "-k",
    "-p",
    "--patch",
    "--kubeconfig",
    "--context",
    "--type",
    "-c",
];

fn kubectl(words: &[&str]) -> Result<(), String> {
    let mut plain = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        if KUBECTL_VALUES.contains(word) {
            let value = rest.next().ok_or("an option without its value")?;
            file(word, value)?;
        } else if *word == "--" {
            break;
        } else if !word.starts_with('-') {
            plain.push(*word);
        }
    }
    match plain.as_slice() {
        [
            "apply" | "create" | "config" | "cluster-info" | "version" | "krew" | "proxy",
            ..,
        ] => Ok(()),
        [
            "get" | "describe" | "delete" | "patch" | "annotate" | "label" | "scale" | "wait"
            | "edit" | "explain",
            kind,
            ..,
        ]
        | ["rollout", "status" | "restart" | "undo", kind, ..]
        | ["auth", "can-i", _, kind, ..] => object(kind),
        [
            "logs" | "port-forward" | "run" | "exec" | "debug" | "top",
            ..,
        ] => {
            let named = plain.get(1).filter(|word| word.contains('/'));
            named.map_or(Ok(()), |named| object(named))
        }
        // The name of a verb alone speaks of it.
        ["explain" | "autoscale" | "describe" | "get" | "wait"]
        | ["rollout", "status"]
        | ["auth", "can-i"] => Ok(()),
        _ => Err("no such use of kubectl is known".to_owned()),
    }
}

/// Files and folders of the repository that a command names.
fn file(option: &str, value: &str) -> Result<(), String> {
    let ours = value.starts_with("deploy/");
    match ["-f", "-k"].contains(&option) && ours && !root().join(value).exists() {
        true => Err(format!("{value} does not exist")),
        false => Ok(()),
    }
}

/// `kind`, `kind/name`, `kind.field` or `kind.group/sub`.
fn object(written: &str) -> Result<(), String> {
    let (kind, name) = written.split_once('/').unwrap_or((written, ""));
    let kind = kind.split('.').next().unwrap_or_default();
    if !kind.split(',').all(|kind| KINDS.contains(&kind)) {
        return Err(format!("{kind} is no kind that is known here"));
    }
    if ["deployment", "deploy"].contains(&kind) && name.starts_with("elasti") {
        let path = Path::new("deploy/kustomize/base/deployment.yaml");
        let made = std::fs::read_to_string(root().join(path)).unwrap();
        if !made.contains(&format!("name: {name}\n")) {
            return Err(format!("the chart makes no Deployment {name}"));
        }
    }
    Ok(())
}
