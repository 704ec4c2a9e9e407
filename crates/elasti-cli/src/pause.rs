//! `elasti pause` and `elasti resume`: whether a service may be put to sleep.
//! They never wake and never put to sleep: a paused service that sleeps still wakes with its first request.

use clap::Args;
use elasti_api::ElastiService;
use kube::api::Patch;
use serde_json::json;

use crate::access::{Cluster, block_on};
use crate::choice::{Choice, Chosen};
use crate::outcome::{self, Outcome, Trial};
use crate::output::Output;
use crate::refusal::Asked;
use elasti_runtime::exit::{self, Failed};

/// Keeps services from being put to sleep, until `elasti resume`.
///
/// Sets `spec.paused`. A service that sleeps already goes on sleeping and wakes with its first request; then it stays
/// awake. Where Git is the source of your manifests, write `paused: true` there instead.
///
/// Example: elasti pause web -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Pause {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    output: Output,
}

/// Lets paused services be put to sleep again.
///
/// Takes `spec.paused` back. The cooldown counts from the last use, so a service that has been quiet for long may be
/// put to sleep at once.
///
/// Example: elasti resume --all -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Resume {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    output: Output,
}

impl Pause {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(set(&self.choice, self.trial, self.output, true))
    }
}

impl Resume {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(set(&self.choice, self.trial, self.output, false))
    }
}

async fn set(choice: &Choice, trial: Trial, output: Output, paused: bool) -> Result<(), Failed> {
    let cluster = choice.scope.access.connect().await?;
    let mut outcomes = Vec::new();
    for one in choice.chosen(&cluster).await? {
        outcomes.push(set_one(&cluster, &one, trial, paused).await);
    }
    outcome::tell(output, &outcomes)
}

async fn set_one(cluster: &Cluster, one: &Chosen, trial: Trial, paused: bool) -> Outcome {
    let services = cluster.services_in(&one.namespace);
    let asked = |verb| Asked::services(verb, Some(&one.namespace), Some(&one.name));
    let before = match services.get(&one.name).await {
        Ok(service) => service,
        Err(error) => return Outcome::failed(one, asked("get").refused(&error).to_string()),
    };
    let word = match paused {
        true => "paused",
        false => "resumed",
    };
    if is_paused(&before) == paused {
        return Outcome::done(
            one,
            format!("already {}", if paused { "paused" } else { "not paused" }),
        );
    }
    // Taken back, the field is not there: as if it had never been written.
    let value = paused.then_some(true);
    let patch = Patch::Merge(json!({"spec": {"paused": value}}));
    match services.patch(&one.name, &trial.params(), &patch).await {
        Ok(_) => Outcome::done(one, trial.word(word)),
        Err(error) => Outcome::failed(one, asked("patch").refused(&error).to_string()),
    }
}

fn is_paused(service: &ElastiService) -> bool {
    service.spec.paused == Some(true)
}
