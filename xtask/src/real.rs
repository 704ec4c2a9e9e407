//! The checks that need a real Kubernetes, as rows of `cargo xtask test`.
//! It never passes over one silently: what the machine cannot do is said, and is an error where nothing may be left out.

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::checks::{Check, Ended, cargo, ended};
use crate::generate::root;
use crate::kubernetes::{self, go_programs, packages};
use crate::{churn, conformance, control_plane::ControlPlane, e2e};

/// In this order: programs first, so that the times of the others are their own.
/// Most of that waiting is over by then: see `start_building_programs`.
pub(crate) const CHECKS: [(&str, Check); 6] = [
    ("real: programs", |ci| {
        attempt(ci, || kubernetes_command(&["programs"]))
    }),
    ("real: API server", |ci| attempt(ci, api_server)),
    ("real: e2e", |ci| {
        attempt(ci, || e2e::run(&e2e::Extent::default()))
    }),
    ("real: churn", |ci| attempt(ci, short_churn)),
    ("real: rights", |ci| {
        attempt(ci, || kubernetes_command(&["audit"]))
    }),
    ("real: end", |ci| attempt(ci, end)),
];

/// Builds the Go programs at the lowest priority while the other checks run: these wait a lot.
/// Whatever goes wrong here is met again, and told, by "real: programs".
pub(crate) fn start_building_programs() -> Option<Child> {
    let log = root().join("target/go-programs.log");
    if obstacle().is_some() {
        return None;
    }
    let log = File::create(log).ok()?;
    Command::new("nice")
        .args(["-n", "19"])
        .arg(std::env::current_exe().ok()?)
        .args(["kubernetes", "programs"])
        .stdin(Stdio::null())
        .stderr(log.try_clone().ok()?)
        .stdout(log)
        .spawn()
        .ok()
}

/// Seeds of the sequences that the simulated cluster and a real API server are asked.
const SEEDS: [&str; 3] = ["1", "2", "3"];

/// Does it, unless this machine cannot.
fn attempt(ci: bool, work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Ended {
    match (obstacle(), ci) {
        (Some(why), true) => Ended::Failed(format!("no real Kubernetes here: {why}")),
        (Some(why), false) => Ended::LeftOut(format!("NOT run on a real Kubernetes: {why}")),
        (None, _) => match work() {
            Ok(()) => Ended::Passed,
            Err(error) => Ended::Failed(error.to_string()),
        },
    }
}

/// Why this machine cannot run a node.
fn obstacle() -> Option<String> {
    let own_user = fs::metadata("/proc/self").map(|own| own.uid());
    if own_user.ok() != Some(0) {
        return Some("a node needs root".into());
    }
    let go = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .status();
    if !go.is_ok_and(|status| status.success()) {
        return Some("Go is missing, which builds Kubernetes from its modules".into());
    }
    if fs::read_dir("/sys/fs/cgroup").map_or(0, Iterator::count) == 0 {
        return Some("no cgroups are mounted".into());
    }
    if !Path::new("/usr/bin/apt-get").exists() && !packages::missing().is_empty() {
        let missing = packages::missing().join(", ");
        return Some(format!(
            "these packages are missing, and no apt-get: {missing}"
        ));
    }
    None
}

/// The CRD's acceptance table, and the simulated cluster's answers to random requests, against a real API server.
fn api_server() -> Result<(), Box<dyn Error>> {
    let (server, etcd) = (
        go_programs::kube("kube-apiserver")?,
        go_programs::ETCD.path()?,
    );
    conformance::run(&server, &etcd)?;
    // The whole workspace, so that what the tests were built from serves again.
    passed(cargo(&["build", "--workspace", "--example", "compare"]))?;
    for seed in SEEDS {
        // Each sequence wants a server that has seen nothing.
        let plane = ControlPlane::start(&server, &etcd)?;
        let kubeconfig = plane.write_kubeconfig()?;
        let mut compare = Command::new(root().join("target/debug/examples/compare"));
        compare.arg("--kubeconfig").arg(kubeconfig);
        passed(ended(compare.args(["--seed", seed])))
            .map_err(|why| format!("the simulated cluster and the real server disagree: {why}"))?;
    }
    Ok(())
}

fn passed(ended: Ended) -> Result<(), String> {
    match ended {
        Ended::Passed => Ok(()),
        Ended::Failed(why) | Ended::LeftOut(why) => Err(why),
    }
}

/// Enough for every edge once; a release is given ten minutes.
fn short_churn() -> Result<(), Box<dyn Error>> {
    let extent = churn::Extent::read(&["--minutes", "2"]).ok_or("churn takes no minutes")?;
    churn::run(&extent)
}

/// Nothing of the node may be left.
fn end() -> Result<(), Box<dyn Error>> {
    kubernetes_command(&["down"])?;
    let left = kubernetes::left_behind()?;
    match left.as_slice() {
        [] => Ok(()),
        some => Err(format!("the node left behind: {}", some.join(", ")).into()),
    }
}

fn kubernetes_command(words: &[&str]) -> Result<(), Box<dyn Error>> {
    kubernetes::run(words).ok_or_else(|| format!("kubernetes {words:?} is not known"))?
}
