//! `elasti pause` and `elasti resume`: whether a service may be put to sleep.

use clap::Args;
use elasti_api::ElastiService;
use kube::api::Patch;
use serde_json::json;

use crate::access::{Cluster, block_on};
use crate::choice::{Choice, Chosen};
use crate::outcome::{self, Outcome, Trial};
use crate::output::Output;
use crate::refusal::Call;
use elasti_runtime::exit::{self, Failed};

/// Keeps services awake until `elasti resume`.
///
/// Sets `spec.paused`. A service that is already asleep stays asleep until its first request; then it stays
/// awake. If Git is the source of your manifests, set `paused: true` there instead.
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
/// Removes `spec.paused`. The cooldown counts from the last request, so a service that has been quiet for a while may
/// be put to sleep at once.
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
    outcome::report(output, &outcomes)
}

async fn set_one(cluster: &Cluster, one: &Chosen, trial: Trial, paused: bool) -> Outcome {
    let services = cluster.services_in(&one.namespace);
    let asked = |verb| Call::services(verb, Some(&one.namespace), Some(&one.name));
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
            if paused {
                "already paused"
            } else {
                "not paused"
            },
        );
    }
    // Null removes the field.
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
