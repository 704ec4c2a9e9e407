//! Queries to one Prometheus server, bounded in time, bytes and connections. No redirect is followed and no body is
//! unpacked: a tenant's server must not lead the operator to an address that `address.rs` forbids, or fill its memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use tokio::time::{Instant, timeout};

use super::{PrometheusSettings, QueryError, answer};
use crate::triggers::address::{self, CheckedNames};
use elasti_runtime::lane::Lane;

/// One query, from the first packet to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One series with 60 labels of 256 bytes is 15 KiB.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Shorter than servers and balancers keep a connection, so that none is used that is just being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Queries of rounds to one server at a time; Prometheus evaluates 20. One namespace alone gets half.
const ROUND_QUERIES: usize = 12;
/// The same of what decisions wait for.
const URGENT_QUERIES: usize = 4;
/// Queries of rounds to all servers at a time, and those of one namespace among them: addresses cost nothing, and each
/// that does not answer keeps a socket for as long as a query may take.
const ROUND_QUERIES_EVERYWHERE: (usize, usize) = (256, ROUND_QUERIES);
/// The same of what decisions wait for.
const URGENT_QUERIES_EVERYWHERE: (usize, usize) = (64, URGENT_QUERIES);
/// After so many queries of a namespace in a row without any answer, those that queue are not sent any more.
const GIVE_UP_AFTER: usize = ROUND_QUERIES / 2;
/// An answer that was not asked for again is forgotten.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);
/// With fewer answers their age does not matter.
const MIN_ANSWERS: usize = 64;
/// Headers that describe the connection, not the query.
const FORBIDDEN_HEADERS: [&str; 8] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
];

/// Extra headers of a query, by name.
pub(super) type Headers = BTreeMap<String, String>;

/// How servers are reached.
#[derive(Debug)]
pub(super) struct Clients {
    settings: PrometheusSettings,
    checked: Client,
    trusted: Client,
    /// Permits for all servers.
    rounds: Arc<Lane>,
    urgent: Arc<Lane>,
}

impl Clients {
    pub(super) fn new(settings: PrometheusSettings) -> reqwest::Result<Self> {
        elasti_runtime::tls::install_provider();
        Ok(Self {
            settings,
            checked: client(|builder| builder.dns_resolver(CheckedNames))?,
            trusted: client(|builder| builder)?,
            rounds: {
                let (all, each) = ROUND_QUERIES_EVERYWHERE;
                Lane::with_most(all, each)
            },
            urgent: {
                let (all, each) = URGENT_QUERIES_EVERYWHERE;
                Lane::with_most(all, each)
            },
        })
    }

    fn is_default(&self, url: &Url) -> bool {
        self.settings.server.as_ref() == Some(url)
    }

    /// A trigger may name this server.
    fn is_allowed(&self, url: &Url) -> bool {
        let allowed = &self.settings.allowed;
        let is_below = |one: &Url| {
            let path = one.path().trim_end_matches('/');
            let rest = url.path().strip_prefix(path);
            let below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            one.origin() == url.origin() && below
        };
        allowed.is_empty() || self.is_default(url) || allowed.iter().any(is_below)
    }

