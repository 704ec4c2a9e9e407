//! What became of each ElastiService that a command was to change.

use clap::{Args, ValueEnum};
use kube::api::PatchParams;
use serde::Serialize;

use crate::choice::Chosen;
use crate::output::{Format, Output, print, resource_name};
use elasti_api::names;
use elasti_runtime::exit::Failed;

/// Whether to write at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Write
    #[default]
    None,
    /// Let the API server check everything and store nothing
    Server,
}

/// Whether to write at all.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    /// With `server` the API server checks the change and stores nothing
    #[arg(long, value_name = "MODE", default_value = "none")]
    pub(crate) dry_run: DryRun,
}

impl Trial {
    pub(crate) fn is_dry(self) -> bool {
        self.dry_run == DryRun::Server
    }

    /// How to write, in the command line's name.
    pub(crate) fn params(self) -> PatchParams {
        PatchParams {
            dry_run: self.is_dry(),
            ..PatchParams::apply(names::CLI_FIELD_MANAGER)
        }
    }

    /// The word for what was done, or would have been.
    pub(crate) fn word(self, word: &str) -> String {
        match self.is_dry() {
            true => format!("{word} (server dry run)"),
            false => word.to_owned(),
        }
    }
}

/// What became of one ElastiService.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether it is now as it was asked for.
    pub(crate) done: bool,
    /// In a few words, for example `paused` or `already awake`; or a sentence that says what went wrong.
    pub(crate) result: String,
}

impl Outcome {
    pub(crate) fn done(of: &Chosen, result: impl Into<String>) -> Self {
        Self {
            namespace: of.namespace.clone(),
            name: of.name.clone(),
            done: true,
            result: result.into(),
        }
    }

    pub(crate) fn failed(of: &Chosen, sentence: impl Into<String>) -> Self {
        Self {
            done: false,
            ..Self::done(of, sentence)
        }
    }
}

/// All of them, as data.
#[derive(Debug, Serialize)]
struct Outcomes<'a> {
    items: &'a [Outcome],
}

/// Prints every outcome; fails if one of them failed.
pub(crate) fn report(output: Output, outcomes: &[Outcome]) -> Result<(), Failed> {
    match output.format {
        Some(Format::Json | Format::Yaml) => output.data(&Outcomes { items: outcomes })?,
        Some(Format::Name) => {
            let done = outcomes.iter().filter(|one| one.done);
            print(
                &done
                    .map(|one| resource_name(&one.name) + "\n")
                    .collect::<String>(),
            )?;
        }
        None | Some(Format::Wide) => {
            let done = outcomes.iter().filter(|one| one.done);
            let line = |one: &Outcome| format!("{} {}\n", resource_name(&one.name), one.result);
            print(&done.map(line).collect::<String>())?;
        }
    }
    let failed: Vec<&Outcome> = outcomes.iter().filter(|one| !one.done).collect();
    for one in &failed {
        eprintln!("elasti: {}/{}: {}", one.namespace, one.name, one.result);
    }
    if outcomes.is_empty() && output.is_text() {
        eprintln!("elasti: no ElastiService found; see: elasti list -A");
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failed::Reported),
    }
}
