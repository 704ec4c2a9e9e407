//! `elasti wake`: requests a wake and waits until a pod is ready.
//! Never scales anything itself: only the operator knows what else a wake needs.

use std::cell::RefCell;

use clap::Args;
use elasti_api::names;
use elasti_view::progress::{self, Progress};
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
use crate::span::millis;
use crate::terminal::while_waiting;
use elasti_runtime::exit::{self, Failed};

/// Wakes services and waits until each has a ready pod.
///
/// A service that is awake stays awake for at least another cooldown. If a pod cannot start, the command fails at once
/// and says why. It needs permission to patch elastiservices, and to list and watch them for --wait.
///
/// Example: elasti wake web -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Wake {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    waiting: WaitOptions,
    #[command(flatten)]
    trial: Trial,
    #[command(flatten)]
    output: Output,
}

impl Wake {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(async {
            let cluster = self.choice.scope.access.connect().await?;
            let chosen = self.choice.chosen(&cluster).await?;
            let wakes = chosen.iter().map(|one| self.wake(&cluster, one));
            outcome::report(self.output, &join_all(wakes).await)
        })
    }

    async fn wake(&self, cluster: &Cluster, one: &Chosen) -> Outcome {
        let services = cluster.services_in(&one.namespace);
        let asked = |verb| Call::services(verb, Some(&one.namespace), Some(&one.name));
        let before = match services.get(&one.name).await {
            Ok(me) => progress::of_wake(&seen(&me)),
            Err(error) => return Outcome::failed(one, asked("get").refused(&error).to_string()),
        };
        let since = Timestamp::now();
        let user_request = json!({"metadata": {"annotations": {
            names::WAKE_REQUESTED_ANNOTATION: since.to_string(),
            names::SLEEP_REQUESTED_ANNOTATION: null,
        }}});
        let params = self.trial.params();
        if let Err(error) = services
            .patch(&one.name, &params, &Patch::Merge(&user_request))
            .await
        {
            return Outcome::failed(one, asked("patch").refused(&error).to_string());
        }
        match before {
            Progress::Done => return Outcome::done(one, self.trial.word("already awake")),
            Progress::Failed(sentence) => {
                let sentence = format!("cannot be woken: {sentence}{}", see(one));
                return Outcome::failed(one, sentence);
            }
            Progress::Going if self.trial.is_dry() || !self.waiting.wait => {
                return Outcome::done(one, self.trial.word("wake requested"));
            }
            Progress::Going => {}
        }
        self.wait(cluster, one, since).await
    }

    async fn wait(&self, cluster: &Cluster, one: &Chosen, since: Timestamp) -> Outcome {
        let last = RefCell::new(None);
        let following = follow(cluster, one, self.waiting.timeout, &last, progress::of_wake);
        let what = || waiting_for(one, "starting", &last);
        match while_waiting(what, following).await {
            Ok(End::Done) => {
                let took = Timestamp::now().duration_since(since).as_millis();
                let took = millis(i64::try_from(took).unwrap_or(i64::MAX));
                Outcome::done(one, format!("awake after {took}"))
            }
            Ok(End::Failed(sentence)) => Outcome::failed(one, sentence + &see(one)),
            Ok(End::TimedOut(last)) => Outcome::failed(one, self.timed_out(one, last.as_deref())),
            Err(refusal) => Outcome::failed(one, refusal.to_string()),
        }
    }

    fn timed_out(&self, one: &Chosen, last: Option<&elasti_view::view::View>) -> String {
        let state = last.map_or_else(String::new, |view| {
            format!("it is {}: {}", crate::list::phase(view), view.sentence)
        });
        format!(
            "not awake after {:?}; {state}{}",
            self.waiting.timeout,
            see(one)
        )
    }
}

/// Where to find the cause.
fn see(one: &Chosen) -> String {
    format!("\nSee: elasti why {} -n {}", one.name, one.namespace)
}
