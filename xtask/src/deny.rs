//! Licences, sources, banned crates and known vulnerabilities, with cargo-deny.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::checks::{Outcome, cargo, run_command};
use crate::paths::{self, root};

const VERSION: &str = "0.20.2";
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// What needs no network: bans, licences and sources.
pub(crate) fn check() -> Outcome {
    deny(&["check", "bans", "licenses", "sources"])
}

/// Vulnerabilities that are known. The database is a Git repository on GitHub, which not every machine reaches.
pub(crate) fn check_advisories() -> Outcome {
    match program() {
        Ok(program) if fetched(&program) => deny(&["check", "--disable-fetch", "advisories"]),
        Ok(_) => Outcome::Unreachable(
            "known vulnerabilities were NOT checked: the advisory database on GitHub cannot be reached"
                .into(),
        ),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn deny(arguments: &[&str]) -> Outcome {
    match program() {
        Ok(program) => {
            println!("$ cargo deny {}", arguments.join(" "));
            run_command(Command::new(program).args(arguments))
        }
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Where our own cargo-deny is kept.
pub(crate) fn folder() -> Result<PathBuf, Box<dyn Error>> {
    Ok(paths::cache()?.join(format!("cargo-deny-{VERSION}")))
}

/// cargo-deny from the path or the cache; it is built first where neither has it.
pub(crate) fn program() -> Result<PathBuf, Box<dyn Error>> {
    let folder = folder()?;
    let own = folder.join("bin/cargo-deny");
    let _lock = paths::lock(&folder)?;
    for program in [Path::new("cargo-deny"), &own] {
        let version = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if version.is_ok_and(|status| status.success()) {
            return Ok(program.to_owned());
        }
    }
    // Its own target folder is a temporary one.
    let root = folder.display();
    cargo(&format!(
        "install --locked --root {root} cargo-deny@{VERSION}"
    ))
    .into_result()?;
    Ok(own)
}

/// Whether the advisory database could be brought up to date in time.
fn fetched(program: &Path) -> bool {
    println!("$ cargo deny fetch db");
    let Ok(mut child) = Command::new(program)
        .args(["fetch", "db"])
        .current_dir(root())
        .stderr(Stdio::null())
        .spawn()
    else {
        return false;
    };
    let deadline = Instant::now() + FETCH_TIMEOUT;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => break,
        }
    }
    // It may have ended this moment; either way it is too late.
    let _ = child.kill();
    let _ = child.wait();
    false
}
