//! Sends reports to Sentry in the background; a full queue, a silent Sentry or too many reports lose reports, nothing else.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::Settings;
use super::dsn::Dsn;
use super::report::{ProcessInfo, Report};
use crate::rate_limit::RateLimiter;

/// Reports that wait, of about 1 KiB each.
const QUEUE_SIZE: usize = 32;
/// Reports a second, and at once: an error that repeats says the same every time.
const RATE: (f64, f64) = (0.2, 20.0);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the process waits for queued reports; usually there are none.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long Sentry is left alone when it says "too many" without saying how long.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(60);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// What goes through the queue.
enum Message {
    Report(Box<Report>),
    /// Nothing comes after this.
    Flush(oneshot::Sender<()>),
}

/// The sending end of the queue.
pub(super) struct Outbox {
    messages: mpsc::Sender<Message>,
    rate: RateLimiter<()>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbox")
    }
}

impl Outbox {
    /// Queues a report, if there is room for one.
    pub(super) fn put(&self, report: impl FnOnce() -> Report) {
        if self.rate.allows(&()) {
            let _ = self.messages.try_send(Message::Report(Box::new(report())));
        }
    }
}

/// The way to Sentry.
#[derive(Debug)]
#[must_use]
pub struct Delivery(Option<mpsc::Sender<Message>>);

impl Delivery {
    pub(super) fn none() -> Self {
        Self(None)
    }

    pub(super) fn start(
        settings: Settings,
        process: &'static str,
    ) -> reqwest::Result<(Self, Outbox)> {
        crate::tls::install_provider();
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()?;
        let (messages, waiting) = mpsc::channel(QUEUE_SIZE);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let Settings { dsn, environment } = settings;
        let process_info = ProcessInfo {
            process,
            environment,
            host: host.trim().to_owned(),
        };
        tokio::spawn(deliver(client, dsn, process_info, waiting));
        let outbox = Outbox {
            messages: messages.clone(),
            rate: RateLimiter::new(RATE, 1),
        };
        Ok((Self(Some(messages)), outbox))
    }

    /// Waits until the queue is sent, but not for long.
    pub async fn end(self) {
        let Some(messages) = self.0 else { return };
        let (flushed, ended) = oneshot::channel();
        let last = async {
            if messages.send(Message::Flush(flushed)).await.is_ok() {
                let _ = ended.await;
            }
        };
        let _ = timeout(FLUSH_TIMEOUT, last).await;
    }
}

async fn deliver(
    client: Client,
    dsn: Dsn,
    process_info: ProcessInfo,
    mut waiting: mpsc::Receiver<Message>,
) {
    let mut quiet_until = Instant::now();
    let mut reached = true;
    while let Some(message) = waiting.recv().await {
        let report = match message {
            Message::Report(report) => report,
            Message::Flush(flushed) => {
                let _ = flushed.send(());
                return;
            }
        };
        if Instant::now() < quiet_until {
            continue;
        }
        match post(&client, &dsn, &process_info, &report).await {
            Sent::Taken => reached = true,
            Sent::NotNow(pause) => quiet_until = Instant::now() + pause,
            Sent::Lost(why) => {
                if reached {
                    let host = dsn.host();
                    tracing::warn!(host, why, "Sentry report lost");
                }
                reached = false;
            }
        }
    }
}

enum Sent {
    Taken,
    NotNow(Duration),
    Lost(String),
}

async fn post(client: &Client, dsn: &Dsn, process_info: &ProcessInfo, report: &Report) -> Sent {
    let mut id = [0_u8; 16];
    if aws_lc_rs::rand::fill(&mut id).is_err() {
        return Sent::Lost("no random number".into());
    }
    let id = format!("{:032x}", u128::from_be_bytes(id));
    let version = env!("CARGO_PKG_VERSION");
    let key = dsn.key();
    let auth = format!("Sentry sentry_version=7, sentry_client=elasti/{version}, sentry_key={key}");
    let sent = client
        .post(dsn.endpoint().clone())
        .header(CONTENT_TYPE, "application/x-sentry-envelope")
        .header("x-sentry-auth", auth)
        .body(report.envelope(process_info, &id))
        .send()
        .await;
    match sent {
        Ok(answer) if answer.status().is_success() => Sent::Taken,
        Ok(answer) if answer.status() == StatusCode::TOO_MANY_REQUESTS => {
            let said = answer.headers().get(RETRY_AFTER);
            let seconds = said.and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = seconds.map_or(RETRY_AFTER_DEFAULT, Duration::from_secs);
            Sent::NotNow(pause.min(RETRY_AFTER_MAX))
        }
        Ok(answer) => Sent::Lost(answer.status().to_string()),
        Err(error) => Sent::Lost(error.without_url().to_string()),
    }
}
