//! Asks the resolvers what they have seen, one request for all services that ask in the same moment. An answer counts
//! as old as its request, and a resolver that does not answer never counts as quiet.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{Activity, ActivityReport, names};
use elasti_core::held::Counts;
use elasti_core::observed::Report;
use elasti_core::ports::ServiceKey;
use elasti_runtime::peer_tls::ClientConfig;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::{Client, StatusCode};
use tokio::time::{Instant, timeout};

use crate::clock::Clock;

/// From the first packet to the last byte.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer is shared: a fifth of the time for which a report proves anything.
const SHARED_FOR: Duration = Duration::from_millis(200);
/// A service is about 130 bytes of keys, 126 of names and 30 for each port: with 15 ports 706 bytes,
/// and 10,000 such services 7 MB.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Resolvers close a connection after 10 s without a request; we close first, so that none is lost in between.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last answer of a resolver is kept that is not asked any more.
const ANSWER_TTL: Duration = Duration::from_secs(60);

/// Where one resolver is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResolverAddress {
    /// Its pod's name.
    pub name: String,
    /// Its pod's address.
    pub ip: IpAddr,
}

/// Why a resolver gave no report; to a decision they are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum AskError {
    #[error("the operator's token cannot be read")]
    Token,
    #[error("it did not answer in time")]
    TimedOut,
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it answered with code {0}")]
    Status(u16),
    #[error("its answer is too large")]
    TooLarge,
    #[error("its answer cannot be read")]
    Unreadable,
}

/// What one resolver reported about all services.
#[derive(Debug)]
struct Answer {
    /// Before the request was sent.
    requested_at: Timestamp,
    /// After the answer was received.
    answered_at: Timestamp,
    services: HashMap<ServiceKey, Activity>,
}

impl Answer {
    fn held(&self) -> Counts {
        let waiting = self.services.iter().filter(|(_, seen)| seen.held > 0);
        waiting
            .map(|(service, seen)| (service.clone(), seen.held))
            .collect()
    }

    /// About a service and the other Services of its pods: what waits, and when something came, is told of all of them
    /// together.
    fn report_for(&self, service: &ServiceKey, others: &[&str]) -> Report {
        let other = |name: &&str| {
            let key = ServiceKey::new(service.namespace.as_str(), *name);
            Some(((*name).to_owned(), self.services.get(&key)?))
        };
        let others: Vec<(String, &Activity)> = others.iter().filter_map(other).collect();
        let named = self.services.get(service);
        let all = || { named.into_iter() }.chain(others.iter().map(|(_, seen)| *seen));
        // Counted back from when the answer was received: rather too late than too early.
        let moment = |millis: u64| {
            let ago = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
            self.answered_at.checked_sub(ago).unwrap_or(Timestamp::MIN)
        };
        Report::Seen {
            at: self.requested_at,
            route: named.map(|seen| seen.route_generation.clone()),
            other_routes: { others.iter() }
                .map(|(name, seen)| (name.clone(), seen.route_generation.clone()))
                .collect(),
            held: all().fold(0, |held, seen| held.saturating_add(seen.held)),
            open: all().fold(0, |open, seen| open.saturating_add(seen.open)),
            last_connection: all()
                .filter_map(|seen| seen.last_connection_millis_ago)
                .min()
                .map(moment),
            first_answer: all()
                .filter_map(|seen| seen.first_answer_millis_ago)
                .max()
                .map(moment),
        }
    }
}

/// The last answer of one resolver, and when it was requested.
type Slot = tokio::sync::Mutex<Option<(Instant, Result<Arc<Answer>, AskError>)>>;

/// The reports of the resolvers.
#[derive(Debug)]
pub struct Reports {
    client: Client,
    /// `http` or `https`.
    scheme: &'static str,
    port: u16,
    token_file: Option<PathBuf>,
    clock: Clock,
    slots: Mutex<HashMap<ResolverAddress, (Arc<Slot>, Instant)>>,
}

