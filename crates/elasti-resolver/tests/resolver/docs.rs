//! The tables in docs/ against the code: every fault has its tests, every reason its row.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use elasti_api::AnswerReason;

const GUARANTEES: &str = include_str!("../../../../docs/guarantees.md");
const ANSWERS: &str = include_str!("../../../../docs/answers.md");

/// Every Rust file of the project's crates.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path);
        }
    }
}

/// The names of all tests: the function after a line that ends in `test]` or `test(…)]`.
fn tests() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(crates, &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let name = line
                .split_once("fn ")
                .and_then(|(_, rest)| rest.split('(').next());
            match name {
                Some(name) if is_test => drop(names.insert(name.to_owned())),
                _ => {}
            }
            let attribute = line.starts_with("#[");
            is_test = attribute && (is_test || line.contains("test]") || line.contains("test("));
        }
    }
    names
}

#[test]
fn every_data_plane_fault_has_tests_and_they_exist() {
    let (_, section) = GUARANTEES.split_once("## Data-plane faults").unwrap();
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .skip(1)
        .collect();
    assert!(rows.len() >= 25, "{}", rows.len());
    let existing = tests();
    for row in rows {
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for name in named {
            assert!(existing.contains(name), "{name} does not exist: {row}");
        }
    }
}

#[test]
fn the_reasons_in_the_docs_are_the_closed_list_in_its_order() {
    let rows = ANSWERS.lines().filter_map(|line| line.strip_prefix("| `"));
    let words: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(words, AnswerReason::ALL.map(AnswerReason::as_str));
}
