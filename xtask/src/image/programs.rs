//! The static programs that go into images.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::paths::{self, root};

const STATIC: &str = "-C target-feature=+crt-static";

/// The demo brings the simulated cluster with it, which is never in the image; nor are the commands that people type.
pub(crate) const ELASTI_FEATURES: &[&str] = &["--no-default-features"];
/// Everything.
pub(crate) const COMMAND_LINE_FEATURES: &[&str] = &[];

/// The one binary of the project as it is in the image, small and static.
pub(crate) fn elasti() -> Result<PathBuf, Box<dyn Error>> {
    build("elasti", "image", ELASTI_FEATURES)
}

/// The same binary with the commands that people type. It takes the place of the other one in the target folder.
pub(crate) fn command_line() -> Result<PathBuf, Box<dyn Error>> {
    build("elasti", "image", COMMAND_LINE_FEATURES)
}

/// The sample app of tests, which need not be small.
pub(crate) fn sample_app() -> Result<PathBuf, Box<dyn Error>> {
    build("elasti-sample-app", "release", &[])
}

/// Builds a static program of the workspace.
fn build(package: &str, profile: &str, more: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let target = host()?;
    let variable = target.to_uppercase().replace('-', "_");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root())
        // With a target named, the flags reach neither build scripts nor derive macros.
        .env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), STATIC)
        .args(["build", "--package", package, "--profile", profile])
        .args(more)
        .args(["--locked", "--target", &target])
        .status()?;
    if !status.success() {
        return Err(format!("building {package} ended with {status}").into());
    }
    Ok(paths::target().join(target).join(profile).join(package))
}

/// The process that holds a pod's namespaces, kept by the hash of its source.
pub(crate) fn pause() -> Result<PathBuf, Box<dyn Error>> {
    let source = root().join("xtask/images/pause.rs");
    let digest = Sha256::digest(fs::read(&source)?);
    let short: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let program = paths::cache()?.join(format!("pause-{short}"));
    if program.exists() {
        return Ok(program);
    }
    println!("building pause");
    fs::create_dir_all(paths::cache()?)?;
    let unfinished = program.with_extension("unfinished");
    let status = Command::new("rustc")
        .args(STATIC.split(' '))
        .args([
            "--edition=2024",
            "-C",
            "opt-level=s",
            "-C",
            "strip=symbols",
            "-o",
        ])
        .arg(&unfinished)
        .arg(&source)
        .status()?;
    if !status.success() {
        return Err(format!("building pause ended with {status}").into());
    }
    fs::rename(unfinished, &program)?;
    Ok(program)
}

/// The certificate authorities that Mozilla trusts, and none that this machine has been told to trust besides.
pub(crate) fn authorities() -> Result<Vec<u8>, Box<dyn Error>> {
    const FOLDER: &str = "/usr/share/ca-certificates/mozilla";
    let missing = |error| format!("{FOLDER}: {error}; Debian's package is ca-certificates");
    let mut files: Vec<PathBuf> = fs::read_dir(FOLDER)
        .map_err(missing)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, std::io::Error>>()?;
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(fs::read(file)?);
    }
    Ok(all)
}

/// The triple of this machine.
pub(crate) fn host() -> Result<String, Box<dyn Error>> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc does not say its host")?.to_owned())
}
