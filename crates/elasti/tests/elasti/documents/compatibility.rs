//! docs/compatibility.md against the chart, the flags, the variables and the names: what it calls taken is there, what
//! it calls ignored is accepted, and no value of KubeElasti's chart is left out.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::names;
use serde_json::Value;

use super::existing::chart_values;
use super::page::root;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Taken,
    Mapped,
    Ignored,
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The part of a page under a heading.
fn part(page: &str, heading: &str) -> String {
    let text = text(page);
    let mut parts = text.split("\n## ");
    let found = parts.find(|part| part.lines().next() == Some(heading));
    found
        .unwrap_or_else(|| panic!("{page} has no part {heading}"))
        .to_owned()
}

/// What one table of the page says about each name.
fn table(heading: &str) -> BTreeMap<String, Verdict> {
    let part = part("docs/compatibility.md", heading);
    let rows = part.lines().filter(|line| line.starts_with("| `"));
    let mut found = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let verdict = match cells[1] {
            "taken" => Verdict::Taken,
            "mapped" => Verdict::Mapped,
            "ignored" => Verdict::Ignored,
            other => panic!("{other}: {row}"),
        };
        for name in cells[0].split('`').skip(1).step_by(2) {
            let before = found.insert(name.to_owned(), verdict);
            assert!(before.is_none(), "{name} stands there twice");
        }
    }
    assert!(!found.is_empty(), "{heading}");
    found
}

/// The paths of all values below this one that are no map with something in it.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value.as_object() {
        Some(map) if !map.is_empty() => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(value, &format!("{path}{dot}{key}"), found);
            }
        }
        _ => drop(found.insert(path.to_owned())),
    }
}

fn at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(values, |value, key| value.get(key))
}

#[test]
fn every_value_of_kubeelastis_chart_is_in_the_table_and_in_the_chart() {
    let theirs = text("deploy/helm/elasti/tests/predecessor.yaml");
    let theirs: Value = serde_saphyr::from_str(&theirs).unwrap();
    let mut paths = BTreeSet::new();
    leaves(&theirs, "", &mut paths);
    assert!(paths.len() > 80, "{}", paths.len());
    let table = table("Chart values");
    for path in &paths {
        let covers = |row: &&String| path == *row || path.starts_with(&format!("{row}."));
        assert_eq!(table.keys().filter(covers).count(), 1, "{path}");
    }
    let ours = chart_values();
    for (row, verdict) in table {
        let whole = |path: &String| *path == row || path.starts_with(&format!("{row}."));
        assert!(paths.iter().any(whole), "KubeElasti has no {row}");
        let is_there = at(&ours, &row).is_some();
        assert_eq!(is_there, verdict != Verdict::Ignored, "{row}: {verdict:?}");
    }
}

#[test]
fn every_flag_in_the_table_is_one_of_the_operators() {
    let command = elasti::command_line();
    let operator = command.find_subcommand("operator").unwrap();
    let flags: BTreeMap<String, String> = operator
        .get_arguments()
        .filter_map(|one| {
            let help = one.get_help().map(ToString::to_string).unwrap_or_default();
            Some((format!("--{}", one.get_long()?), help))
        })
        .collect();
    for (flag, verdict) in table("Flags of the operator") {
        let help = flags.get(&flag).unwrap_or_else(|| panic!("no {flag}"));
        let ignored = help.starts_with("Ignored, for compatibility with KubeElasti");
        assert_eq!(ignored, verdict == Verdict::Ignored, "{flag}: {help}");
    }
}

/// The page about settings is compared with the code elsewhere.
#[test]
fn every_variable_in_the_tables_is_read_or_accepted() {
    for (heading, process) in [
        ("Environment of the operator", "The operator"),
        ("Environment of the resolver", "The resolver"),
    ] {
        let settings = part("docs/configuration.md", process);
        let (read, accepted) = settings.split_once("Accepted for compatibility").unwrap();
        let named = |text: &str, name: &str| text.contains(&format!("\n| `{name}` |"));
        for (name, verdict) in table(heading) {
            let ignored = verdict == Verdict::Ignored;
            assert_eq!(named(read, &name), !ignored, "{process}: {name}");
            assert_eq!(named(accepted, &name), ignored, "{process}: {name}");
        }
        // Nothing is accepted for its sake that the table does not name.
        let rows = accepted.lines().filter_map(|line| line.strip_prefix("| `"));
        let all = table(heading);
        for row in rows.filter_map(|row| row.split('`').next()) {
            assert!(all.contains_key(row), "{heading} lacks {row}");
        }
    }
}

#[test]
fn events_and_annotations_in_the_tables_are_ours() {
    let events = table("Events");
    let ours = [
        names::event::SUCCESS_TO_SCALE,
        names::event::FAILED_TO_SCALE,
    ];
    assert!(events.keys().eq(&BTreeSet::from(ours.map(str::to_owned))));
    let marks = [
        names::KEDA_PAUSED_ANNOTATION,
        names::KEDA_PAUSED_REPLICAS_ANNOTATION,
        names::FINALIZER,
        names::SERVICE_NAME_LABEL,
        names::RESOLVER_LABEL,
    ];
    let table = table("Annotations, labels and finalizers");
    assert!(table.keys().eq(&BTreeSet::from(marks.map(str::to_owned))));
}
