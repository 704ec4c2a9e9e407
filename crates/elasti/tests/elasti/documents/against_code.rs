//! The README and docs/ against the code: every YAML, command, link and word in them is true.

use std::collections::BTreeSet;
use std::path::PathBuf;

use elasti_api::{AnswerReason, Reason};
use serde_json::{Value, json};

use super::class::{CHECKED, Class, UNCHECKED};
use super::commands::{self, Shown};
use super::existing;
use super::page::{Page, pages, root};
use crate::sandbox::Sandbox;

/// Keeps faults and tells them all at once.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, page: &Page, line: usize, what: &str) {
        self.0.push(format!("{}:{line}: {what}", page.name));
    }

    fn none(self) {
        assert!(self.0.is_empty(), "\n{}\n", self.0.join("\n"));
    }
}

#[test]
fn there_are_enough_pages_to_mean_something() {
    let pages = pages();
    assert!(pages.len() >= 20, "{}", pages.len());
    let blocks = pages.iter().flat_map(|page| &page.blocks);
    assert!(
        blocks
            .clone()
            .filter(|block| block.language == "yaml")
            .count()
            >= 10
    );
    let shown = shown();
    assert!(shown.len() >= 100, "{}", shown.len());
    let taken = |class: Class| shown.iter().filter(|one| one.class() == Ok(class)).count();
    for class in [Class::FakeCluster, Class::Cluster, Class::Request] {
        assert!(taken(class) >= 2, "{class:?}: {}", taken(class));
    }
}

/// Every command of every page.
fn shown() -> Vec<Shown> {
    pages().iter().flat_map(commands::in_page).collect()
}

/// A whole object is linted as it is. `# spec` on the first line marks a part of a spec, `# values.yaml` a part of the
/// chart's values; every other block must at least be an object.
#[tokio::test]
async fn every_yaml_is_right() {
    let sandbox = Sandbox::bare();
    let mut faults = Faults::default();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "yaml") {
            let first = block.text.lines().next().unwrap_or_default().trim();
            let wrong = match first {
                "# spec" => lint_part(&sandbox, &block.text).await,
                "# values.yaml" => unknown_values(&block.text),
                _ => lint_objects(&sandbox, &block.text).await,
            };
            for what in wrong {
                faults.add(&page, block.line, &what);
            }
        }
    }
    faults.none();
}

async fn lint_objects(sandbox: &Sandbox, text: &str) -> Vec<String> {
    let objects: Vec<Value> = match serde_saphyr::from_multiple(text) {
        Ok(objects) => objects,
        Err(error) => return vec![format!("no YAML: {error}")],
    };
    let whole = |one: &Value| one["kind"].is_string() && one["apiVersion"].is_string();
    if !objects.iter().all(whole) {
        return vec!["no object: mark a part with # spec or # values.yaml".to_owned()];
    }
    if !objects.iter().any(|one| one["kind"] == "ElastiService") {
        return Vec::new();
    }
    let report = sandbox.json_with(&["lint", "--offline", "-"], text).await;
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(ToString::to_string).collect()
}

/// A part of a spec, within one that is right.
async fn lint_part(sandbox: &Sandbox, text: &str) -> Vec<String> {
    let part: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let mut object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": "web"},
        "spec": {
            "service": "web",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "1"}}],
        },
    });
    let Some(fields) = part.as_object() else {
        return vec!["no fields of a spec".to_owned()];
    };
    for (key, value) in fields {
        object["spec"][key] = value.clone();
    }
    lint_objects(sandbox, &serde_json::to_string(&object).unwrap()).await
}

/// Keys that the chart does not have.
fn unknown_values(text: &str) -> Vec<String> {
    let part: Value = match serde_saphyr::from_str(text) {
        Ok(part) => part,
        Err(error) => return vec![format!("no YAML: {error}")],
    };
    let mut wrong = Vec::new();
    compare(&part, &existing::chart_values(), "", &mut wrong);
    wrong
}

fn compare(part: &Value, whole: &Value, path: &str, wrong: &mut Vec<String>) {
    // An empty map in the values is free.
    let (Some(part), Some(whole)) = (part.as_object(), whole.as_object()) else {
        return;
    };
    for (key, value) in part {
        match whole.get(key) {
            None if whole.is_empty() => {}
            None => wrong.push(format!("the chart has no value {path}{key}")),
            Some(known) => compare(value, known, &format!("{path}{key}."), wrong),
        }
    }
}

#[test]
fn every_command_is_one_that_exists() {
    let mut faults = Faults::default();
    for command in shown() {
        if let Err(what) = command.check() {
            faults.0.push(format!("{}: {what}", command.place()));
        }
    }
    faults.none();
}

/// What is named there runs it: tests/elasti/documents, or a check of `cargo xtask test --ci`.
#[test]
fn every_command_is_run_by_a_test() {
    let mut faults = Faults::default();
    for command in shown() {
        if let Err(what) = command.class() {
            faults.0.push(format!("{}: {what}", command.place()));
        }
    }
    faults.none();
}

