//! The simulation of the resolver with its ledger: `cargo xtask simulate`.
//! It never judges a seed: the test does.

use std::error::Error;

use crate::checks::{Ended, cargo_with};

/// Runs as many seeds as a change to the resolver must survive.
pub(crate) fn check() -> Ended {
    simulation(None)
}

/// Runs what the command line asks for.
pub(crate) fn run(wish: &[&str]) -> Result<(), Box<dyn Error>> {
    let variable = match wish {
        [] => None,
        ["--seeds", number] => Some(("ELASTI_SIM_SEEDS", *number)),
        ["--seed", number] => Some(("ELASTI_SIM_SEED", *number)),
        _ => return Err("usage: cargo xtask simulate [--seeds N] [--seed K]".into()),
    };
    match simulation(variable) {
        Ended::Passed => Ok(()),
        Ended::Failed(why) | Ended::LeftOut(why) => Err(why.into()),
    }
}

fn simulation(variable: Option<(&str, &str)>) -> Ended {
    // The whole workspace, so that what the tests were built from serves again.
    let arguments =
        "test --workspace --features elasti-resolver/simulation --test simulation -- --nocapture";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    cargo_with(variable.as_slice(), &arguments)
}
