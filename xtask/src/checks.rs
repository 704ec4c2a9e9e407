//! Every check of the project, in order, each with its name and time: `cargo xtask test`.
//! It never hides a check: what is left out is said, with the reason.

use std::error::Error;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::campaign;
use crate::chart;
use crate::dashboard;
use crate::deny;
use crate::generate::{self, root};
use crate::limit;
use crate::real;
use crate::simulate;

/// How a check ended.
pub(crate) enum Ended {
    Passed,
    Failed(String),
    LeftOut(String),
}

/// Twice what the longest check takes from cold on two cores.
const LIMIT: Duration = Duration::from_secs(40 * 60);

pub(crate) type Check = fn(ci: bool) -> Ended;

/// The checks that need no Kubernetes, cheap ones first.
const CHECKS: &[(&str, Check)] = &[
    ("generated files", |_| match generate::check_all() {
        Ok(()) => Ended::Passed,
        Err(error) => Ended::Failed(error.to_string()),
    }),
    ("format", |_| cargo(&["fmt", "--all", "--", "--check"])),
    ("lints", |_| {
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
    }),
    ("simulation lints", |_| {
        cargo(&[
            "clippy",
            // The whole workspace, so that what the lints before it were made from serves again.
            "--workspace",
            "--features",
            "elasti-resolver/simulation,elasti-resolver/fuzzing",
            "--test",
            "simulation",
            "--",
            "-D",
            "warnings",
        ])
    }),
    ("tests", |_| {
        cargo(&["test", "--workspace", "--no-fail-fast"])
    }),
    ("model checker", |_| whole_model()),
    ("chart", chart::check),
    ("dashboard", dashboard::check),
    ("simulation", |_| simulate::check()),
    ("crash campaign", |_| campaign::check()),
    ("dependencies", deny::check),
    ("advisories", deny::check_advisories),
];

/// Runs all checks whose name has the text, also after one has failed, and sums up.
pub(crate) fn run(ci: bool, only: &str) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut summary = Vec::new();
    let programs = match only {
        "" => real::start_building_programs(),
        _ => None,
    };
    let all = CHECKS.iter().chain(&real::CHECKS);
    for (name, check) in all.filter(|(name, _)| name.contains(only)) {
        println!("\n=== {name}");
        let start = Instant::now();
        let builder = programs.as_ref().map(Child::id);
        let end = move || limit::end_children(std::process::id(), builder);
        let ended = limit::within(LIMIT, end, || check(ci)).unwrap_or_else(|| {
            let minutes = LIMIT.as_secs() / 60;
            Ended::Failed(format!("it did not end within {minutes} minutes"))
        });
        let took = start.elapsed();
        println!("=== {name}: {}", describe(&ended, took));
        summary.push((name, ended, took));
    }
    if let Some(mut building) = programs {
        building.wait()?;
    }
    println!("\n=== summary");
    for (name, ended, took) in &summary {
        println!("{name:16} {}", describe(ended, *took));
    }
    println!("all of it in {:.0} s", start.elapsed().as_secs_f32());
    let failed = summary
        .iter()
        .filter(|(_, ended, _)| matches!(ended, Ended::Failed(_)));
    match failed.count() {
        0 => Ok(()),
        n => Err(format!("{n} of {} checks failed", summary.len()).into()),
    }
}

fn describe(ended: &Ended, took: Duration) -> String {
    let seconds = took.as_secs_f32();
    match ended {
        Ended::Passed => format!("passed in {seconds:.1} s"),
        Ended::Failed(why) => format!("FAILED in {seconds:.1} s: {why}"),
        Ended::LeftOut(why) => format!("LEFT OUT: {why}"),
    }
}

/// Runs cargo in the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Ended {
    cargo_with(&[], arguments)
}

/// Runs cargo with these variables.
pub(crate) fn cargo_with(variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
    // Cargo tells the programs that it runs where it is itself.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for (name, value) in variables {
        print!("{name}={value} ");
    }
    println!("$ cargo {}", arguments.join(" "));
    ended(
        Command::new(cargo)
            .args(arguments)
            .envs(variables.iter().copied()),
    )
}

/// The tests have had a taste of the model; this is the meal. The planner is optimised in every profile, so that what
/// the tests were built from serves again.
fn whole_model() -> Ended {
    let variables = [
        ("ELASTI_MODEL_STATES", "1000000"),
        ("ELASTI_MODEL_WALKS", "1500"),
    ];
    let arguments = "test --workspace --test core -- --nocapture model::every_law_holds model::walks::long_random";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    cargo_with(&variables, &arguments)
}

/// Runs a command with its output for all to see.
pub(crate) fn ended(command: &mut Command) -> Ended {
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => Ended::Passed,
        Ok(status) => Ended::Failed(status.to_string()),
        Err(error) => Ended::Failed(error.to_string()),
    }
}
