//! One Prometheus server: asks it, bounded in time, bytes and connections.
//! Never follows a redirect, never unpacks a body, and never asks an address that `address.rs` forbids.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{Doubt, answer};
use crate::triggers::address::{self, CheckedNames};

/// One question, from the first packet to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// One series with 60 labels of 256 bytes is 15 KiB.
const MOST_BYTES: usize = 1 << 20;
/// Shorter than servers and balancers keep a connection, so that none is used that is just being closed.
const KEPT: Duration = Duration::from_secs(20);
/// Questions to one server at a time.
const CONNECTIONS: usize = 8;
/// After so many questions in a row without any answer, those that queue are not asked any more.
const GIVE_UP_AFTER: usize = CONNECTIONS;
/// Headers that describe the connection, not the question.
const NOT_FOR_TRIGGERS: [&str; 8] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
];

/// Extra headers of a question, by name.
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

    /// Whom a trigger means; without a word of its own, the operator's default.
    pub(super) fn url(&self, written: Option<&str>) -> Result<Url, Doubt> {
        let Some(written) = written else {
            return self.default_server.clone().ok_or(Doubt::NoServer);
        };
        let url = Url::parse(written).map_err(|_| Doubt::BadAddress)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(Doubt::BadAddress);
        }
        Ok(url)
    }

    fn for_server(&self, url: &Url) -> Result<&Client, Doubt> {
        if self.any_address || self.default_server.as_ref() == Some(url) {
            return Ok(&self.trusted);
        }
        address::check_written(url).map_err(Doubt::Forbidden)?;
        Ok(&self.checked)
    }

    /// The trigger's headers; the operator's credential goes to the operator's own server only.
    fn headers(&self, url: &Url, given: &Headers) -> Result<HeaderMap, Doubt> {
        let mut headers = HeaderMap::new();
        if let Some(credential) = &self.authorization
            && self.default_server.as_ref() == Some(url)
        {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        for (name, value) in given {
            let bad = || Doubt::BadHeader(name.clone());
            let parsed: HeaderName = name.parse().map_err(|_| bad())?;
            if NOT_FOR_TRIGGERS.contains(&parsed.as_str()) {
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
            .pool_idle_timeout(KEPT)
            .user_agent(concat!("elasti/", env!("CARGO_PKG_VERSION")));
        change(plain)
    };
    builder().build().or_else(|error| {
        // An image without certificate authorities can still ask servers without TLS.
        tracing::warn!(%error, "no certificate authorities are installed; https servers cannot be asked");
        builder().tls_certs_only([]).build()
    })
}

/// What one server was last asked about itself.
type Uptime = tokio::sync::Mutex<Option<(Instant, Result<f64, Doubt>)>>;

/// One server, shared by all that ask it.
#[derive(Debug)]
pub(super) struct Server {
    clients: Arc<Clients>,
    url: Url,
    places: Semaphore,
    unanswered: AtomicUsize,
    uptimes: Mutex<HashMap<(Headers, String), Arc<Uptime>>>,
}

impl Server {
    pub(super) fn new(clients: Arc<Clients>, url: Url) -> Self {
        Self {
            clients,
            url,
            places: Semaphore::new(CONNECTIONS),
            unanswered: AtomicUsize::new(0),
            uptimes: Mutex::default(),
        }
    }

    /// The sample that a query gives now.
    pub(super) async fn query(&self, headers: &Headers, query: &str) -> Result<f64, Doubt> {
        let before = self.unanswered.load(Ordering::Relaxed);
        let Ok(_place) = self.places.acquire().await else {
            return Err(Doubt::TimedOut);
        };
        let unanswered = self.unanswered.load(Ordering::Relaxed);
        // Whoever queued while the server fell silent gives up; whoever comes later tries anew.
        if unanswered.saturating_sub(before) >= GIVE_UP_AFTER {
            return Err(Doubt::TimedOut);
        }
        let asked = timeout(TIMEOUT, self.ask(headers, query))
            .await
            .unwrap_or(Err(Doubt::TimedOut));
        match &asked {
            Err(Doubt::TimedOut | Doubt::Unreachable) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
            }
            _ => self.unanswered.store(0, Ordering::Relaxed),
        }
        asked
    }

    /// The same for the server's own uptime; one answer serves all whose queries ended before it was asked for.
    pub(super) async fn uptime(
        &self,
        headers: &Headers,
        query: &str,
        not_before: Instant,
    ) -> Result<f64, Doubt> {
        let slot = {
            let mut uptimes = self.uptimes.lock();
            uptimes.retain(|_, slot| {
                let in_use = Arc::strong_count(slot) > 1;
                in_use || slot.try_lock().is_ok_and(|told| is_recent(told.as_ref()))
            });
            let key = (headers.clone(), query.to_owned());
            uptimes.entry(key).or_default().clone()
        };
        let mut told = slot.lock().await;
        if let Some((asked, answer)) = &*told
            && *asked >= not_before
        {
            return answer.clone();
        }
        let asked = Instant::now();
        let answer = self.query(headers, query).await;
        *told = Some((asked, answer.clone()));
        answer
    }

    async fn ask(&self, headers: &Headers, query: &str) -> Result<f64, Doubt> {
        let client = self.clients.for_server(&self.url)?;
        let headers = self.clients.headers(&self.url, headers)?;
        let mut url = self.url.clone();
        let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.query_pairs_mut().append_pair("query", query);
        let asked = client.get(url).headers(headers).send().await;
        let mut response = asked.map_err(|error| doubt(&error))?;
        if response.status() != StatusCode::OK {
            return Err(Doubt::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| Doubt::CutShort)? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Err(Doubt::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        answer::sample(&body)
    }
}

fn is_recent(told: Option<&(Instant, Result<f64, Doubt>)>) -> bool {
    told.is_some_and(|(asked, _)| asked.elapsed() < Duration::from_secs(60))
}

fn doubt(error: &reqwest::Error) -> Doubt {
    if let Some(forbidden) = address::refusal(error) {
        return Doubt::Forbidden(forbidden);
    }
    if error.is_timeout() {
        Doubt::TimedOut
    } else if error.is_connect() {
        Doubt::Unreachable
    } else {
        Doubt::CutShort
    }
}
