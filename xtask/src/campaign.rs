//! The crash campaign against the operator: `cargo xtask campaign`.

use std::error::Error;

use crate::checks::{Outcome, cargo_with};

/// Runs all of it.
pub(crate) fn check() -> Outcome {
    campaign(("ELASTI_CAMPAIGN_RUNS", "all"))
}

/// Runs what the command line asks for.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let variable = match arguments {
        [] => ("ELASTI_CAMPAIGN_RUNS", "all"),
        ["--runs", number] => ("ELASTI_CAMPAIGN_RUNS", *number),
        ["--only", part] => ("ELASTI_CAMPAIGN_ONLY", *part),
        _ => return Err("usage: cargo xtask campaign [--runs N] [--only TEXT]".into()),
    };
    campaign(variable).into_result()
}

fn campaign(variable: (&str, &str)) -> Outcome {
    // Most of a run is not our own code, which is optimised in every profile: a release build takes longer than it saves.
    cargo_with(
        [variable],
        "test --workspace --test alone -- campaign:: --nocapture",
    )
}
