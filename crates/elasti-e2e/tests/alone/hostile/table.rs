//! The table in docs/security.md against the code: every attack has a row, and every row a test that shows the harm.

use std::collections::BTreeSet;

use elasti_testkit::test_names;

use super::attacks::WAVES;

const SECURITY: &str = include_str!("../../../../../docs/security.md");

/// The cells of each row of the suite's table.
fn rows() -> Vec<Vec<&'static str>> {
    let (_, section) = SECURITY.split_once("### The hostile tenant suite").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = |row: &'static str| {
        row.trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect()
    };
    rows.skip(1).map(cells).collect()
}

#[test]
fn every_attack_has_a_row_and_every_row_a_test_that_switches_its_protection_off() {
    let existing = test_names::all();
    let rows = rows();
    let titles: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    let attacks: BTreeSet<&str> = { WAVES.iter().copied().flatten() }
        .map(|attack| attack.title())
        .collect();
    assert_eq!(titles, attacks);
    assert!(rows.len() >= 30, "{}", rows.len());
    for row in &rows {
        let [_, _, switched_off] = row.as_slice() else {
            panic!("three cells: {row:?}");
        };
        let mut named = switched_off.split('`').skip(1).step_by(2).peekable();
        assert!(named.peek().is_some(), "no test: {row:?}");
        for name in named {
            assert!(existing.contains(name), "{name} does not exist: {row:?}");
        }
    }
}
