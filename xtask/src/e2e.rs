//! The end-to-end tests on a real cluster with the chart installed: `cargo xtask e2e`.
//! It never changes a journey: the same code runs on the simulated cluster.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::churn::world;
use crate::image;
use crate::kubernetes::layout::{self, NODE_ADDRESS};
use crate::kubernetes::{go_programs, ready};
use crate::paths::root;

pub(crate) const USAGE: &str = "\
  e2e [--only TEXT] [--kubeconfig FILE --prometheus URL --readings ADDRESS]
                  the end-to-end tests of the simulated cluster on the installed chart: on the real node of this machine, or on a cluster
                  whose Services this machine reaches, which has the images, and whose Prometheus scrapes ADDRESS
";

/// On every namespace of a journey.
const LABEL: &str = "elasti.example/journey";
/// Where this process shows readings to the node's own Prometheus.
const READINGS_PORT: u16 = 9099;
/// Each journey mostly waits for ticks and settle times.
const AT_ONCE: &str = "--test-threads=6";

/// What to run, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    only: Option<String>,
    kubeconfig: Option<String>,
    prometheus: Option<String>,
    readings: Option<String>,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            let &[flag, value] = pair else { return None };
            let place = match flag {
                "--only" => &mut options.only,
                "--kubeconfig" => &mut options.kubeconfig,
                "--prometheus" => &mut options.prometheus,
                "--readings" => &mut options.readings,
                _ => return None,
            };
            *place = Some(value.to_owned());
        }
        let foreign = options.kubeconfig.is_some();
        let whole =
            foreign == options.prometheus.is_some() && foreign == options.readings.is_some();
        (pairs.remainder().is_empty() && whole).then_some(options)
    }
}

/// Installs the chart, runs the end-to-end tests, and removes what they left.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    match (&options.kubeconfig, &options.prometheus) {
        (Some(file), Some(prometheus)) => layout::use_other(file, prometheus),
        _ => prepare_node()?,
    }
    world::install("iptables", 2)?;
    remove_namespaces()?;
    println!("installed after {:.0} s", start.elapsed().as_secs_f32());
    let mut wrong = Vec::new();
    // Those that are ignored elsewhere change the installation under everyone's feet, so they go one by one.
    let mut tests = vec![
        ("any_ground", [AT_ONCE, "--nocapture"]),
        ("commands_any_ground", [AT_ONCE, "--nocapture"]),
        ("commands_any_ground", ["--test-threads=1", "--ignored"]),
        ("installation", ["--test-threads=1", "--ignored"]),
    ];
    // Pages say how to delete every ElastiService, and the CRD.
    match layout::is_ours() {
        true => tests.push(("documents", ["--nocapture", "--ignored"])),
        false => {
            println!("documents: LEFT OUT: the commands of the pages would harm a cluster of yours")
        }
    }
    for (test, flags) in tests {
        let begun = Instant::now();
        let passed = test_binary(options, test, &flags)?;
        println!(
            "{test}: {} after {:.0} s",
            if passed { "passed" } else { "FAILED" },
            begun.elapsed().as_secs_f32()
        );
        if !passed {
            wrong.push(test);
            show_state()?;
        }
        remove_namespaces()?;
    }
    match wrong.as_slice() {
        [] => Ok(()),
        some => Err(format!("end-to-end tests failed: {}", some.join(", ")).into()),
    }
}

/// The node of this machine, with the sample app, and a Prometheus that scrapes the end-to-end tests.
fn prepare_node() -> Result<(), Box<dyn Error>> {
    world::up("iptables")?;
    image::import(&image::sample_app()?)?;
    let targets = layout::state().join("prometheus-targets/e2e.yaml");
    fs::write(
        targets,
        format!("- targets: ['{NODE_ADDRESS}:{READINGS_PORT}']\n"),
    )?;
    Ok(())
}

/// Runs one test binary of the end-to-end tests on the cluster.
fn test_binary(options: &Options, test: &str, flags: &[&str]) -> Result<bool, Box<dyn Error>> {
    let readings = options.readings.clone();
    let readings = readings.unwrap_or_else(|| format!("{NODE_ADDRESS}:{READINGS_PORT}"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root())
        .args(["test", "--workspace", "--test", test, "--"])
        .args(flags)
        .args(options.only.as_deref())
        .env("ELASTI_JOURNEYS_KUBECONFIG", layout::kubeconfig())
        .env("ELASTI_JOURNEYS_PROMETHEUS", layout::prometheus())
        .env("ELASTI_JOURNEYS_READINGS", readings)
        .env("ELASTI_JOURNEYS_HELM", go_programs::HELM.path()?)
        .env("ELASTI_JOURNEYS_KUBECTL", go_programs::kube("kubectl")?)
        .env("ELASTI_JOURNEYS_CHART", root().join(world::CHART))
        .env("ELASTI_JOURNEYS_VALUES", world::values(2).join(","));
    Ok(command.status()?.success())
}

/// For whoever has to find out why: what is there now, and what Elasti said last.
fn show_state() -> Result<(), Box<dyn Error>> {
    let namespace = format!("--namespace={}", world::RELEASE);
    for arguments in [
        &["get", "elastiservices,pods", "--all-namespaces"][..],
        &[
            "logs",
            &namespace,
            "--selector=app.kubernetes.io/part-of=elasti",
            "--tail=40",
            "--prefix",
        ][..],
    ] {
        ready::kubectl(arguments)?.status()?;
    }
    Ok(())
}

/// Namespaces of end-to-end tests that have ended, however they did.
fn remove_namespaces() -> Result<(), Box<dyn Error>> {
    let selector = format!("--selector={LABEL}");
    let arguments = ["delete", "namespaces", &selector, "--timeout=180s"];
    let status = ready::kubectl(&arguments)?.stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err("namespaces of end-to-end tests do not go".into()),
    }
}
