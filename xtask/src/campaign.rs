//! The crash campaign against the operator: `cargo xtask campaign`.
//! It never judges a run: the test does.

use std::error::Error;

use crate::checks::{Ended, cargo_with};

/// Runs all of it.
pub(crate) fn check() -> Ended {
    campaign(("ELASTI_CAMPAIGN_RUNS", "all"))
}

/// Runs what the command line asks for.
pub(crate) fn run(wish: &[&str]) -> Result<(), Box<dyn Error>> {
    let variable = match wish {
        [] => ("ELASTI_CAMPAIGN_RUNS", "all"),
        ["--runs", number] => ("ELASTI_CAMPAIGN_RUNS", *number),
        ["--only", part] => ("ELASTI_CAMPAIGN_ONLY", *part),
        _ => return Err("usage: cargo xtask campaign [--runs N] [--only TEXT]".into()),
    };
    match campaign(variable) {
        Ended::Passed => Ok(()),
        Ended::Failed(why) | Ended::LeftOut(why) => Err(why.into()),
    }
}

fn campaign(variable: (&str, &str)) -> Ended {
    // Most of a run is not our own code, which is optimised in every profile: a release build takes longer than it saves.
    // The whole workspace, so that what the tests were built from serves again.
    let arguments = "test --workspace --test campaign -- --nocapture";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    cargo_with(&[variable], &arguments)
}
