//! The Prometheus trigger: one instant query, and whether the server was up for the whole cooldown.
//! Whatever is not one finite sample of a healthy server is unknown, with the reason: an error is never idleness.

mod answer;
mod series;
mod server;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::PrometheusTrigger;
use elasti_core::observed::Reading;
use futures::FutureExt as _;
use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, timeout_at};

use super::ReadRequest;
use super::address::Forbidden;
use server::{Clients, Lanes, Query, Server};

/// How often the uptime of the server is sampled within the cooldown, at least.
const UPTIME_SAMPLES: u64 = 10;
/// Prometheus' own default, and below the usual alert on a target that is down.
const UPTIME_STEP_MAX_SECONDS: u64 = 60;

/// Why a trigger gives no usable reading; each is one clause for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The trigger's settings cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Neither the trigger nor the operator names a server.
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
    /// The operator's settings do not list the server.
    #[error("the server is not one of elastiController.allowedPrometheusServers")]
    NotAllowed,
    /// No connection.
    #[error("the server cannot be reached")]
    Unreachable,
    /// No whole answer in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// It was not asked in time, or too late for an answer: others wait for it too.
    #[error("its turn to ask the server did not come in time")]
    NoTurn,
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
    /// Prometheus reports that it failed.
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
    WasDown {
        /// Its sample is below the threshold.
        quiet_now: bool,
    },
    /// The query for its uptime failed. That query is ours: what is said must not blame the user's.
    #[error("its uptime is not known: {}", uptime_message(.0))]
    Uptime(Box<QueryError>),
}

impl QueryError {
    /// The label in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::NoServer => "no-server",
            Self::BadAddress => "bad-address",
            Self::BadHeader(_) => "bad-header",
            Self::Forbidden(_) => "forbidden",
            Self::NotAllowed => "not-allowed",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::NoTurn => "no-turn",
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
            Self::WasDown { .. } => "was-down",
            Self::Uptime(_) => "uptime",
        }
    }
}

/// Answers with a reading, or with why there is none.
fn answer(request: ReadRequest, result: Result<Reading, QueryError>) {
    match result {
        Ok(reading) => request.answer(reading, ""),
        Err(error @ QueryError::NoTurn) => {
            request.not_read(error.to_string(), error.as_str());
        }
        Err(error) => {
            let why = error.to_string();
            let quiet_now = matches!(error, QueryError::WasDown { quiet_now: true });
            request.answer(Reading::Unknown { why, quiet_now }, error.as_str());
        }
    }
}

/// How Prometheus servers are reached.
#[derive(Clone, Debug, Default)]
pub struct PrometheusSettings {
    /// The server for triggers that name none. It is trusted: its address is not checked.
    pub server: Option<Url>,
    /// Sent to that server only.
    pub authorization: Option<HeaderValue>,
    /// The servers that triggers may name, beside that one; empty means any.
    pub allowed: Vec<Url>,
    /// Readings have values also where that header is sent.
    pub show_values: bool,
    /// Ask any address, loopback included: for tests and the simulated cluster only.
    pub any_address: bool,
}

/// All Prometheus servers that triggers name.
#[derive(Debug)]
pub struct Prometheus {
    clients: Arc<Clients>,
    servers: Mutex<Servers>,
}

/// The servers that are in use.
#[derive(Debug, Default)]
struct Servers {
    by_address: HashMap<Url, Arc<Server>>,
    /// By scheme, host and port: another path or parameter is no other server.
    lanes: HashMap<String, Arc<Lanes>>,
}

impl Servers {
    /// Those that are not in use have nothing to remember but an uptime.
    fn forget_unused(&mut self) {
        self.by_address
            .retain(|_, server| Arc::strong_count(server) > 1);
        self.lanes.retain(|_, lanes| Arc::strong_count(lanes) > 1);
    }

    fn get(&mut self, clients: &Arc<Clients>, url: &Url) -> Arc<Server> {
        if let Some(server) = self.by_address.get(url) {
            return server.clone();
        }
        let origin = url.origin().ascii_serialization();
        let lanes = self.lanes.entry(origin).or_insert_with(Lanes::new).clone();
        let server = Arc::new(Server::new(clients.clone(), url.clone(), lanes));
        self.by_address.insert(url.clone(), server.clone());
        server
    }
}

impl Prometheus {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(settings: PrometheusSettings) -> reqwest::Result<Self> {
        Ok(Self {
            clients: Arc::new(Clients::new(settings)?),
            servers: Mutex::default(),
        })
    }

