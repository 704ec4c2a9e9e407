//! The names of all tests of the project, for tables in docs/ that name them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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

/// The function after each line that ends in `test]` or `test(…)]`.
pub fn all() -> BTreeSet<String> {
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
