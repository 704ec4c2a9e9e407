//! `elasti visit`: the client of `elasti demo --real`, in a pod: sends requests and logs the outcome of each as JSON.
//! Never retries: a lost request must show as lost.

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

use elasti_runtime::exit::Failed;

/// Between two log lines before the first request.
const READY_INTERVAL: Duration = Duration::from_millis(50);
/// The container outlives its last line by this, so that its log can be read to the end.
const LINGER_TIME: Duration = Duration::from_secs(5);

/// A response of the app itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The pod's name, where the app reports it.
    pub pod: Option<String>,
    /// Whether the app saw the header that a resolver adds to what it forwards.
    pub through_resolver: bool,
}

/// A request without a complete response of the app.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lost {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Broken(String),
    /// No response in time.
    #[error("no response within {} ms", .0.as_millis())]
    Hung(Duration),
    /// A response that is not the app's.
    #[error("a response that is not the app's: {0}")]
    Foreign(String),
}

/// One GET on a connection of its own.
pub async fn visit(address: SocketAddr, path: &str, limit: Duration) -> Result<Answer, Lost> {
    let exchange = timeout(limit, exchange(address, path)).await;
    let text = exchange
        .map_err(|_| Lost::Hung(limit))?
        .map_err(|error| Lost::Broken(error.to_string()))?;
    parse_response(&text)
        .ok_or_else(|| Lost::Foreign(text.lines().next().unwrap_or("nothing").to_owned()))
}

async fn exchange(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The app echoes the request's header as JSON.
fn parse_response(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1)? != "200" {
        return None;
    }
    let echo: Value = serde_json::from_str(body).ok()?;
    let mut fields = echo.get("headers")?.as_object()?.keys();
    Some(Answer {
        pod: echo.get("pod").and_then(Value::as_str).map(str::to_owned),
        through_resolver: fields.any(|name| name.eq_ignore_ascii_case("x-forwarded-for")),
    })
}

/// One line of the visitor's log, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Milliseconds since the visitor started.
    pub at: u64,
    /// What happened.
    #[serde(rename = "word")]
    pub event: Event,
}

/// What the visitor logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// Logged until the first request, so that the reader learns when the visitor started.
    Here,
    /// A request was sent.
    Sent {
        /// Name of the service.
        service: String,
        /// Of the request, from 1.
        number: u64,
    },
    /// The app responded.
    Answered {
        /// Of the request.
        number: u64,
        /// The response.
        answer: Answer,
    },
    /// The request failed.
    Lost {
        /// Of the request.
        number: u64,
        /// How.
        lost: Lost,
    },
    /// Every request has ended.
    Done,
}

/// Sends requests and logs the outcome of each, one JSON object a line: the client of `elasti demo --real`.
#[derive(Args, Debug)]
#[command(hide = true)]
pub struct Visit {
    /// Services to call
    #[arg(required = true, value_name = "NAME=ADDRESS:PORT", value_parser = service)]
    services: Vec<(String, SocketAddr)>,
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

fn service(text: &str) -> Result<(String, SocketAddr), String> {
    text.split_once('=')
        .and_then(|(name, address)| Some((name.to_owned(), address.parse().ok()?)))
        .ok_or_else(|| "write NAME=ADDRESS:PORT".to_owned())
}

impl Visit {
    /// Sends the requests.
    pub fn run(self) -> Result<(), Failed> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("no runtime")?;
        Ok(runtime.block_on(self.send_all())?)
    }

    async fn send_all(self) -> anyhow::Result<()> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(self.after) {
            log(started, Event::Here);
            sleep(READY_INTERVAL).await;
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
            for (name, address) in &self.services {
                number += 1;
                let service = name.clone();
                log(started, Event::Sent { service, number });
                let (address, path) = (*address, self.path.clone());
                let limit = Duration::from_secs(self.patience);
                requests.spawn(async move {
                    let event = match visit(address, &path, limit).await {
                        Ok(answer) => Event::Answered { number, answer },
                        Err(lost) => Event::Lost { number, lost },
                    };
                    log(started, event);
                });
            }
        }
        while requests.join_next().await.is_some() {}
        log(started, Event::Done);
        sleep(LINGER_TIME).await;
        Ok(())
    }
}

fn log(started: Instant, event: Event) {
    let at = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let line = serde_json::to_string(&Line { at, event }).unwrap_or_default();
    // With the log closed there is nothing left to report to.
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::parse_response;

    #[test]
    fn only_the_apps_own_whole_answer_counts() {
        let body = r#"{"pod":"web-1","headers":{"x-forwarded-for":"127.0.0.1"}}"#;
        let answer = parse_response(&format!("HTTP/1.1 200 OK\r\na: b\r\n\r\n{body}")).unwrap();
        assert!(answer.through_resolver);
        assert_eq!(answer.pod.as_deref(), Some("web-1"));
        let nameless = r#"{"headers":{"X-Forwarded-For":["10.0.0.1"]}}"#;
        let answer = parse_response(&format!("HTTP/1.1 200 OK\r\n\r\n{nameless}")).unwrap();
        assert!(answer.through_resolver && answer.pod.is_none());
        assert!(parse_response(&format!("HTTP/1.1 503 No\r\n\r\n{body}")).is_none());
        assert!(parse_response(&format!("HTTP/1.1 200 OK\r\n\r\n{}", &body[..20])).is_none());
        assert!(parse_response("").is_none());
    }
}
