//! `elasti sleep`: requests sleep without the cooldown, and waits until the service is asleep.
//! Never scales anything itself: the operator redirects and drains as always, so that no request is lost.

use std::cell::{Cell, RefCell};

use clap::Args;
use elasti_api::names;
use elasti_view::progress::{self, Progress};
use elasti_view::view::View;
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::Patch;
use serde_json::json;

use crate::access::{Cluster, block_on};
use crate::choice::{Choice, Chosen};
use crate::follow::{End, WaitOptions, follow, seen, waiting_for};
use crate::outcome::{self, Outcome, Trial};
use crate::output::Output;
use crate::refusal::Call;
use crate::terminal::while_waiting;
use elasti_runtime::exit::{self, Failed};

/// Puts services to sleep now, without waiting for the cooldown.
///
/// It shortens only the cooldown: a service whose trigger is active, that has requests held or in flight, that is paused
/// or outside its active window stays awake, and the command says so. No request is lost. It needs permission to
/// patch elastiservices, and to list and watch them for --wait.
///
/// Example: elasti sleep --all -n staging
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Sleep {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    waiting: WaitOptions,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    output: Output,
}

impl Sleep {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(async {
            let cluster = self.choice.scope.access.connect().await?;
            let chosen = self.choice.chosen(&cluster).await?;
            let sleeps = chosen.iter().map(|one| self.sleep(&cluster, one));
            outcome::report(self.output, &join_all(sleeps).await)
        })
    }

    async fn sleep(&self, cluster: &Cluster, one: &Chosen) -> Outcome {
        let services = cluster.services_in(&one.namespace);
        let asked = |verb| Call::services(verb, Some(&one.namespace), Some(&one.name));
        let before = match services.get(&one.name).await {
            Ok(me) => seen(&me),
            Err(error) => return Outcome::failed(one, asked("get").refused(&error).to_string()),
        };
        match progress::of_sleep(&before, false) {
            Progress::Done => return Outcome::done(one, "already asleep"),
            // A request that cannot be fulfilled now must not be fulfilled later, when it is no longer expected.
            Progress::Failed(sentence) => {
                return Outcome::failed(one, cannot(&before, &sentence));
            }
            Progress::Going => {}
        }
        let at = progress::sleep_asked_at(&before, Timestamp::now());
        let user_request = json!({"metadata": {"annotations": {
            names::SLEEP_REQUESTED_ANNOTATION: at.to_string(),
            names::WAKE_REQUESTED_ANNOTATION: null,
        }}});
        let params = self.trial.params();
        if let Err(error) = services
            .patch(&one.name, &params, &Patch::Merge(&user_request))
            .await
        {
            return Outcome::failed(one, asked("patch").refused(&error).to_string());
        }
        if self.trial.is_dry() || !self.waiting.wait {
            return Outcome::done(one, self.trial.word("sleep requested"));
        }
        self.wait(cluster, one).await
    }

    async fn wait(&self, cluster: &Cluster, one: &Chosen) -> Outcome {
        let last = RefCell::new(None);
        let went_down = Cell::new(false);
        let judge = |view: &View| {
            went_down.set(went_down.get() || progress::goes_down(view));
            progress::of_sleep(view, went_down.get())
        };
        let following = follow(cluster, one, self.waiting.timeout, &last, judge);
        let what = || waiting_for(one, "going to sleep", &last);
        match while_waiting(what, following).await {
            Ok(End::Done) => Outcome::done(one, "asleep"),
            Ok(End::Failed(sentence)) => Outcome::failed(one, format!("stays awake: {sentence}")),
            Ok(End::TimedOut(last)) => {
                let state = last.map_or_else(String::new, |view| format!(": {}", view.sentence));
                let sentence = format!("not asleep after {:?}{state}", self.waiting.timeout);
                Outcome::failed(one, sentence)
            }
            Err(refusal) => Outcome::failed(one, refusal.to_string()),
        }
    }
}

/// Why it cannot sleep, and what would let it.
fn cannot(view: &View, sentence: &str) -> String {
    let name = &view.name;
    let namespace = &view.namespace;
    let hint = match view.paused {
        true => format!("\nResume it: elasti resume {name} -n {namespace}"),
        false => format!("\nSee: elasti why {name} -n {namespace}"),
    };
    format!("cannot sleep now: {sentence}{hint}")
}
