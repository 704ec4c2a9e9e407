//! `elasti wake`: requests a wake and waits until a pod is ready.

use clap::Args;
use elasti_api::names;
use elasti_view::progress::{self, Progress};
use jiff::Timestamp;

use crate::follow::End;
use crate::list::phase;
use crate::outcome::Outcome;
use crate::request::{Request, RequestOptions};
use crate::span::millis;
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
    options: RequestOptions,
}

impl Wake {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.options.run(&wake)
    }
}

async fn wake(request: &Request<'_>) -> Result<Outcome, Outcome> {
    let trial = request.options.trial;
    let before = progress::of_wake(&request.before().await?);
    let since = Timestamp::now();
    let (requested, withdrawn) = (
        names::WAKE_REQUESTED_ANNOTATION,
        names::SLEEP_REQUESTED_ANNOTATION,
    );
    request.annotate(requested, withdrawn, since).await?;
    match before {
        Progress::Done => return Ok(request.done(trial.word("already awake"))),
        Progress::Failed(sentence) => {
            let sentence = format!("cannot be woken: {sentence}{}", request.see());
            return Err(request.failed(sentence));
        }
        Progress::Going if request.ends_when_sent() => {
            return Ok(request.done(trial.word("wake requested")));
        }
        Progress::Going => {}
    }
    match request.wait("starting", progress::of_wake).await? {
        End::Done => {
            let took = Timestamp::now().duration_since(since).as_millis();
            let took = millis(i64::try_from(took).unwrap_or(i64::MAX));
            Ok(request.done(format!("awake after {took}")))
        }
        End::Failed(sentence) => Err(request.failed(sentence + &request.see())),
        End::TimedOut(last) => {
            let timeout = request.options.waiting.timeout;
            let state = last.map_or_else(String::new, |view| {
                format!("it is {}: {}", phase(&view), view.sentence)
            });
            let see = request.see();
            Err(request.failed(format!("not awake after {timeout:?}; {state}{see}")))
        }
    }
}
