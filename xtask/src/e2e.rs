//! The end-to-end tests on a real cluster with the chart installed: `cargo xtask e2e`.

use std::error::Error;
use std::fmt;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::checks::cargo_command;
use crate::churn::world;
use crate::image;
use crate::kubernetes::layout::{self, NODE_ADDRESS};
use crate::kubernetes::{go_programs, partners, ready};
use crate::paths::root;

pub(crate) const USAGE: &str = "  e2e [--only TEXT] [--slow] [--partners] [--kubeconfig FILE --prometheus URL --readings ADDRESS]
                  the end-to-end tests on the installed chart: on the real node of this machine, or on a cluster whose
                  Services this machine reaches, which has the images, and whose Prometheus scrapes ADDRESS;
                  --slow: with the tests whose apps take minutes to start;
                  --partners: beside the real KEDA, Argo Rollouts, metrics-server and Traefik instead of stand-ins, and
                  with the tests that need them (on the real node of this machine; builds them once, for minutes)
";

/// On every namespace of an end-to-end test.
const LABEL: &str = "elasti.example/e2e";
/// Where this process shows readings to the node's own Prometheus.
const READINGS_PORT: u16 = 9099;
/// Several, so that kube-proxies and kubelets are never of one mind.
const NODES: usize = 3;
/// Each test mostly waits for ticks and settle times.
const AT_ONCE: &str = "--test-threads=6";
const ONE_BY_ONE: [&str; 3] = ["--test-threads=1", "--ignored", "--nocapture"];

/// What to run, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    only: Option<String>,
    slow: bool,
    partners: bool,
    kubeconfig: Option<String>,
    prometheus: Option<String>,
    readings: Option<String>,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(&flag) = words.next() {
            let place = match flag {
                "--slow" => {
                    options.slow = true;
                    continue;
                }
                "--partners" => {
                    options.partners = true;
                    continue;
                }
                "--only" => &mut options.only,
                "--kubeconfig" => &mut options.kubeconfig,
                "--prometheus" => &mut options.prometheus,
                "--readings" => &mut options.readings,
                _ => return None,
            };
            *place = Some((*words.next()?).to_owned());
        }
        let foreign = options.kubeconfig.is_some();
        let whole =
            foreign == options.prometheus.is_some() && foreign == options.readings.is_some();
        // Partners run on the host of our own node.
        (whole && !(foreign && options.partners)).then_some(options)
    }
}

/// Installs the chart, runs the end-to-end tests, and removes what they left.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    match (&options.kubeconfig, &options.prometheus) {
        (Some(file), Some(prometheus)) => layout::use_other(file, prometheus),
        _ => prepare_node()?,
    }
    if options.partners {
        partners::start()?;
    }
    world::install("iptables", NODES, 2)?;
    remove_namespaces()?;
    println!("installed after {:.0} s", start.elapsed().as_secs_f32());
    let failed = run_all(options)?;
    if options.partners {
        partners::stop()?;
    }
    match failed.as_slice() {
        [] => Ok(()),
        some => Err(format!("end-to-end tests failed: {}", some.join(", ")).into()),
    }
}

/// Runs every group of tests; gives those that failed.
fn run_all(options: &Options) -> Result<Vec<String>, Box<dyn Error>> {
    let mut failed = Vec::new();
    let slow = options.slow.then_some(&SLOW);
    let beside_partners = options.partners.then_some(&BESIDE_PARTNERS);
    for tests in slow.into_iter().chain(&TESTS).chain(beside_partners) {
        // Pages say how to delete every ElastiService, and the CRD.
        if tests.harmful && !layout::is_ours() {
            println!("{tests}: NOT RUN: the commands of the pages would harm a cluster of yours");
            continue;
        }
        let start = Instant::now();
        let passed = run_tests(options, tests)?;
        println!(
            "{tests}: {} after {:.0} s",
            if passed { "passed" } else { "FAILED" },
            start.elapsed().as_secs_f32()
        );
        if !passed {
            failed.push(tests.to_string());
            show_state()?;
        }
        remove_namespaces()?;
    }
    Ok(failed)
}

