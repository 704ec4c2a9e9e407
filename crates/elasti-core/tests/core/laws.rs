//! docs/guarantees.md lists exactly the laws that are code.

use elasti_core::laws::Law;

#[test]
fn the_docs_list_every_law_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guarantees.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (law, _) = line.strip_prefix("| S")?.split_once(" | ")?;
        Some(format!("S{law}"))
    });
    let laws = Law::ALL.map(|law| format!("{law:?}"));
    assert_eq!(rows.collect::<Vec<_>>(), laws);
}
