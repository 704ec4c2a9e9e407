//! The dashboard in a real browser: `cargo xtask dashboard`, and a check of `cargo xtask test --real`.
//! What npm installs and the pictures lie in the target folder, never in the source tree.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checks::{Outcome, cargo, run_command};
use crate::paths::{self, root};

pub(crate) const USAGE: &str = "  dashboard       test the dashboard in a headless Chromium (needs Node 20 and npm; installs Chromium where apt-get may);
                  pictures of every page are left in target/screenshots
";

const CHROMIUM: &str = "/usr/bin/chromium";
/// The oldest Node that the driver of the browser runs on.
const OLDEST_NODE: u32 = 20;
const TESTS: [&str; 9] = [
    "pages.test.mjs",
    "fleet.test.mjs",
    "service.test.mjs",
    "savings.test.mjs",
    "states.test.mjs",
    "attacks.test.mjs",
    "crowd.test.mjs",
    "demo.test.mjs",
    "grafana.test.mjs",
];

/// As a command of its own.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    check().into_result()
}

/// As a check of the project.
pub(crate) fn check() -> Outcome {
    let chromium = match requirements() {
        Ok(chromium) => chromium,
        Err(missing) => {
            let why = format!("the dashboard was not tested in a browser: {missing}");
            return Outcome::Skipped(why);
        }
    };
    match build() {
        Outcome::Passed => Outcome::from_result(run_tests(&chromium)),
        other => other,
    }
}

/// With an example, which has the features of the tests: what those were built from serves again.
pub(crate) fn build() -> Outcome {
    cargo("build --workspace --bin elasti --example fake_cluster")
}

/// Runs a script of web/tests that is no test, and leaves its pictures in a folder.
pub(crate) fn run_script(script: &str, pictures: &Path) -> Result<(), Box<dyn Error>> {
    let chromium = requirements()?;
    build().into_result()?;
    let stage = stage()?;
    let mut node = node(&chromium, pictures);
    run_command(node.arg(stage.join(script))).into_result()
}

/// The browser, once everything that the tests need is there; else what is missing.
fn requirements() -> Result<PathBuf, String> {
    let node = version("node").ok_or("Node is missing")?;
    if node < OLDEST_NODE {
        return Err(format!("Node {OLDEST_NODE} is needed, this is {node}"));
    }
    version("npm").ok_or("npm is missing")?;
    let chromium = std::env::var_os("CHROMIUM").map_or_else(|| CHROMIUM.into(), PathBuf::from);
    if !chromium.exists() {
        install_chromium();
    }
    match chromium.exists() {
        true => Ok(chromium),
        false => Err(format!("{} is missing", chromium.display())),
    }
}

/// A program's major version.
fn version(program: &str) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = output.trim().trim_start_matches('v').split('.').next()?;
    number.parse().ok()
}

fn install_chromium() {
    if !Path::new("/usr/bin/apt-get").exists() {
        return;
    }
    println!("installing chromium");
    for arguments in [["update"].as_slice(), &["install", "chromium"]] {
        let _ = Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args([
                "-o",
                "DPkg::Lock::Timeout=300",
                "--yes",
                "--no-install-recommends",
            ])
            .args(arguments)
            .stdout(Stdio::null())
            .status();
    }
}

/// Installs the driver and runs every test.
fn run_tests(chromium: &Path) -> Result<(), Box<dyn Error>> {
    let stage = stage()?;
    println!("$ node --test {}", TESTS.join(" "));
    let mut node = node(chromium, &paths::target().join("screenshots"));
    node.args(["--test", "--test-concurrency=1", "--test-reporter=spec"])
        .args(TESTS.map(|test| stage.join(test)));
    run_command(&mut node).into_result()
}

/// A copy of web/tests in the target folder, with the driver of the browser.
fn stage() -> Result<PathBuf, Box<dyn Error>> {
    let stage = paths::target().join("dashboard-tests");
    fs::create_dir_all(&stage)?;
    for file in fs::read_dir(root().join("web/tests"))? {
        let file = file?;
        if file.file_type()?.is_file() {
            fs::copy(file.path(), stage.join(file.file_name()))?;
        }
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&stage)
        .status()?;
    match npm.success() {
        true => Ok(stage),
        false => Err("npm could not install the browser's driver".into()),
    }
}

/// Node with what web/tests/world.mjs needs.
fn node(chromium: &Path, pictures: &Path) -> Command {
    let target = paths::target();
    let mut node = Command::new("node");
    node.env("ELASTI", target.join("debug/elasti"))
        .env("FAKE_CLUSTER", target.join("debug/examples/fake_cluster"))
        .env("CRD", root().join("deploy/crd/elastiservices.yaml"))
        .env(
            "GRAFANA",
            root().join("deploy/helm/elasti/files/dashboard.json"),
        )
        .env("SCREENSHOTS", pictures)
        .env("CHROMIUM", chromium);
    node
}