    /// The server is asked with the operator's credential, and not everyone may see what it answers.
    fn hides_values(&self, url: &Url, given: &Headers) -> bool {
        let mut given = given.keys();
        let own = given.any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()));
        let secret = self.settings.authorization.is_some() && self.is_default(url) && !own;
        secret && !self.settings.show_values
    }

    /// The server that a trigger names, or the operator's default.
    pub(super) fn url(&self, written: Option<&str>) -> Result<Url, QueryError> {
        let Some(written) = written else {
            return self.settings.server.clone().ok_or(QueryError::NoServer);
        };
        let url = Url::parse(written).map_err(|_| QueryError::BadAddress)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(QueryError::BadAddress);
        }
        match self.is_allowed(&url) {
            true => Ok(url),
            false => Err(QueryError::NotAllowed),
        }
    }

    fn for_server(&self, url: &Url) -> Result<&Client, QueryError> {
        if self.settings.any_address || self.is_default(url) {
            return Ok(&self.trusted);
        }
        address::check_written(url).map_err(QueryError::Forbidden)?;
        Ok(&self.checked)
    }

    /// The trigger's headers; the operator's credential goes to the operator's own server only.
    fn headers(&self, url: &Url, given: &Headers) -> Result<HeaderMap, QueryError> {
        let mut headers = HeaderMap::new();
        if let Some(credential) = &self.settings.authorization
            && self.is_default(url)
        {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        for (name, value) in given {
            let bad = || QueryError::BadHeader(name.clone());
            let parsed: HeaderName = name.parse().map_err(|_| bad())?;
            if FORBIDDEN_HEADERS.contains(&parsed.as_str()) {
                return Err(bad());
            }
            let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        Ok(headers)
    }
}

fn client(
    change: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> reqwest::Result<Client> {
    let builder = || {
        let plain = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never())
            .connect_timeout(TIMEOUT)
            .pool_max_idle_per_host(ROUND_QUERIES)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .user_agent(concat!("elasti/", env!("CARGO_PKG_VERSION")));
        change(plain)
    };
    builder().build().or_else(|error| {
        // An image without certificate authorities can still query servers without TLS.
        tracing::warn!(%error, "no certificate authorities found; https servers cannot be queried");
        builder().tls_certs_only([]).build()
    })
}

/// One query as one namespace asks it; the same query of the same namespace is asked once for all who wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Query {
    pub(super) headers: Arc<Headers>,
    pub(super) text: Arc<str>,
    /// Whose turn it takes.
    pub(super) namespace: Arc<str>,
    /// A decision waits for it.
    pub(super) urgent: bool,
    /// A reading that has its sample waits for it: behind the samples of all others it would come too late.
    pub(super) completes: bool,
}

/// The last answer to a query, and when it was sent.
type LastAnswer = tokio::sync::Mutex<Option<(Instant, Result<f64, QueryError>)>>;

/// What all addresses of one server share, whatever their paths and parameters.
#[derive(Debug)]
pub(super) struct Lanes {
    rounds: Arc<Lane>,
    urgent: Arc<Lane>,
    /// Queries in a row without an answer, by namespace.
    unanswered: Mutex<HashMap<Arc<str>, usize>>,
}

impl Lanes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            rounds: Lane::new(ROUND_QUERIES),
            urgent: Lane::new(URGENT_QUERIES),
            unanswered: Mutex::default(),
        })
    }

    fn unanswered_in(&self, namespace: &Arc<str>) -> usize {
        self.unanswered.lock().get(namespace).copied().unwrap_or(0)
    }

    /// Counts how a query of the namespace ended.
    fn ended(&self, namespace: &Arc<str>, result: &Result<f64, QueryError>) {
        let mut unanswered = self.unanswered.lock();
        match result {
            Err(QueryError::TimedOut | QueryError::Unreachable) => {
                *unanswered.entry(namespace.clone()).or_default() += 1;
            }
            _ => drop(unanswered.remove(namespace)),
        }
    }
}

/// One address of a server, shared by all its triggers.
#[derive(Debug)]
pub(super) struct Server {
    clients: Arc<Clients>,
    url: Url,
    lanes: Arc<Lanes>,
    answers: Mutex<Answers>,
}

/// The last answer to each query.
#[derive(Debug, Default)]
struct Answers {
    all: HashMap<Query, Arc<LastAnswer>>,
    /// When there are so many, the old ones are forgotten.
    limit: usize,
}

impl Answers {
    fn get(&mut self, query: &Query) -> Arc<LastAnswer> {
        if self.all.len() >= self.limit {
            self.all.retain(|_, last| {
                let in_use = Arc::strong_count(last) > 1;
                in_use || last.try_lock().is_ok_and(|last| is_recent(last.as_ref()))
            });
            self.limit = (2 * self.all.len()).max(MIN_ANSWERS);
        }
        self.all.entry(query.clone()).or_default().clone()
    }
}

impl Server {
    pub(super) fn new(clients: Arc<Clients>, url: Url, lanes: Arc<Lanes>) -> Self {
        Self {
            clients,
            url,
            lanes,
            answers: Mutex::default(),
        }
    }

