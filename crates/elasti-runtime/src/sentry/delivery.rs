//! Brings reports to Sentry, one after another, beside everything else.
//! Never makes anybody wait: a full outbox, a silent Sentry and too many reports lose reports, and nothing else.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::Settings;
use super::dsn::Dsn;
use super::report::{Letterhead, Report};
use crate::pace::Pace;

/// Reports that wait, of about 1 KiB each.
const OUTBOX: usize = 32;
/// Reports a second, and at once: an error that repeats says the same every time.
const PACE: (f64, f64) = (0.2, 20.0);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the process waits for reports that are on their way; there are none in most lives.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long Sentry is left alone when it says "too many" without saying how long.
const QUIET: Duration = Duration::from_secs(60);
const LONGEST_QUIET: Duration = Duration::from_secs(3600);

/// What is put into the outbox.
enum Letter {
    Report(Box<Report>),
    /// Nothing comes after this.
    Last(oneshot::Sender<()>),
}

/// Where reports are left.
pub(super) struct Outbox {
    letters: mpsc::Sender<Letter>,
    pace: Pace<()>,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbox")
    }
}

impl Outbox {
    /// Leaves a report, if there is room for one.
    pub(super) fn put(&self, report: impl FnOnce() -> Report) {
        if self.pace.allows(&()) {
            let _ = self.letters.try_send(Letter::Report(Box::new(report())));
        }
    }
}

/// The way to Sentry.
#[derive(Debug)]
#[must_use]
pub struct Delivery(Option<mpsc::Sender<Letter>>);

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
        let (letters, waiting) = mpsc::channel(OUTBOX);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let Settings { dsn, environment } = settings;
        let letterhead = Letterhead {
            process,
            environment,
            host: host.trim().to_owned(),
        };
        tokio::spawn(deliver(client, dsn, letterhead, waiting));
        let outbox = Outbox {
            letters: letters.clone(),
            pace: Pace::new(PACE, 1),
        };
        Ok((Self(Some(letters)), outbox))
    }

    /// Waits for what is on its way, but not for long.
    pub async fn end(self) {
        let Some(letters) = self.0 else { return };
        let (told, ended) = oneshot::channel();
        let last = async {
            if letters.send(Letter::Last(told)).await.is_ok() {
                let _ = ended.await;
            }
        };
        let _ = timeout(LAST_TIMEOUT, last).await;
    }
}

async fn deliver(
    client: Client,
    dsn: Dsn,
    letterhead: Letterhead,
    mut waiting: mpsc::Receiver<Letter>,
) {
    let mut quiet_until = Instant::now();
    let mut reached = true;
    while let Some(letter) = waiting.recv().await {
        let report = match letter {
            Letter::Report(report) => report,
            Letter::Last(told) => {
                let _ = told.send(());
                return;
            }
        };
        if Instant::now() < quiet_until {
            continue;
        }
        match post(&client, &dsn, &letterhead, &report).await {
            Sent::Taken => reached = true,
            Sent::NotNow(pause) => quiet_until = Instant::now() + pause,
            Sent::Lost(why) => {
                if reached {
                    let host = dsn.host();
                    tracing::warn!(host, why, "Sentry does not hear of an error");
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

async fn post(client: &Client, dsn: &Dsn, letterhead: &Letterhead, report: &Report) -> Sent {
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
        .body(report.envelope(letterhead, &id))
        .send()
        .await;
    match sent {
        Ok(answer) if answer.status().is_success() => Sent::Taken,
        Ok(answer) if answer.status() == StatusCode::TOO_MANY_REQUESTS => {
            let said = answer.headers().get(RETRY_AFTER);
            let seconds = said.and_then(|value| value.to_str().ok()?.parse().ok());
            let pause = seconds.map_or(QUIET, Duration::from_secs);
            Sent::NotNow(pause.min(LONGEST_QUIET))
        }
        Ok(answer) => Sent::Lost(answer.status().to_string()),
        Err(error) => Sent::Lost(error.without_url().to_string()),
    }
}
