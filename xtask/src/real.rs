//! The checks that need more than Rust: `cargo xtask test --real`.

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::checks::{Check, Outcome, cargo, run_command};
use crate::kubernetes::{self, go_programs, packages};
use crate::{
    argocd, chart, churn, conformance, control_plane::ControlPlane, dashboard, deny, e2e, paths,
    workflows,
};

/// In this order: programs before what runs on them, so that the times of the others are their own.
/// Most of that waiting is over by then: see `start_building_programs`.
pub(crate) const CHECKS: [Check; 12] = [
    ("dashboard", dashboard::check),
    ("dependencies", deny::check),
    ("advisories", deny::check_advisories),
    ("real: programs", || {
        on_a_node(|| kubernetes_command(&["programs"]))
    }),
    ("chart", chart::check),
    ("workflows", workflows::check),
    ("Argo CD health", argocd::check),
    ("real: API server", || on_a_node(api_server)),
    ("real: e2e", || {
        on_a_node(|| e2e::run(&e2e::Options::default()))
    }),
    ("real: churn", || on_a_node(short_churn)),
    ("real: permissions", || {
        on_a_node(|| kubernetes_command(&["audit"]))
    }),
    ("real: end", || on_a_node(end)),
];

/// Builds programs and images at the lowest priority while the other checks run: these wait a lot.
/// What goes wrong here goes wrong again in "real: programs", which reports it.
pub(crate) fn start_building_programs() -> Option<Child> {
    if obstacle().is_some() {
        return None;
    }
    fs::create_dir_all(paths::target()).ok()?;
    let log = File::create(paths::target().join("programs.log")).ok()?;
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

/// Seeds of the request sequences that the simulated cluster and a real API server are compared by.
const SEEDS: [&str; 3] = ["1", "2", "3"];

/// Runs it, unless this machine cannot run a node.
fn on_a_node(check: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Outcome {
    match obstacle() {
        Some(why) => Outcome::Skipped(format!("no real Kubernetes here: {why}")),
        None => Outcome::from_result(check()),
    }
}

/// Why this machine cannot run a node.
fn obstacle() -> Option<String> {
    let own_user = fs::metadata("/proc/self").map(|own| own.uid());
    if own_user.ok() != Some(0) {
        return Some("a node needs root".into());
    }
    if !go_programs::can_build() {
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
    cargo("build --workspace --example compare").into_result()?;
    for seed in SEEDS {
        // Each sequence needs a server without any object.
        let plane = ControlPlane::start(&server, &etcd, "compare")?;
        let kubeconfig = plane.write_kubeconfig()?;
        let mut compare = Command::new(paths::target().join("debug/examples/compare"));
        compare.arg("--kubeconfig").arg(kubeconfig);
        run_command(compare.args(["--seed", seed]))
            .into_result()
            .map_err(|why| format!("the simulated cluster and the real server disagree: {why}"))?;
    }
    Ok(())
}

/// Enough for every edge once; a release is given ten minutes.
fn short_churn() -> Result<(), Box<dyn Error>> {
    // Several replicas, so that drains go by groups, and one target of each sort: a Deployment, a StatefulSet, one with
    // two Services, one that ends slowly.
    let flags = [
        ["--minutes", "2"],
        ["--nodes", "3"],
        ["--replicas", "3"],
        ["--kind", "mixed"],
        ["--targets", "4"],
    ];
    let flags = flags.concat();
    let options = churn::Options::parse(&flags).ok_or("churn does not take these flags")?;
    churn::run(&options)
}

/// Nothing of the node may be left.
fn end() -> Result<(), Box<dyn Error>> {
    kubernetes_command(&["down"])?;
    let left = kubernetes::leftovers()?;
    match left.as_slice() {
        [] => Ok(()),
        some => Err(format!("the node left behind: {}", some.join(", ")).into()),
    }
}

fn kubernetes_command(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    kubernetes::run(arguments)
        .ok_or_else(|| format!("kubernetes {arguments:?} is not a command"))?
}