    /// Reads many triggers, each by itself, so that a slow one delays no other; they wait for their turns in this order.
    pub(super) fn read_triggers(&self, requests: Vec<ReadRequest>) {
        let mut readings = Vec::with_capacity(requests.len());
        let mut servers = self.servers.lock();
        servers.forget_unused();
        for request in requests {
            match self.parse(&request) {
                Ok((url, trigger)) => {
                    let server = servers.get(&self.clients, &url);
                    readings.push(Box::pin(read(server, request, trigger)));
                }
                Err(error) => answer(request, Err(error)),
            }
        }
        drop(servers);
        for mut reading in readings {
            // It queues here, because tasks do not begin in the order in which they are spawned.
            if unconstrained(reading.as_mut()).now_or_never().is_none() {
                tokio::spawn(reading);
            }
        }
    }

    fn parse(&self, request: &ReadRequest) -> Result<(Url, PrometheusTrigger), QueryError> {
        let missing = || QueryError::Settings("the trigger is gone".into());
        let trigger = request.trigger().ok_or_else(missing)?;
        let trigger = trigger
            .prometheus()
            .map_err(|error| QueryError::Settings(error.0))?;
        let url = self.clients.url(trigger.server_address.as_deref())?;
        Ok((url, trigger))
    }
}

/// Reads one trigger, and gives up when it is too late. A server that is silent ends each query by itself, so that then the
/// time went by while it waited for its turn.
async fn read(server: Arc<Server>, request: ReadRequest, trigger: PrometheusTrigger) {
    let check = series::Check::begin(&server, &request, &trigger);
    let reading = timeout_at(request.deadline(), evaluate(&server, &request, trigger)).await;
    let reading = reading.unwrap_or(Err(QueryError::NoTurn));
    answer(request, reading);
    // Nothing waits for it: the request has been answered.
    if let Some(check) = check {
        check.run(&server).await;
    }
}

/// The reading that a sample gives, if the server was up for the whole cooldown. The uptime is asked for after the sample,
/// so that a server that restarts in between is noticed.
async fn evaluate(
    server: &Arc<Server>,
    request: &ReadRequest,
    trigger: PrometheusTrigger,
) -> Result<Reading, QueryError> {
    let PrometheusTrigger {
        headers,
        query,
        threshold,
        uptime_filter,
        ..
    } = trigger;
    let (urgent, headers) = (request.is_urgent(), Arc::new(headers));
    let query = Query {
        headers: headers.clone(),
        text: query.into(),
        namespace: request.namespace.clone(),
        urgent,
        completes: false,
    };
    let value = server.sample(query, request.requested_at).await?;
    let sampled_at = Instant::now();
    // One answer about the uptime serves all that are read meanwhile.
    sleep(request.slack()).await;
    let uptime = Query {
        headers: headers.clone(),
        text: uptime_query(&uptime_filter, request.cooldown).into(),
        namespace: request.namespace.clone(),
        urgent,
        completes: true,
    };
    let up = server.sample(uptime, sampled_at).await;
    let active = value >= threshold;
    if up.map_err(|error| QueryError::Uptime(Box::new(error)))? != 1.0 {
        return Err(QueryError::WasDown { quiet_now: !active });
    }
    // The author of an ElastiService chooses the query; what only the operator may read is not for everyone.
    let value = match server.hides_values(&headers) {
        true => f64::NAN,
        false => value,
    };
    Ok(match active {
        true => Reading::Active { value, threshold },
        false => Reading::Quiet { value, threshold },
    })
}

fn uptime_message(error: &QueryError) -> String {
    match error {
        QueryError::Empty
        | QueryError::Several
        | QueryError::NotAVector
        | QueryError::NotFinite => "no sample of `up`; check metadata.uptimeFilter".to_owned(),
        other => other.to_string(),
    }
}

/// 1 if the server was up all the time; a moment without the series counts as down.
/// The step is ours: without one Prometheus takes its global evaluation interval, 1 minute by default, and a shorter
/// cooldown holds no sample most of the time.
fn uptime_query(filter: &str, cooldown: Duration) -> String {
    let cooldown_seconds = cooldown.as_secs().max(1);
    let step_seconds = (cooldown_seconds / UPTIME_SAMPLES).clamp(1, UPTIME_STEP_MAX_SECONDS);
    format!(
        "min_over_time((max(up{{{filter}}}) or vector(0))[{cooldown_seconds}s:{step_seconds}s])"
    )
}
