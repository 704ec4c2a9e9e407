//! `elasti visit`: the visitor of `elasti demo --real`, in a pod: sends requests, and tells what became of each.
//! Never retries: what is lost is lost. Never ends with a request unaccounted for.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use elasti_runtime::signals::EndSignals;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::exit::Failed;

/// Between two words before the first request.
const HERE: Duration = Duration::from_millis(50);
/// After the last word the container stays so long, so that its log can be read to the end.
const LINGER: Duration = Duration::from_secs(5);

/// The app's own answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    /// The pod that says it answered; not every app says so.
    pub(crate) pod: Option<String>,
    /// Whether the app saw the fields that a resolver adds to what it forwards.
    pub(crate) through_resolver: bool,
}

/// A request without the app's own whole answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Lost {
    #[error("the connection failed: {0}")]
    Broken(String),
    #[error("no answer within {} ms", .0.as_millis())]
    Hung(Duration),
    #[error("an answer that is not the app's: {0}")]
    Foreign(String),
}

/// One GET on a connection of its own.
pub(crate) async fn visit(
    address: SocketAddr,
    path: &str,
    patience: Duration,
) -> Result<Answer, Lost> {
    let exchange = timeout(patience, exchange(address, path)).await;
    let text = exchange
        .map_err(|_| Lost::Hung(patience))?
        .map_err(|error| Lost::Broken(error.to_string()))?;
    read(&text).ok_or_else(|| Lost::Foreign(text.lines().next().unwrap_or("nothing").to_owned()))
}

async fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The app tells as JSON which header fields it was sent.
fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1)? != "200" {
        return None;
    }
    let told: Value = serde_json::from_str(body).ok()?;
    let mut fields = told.get("headers")?.as_object()?.keys();
    Some(Answer {
        pod: told.get("pod").and_then(Value::as_str).map(str::to_owned),
        through_resolver: fields.any(|name| name.eq_ignore_ascii_case("x-forwarded-for")),
    })
}

/// One line of the visitor's log, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Milliseconds since the visitor began.
    pub(crate) at: u64,
    pub(crate) word: Word,
}

/// What a visitor has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Word {
    /// It is about to set out: whoever reads this learns when it began.
    Here,
    /// A request is on its way.
    Sent {
        service: String,
        number: u64,
    },
    Answered {
        number: u64,
        answer: Answer,
    },
    Lost {
        number: u64,
        lost: Lost,
    },
    /// Every request has ended.
    Done,
}

/// Sends requests and tells what became of each, one JSON object a line: the visitor of `elasti demo --real`.
#[derive(Args, Debug)]
#[command(hide = true)]
pub(crate) struct Visit {
    /// Services to visit
    #[arg(required = true, value_name = "NAME=ADDRESS:PORT", value_parser = place)]
    places: Vec<(String, SocketAddr)>,
    /// Path of the requests
    #[arg(long, default_value = "/")]
    path: String,
    /// Rounds of requests; default: until SIGTERM
    #[arg(long)]
    rounds: Option<u64>,
    /// Time between two rounds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Time before the first round
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    after: u64,
    /// How long a request may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    patience: u64,
}

fn place(text: &str) -> Result<(String, SocketAddr), String> {
    text.split_once('=')
        .and_then(|(name, address)| Some((name.to_owned(), address.parse().ok()?)))
        .ok_or_else(|| "write NAME=ADDRESS:PORT".to_owned())
}

impl Visit {
    pub(crate) fn run(self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no runtime")?;
        Ok(runtime.block_on(self.until_done())?)
    }

    async fn until_done(self) -> anyhow::Result<()> {
        let mut signals = EndSignals::listen().context("signals cannot be taken over")?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(self.after) {
            tell(started, Word::Here);
            sleep(HERE).await;
        }
        let mut requests = JoinSet::new();
        let mut ticks = interval(Duration::from_millis(self.every));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut round, mut number) = (0, 0);
        while self.rounds.is_none_or(|rounds| round < rounds) {
            tokio::select! {
                () = signals.next() => break,
                _ = ticks.tick() => {}
                Some(_) = requests.join_next() => continue,
            }
            round += 1;
            for (name, address) in &self.places {
                number += 1;
                let service = name.clone();
                tell(started, Word::Sent { service, number });
                let (address, path) = (*address, self.path.clone());
                let patience = Duration::from_secs(self.patience);
                requests.spawn(async move {
                    let word = match visit(address, &path, patience).await {
                        Ok(answer) => Word::Answered { number, answer },
                        Err(lost) => Word::Lost { number, lost },
                    };
                    tell(started, word);
                });
            }
        }
        while requests.join_next().await.is_some() {}
        tell(started, Word::Done);
        sleep(LINGER).await;
        Ok(())
    }
}

fn tell(started: Instant, word: Word) {
    let at = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = serde_json::to_string(&Line { at, word }).unwrap_or_default();
    // Nobody listens: then nobody counts either.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::read;

    #[test]
    fn only_the_apps_own_whole_answer_counts() {
        let body = r#"{"pod":"web-1","headers":{"x-forwarded-for":"127.0.0.1"}}"#;
        let answer = read(&format!("HTTP/1.1 200 OK\r\na: b\r\n\r\n{body}")).unwrap();
        assert!(answer.through_resolver);
        assert_eq!(answer.pod.as_deref(), Some("web-1"));
        let nameless = r#"{"headers":{"X-Forwarded-For":["10.0.0.1"]}}"#;
        let answer = read(&format!("HTTP/1.1 200 OK\r\n\r\n{nameless}")).unwrap();
        assert!(answer.through_resolver && answer.pod.is_none());
        assert!(read(&format!("HTTP/1.1 503 No\r\n\r\n{body}")).is_none());
        assert!(read(&format!("HTTP/1.1 200 OK\r\n\r\n{}", &body[..20])).is_none());
        assert!(read("").is_none());
    }
}
