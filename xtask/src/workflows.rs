//! The workflows of `.github`, by actionlint and by rules of our own: `cargo xtask workflows`.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::checks::{Outcome, run_command};
use crate::kubernetes::go_programs;
use crate::paths::root;

pub(crate) const USAGE: &str = "  workflows       check the workflows of .github with actionlint
";

const FOLDER: &str = ".github/workflows";

/// As a command of its own, and as a check.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let program = go_programs::ACTIONLINT.path()?;
    // Other linters are not on every machine, and a check must find the same everywhere.
    let flags = ["-no-color", "-shellcheck=", "-pyflakes="];
    let mut actionlint = Command::new(program);
    run_command(actionlint.args(flags).args(files()?)).into_result()
}

/// actionlint is built by Go.
pub(crate) fn check() -> Outcome {
    match go_programs::can_build() {
        true => Outcome::from_result(run()),
        false => Outcome::Skipped(
            "the workflows were not checked: Go is missing, which builds actionlint".into(),
        ),
    }
}

fn files() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(FOLDER))? {
        files.push(entry?.path());
    }
    files.sort();
    match files.is_empty() {
        true => Err(format!("no workflow in {FOLDER}").into()),
        false => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FOLDER, files};
    use crate::paths::root;

    /// The lines of all workflows, with the file's name for messages.
    fn lines() -> Vec<(String, String)> {
        let mut lines = Vec::new();
        for file in files().unwrap() {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(file).unwrap();
            lines.extend(text.lines().map(|line| (name.clone(), line.to_owned())));
        }
        lines
    }

    /// A tag can be moved to other code; a commit cannot.
    #[test]
    fn every_action_is_pinned_to_a_commit_with_its_version_beside() {
        let mut actions = 0;
        for (file, line) in lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            let (pinned, version) = action.split_once(" # v").unwrap_or((action, ""));
            let (_, commit) = pinned.split_once('@').unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.chars().all(|one| one.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{file}: {line}");
            actions += 1;
        }
        assert!(actions > 5, "{actions}");
    }

    /// Values of expressions would become part of the script; a variable is only data.
    #[test]
    fn no_script_has_an_expression_in_it() {
        let mut script: Option<usize> = None;
        for (file, line) in lines() {
            let depth = line.len() - line.trim_start().len();
            let key = line.trim_start().trim_start_matches("- ");
            if script.is_some_and(|of| depth > of || line.trim().is_empty()) {
                assert!(!line.contains("${{"), "{file}: {line}");
            } else if let Some(command) = key.strip_prefix("run:") {
                script = Some(depth);
                assert!(!command.contains("${{"), "{file}: {line}");
            } else {
                script = None;
            }
        }
    }

    /// The commands of a text, in their order.
    fn commands(text: &str) -> Vec<&str> {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| line.starts_with("cargo ")).collect()
    }

    #[test]
    fn the_nightly_workflow_runs_what_contributing_names() {
        let guide = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
        let (_, nightly) = guide.split_once("### Nightly").unwrap();
        let (nightly, _) = nightly.split_once("\n### ").unwrap();
        let named = commands(nightly);
        let file = root().join(FOLDER).join("nightly.yml");
        assert_eq!(commands(&fs::read_to_string(file).unwrap()), named);
        assert!(named.len() > 10, "{named:?}");
    }
}
