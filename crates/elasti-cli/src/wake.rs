//! `elasti wake`: requests a wake and waits until the service serves.

use clap::Args;
use elasti_api::names;
use elasti_view::progress::{self, Progress};
use elasti_view::view::View;
use jiff::Timestamp;

use crate::follow::End;
use crate::list::phase;
use crate::outcome::Outcome;
use crate::request::{Request, RequestOptions};
use crate::span::millis;
use elasti_runtime::exit::{self, Failed};

/// Wakes services and waits until each serves from its pods.
///
/// A service that is awake stays awake for at least another cooldown. If a pod cannot start, or the service goes back to
/// sleep before it serves, the command fails at once and says why. It needs permission to patch elastiservices, and to list and watch them for --wait.
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
    let before = progress::of_wake(&request.before().await?, false);
    let since = Timestamp::now();
    let (requested, withdrawn) = (
        names::WAKE_REQUESTED_ANNOTATION,
        names::SLEEP_REQUESTED_ANNOTATION,
    );
    request.annotate(requested, withdrawn, since).await?;
    match before {
        Progress::Done => return Ok(request.done(trial.word("already awake"))),
        Progress::Failed(sentence) => {
            return Err(failed(request, &sentence));
        }
        Progress::Going if request.ends_when_sent() => {
            return Ok(request.done(trial.word("wake requested")));
        }
        Progress::Going => {}
    }
    let mut went_up = false;
    let judge = |view: &View| {
        went_up |= progress::goes_up(view);
        progress::of_wake(view, went_up)
    };
    match request.wait("starting", judge).await? {
        End::Done => {
            let took = Timestamp::now().duration_since(since).as_millis();
            let took = millis(i64::try_from(took).unwrap_or(i64::MAX));
            Ok(request.done(format!("awake after {took}")))
        }
        End::Failed(sentence) => Err(failed(request, &sentence)),
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

/// The same words whether the cause was there before the request or is met while waiting.
fn failed(request: &Request<'_>, cause: &str) -> Outcome {
    request.failed(format!("cannot be woken: {cause}{}", request.see()))
}
