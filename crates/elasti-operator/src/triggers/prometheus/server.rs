//! Queries to one Prometheus server, bounded in time, bytes and connections. No redirect is followed and no body is
//! unpacked: a tenant's server must not lead the operator to an address that `address.rs` forbids, or fill its memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{QueryError, answer};
use crate::triggers::address::{self, CheckedNames};

/// One query, from the first packet to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One series with 60 labels of 256 bytes is 15 KiB.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Shorter than servers and balancers keep a connection, so that none is used that is just being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Queries to one server at a time.
const CONNECTIONS: usize = 8;
/// After so many queries in a row without any answer, those that queue are not sent any more.
const GIVE_UP_AFTER: usize = CONNECTIONS;
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
    default_server: Option<Url>,
    authorization: Option<HeaderValue>,
    any_address: bool,
    checked: Client,
    trusted: Client,
}

impl Clients {
    pub(super) fn new(
        default_server: Option<Url>,
        authorization: Option<HeaderValue>,
        any_address: bool,
    ) -> reqwest::Result<Self> {
        elasti_runtime::tls::install_provider();
        Ok(Self {
            default_server,
            authorization,
            any_address,
            checked: client(|builder| builder.dns_resolver(CheckedNames))?,
            trusted: client(|builder| builder)?,
        })
    }

    /// The server that a trigger names, or the operator's default.
    pub(super) fn url(&self, written: Option<&str>) -> Result<Url, QueryError> {
        let Some(written) = written else {
            return self.default_server.clone().ok_or(QueryError::NoServer);
        };
        let url = Url::parse(written).map_err(|_| QueryError::BadAddress)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(QueryError::BadAddress);
        }
        Ok(url)
    }

    fn for_server(&self, url: &Url) -> Result<&Client, QueryError> {
        if self.any_address || self.default_server.as_ref() == Some(url) {
            return Ok(&self.trusted);
        }
        address::check_written(url).map_err(QueryError::Forbidden)?;
        Ok(&self.checked)
    }

    /// The trigger's headers; the operator's credential goes to the operator's own server only.
    fn headers(&self, url: &Url, given: &Headers) -> Result<HeaderMap, QueryError> {
        let mut headers = HeaderMap::new();
        if let Some(credential) = &self.authorization
            && self.default_server.as_ref() == Some(url)
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
            .pool_max_idle_per_host(CONNECTIONS)
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

/// The last answer about a server's own uptime.
type Uptime = tokio::sync::Mutex<Option<(Instant, Result<f64, QueryError>)>>;

/// One server, shared by all its triggers.
#[derive(Debug)]
pub(super) struct Server {
    clients: Arc<Clients>,
    url: Url,
    connections: Semaphore,
    unanswered: AtomicUsize,
    uptimes: Mutex<HashMap<(Headers, String), Arc<Uptime>>>,
}

impl Server {
    pub(super) fn new(clients: Arc<Clients>, url: Url) -> Self {
        Self {
            clients,
            url,
            connections: Semaphore::new(CONNECTIONS),
            unanswered: AtomicUsize::new(0),
            uptimes: Mutex::default(),
        }
    }

    /// The sample that a query gives now.
    pub(super) async fn query(&self, headers: &Headers, query: &str) -> Result<f64, QueryError> {
        let before = self.unanswered.load(Ordering::Relaxed);
        let Ok(_permit) = self.connections.acquire().await else {
            return Err(QueryError::TimedOut);
        };
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        // A query that queued while the server fell silent gives up; a later one tries again.
        if unanswered.saturating_sub(before) >= GIVE_UP_AFTER {
            return Err(QueryError::TimedOut);
        }
        let result = timeout(TIMEOUT, self.send(headers, query))
            .await
            .unwrap_or(Err(QueryError::TimedOut));
        match &result {
            Err(QueryError::TimedOut | QueryError::Unreachable) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
            }
            _ => self.unanswered.store(0, Ordering::Relaxed),
        }
        result
    }

    /// The same for the server's own uptime; one answer serves all whose queries ended before it was requested.
    pub(super) async fn uptime(
        &self,
        headers: &Headers,
        query: &str,
        not_before: Instant,
    ) -> Result<f64, QueryError> {
        let slot = {
            let mut uptimes = self.uptimes.lock();
            uptimes.retain(|_, slot| {
                let in_use = Arc::strong_count(slot) > 1;
                in_use || slot.try_lock().is_ok_and(|last| is_recent(last.as_ref()))
            });
            let key = (headers.clone(), query.to_owned());
            uptimes.entry(key).or_default().clone()
        };
        let mut last = slot.lock().await;
        if let Some((requested, answer)) = &*last
            && *requested >= not_before
        {
            return answer.clone();
        }
        let requested = Instant::now();
        let answer = self.query(headers, query).await;
        *last = Some((requested, answer.clone()));
        answer
    }

    async fn send(&self, headers: &Headers, query: &str) -> Result<f64, QueryError> {
        let client = self.clients.for_server(&self.url)?;
        let headers = self.clients.headers(&self.url, headers)?;
        let mut url = self.url.clone();
        let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.query_pairs_mut().append_pair("query", query);
        let sent = client.get(url).headers(headers).send().await;
        let mut response = sent.map_err(|error| query_error(&error))?;
        if response.status() != StatusCode::OK {
            return Err(QueryError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| QueryError::CutShort)? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(QueryError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        answer::sample(&body)
    }
}

fn is_recent(last: Option<&(Instant, Result<f64, QueryError>)>) -> bool {
    last.is_some_and(|(requested, _)| requested.elapsed() < Duration::from_secs(60))
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
