//! `elasti wake`: asks for a wake, and waits until a pod is ready.
//! It never scales anything itself: the operator does, so that nothing it knows is passed by.

use std::cell::RefCell;

use clap::Args;
use elasti_api::names;
use elasti_core::progress::{self, Progress};
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::Patch;
use serde_json::json;

use crate::access::{Cluster, block_on};
use crate::choice::{Choice, Chosen};
use crate::follow::{End, Patience, follow, seen, waiting_for};
use crate::outcome::{self, Outcome, Trial};
use crate::output::Output;
use crate::refusal::Asked;
use crate::span::millis;
use crate::terminal::while_waiting;
use elasti_runtime::exit::{self, Failed};

/// Wakes services and waits until each has a ready pod.
///
/// A service that is awake stays awake for at least another cooldown. If a pod cannot start, the command ends at once
/// and says why. It needs the right to patch elastiservices, and to list and watch them for --wait.
///
/// Example: elasti wake web -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Wake {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    patience: Patience,
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
            outcome::tell(self.output, &join_all(wakes).await)
        })
    }

    async fn wake(&self, cluster: &Cluster, one: &Chosen) -> Outcome {
        let services = cluster.services_in(&one.namespace);
        let asked = |verb| Asked::services(verb, Some(&one.namespace), Some(&one.name));
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
                let sentence = format!("it cannot be woken: {sentence}{}", see(one));
                return Outcome::failed(one, sentence);
            }
            Progress::Going if self.trial.is_dry() || !self.patience.wait => {
                return Outcome::done(one, self.trial.word("asked to wake"));
            }
            Progress::Going => {}
        }
        self.wait(cluster, one, since).await
    }

    async fn wait(&self, cluster: &Cluster, one: &Chosen, since: Timestamp) -> Outcome {
        let last = RefCell::new(None);
        let following = follow(
            cluster,
            one,
            self.patience.timeout,
            &last,
            progress::of_wake,
        );
        let what = || waiting_for(one, "on its way up", &last);
        match while_waiting(what, following).await {
            Ok(End::Done) => {
                let took = Timestamp::now().duration_since(since).as_millis();
                let took = millis(i64::try_from(took).unwrap_or(i64::MAX));
                Outcome::done(one, format!("awake after {took}"))
            }
            Ok(End::Failed(sentence)) => Outcome::failed(one, sentence + &see(one)),
            Ok(End::Late(last)) => Outcome::failed(one, self.late(one, last.as_deref())),
            Err(refusal) => Outcome::failed(one, refusal.to_string()),
        }
    }

    fn late(&self, one: &Chosen, last: Option<&elasti_core::view::View>) -> String {
        let state = last.map_or_else(String::new, |view| {
            format!("it is {}: {}", crate::list::phase(view), view.sentence)
        });
        format!(
            "not awake after {:?}; {state}{}",
            self.patience.timeout,
            see(one)
        )
    }
}

/// Where the cause is told.
fn see(one: &Chosen) -> String {
    format!("\nSee: elasti why {} -n {}", one.name, one.namespace)
}
