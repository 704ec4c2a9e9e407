//! The notes of a release: its section of CHANGELOG.md, which has the form of keepachangelog.com.

use std::error::Error;

/// The section of a version, or what is unreleased.
pub(super) fn notes(changelog: &str, version: Option<&str>) -> Result<String, Box<dyn Error>> {
    let wanted = version.unwrap_or("Unreleased");
    let section = sections(changelog).find(|section| section.name == wanted);
    let section = section.ok_or_else(|| format!("CHANGELOG.md has no section {wanted}"))?;
    if version.is_some() && section.date.is_none() {
        return Err(format!("the section {wanted} of CHANGELOG.md has no date").into());
    }
    if section.body.trim().is_empty() {
        return Err(format!("CHANGELOG.md says nothing about {wanted}").into());
    }
    Ok(format!("{}\n", section.body.trim()))
}

/// One version.
struct Section<'a> {
    /// `Unreleased` or a version.
    name: &'a str,
    /// Absent for what is unreleased.
    date: Option<&'a str>,
    body: &'a str,
}

/// Headings are `## Unreleased` and `## 1.2.3 - 2026-01-31`, with or without brackets around the name.
fn sections(changelog: &str) -> impl Iterator<Item = Section<'_>> {
    changelog.split("\n## ").skip(1).map(|section| {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let (name, date) = match heading.split_once(" - ") {
            Some((name, date)) => (name, Some(date.trim())),
            None => (heading, None),
        };
        Section {
            name: name.trim().trim_matches(['[', ']']),
            date,
            body,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{notes, sections};
    use crate::paths::root;

    const SAMPLE: &str = "# Changelog\n\n## Unreleased\n### Added\n- New.\n\n## [1.0.0] - 2026-01-31\n### Fixed\n- Old.\n";

    /// The kinds of change that keepachangelog.com has.
    const KINDS: [&str; 6] = [
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    ];

    #[test]
    fn notes_are_the_section_of_the_version() {
        assert_eq!(notes(SAMPLE, Some("1.0.0")).unwrap(), "### Fixed\n- Old.\n");
        assert_eq!(notes(SAMPLE, None).unwrap(), "### Added\n- New.\n");
    }

    #[test]
    fn a_version_without_a_section_a_date_or_a_change_cannot_be_released() {
        assert!(notes(SAMPLE, Some("2.0.0")).is_err());
        assert!(notes(SAMPLE, Some("Unreleased")).is_err());
        assert!(notes("# Changelog\n\n## 2.0.0 - 2026-02-01\n", Some("2.0.0")).is_err());
    }

    #[test]
    fn our_own_has_the_form() {
        let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
        let sections: Vec<_> = sections(&text).collect();
        assert_eq!(sections.first().map(|one| one.name), Some("Unreleased"));
        for section in &sections {
            let dated = section
                .date
                .is_some_and(|date| date.len() == "2026-01-31".len());
            assert_eq!(dated, section.name != "Unreleased", "{}", section.name);
            for heading in section
                .body
                .lines()
                .filter_map(|line| line.strip_prefix("### "))
            {
                assert!(KINDS.contains(&heading), "{heading:?}");
            }
        }
    }
}
