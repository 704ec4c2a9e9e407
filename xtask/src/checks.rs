//! Every check of the project, in order, each with its name and time: `cargo xtask test`.

use std::error::Error;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::paths::root;
use crate::{campaign, chart, generate, limit, real, simulate, words};

/// The outcome of a check.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// What it needs is not on this machine; in CI that is a failure.
    Skipped(String),
    /// What it asks on the Internet cannot be reached, which no machine can install.
    Unreachable(String),
}

impl Outcome {
    pub(crate) fn from_result(result: Result<(), Box<dyn Error>>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    /// For a command of its own, where anything but a pass is an error.
    pub(crate) fn into_result(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Passed => Ok(()),
            Self::Failed(why) | Self::Skipped(why) | Self::Unreachable(why) => Err(why.into()),
        }
    }

    fn describe(&self, took: Duration) -> String {
        let seconds = took.as_secs_f32();
        match self {
            Self::Passed => format!("passed in {seconds:.1} s"),
            Self::Failed(why) => format!("FAILED in {seconds:.1} s: {why}"),
            Self::Skipped(why) | Self::Unreachable(why) => format!("NOT RUN: {why}"),
        }
    }
}

/// Twice what the longest check takes from cold on two cores.
const LIMIT: Duration = Duration::from_secs(40 * 60);

pub(crate) type Check = (&'static str, fn() -> Outcome);

/// The checks that need only Rust and a C compiler, cheap ones first.
const LOCAL: [Check; 9] = [
    ("format", || cargo("fmt --all -- --check")),
    ("words", || Outcome::from_result(words::run())),
    ("chart files", || Outcome::from_result(chart::check_files())),
    ("generated files", || {
        Outcome::from_result(generate::check_all())
    }),
    ("lints", || {
        cargo("clippy --workspace --all-targets -- -D warnings")
    }),
    // The whole workspace, here and below, so that what was built before serves again.
    ("simulation lints", || {
        cargo(
            "clippy --workspace --features elasti-resolver/simulation,elasti-resolver/fuzzing \
             --test simulation -- -D warnings",
        )
    }),
    ("tests", tests),
    ("model checker", whole_model),
    ("simulation", simulate::check),
];

/// What takes minutes more, before the checks on a real cluster: a sample of the campaign is among the tests.
const LONG: [Check; 1] = [("crash campaign", campaign::check)];

/// Which checks to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// What needs only Rust and a C compiler.
    Local,
    /// What takes longer, or needs root, Go, Node, Chromium or the Internet.
    Real,
    /// All of it, and nothing may be skipped.
    Ci,
}

impl Suite {
    fn checks(self) -> Vec<Check> {
        let real = LONG.iter().chain(&real::CHECKS);
        match self {
            Self::Local => LOCAL.to_vec(),
            Self::Real => real.copied().collect(),
            Self::Ci => LOCAL.iter().chain(real).copied().collect(),
        }
    }
}

/// Parses `[--real | --ci] [--only TEXT]` and runs those checks; a name may be of any suite.
pub(crate) fn run(arguments: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    let (suite, checks) = match arguments {
        [] => (Suite::Local, Suite::Local.checks()),
        ["--real"] => (Suite::Real, Suite::Real.checks()),
        ["--ci"] => (Suite::Ci, Suite::Ci.checks()),
        ["--only", text] => {
            let mut checks = Suite::Ci.checks();
            checks.retain(|(name, _)| name.contains(text));
            (Suite::Local, checks)
        }
        _ => return None,
    };
    if checks.is_empty() {
        let names: Vec<&str> = Suite::Ci.checks().iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        return Some(Err(
            format!("no check is named so; there are: {names}").into()
        ));
    }
    let programs = match suite {
        Suite::Local => None,
        Suite::Real | Suite::Ci => real::start_building_programs(),
    };
    let outcome = run_all(&checks, suite == Suite::Ci, programs.as_ref());
    if arguments.is_empty() {
        let names: Vec<&str> = Suite::Real.checks().iter().map(|(name, _)| *name).collect();
        println!("`cargo xtask test --real` runs: {}", names.join(", "));
    }
    if let Some(mut building) = programs
        && let Err(error) = building.wait()
    {
        return Some(Err(error.into()));
    }
    Some(outcome)
}

/// Runs the checks, also after one has failed, and sums up.
fn run_all(checks: &[Check], ci: bool, spared: Option<&Child>) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut summary = Vec::new();
    for (name, check) in checks {
        println!("\n=== {name}");
        let start = Instant::now();
        let spared = spared.map(Child::id);
        let end = move || limit::end_children(std::process::id(), spared);
        let outcome = match limit::within(LIMIT, end, check) {
            None => {
                let minutes = LIMIT.as_secs() / 60;
                Outcome::Failed(format!("it did not end within {minutes} minutes"))
            }
            Some(Outcome::Skipped(why)) if ci => Outcome::Failed(why),
            Some(outcome) => outcome,
        };
        let line = outcome.describe(start.elapsed());
        println!("=== {name}: {line}");
        summary.push((*name, line, matches!(outcome, Outcome::Failed(_))));
    }
    println!("\n=== summary");
    for (name, line, _) in &summary {
        println!("{name:17} {line}");
    }
    println!("total: {:.0} s", start.elapsed().as_secs_f32());
    match summary.iter().filter(|(_, _, failed)| *failed).count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} checks failed", summary.len()).into()),
    }
}

/// Cargo in the root of the repository.
pub(crate) fn cargo_command() -> Command {
    // Cargo sets this for the programs that it runs.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// Runs cargo with these arguments, split at spaces.
pub(crate) fn cargo(arguments: &str) -> Outcome {
    cargo_with(None, arguments)
}

/// Runs cargo with variables.
pub(crate) fn cargo_with<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    arguments: &str,
) -> Outcome {
    let mut command = cargo_command();
    for (name, value) in variables {
        print!("{name}={value} ");
        command.env(name, value);
    }
    println!("$ cargo {arguments}");
    run_command(command.args(arguments.split_whitespace()))
}

/// Runs a command in the root of the repository, with its output on ours.
pub(crate) fn run_command(command: &mut Command) -> Outcome {
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Most of a test is waiting, so two run on each processor. Those that need the machine for themselves take turns.
fn tests() -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (2 * processors).to_string();
    cargo_with(
        [("RUST_TEST_THREADS", threads.as_str())],
        "test --workspace --no-fail-fast",
    )
}

/// All states: the tests have seen a sample. The planner is optimised in every profile, so that what the tests were
/// built from serves again.
fn whole_model() -> Outcome {
    let variables = [
        ("ELASTI_MODEL_STATES", "700000"),
        ("ELASTI_MODEL_WALKS", "1500"),
    ];
    cargo_with(
        variables,
        "test --workspace --test core -- --nocapture model::every_law_holds model::walks::long_random",
    )
}
