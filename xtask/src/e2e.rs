//! The end-to-end tests on a real cluster with the chart installed: `cargo xtask e2e`.
//! It never changes a journey: the same code runs on the simulated cluster.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::churn::world;
use crate::generate::root;
use crate::image;
use crate::kubernetes::layout::{self, NODE_ADDRESS};
use crate::kubernetes::{go_programs, ready};

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
pub(crate) struct Extent {
    only: Option<String>,
    kubeconfig: Option<String>,
    prometheus: Option<String>,
    readings: Option<String>,
}

impl Extent {
    /// Reads the flags; `None` where they say nothing known.
    pub(crate) fn read(words: &[&str]) -> Option<Self> {
        let mut extent = Self::default();
        let mut pairs = words.chunks_exact(2);
        for pair in &mut pairs {
            let &[flag, value] = pair else { return None };
            let place = match flag {
                "--only" => &mut extent.only,
                "--kubeconfig" => &mut extent.kubeconfig,
                "--prometheus" => &mut extent.prometheus,
                "--readings" => &mut extent.readings,
                _ => return None,
            };
            *place = Some(value.to_owned());
        }
        let foreign = extent.kubeconfig.is_some();
        let whole = foreign == extent.prometheus.is_some() && foreign == extent.readings.is_some();
        (pairs.remainder().is_empty() && whole).then_some(extent)
    }
}

/// Installs the chart, runs the end-to-end tests, and removes what they left.
pub(crate) fn run(extent: &Extent) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    match (&extent.kubeconfig, &extent.prometheus) {
        (Some(file), Some(prometheus)) => layout::use_other(file, prometheus),
        _ => prepare_node()?,
    }
    world::install("iptables", 2)?;
    remove_namespaces()?;
    println!("installed after {:.0} s", start.elapsed().as_secs_f32());
    let mut wrong = Vec::new();
    // Those that are ignored elsewhere change the installation under everyone's feet, so they go one by one.
    let mut tests = vec![
        ("any_ground", "", [AT_ONCE, "--nocapture"]),
        ("elasti", "both_clusters::", [AT_ONCE, "--nocapture"]),
        (
            "elasti",
            "both_clusters::",
            ["--test-threads=1", "--ignored"],
        ),
        ("installation", "", ["--test-threads=1", "--ignored"]),
    ];
    // Pages say how to delete every ElastiService, and the CRD.
    match layout::is_ours() {
        true => tests.push(("elasti", "documents::", ["--nocapture", "--ignored"])),
        false => {
            println!("documents: LEFT OUT: the commands of the pages would harm a cluster of yours")
        }
    }
    for (test, module, flags) in tests {
        let begun = Instant::now();
        let passed = test_binary(extent, test, module, &flags)?;
        println!(
            "{test} {module}: {} after {:.0} s",
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
    let targets = layout::state().join("prometheus-targets/end-to-end tests.yaml");
    fs::write(
        targets,
        format!("- targets: ['{NODE_ADDRESS}:{READINGS_PORT}']\n"),
    )?;
    Ok(())
}

/// Runs the tests of one module of a test binary on the cluster.
fn test_binary(
    extent: &Extent,
    test: &str,
    module: &str,
    flags: &[&str],
) -> Result<bool, Box<dyn Error>> {
    let names = names(extent, test, module)?;
    if names.is_empty() {
        return Ok(true);
    }
    let readings = extent.readings.clone();
    let readings = readings.unwrap_or_else(|| format!("{NODE_ADDRESS}:{READINGS_PORT}"));
    let mut command = cargo_test(test);
    command
        .args(flags)
        .arg("--exact")
        .args(names)
        .env("ELASTI_JOURNEYS_KUBECONFIG", layout::kubeconfig())
        .env("ELASTI_JOURNEYS_PROMETHEUS", layout::prometheus())
        .env("ELASTI_JOURNEYS_READINGS", readings)
        .env("ELASTI_JOURNEYS_HELM", go_programs::HELM.path()?)
        .env("ELASTI_JOURNEYS_KUBECTL", go_programs::kube("kubectl")?)
        .env("ELASTI_JOURNEYS_CHART", root().join(world::CHART))
        .env("ELASTI_JOURNEYS_VALUES", world::values(2).join(","));
    Ok(command.status()?.success())
}

fn cargo_test(test: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root())
        .args(["test", "--workspace", "--test", test, "--"]);
    command
}

/// The tests of a module whose names also have the text of `--only`: a test binary runs what matches either of two
/// filters, and tests that would harm a foreign cluster are in other modules.
fn names(extent: &Extent, test: &str, module: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut list = cargo_test(test);
    list.args(["--list", "--format", "terse"]);
    let output = list.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the tests of {test} cannot be listed").into());
    }
    let only = extent.only.as_deref().unwrap_or_default();
    let text = String::from_utf8(output.stdout)?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| name.starts_with(module) && name.contains(only));
    Ok(names.map(str::to_owned).collect())
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