impl Reports {
    /// Sends nothing yet. `token_file` is the operator's own token, which the kubelet renews. With `tls` it is shown only
    /// to resolvers that prove by it who they are.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn new(
        port: u16,
        token_file: Option<PathBuf>,
        tls: Option<ClientConfig>,
        clock: Clock,
    ) -> reqwest::Result<Self> {
        elasti_runtime::tls::install_provider();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let builder = Client::builder();
        let builder = match tls {
            Some(tls) => builder.tls_backend_preconfigured(tls),
            // Without TLS no certificate authority is needed.
            None => builder.tls_certs_only([]),
        };
        let client = builder
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build()?;
        Ok(Self {
            client,
            scheme,
            port,
            token_file,
            clock,
            slots: Mutex::default(),
        })
    }

    /// What each of these resolvers reports about one service and the other Services of its pods, by the resolver's name.
    pub async fn ask(
        &self,
        resolvers: &[ResolverAddress],
        namespace: &str,
        service: &str,
        others: &[&str],
    ) -> BTreeMap<String, Report> {
        let service = ServiceKey::new(namespace, service);
        let answers = resolvers.iter().map(async |resolver| {
            let report = match self.ask_one(resolver).await {
                Ok(answer) => answer.report_for(&service, others),
                Err(_) => Report::Unreachable,
            };
            (resolver.name.clone(), report)
        });
        join_all(answers).await.into_iter().collect()
    }

    /// How many requests each of these resolvers holds, of all services, by the resolver's name; `None` for one that
    /// does not answer.
    pub(crate) async fn held(
        &self,
        resolvers: &[ResolverAddress],
    ) -> BTreeMap<String, Option<Counts>> {
        let answers = resolvers.iter().map(async |resolver| {
            let answer = self.ask_one(resolver).await.ok();
            (resolver.name.clone(), answer.map(|answer| answer.held()))
        });
        join_all(answers).await.into_iter().collect()
    }

    /// A shared answer if it is recent, or was requested after this call began; else a new one.
    async fn ask_one(&self, resolver: &ResolverAddress) -> Result<Arc<Answer>, AskError> {
        let called = Instant::now();
        let slot = self.slot(resolver, called);
        let mut last = slot.lock().await;
        if let Some((requested, answer)) = &*last
            && (*requested >= called || requested.elapsed() <= SHARED_FOR)
        {
            return answer.clone();
        }
        let requested = Instant::now();
        let answer = timeout(TIMEOUT, self.get(resolver))
            .await
            .unwrap_or(Err(AskError::TimedOut));
        if let Err(error) = &answer {
            tracing::warn!(resolver = resolver.name, address = %resolver.ip, %error, "activity request failed");
        }
        let answer = answer.map(Arc::new);
        *last = Some((requested, answer.clone()));
        answer
    }

    fn slot(&self, resolver: &ResolverAddress, now: Instant) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        slots.retain(|_, (_, used)| now.duration_since(*used) < ANSWER_TTL);
        let (slot, used) = slots
            .entry(resolver.clone())
            .or_insert_with(|| (Arc::default(), now));
        *used = now;
        slot.clone()
    }

    async fn get(&self, resolver: &ResolverAddress) -> Result<Answer, AskError> {
        let requested_at = self.clock.now();
        let address = SocketAddr::new(resolver.ip, self.port);
        let mut request = self.client.get(format!(
            "{}://{address}{}",
            self.scheme,
            names::ACTIVITY_PATH
        ));
        if let Some(path) = &self.token_file {
            // The kubelet replaces the file while we run; it lies in memory, so reading it does not block.
            let token = std::fs::read_to_string(path).map_err(|_| AskError::Token)?;
            request = request.bearer_auth(token.trim());
        }
        let mut response = request.send().await.map_err(|_| AskError::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(AskError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| AskError::Unreachable)? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(AskError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let report: ActivityReport =
            serde_json::from_slice(&body).map_err(|_| AskError::Unreadable)?;
        let keyed = report.services.into_iter().map(|seen| {
            let key = ServiceKey::new(seen.namespace.as_str(), seen.service.as_str());
            (key, seen)
        });
        Ok(Answer {
            requested_at,
            answered_at: self.clock.now(),
            services: keyed.collect(),
        })
    }
}
