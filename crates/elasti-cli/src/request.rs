//! What `elasti sleep` and `elasti wake` share: a request in an annotation, and the wait until it is fulfilled.
//! Never scales anything: the operator redirects, drains and wakes as always, so that no request is lost.

use std::cell::RefCell;

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
use elasti_runtime::exit::Failed;

/// Which services, and what to wait for.
#[derive(Args, Debug)]
pub(crate) struct RequestOptions {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    pub(crate) waiting: WaitOptions,
    #[command(flatten)]
    pub(crate) trial: Trial,
    #[command(flatten)]
    output: Output,
}

impl RequestOptions {
    /// Sends a request for each service that was chosen, all at once, and reports what became of them.
    pub(crate) fn run(
        &self,
        send: &impl AsyncFn(&Request<'_>) -> Result<Outcome, Outcome>,
    ) -> Result<(), Failed> {
        block_on(async {
            let cluster = self.choice.scope.access.connect().await?;
            let chosen = self.choice.chosen(&cluster).await?;
            let requests = chosen.iter().map(|one| Request {
                options: self,
                cluster: &cluster,
                one,
            });
            let sent = requests.map(async |request| send(&request).await.unwrap_or_else(|f| f));
            outcome::report(self.output, &join_all(sent).await)
        })
    }
}

/// Sends a request for one service without waiting for it; gives a sentence for the user.
pub(crate) async fn send(cluster: &Cluster, one: &Chosen, view: &View, wake: bool) -> String {
    let name = &one.name;
    let now = Timestamp::now();
    let (wakes, sleeps) = (
        names::WAKE_REQUESTED_ANNOTATION,
        names::SLEEP_REQUESTED_ANNOTATION,
    );
    let annotations = match (wake, progress::of_sleep(view, false)) {
        (true, _) => json!({wakes: now.to_string(), sleeps: null}),
        (false, Progress::Done) => return format!("{name}: already asleep"),
        (false, Progress::Failed(sentence)) => {
            return format!("{name} cannot sleep now: {sentence}");
        }
        (false, Progress::Going) => {
            let at = progress::sleep_asked_at(view, now);
            json!({sleeps: at.to_string(), wakes: null})
        }
    };
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let services = cluster.services_in(&one.namespace);
    match services
        .patch(name, &Trial::default().params(), &patch)
        .await
    {
        Ok(_) if wake => format!("{name}: wake requested"),
        Ok(_) => format!("{name}: sleep requested"),
        Err(error) => {
            let call = Call::services("patch", Some(&one.namespace), Some(name));
            let refusal = call.refused(&error).to_string();
            format!("{name}: {}", refusal.lines().next().unwrap_or_default())
        }
    }
}

/// A request for one service. Methods that fail return what to report.
pub(crate) struct Request<'a> {
    pub(crate) options: &'a RequestOptions,
    cluster: &'a Cluster,
    one: &'a Chosen,
}

impl Request<'_> {
    pub(crate) fn done(&self, result: impl Into<String>) -> Outcome {
        Outcome::done(self.one, result)
    }

    pub(crate) fn failed(&self, sentence: impl Into<String>) -> Outcome {
        Outcome::failed(self.one, sentence)
    }

    fn refused(&self, verb: &'static str, error: &kube::Error) -> Outcome {
        let call = Call::services(verb, Some(&self.one.namespace), Some(&self.one.name));
        self.failed(call.refused(error).to_string())
    }

    /// Where to find the cause.
    pub(crate) fn see(&self) -> String {
        let Chosen { namespace, name } = self.one;
        format!("\nSee: elasti why {name} -n {namespace}")
    }

    /// The service as it is before the request.
    pub(crate) async fn before(&self) -> Result<View, Outcome> {
        let services = self.cluster.services_in(&self.one.namespace);
        let me = services.get(&self.one.name).await;
        me.map(|me| seen(&me))
            .map_err(|error| self.refused("get", &error))
    }

    /// Writes one annotation and removes the one that asks for the opposite.
    pub(crate) async fn annotate(
        &self,
        requested: &str,
        withdrawn: &str,
        at: Timestamp,
    ) -> Result<(), Outcome> {
        let services = self.cluster.services_in(&self.one.namespace);
        let annotations = json!({requested: at.to_string(), withdrawn: null});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let params = self.options.trial.params();
        let patched = services.patch(&self.one.name, &params, &patch).await;
        patched
            .map(drop)
            .map_err(|error| self.refused("patch", &error))
    }

    /// Whether nothing is waited for.
    pub(crate) fn ends_when_sent(&self) -> bool {
        self.options.trial.is_dry() || !self.options.waiting.wait
    }

    /// Waits until `judge` has a verdict, and says meanwhile what for.
    pub(crate) async fn wait(
        &self,
        what: &str,
        judge: impl FnMut(&View) -> Progress,
    ) -> Result<End, Outcome> {
        let last = RefCell::new(None);
        let timeout = self.options.waiting.timeout;
        let following = follow(self.cluster, self.one, timeout, &last, judge);
        let line = || waiting_for(self.one, what, &last);
        let end = while_waiting(line, following).await;
        end.map_err(|refusal| self.failed(refusal.to_string()))
    }
}
