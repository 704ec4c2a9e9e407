//! Licences, sources, banned crates and known vulnerabilities, with cargo-deny.
//! It never installs anything outside the target folder.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::checks::{Ended, cargo, ended};
use crate::generate::root;

const VERSION: &str = "0.20.2";
const FETCH_SECONDS: u64 = 60;

/// What needs no network: bans, licences and sources.
pub(crate) fn check(ci: bool) -> Ended {
    let program = match program(ci) {
        Ok(program) => program,
        Err(ended) => return ended,
    };
    println!("$ cargo deny check bans licenses sources");
    ended(Command::new(program).args(["check", "bans", "licenses", "sources"]))
}

/// Known vulnerabilities. The database is a Git repository on GitHub, which not every machine reaches.
pub(crate) fn check_advisories(ci: bool) -> Ended {
    let program = match program(ci) {
        Ok(program) => program,
        Err(ended) => return ended,
    };
    if !fetched(&program) {
        return Ended::LeftOut(
            "known vulnerabilities were NOT checked: the advisory database on GitHub cannot be reached"
                .into(),
        );
    }
    println!("$ cargo deny check advisories");
    ended(Command::new(program).args(["check", "--disable-fetch", "advisories"]))
}

/// cargo-deny, from the path or our own; installed if nothing may be left out.
fn program(ci: bool) -> Result<PathBuf, Ended> {
    let own = root().join("target/tools/bin/cargo-deny");
    for program in [PathBuf::from("cargo-deny"), own.clone()] {
        let version = Command::new(&program)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if version.is_ok_and(|status| status.success()) {
            return Ok(program);
        }
    }
    if !ci {
        let how = format!("cargo install --locked cargo-deny@{VERSION}");
        return Err(Ended::LeftOut(format!(
            "cargo-deny is missing; `{how}`, or run with --ci"
        )));
    }
    let package = format!("cargo-deny@{VERSION}");
    match cargo(&["install", "--locked", "--root", "target/tools", &package]) {
        Ended::Passed => Ok(own),
        other => Err(other),
    }
}

/// Whether the advisory database could be brought up to date in time.
fn fetched(program: &PathBuf) -> bool {
    println!("$ cargo deny fetch db");
    let Ok(mut child) = Command::new(program)
        .args(["fetch", "db"])
        .current_dir(root())
        .stderr(Stdio::null())
        .spawn()
    else {
        return false;
    };
    let deadline = Instant::now() + Duration::from_secs(FETCH_SECONDS);
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
