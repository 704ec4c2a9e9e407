//! Watches one ElastiService until a request is fulfilled, refused or timed out.

use std::cell::RefCell;
use std::time::Duration;

use elasti_api::ElastiService;
use elasti_core::schedule::GoDuration;
use elasti_view::progress::Progress;
use elasti_view::view::{Facts, Lookup, View, view};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::time::timeout;

use crate::access::Cluster;
use crate::choice::Chosen;
use crate::list::phase;
use crate::refusal::{self, Refusal};
use clap::{ArgAction, Args};

/// Watches end by themselves before the client gives them up.
const WATCH_SECONDS: u32 = 15;

/// Whether to wait, and how long.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitOptions {
    /// Wait for completion; --wait=false only sends the request
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) wait: bool,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) timeout: Duration,
}

fn time(text: &str) -> Result<Duration, String> {
    let read = text.parse::<GoDuration>();
    read.map(|read| read.0)
        .map_err(|_| "write a time such as 30s, 2m or 1h".to_owned())
}

/// How a request ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Fulfilled.
    Done,
    /// Refused, and why.
    Failed(String),
    /// Timed out; this is the last state seen.
    TimedOut(Option<Box<View>>),
}

/// The service as its ElastiService alone shows it.
pub(crate) fn seen(me: &ElastiService) -> View {
    view(Facts {
        me,
        target: &Lookup::Unknown,
        held: None,
        now: Timestamp::now(),
    })
}

/// Follows it until `judge` has a verdict.
pub(crate) async fn follow(
    cluster: &Cluster,
    one: &Chosen,
    limit: Duration,
    last: &RefCell<Option<View>>,
    judge: impl FnMut(&View) -> Progress,
) -> Result<End, Refusal> {
    match timeout(limit, verdict(cluster, one, last, judge)).await {
        Ok(verdict) => verdict,
        Err(_) => Ok(End::TimedOut(last.take().map(Box::new))),
    }
}

async fn verdict(
    cluster: &Cluster,
    one: &Chosen,
    last: &RefCell<Option<View>>,
    mut judge: impl FnMut(&View) -> Progress,
) -> Result<End, Refusal> {
    let services = cluster.services_in(&one.namespace);
    let only = watcher::Config::default()
        .timeout(WATCH_SECONDS)
        .fields(&format!("metadata.name={}", one.name));
    let events = watcher(services, only).default_backoff();
    tokio::pin!(events);
    loop {
        let me = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(me) | watcher::Event::InitApply(me))) => me,
            Ok(Some(watcher::Event::Delete(_))) => {
                return Ok(End::Failed("it was deleted".to_owned()));
            }
            Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => continue,
            Ok(None) => return Ok(End::Failed("the watch ended".to_owned())),
            Err(error) => match refusal::of_watch(&error, Some(&one.namespace)) {
                Some(refusal) if is_final(&refusal) => return Err(refusal),
                // The watcher tries again by itself.
                _ => continue,
            },
        };
        let view = seen(&me);
        let progress = judge(&view);
        *last.borrow_mut() = Some(view);
        match progress {
            Progress::Done => return Ok(End::Done),
            Progress::Failed(sentence) => return Ok(End::Failed(sentence)),
            Progress::Going => {}
        }
    }
}

/// What no second attempt changes.
fn is_final(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Forbidden(_) | Refusal::Unauthorized(_) | Refusal::NotInstalled
    )
}

/// What is waited for, in a line.
pub(crate) fn waiting_for(
    one: &Chosen,
    user_request: &str,
    last: &RefCell<Option<View>>,
) -> String {
    match &*last.borrow() {
        Some(view) => format!(
            "{} is {}, {user_request}: {}",
            one.name,
            phase(view),
            view.sentence
        ),
        None => format!("{} {user_request}", one.name),
    }
}
