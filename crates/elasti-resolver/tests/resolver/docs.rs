//! The tables in docs/ against the code: every fault has its tests, every reason its row.

use elasti_api::AnswerReason;
use elasti_testkit::test_names;

const GUARANTEES: &str = include_str!("../../../../docs/guarantees.md");
const ANSWERS: &str = include_str!("../../../../docs/answers.md");

#[test]
fn every_data_plane_fault_has_tests_and_they_exist() {
    let (_, section) = GUARANTEES.split_once("## Data-plane faults").unwrap();
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .skip(1)
        .collect();
    assert!(rows.len() >= 25, "{}", rows.len());
    let existing = test_names::all();
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
