//! `elasti sleep`: requests sleep without the cooldown, and waits until the service is asleep.

use clap::Args;
use elasti_api::names;
use elasti_view::progress::{self, Progress};
use elasti_view::view::View;
use jiff::Timestamp;

use crate::follow::End;
use crate::outcome::Outcome;
use crate::request::{Request, RequestOptions};
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
    options: RequestOptions,
}

impl Sleep {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.options.run(&sleep)
    }
}

async fn sleep(request: &Request<'_>) -> Result<Outcome, Outcome> {
    let before = request.before().await?;
    match progress::of_sleep(&before, false) {
        Progress::Done => return Ok(request.done("already asleep")),
        // A request that cannot be fulfilled now must not be fulfilled later, when it is no longer expected.
        Progress::Failed(sentence) => {
            return Err(request.failed(cannot(request, &before, &sentence)));
        }
        Progress::Going => {}
    }
    let at = progress::sleep_asked_at(&before, Timestamp::now());
    let (requested, withdrawn) = (
        names::SLEEP_REQUESTED_ANNOTATION,
        names::WAKE_REQUESTED_ANNOTATION,
    );
    request.annotate(requested, withdrawn, at).await?;
    if request.ends_when_sent() {
        return Ok(request.done(request.options.trial.word("sleep requested")));
    }
    let mut went_down = false;
    let judge = |view: &View| {
        went_down |= progress::goes_down(view);
        progress::of_sleep(view, went_down)
    };
    match request.wait("going to sleep", judge).await? {
        End::Done => Ok(request.done("asleep")),
        End::Failed(sentence) => Err(request.failed(format!("stays awake: {sentence}"))),
        End::TimedOut(last) => {
            let state = last.map_or_else(String::new, |view| format!(": {}", view.sentence));
            let timeout = request.options.waiting.timeout;
            Err(request.failed(format!("not asleep after {timeout:?}{state}")))
        }
    }
}

/// Why it cannot sleep, and what would let it.
fn cannot(request: &Request<'_>, view: &View, sentence: &str) -> String {
    let hint = match view.paused {
        true => format!(
            "\nResume it: elasti resume {} -n {}",
            view.name, view.namespace
        ),
        false => request.see(),
    };
    format!("cannot sleep now: {sentence}{hint}")
}
