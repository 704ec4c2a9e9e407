//! The simulation of the resolver with its ledger: `cargo xtask simulate`.

use std::error::Error;

use crate::checks::{Outcome, cargo_with};

/// Runs as many seeds as a change to the resolver must survive.
pub(crate) fn check() -> Outcome {
    simulation(None)
}

/// Runs what the command line asks for.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let variable = match arguments {
        [] => None,
        ["--seeds", number] => Some(("ELASTI_SIM_SEEDS", *number)),
        ["--seed", number] => Some(("ELASTI_SIM_SEED", *number)),
        _ => return Err("usage: cargo xtask simulate [--seeds N] [--seed K]".into()),
    };
    simulation(variable).into_result()
}

fn simulation(variable: Option<(&str, &str)>) -> Outcome {
    cargo_with(
        variable,
        "test --workspace --features elasti-resolver/simulation --test simulation -- --nocapture",
    )
}