#[test]
fn the_checks_that_run_chores_exist_and_no_line_about_chores_is_left_over() {
    let continuous = text(".ci/run");
    assert!(continuous.contains("\ncargo xtask test --ci"));
    let checks = text("xtask/src/checks.rs") + &text("xtask/src/real.rs");
    let is_check = |name: &str| name == ".ci/run" || checks.contains(&format!("(\"{name}\", "));
    let classes: Vec<(String, Class)> = shown()
        .iter()
        .filter_map(|one| Some((one.text.clone(), one.class().ok()?)))
        .collect();
    for (chore, check) in CHECKED {
        assert!(is_check(check), "{chore}: there is no check {check:?}");
        let used = |(text, class): &(String, Class)| {
            text.starts_with(chore) && *class == Class::Checked(check)
        };
        assert!(classes.iter().any(used), "no page shows {chore}");
    }
    for (chore, why) in UNCHECKED {
        let used = |(text, class): &(String, Class)| {
            text.starts_with(chore) && *class == Class::Unchecked(why)
        };
        assert!(classes.iter().any(used), "no page shows {chore}");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Faults::default();
    let pages = pages();
    for page in &pages {
        for (line, link) in page.links() {
            if let Err(what) = page.follow(&link, &pages) {
                faults.add(page, line, &what);
            }
        }
    }
    faults.none();
}

#[test]
fn every_page_of_docs_can_be_reached_from_the_readme() {
    let pages = pages();
    let mut reached: BTreeSet<PathBuf> = BTreeSet::from([PathBuf::from("README.md")]);
    loop {
        let before = reached.len();
        for page in pages
            .iter()
            .filter(|page| reached.contains(&page.name_path()))
            .collect::<Vec<_>>()
        {
            reached.extend(
                page.links()
                    .iter()
                    .filter_map(|(_, link)| page.target(link)),
            );
        }
        if reached.len() == before {
            break;
        }
    }
    let lonely: Vec<String> = pages
        .iter()
        .filter(|page| !reached.contains(&page.name_path()))
        .map(|page| page.name.clone())
        .collect();
    assert!(lonely.is_empty(), "no link leads to {}", lonely.join(", "));
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The words in the first column of the table under a heading.
fn first_column(page: &str, heading: &str) -> Vec<String> {
    let (_, after) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no {heading}"));
    let section = after.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned())
        .collect()
}

#[test]
fn troubleshooting_has_every_reason_in_its_order() {
    let page = text("docs/troubleshooting.md");
    assert_eq!(
        first_column(&page, "By the reason in the status"),
        Reason::ALL.map(Reason::as_str)
    );
    assert_eq!(
        first_column(&page, "By the reason in an answer"),
        AnswerReason::ALL.map(AnswerReason::as_str)
    );
}

#[test]
fn operations_names_every_alert() {
    let alerts = text("deploy/helm/elasti/files/alerts.yaml");
    let alerts: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(first_column(&text("docs/operations.md"), "Alerts"), alerts);
}

/// A metric that docs name is one that the code writes.
#[test]
fn every_metric_exists() {
    let mut sources = String::new();
    for file in [
        "crates/elasti-operator/src/metrics.rs",
        "crates/elasti-operator/src/metrics/kept.rs",
        "crates/elasti-operator/src/savings.rs",
        "crates/elasti-resolver/src/metrics.rs",
        "crates/elasti-resolver/src/metrics/limits.rs",
        "crates/elasti-api/src/names.rs",
    ] {
        sources += &text(file);
    }
    let mut faults = Faults::default();
    for page in pages() {
        for (number, line) in page.text.lines().enumerate() {
            let words = line.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
            let metrics = words.filter(|word| {
                word.starts_with("elasti_operator_") || word.starts_with("elasti_resolver_")
            });
            for metric in
                metrics.filter(|metric| !sources.contains(*metric) && !metric.ends_with('_'))
            {
                faults.add(&page, number + 1, &format!("no metric {metric}"));
            }
        }
    }
    faults.none();
}

#[tokio::test]
async fn the_reference_of_commands_is_what_the_code_says() {
    let printed = Sandbox::bare().type_in(&["man", "--markdown"]).await;
    let found = text("docs/commands.md");
    assert!(
        printed == format!("$ elasti man --markdown\n{found}[exit 0]\n"),
        "docs/commands.md: not what the code makes; run `cargo xtask generate`"
    );
}

/// The walks of ARCHITECTURE.md name functions as `file.rs: Type::function`; each is in a file of that name.
#[test]
fn every_function_of_the_walks_exists() {
    let map = text("ARCHITECTURE.md");
    let walks = map.split("\n## ").filter(|part| {
        let mut titles = ["A held request", "A reconcile"].iter();
        titles.any(|title| part.starts_with(title))
    });
    let named: Vec<(&str, &str)> = walks
        .flat_map(|walk| walk.split('`').skip(1).step_by(2))
        .filter_map(|code| {
            let (file, function) = code.rsplit_once(": ")?;
            let file = file.rsplit(' ').next()?;
            file.ends_with(".rs").then_some((file, function))
        })
        .collect();
    assert!(named.len() >= 25, "{named:?}");
    let listed = std::process::Command::new("git")
        .args(["ls-files", "crates/*/src/*.rs"])
        .current_dir(root())
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    for (file, function) in named {
        let name = function.rsplit("::").next().unwrap_or(function);
        let heads = ["(", "<"].map(|next| format!("fn {name}{next}"));
        let mut files = listed
            .lines()
            .filter(|path| path.ends_with(&format!("/{file}")));
        let found = files.any(|path| {
            let source = text(path);
            heads.iter().any(|head| source.contains(head))
        });
        assert!(found, "no function {function} in a file {file}");
    }
}