/// Tests of one module of one test binary.
struct Tests {
    binary: &'static str,
    module: &'static str,
    flags: &'static [&'static str],
    harmful: bool,
}

/// Those that are ignored elsewhere change the installation for all others, so they go one by one.
const TESTS: [Tests; 5] = [
    Tests::new("e2e", "both_clusters::", &[AT_ONCE, "--nocapture"]),
    Tests::new("elasti", "both_clusters::", &[AT_ONCE, "--nocapture"]),
    Tests::new("elasti", "both_clusters::", &ONE_BY_ONE),
    Tests::new("e2e", "installation::", &ONE_BY_ONE),
    Tests {
        harmful: true,
        ..Tests::new("elasti", "documents::", &["--nocapture", "--ignored"])
    },
];

/// Minutes each, so not in every run; they mostly wait.
const SLOW: Tests = Tests::new("e2e", "slow::", &[AT_ONCE, "--ignored", "--nocapture"]);

/// What only the real ones can show; their own times are long, so several wait at once.
const BESIDE_PARTNERS: Tests =
    Tests::new("e2e", "partners::", &[AT_ONCE, "--ignored", "--nocapture"]);

impl Tests {
    const fn new(
        binary: &'static str,
        module: &'static str,
        flags: &'static [&'static str],
    ) -> Self {
        Self {
            binary,
            module,
            flags,
            harmful: false,
        }
    }
}

impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary, self.module.trim_end_matches(':'))
    }
}

/// The node of this machine, with the sample app, and a Prometheus that scrapes the end-to-end tests.
fn prepare_node() -> Result<(), Box<dyn Error>> {
    world::up("iptables", NODES)?;
    image::import(&image::sample_app()?)?;
    let targets = layout::state().join("prometheus-targets/e2e.yaml");
    fs::write(
        targets,
        format!("- targets: ['{NODE_ADDRESS}:{READINGS_PORT}']\n"),
    )?;
    Ok(())
}

/// Runs tests on the cluster.
fn run_tests(options: &Options, tests: &Tests) -> Result<bool, Box<dyn Error>> {
    let mut command = cargo_test(tests);
    match &options.only {
        None => command.arg(tests.module),
        Some(only) => {
            let names = named(tests, only)?;
            if names.is_empty() {
                return Ok(true);
            }
            command.arg("--exact").args(names)
        }
    };
    let readings = options.readings.clone();
    let readings = readings.unwrap_or_else(|| format!("{NODE_ADDRESS}:{READINGS_PORT}"));
    command
        .args(tests.flags)
        .env("ELASTI_E2E_KUBECONFIG", layout::kubeconfig())
        .env("ELASTI_E2E_PROMETHEUS", layout::prometheus())
        .env("ELASTI_E2E_READINGS", readings)
        .env("ELASTI_E2E_HELM", go_programs::HELM.path()?)
        .env("ELASTI_E2E_KUBECTL", go_programs::kube("kubectl")?)
        .env("ELASTI_E2E_CHART", root().join(world::CHART))
        .env("ELASTI_E2E_VALUES", world::values(2).join(","));
    if options.partners {
        command.envs(partners::variables());
    }
    Ok(command.status()?.success())
}

fn cargo_test(tests: &Tests) -> Command {
    let mut command = cargo_command();
    command.args(["test", "--workspace", "--test", tests.binary, "--"]);
    command
}

/// The tests of a module whose names contain a text.
fn named(tests: &Tests, text: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let output = cargo_test(tests)
        .args(["--list", "--format=terse", tests.module])
        .stderr(Stdio::inherit())
        .output()?;
    let list = String::from_utf8(output.stdout)?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| name.contains(text));
    Ok(names.map(str::to_owned).collect())
}

/// To find out why: what is in the cluster now, and the last lines of the logs.
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
