//! The Prometheus trigger: one instant query, and whether the server was up for the whole cooldown.
//! Never takes doubt for idle: whatever is not one finite sample of a healthy server is unknown, with the reason.

mod answer;
mod server;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::PrometheusTrigger;
use elasti_core::observed::Reading;
use futures::future::join_all;
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::time::Instant;

use super::Ask;
use super::address::Forbidden;
use server::{Clients, Server};

/// Why a trigger gives no usable reading; each is one clause for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// The trigger's settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Nobody says which server to ask.
    #[error(
        "no server is known; set metadata.serverAddress, or the operator's PROMETHEUS_TRIGGER_SERVER_ADDRESS"
    )]
    NoServer,
    /// The server's address cannot be read.
    #[error("metadata.serverAddress is not an http or https address")]
    BadAddress,
    /// A header cannot be sent.
    #[error("metadata.headers.{0} cannot be sent")]
    BadHeader(String),
    /// The server's address is off limits.
    #[error("the server is not asked, because {0}")]
    Forbidden(Forbidden),
    /// No connection.
    #[error("the server cannot be reached")]
    Unreachable,
    /// No whole answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// Another code than 200.
    #[error("the server answered with code {0}")]
    Status(u16),
    /// The answer has no end.
    #[error("the answer is too large")]
    TooLarge,
    /// The connection ended within the answer.
    #[error("the answer ended early")]
    CutShort,
    /// The answer is not what Prometheus documents.
    #[error("the answer is not that of a Prometheus server")]
    NotAnAnswer,
    /// Prometheus says that it failed.
    #[error("the server could not evaluate the query")]
    Failed,
    /// Part of the data may be missing.
    #[error("the server warns that its answer may be incomplete")]
    Warned,
    /// A scalar, a string or a matrix.
    #[error("the query does not give an instant vector; put vector(...) around a scalar")]
    NotAVector,
    /// No series.
    #[error("the query gives no series; add `or vector(0)` if that means idle")]
    Empty,
    /// More than one series.
    #[error("the query gives several series; put sum(...) around it")]
    Several,
    /// NaN or an infinity.
    #[error("the query gives a value that is not a finite number")]
    NotFinite,
    /// The server was down for a part of the cooldown, or has no such uptime series.
    #[error(
        "the server was not up for the whole cooldown, or metadata.uptimeFilter does not find it"
    )]
    WasDown,
    /// The question for its uptime failed.
    #[error("its uptime is not known: {0}")]
    Uptime(Box<Doubt>),
}

impl Doubt {
    /// One word of a closed list, for metrics.
    fn word(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::NoServer => "no-server",
            Self::BadAddress => "bad-address",
            Self::BadHeader(_) => "bad-header",
            Self::Forbidden(_) => "forbidden",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::Status(_) => "status",
            Self::TooLarge => "too-large",
            Self::CutShort => "cut-short",
            Self::NotAnAnswer => "not-an-answer",
            Self::Failed => "failed",
            Self::Warned => "warned",
            Self::NotAVector => "not-a-vector",
            Self::Empty => "empty",
            Self::Several => "several",
            Self::NotFinite => "not-finite",
            Self::WasDown => "was-down",
            Self::Uptime(_) => "uptime",
        }
    }
}

/// Tells who asked what was read, or why nothing was.
fn tell(ask: Ask, read: Result<Reading, Doubt>) {
    match read {
        Ok(reading) => ask.answer(reading, ""),
        Err(doubt) => {
            let why = doubt.to_string();
            ask.answer(Reading::Unknown { why }, doubt.word());
        }
    }
}

/// How the operator was told to ask.
#[derive(Clone, Debug, Default)]
pub struct PrometheusSettings {
    /// The server for triggers that name none. It is trusted: its address is not checked.
    pub server: Option<Url>,
    /// Sent to that server only.
    pub authorization: Option<HeaderValue>,
    /// Ask any address, loopback included: for tests and the simulated cluster only.
    pub any_address: bool,
}

/// All Prometheus servers that triggers name.
#[derive(Debug)]
pub struct Prometheus {
    clients: Arc<Clients>,
    servers: Mutex<HashMap<Url, Arc<Server>>>,
}

impl Prometheus {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(settings: PrometheusSettings) -> reqwest::Result<Self> {
        let PrometheusSettings {
            server,
            authorization,
            any_address,
        } = settings;
        Ok(Self {
            clients: Arc::new(Clients::new(server, authorization, any_address)?),
            servers: Mutex::default(),
        })
    }

    /// Reads many triggers, each server by itself, so that a silent one delays only its own.
    pub(super) fn read(&self, asks: Vec<Ask>) {
        let mut groups: HashMap<Url, Vec<Question>> = HashMap::new();
        for ask in asks {
            match self.question(&ask) {
                Ok((url, trigger)) => {
                    let question = Question { ask, trigger };
                    groups.entry(url).or_default().push(question);
                }
                Err(doubt) => tell(ask, Err(doubt)),
            }
        }
        for (url, questions) in groups {
            tokio::spawn(read_server(self.server(&url), questions));
        }
    }

    fn question(&self, ask: &Ask) -> Result<(Url, PrometheusTrigger), Doubt> {
        let trigger = ask
            .trigger
            .prometheus()
            .map_err(|error| Doubt::Settings(error.0))?;
        let url = self.clients.url(trigger.server_address.as_deref())?;
        Ok((url, trigger))
    }

    fn server(&self, url: &Url) -> Arc<Server> {
        let mut servers = self.servers.lock();
        // Those that nobody asks just now have nothing to remember but an uptime.
        servers.retain(|known, server| known == url || Arc::strong_count(server) > 1);
        let new = || Arc::new(Server::new(self.clients.clone(), url.clone()));
        servers.entry(url.clone()).or_insert_with(new).clone()
    }
}

/// One trigger to be read.
struct Question {
    ask: Ask,
    trigger: PrometheusTrigger,
}

/// Reads all triggers of one server: first every query, then each uptime once. In this order a server that restarts
/// in between is noticed.
async fn read_server(server: Arc<Server>, questions: Vec<Question>) {
    let samples = join_all(questions.iter().map(|question| {
        let PrometheusTrigger { headers, query, .. } = &question.trigger;
        server.query(headers, query)
    }));
    let samples = samples.await;
    let queried = Instant::now();
    let answered = questions
        .into_iter()
        .zip(samples)
        .map(async |(question, sample)| {
            let read = judge(&server, &question, sample, queried).await;
            tell(question.ask, read);
        });
    join_all(answered).await;
}

async fn judge(
    server: &Server,
    question: &Question,
    sample: Result<f64, Doubt>,
    queried: Instant,
) -> Result<Reading, Doubt> {
    let Question { ask, trigger } = question;
    let (value, threshold) = (sample?, trigger.threshold);
    let query = uptime_query(&trigger.uptime_filter, ask.cooldown);
    let up = server.uptime(&trigger.headers, &query, queried).await;
    if up.map_err(|doubt| Doubt::Uptime(Box::new(doubt)))? != 1.0 {
        return Err(Doubt::WasDown);
    }
    Ok(if value >= threshold {
        Reading::Active { value, threshold }
    } else {
        Reading::Quiet { value, threshold }
    })
}

/// 1 if the server was up all the time; a moment without the series counts as down.
fn uptime_query(filter: &str, cooldown: Duration) -> String {
    format!(
        "min_over_time((max(up{{{filter}}}) or vector(0))[{}s:])",
        cooldown.as_secs()
    )
}