    /// What it answers to a query with these headers is not for everyone.
    pub(super) fn hides_values(&self, headers: &Headers) -> bool {
        self.clients.hides_values(&self.url, headers)
    }

    /// The sample that a query gives, in an answer to what was sent at `not_before` or later.
    pub(super) async fn sample(
        &self,
        query: Query,
        not_before: Instant,
    ) -> Result<f64, QueryError> {
        let last = {
            let mut answers = self.answers.lock();
            answers.get(&query)
        };
        let mut last = last.lock().await;
        if let Some((sent, answer)) = &*last
            && *sent >= not_before
        {
            return answer.clone();
        }
        let (sent, answer) = self.ask(&query).await;
        *last = Some((sent, answer.clone()));
        answer
    }

    /// Asks when it is the namespace's turn; gives also when that was.
    async fn ask(&self, query: &Query) -> (Instant, Result<f64, QueryError>) {
        let Query {
            headers,
            text,
            namespace,
            urgent,
            completes,
        } = query;
        let (lanes, clients) = (&self.lanes, &self.clients);
        let (lane, everywhere) = match urgent {
            true => (&lanes.urgent, &clients.urgent),
            false => (&lanes.rounds, &clients.rounds),
        };
        let before = lanes.unanswered_in(namespace);
        // In this order a namespace that has all it may have of the second one keeps no more of a server than before.
        let _permit = lane.permit(namespace, *completes).await;
        let _everywhere = everywhere.permit(namespace, *completes).await;
        let sent = Instant::now();
        let unanswered = lanes.unanswered_in(namespace);
        // A query that queued while the server fell silent gives up; a later one tries again.
        if unanswered.saturating_sub(before) >= GIVE_UP_AFTER {
            return (sent, Err(QueryError::TimedOut));
        }
        // In a box: thousands wait for their turn, and none of them needs the room of one that is sent.
        let result = timeout(TIMEOUT, Box::pin(self.send(headers, text)))
            .await
            .unwrap_or(Err(QueryError::TimedOut));
        lanes.ended(namespace, &result);
        (sent, result)
    }

    async fn send(&self, headers: &Headers, query: &str) -> Result<f64, QueryError> {
        let client = self.clients.for_server(&self.url)?;
        let headers = self.clients.headers(&self.url, headers)?;
        let mut url = self.url.clone();
        let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.query_pairs_mut().append_pair("query", query);
        let sent = client.get(url).headers(headers).send().await;
        let response = sent.map_err(|error| query_error(&error))?;
        if response.status() != StatusCode::OK {
            return Err(QueryError::Status(response.status().as_u16()));
        }
        answer::sample(&whole_body(response, MAX_BODY_BYTES).await?)
    }
}

/// The body, unless it is larger than this.
async fn whole_body(mut response: Response, most: usize) -> Result<Vec<u8>, QueryError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| QueryError::CutShort)? {
        if body.len() + chunk.len() > most {
            return Err(QueryError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn is_recent(last: Option<&(Instant, Result<f64, QueryError>)>) -> bool {
    last.is_some_and(|(sent, _)| sent.elapsed() < REMEMBERED_FOR)
}

fn query_error(error: &reqwest::Error) -> QueryError {
    if let Some(forbidden) = address::refusal(error) {
        return QueryError::Forbidden(forbidden);
    }
    if error.is_timeout() {
        QueryError::TimedOut
    } else if error.is_connect() {
        QueryError::Unreachable
    } else {
        QueryError::CutShort
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_bound_an_answer_takes_as_much_memory_as_its_server_likes() {
        let answer = || Response::from(http::Response::new(vec![b' '; 16 * MAX_BODY_BYTES]));
        let bounded = whole_body(answer(), MAX_BODY_BYTES).await;
        assert!(matches!(bounded, Err(QueryError::TooLarge)));
        let kept = whole_body(answer(), usize::MAX).await;
        // Of 12 at a time, the 5 s that each may take aside.
        assert_eq!(kept.map(|body| body.len()).ok(), Some(16 * MAX_BODY_BYTES));
    }
}
