//! Sends spans to the collector in the background, many in one request.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::Settings;
use super::span::{Span, request};
use crate::metrics::Series;

/// Spans that wait, of about 500 bytes each.
const QUEUE_SIZE: usize = 4096;
/// Spans of one request, and how long the first of them waits for others.
const BATCH_SIZE: usize = 512;
const BATCH_TIME: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(5);
/// A collector that could not be reached is left alone for so long; spans are dropped meanwhile.
const AWAY_TIME: Duration = Duration::from_secs(5);
/// How long the end of the process waits for queued spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// How many spans have got through, and how many have not.
#[derive(Clone, Debug)]
pub struct Counts {
    /// The collector has taken them.
    pub sent: Arc<Series>,
    /// The queue was full, or the collector was away or refused them.
    pub dropped: Arc<Series>,
}

#[derive(Debug)]
enum Message {
    Span(Span),
    /// Nothing comes after this.
    Flush(oneshot::Sender<()>),
}

/// The way to the collector.
#[derive(Clone, Debug)]
pub struct Spans {
    messages: mpsc::Sender<Message>,
    counts: Counts,
}

impl Spans {
    /// Sends from now on, as `process`. Must be called inside a runtime.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn start(
        settings: Settings,
        process: &'static str,
        counts: Counts,
    ) -> reqwest::Result<Self> {
        crate::tls::install_provider();
        let Settings { endpoint, headers } = settings;
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .default_headers(headers.into_iter().collect::<HeaderMap>())
            .build()?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (messages, waiting) = mpsc::channel(QUEUE_SIZE);
        let collector = Collector {
            client,
            endpoint,
            process,
            host: host.trim().to_owned(),
            counts: counts.clone(),
        };
        tokio::spawn(collector.deliver(waiting));
        Ok(Self { messages, counts })
    }

    /// Queues a span, if there is room for one.
    pub fn put(&self, span: impl FnOnce() -> Span) {
        match self.messages.try_reserve() {
            Ok(place) => place.send(Message::Span(span())),
            Err(_) => self.counts.dropped.increment(),
        }
    }

    /// Waits until the queue is sent, but not for long.
    pub async fn end(&self) {
        let (flushed, ended) = oneshot::channel();
        let last = async {
            if self.messages.send(Message::Flush(flushed)).await.is_ok() {
                let _ = ended.await;
            }
        };
        let _ = timeout(FLUSH_TIMEOUT, last).await;
    }
}

/// A batch that is being collected.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    /// The process ends: nothing comes after it.
    last: Option<oneshot::Sender<()>>,
    /// Nothing can come after it.
    closed: bool,
}

impl Batch {
    async fn collect(waiting: &mut mpsc::Receiver<Message>) -> Self {
        let mut batch = Self::default();
        let Some(first) = waiting.recv().await else {
            batch.closed = true;
            return batch;
        };
        let until = Instant::now() + BATCH_TIME;
        let mut next = Some(first);
        loop {
            match next.take() {
                Some(Message::Span(span)) => batch.spans.push(span),
                Some(Message::Flush(flushed)) => batch.last = Some(flushed),
                None => batch.closed = true,
            }
            if batch.last.is_some() || batch.closed || batch.spans.len() >= BATCH_SIZE {
                return batch;
            }
            tokio::select! {
                message = waiting.recv() => next = message,
                () = sleep_until(until) => return batch,
            }
        }
    }
}

struct Collector {
    client: Client,
    endpoint: reqwest::Url,
    process: &'static str,
    host: String,
    counts: Counts,
}

impl Collector {
    async fn deliver(self, mut waiting: mpsc::Receiver<Message>) {
        let (mut away_until, mut reached) = (Instant::now(), true);
        loop {
            let Batch {
                spans,
                last,
                closed,
            } = Batch::collect(&mut waiting).await;
            let sent = if spans.is_empty() {
                Ok(())
            } else if Instant::now() < away_until {
                Err("it was away a moment ago".to_owned())
            } else {
                self.post(&spans).await
            };
            match sent {
                Ok(()) => {
                    self.counts.sent.add(spans.len());
                    reached |= !spans.is_empty();
                }
                Err(why) => {
                    self.counts.dropped.add(spans.len());
                    if Instant::now() >= away_until {
                        away_until = Instant::now() + AWAY_TIME;
                    }
                    if std::mem::replace(&mut reached, false) {
                        let host = self.endpoint.host_str();
                        tracing::warn!(host, why, "span export failed; spans dropped");
                    }
                }
            }
            if let Some(flushed) = last {
                let _ = flushed.send(());
                return;
            }
            if closed {
                return;
            }
        }
    }

    async fn post(&self, spans: &[Span]) -> Result<(), String> {
        let sent = self
            .client
            .post(self.endpoint.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(request(self.process, &self.host, spans))
            .send()
            .await;
        match sent {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(answer.status().to_string()),
            Err(error) => Err(error.without_url().to_string()),
        }
    }
}
