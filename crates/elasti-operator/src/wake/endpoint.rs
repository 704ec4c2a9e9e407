//! The HTTP endpoint for wakes, on every replica: it answers "received" only once the scale was written.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use elasti_api::{MOST_WAKES_AT_ONCE, WakeAnswer, WakeClient, WakeRequest, names};
use elasti_core::ports::ServiceKey;
use hyper::body::Incoming;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tower::ServiceExt as _;

use elasti_runtime::callers::{Callers, TokenHash};
use elasti_runtime::http_server::HttpServer;
use elasti_runtime::peer_tls::TlsAcceptor;
use elasti_runtime::rate_limit::RateLimiter;

use super::leader_client::LeaderClient;
use super::refusal::Refusal;
use super::{PendingWake, WakeOutcome};
use crate::metrics::Metrics;

/// Resolvers keep 4 connections each; 200 resolvers and a few probes fit. One pod gets 64: a resolver that wakes as many
/// services as it may at once, and its spare connections.
const SERVER: HttpServer = HttpServer {
    max_connections: 1024,
    max_connections_per_peer: MOST_WAKES_AT_ONCE + 16,
    header_timeout: Duration::from_secs(30),
};
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Two names of 253 bytes, a number and keys are 600 bytes; what is told of a client is 1,400 bytes at most.
const MAX_BODY_BYTES: usize = 4096;
/// The resolver gives up after 3 s and tries another replica.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2500);
/// For one namespace. A resolver that wakes a thousand services at once is served; one that never stops is not. The
/// services of one namespace may be woken in vain all the time, which must delay no other's.
const CALLER_RATE: (f64, f64) = (500.0, 2000.0);
/// 200 resolvers that all ask for one service within a second are served.
const SERVICE_RATE: (f64, f64) = (20.0, 200.0);
/// Services whose rate is limited: 10,000 entries of 200 bytes are 2 MB.
const MAX_SERVICES: usize = 10_000;
/// Callers and namespaces whose rate is limited: 16,384 entries of 150 bytes are 2.4 MB.
const MAX_CALLERS: usize = 16_384;

/// The settings of the endpoint.
#[derive(Clone, Debug)]
pub struct WakeSettings {
    /// The users whose wakes are taken.
    pub callers: BTreeSet<String>,
    /// Wakes without a token are taken, as the predecessor did.
    pub allow_anonymous: bool,
}

/// Whose rate is limited: each token, or each address where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Caller {
    Vouched(TokenHash),
    Anonymous(IpAddr),
}

/// Whether wakes without a token are taken from this address now.
type Tokenless = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// The endpoint.
pub struct WakeEndpoint {
    callers: Callers,
    tokenless: Tokenless,
    caller_rate: RateLimiter<(Caller, String)>,
    service_rate: RateLimiter<ServiceKey>,
    wakes: mpsc::Sender<PendingWake>,
    leader: LeaderClient,
    metrics: Arc<Metrics>,
    tls: Option<TlsAcceptor>,
}

impl fmt::Debug for WakeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeEndpoint").finish_non_exhaustive()
    }
}

impl WakeEndpoint {
    /// Hands wakes to `wakes`, and those that only the leader can answer well to `leader`; `metrics` counts those that are refused, and is served under `GET /metrics`.
    #[must_use]
    pub fn new(
        client: Client,
        settings: WakeSettings,
        wakes: mpsc::Sender<PendingWake>,
        leader: LeaderClient,
        metrics: Arc<Metrics>,
    ) -> Self {
        let WakeSettings {
            callers,
            allow_anonymous,
        } = settings;
        Self {
            callers: Callers::new(client, names::WAKE_AUDIENCE, callers),
            tokenless: Box::new(move |_| allow_anonymous),
            caller_rate: RateLimiter::new(CALLER_RATE, MAX_CALLERS),
            service_rate: RateLimiter::new(SERVICE_RATE, MAX_SERVICES),
            wakes,
            leader,
            metrics,
            tls: None,
        }
    }

    /// Takes wakes without a token also from these addresses: those of KubeElasti's resolvers.
    #[must_use]
    pub fn with_tokenless(mut self, from: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        let others = self.tokenless;
        self.tokenless = Box::new(move |peer| others(peer) || from(peer));
        self
    }

    /// Serves over TLS as well.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<TlsAcceptor>) -> Self {
        self.tls = tls;
        self
    }

    /// Serves for as long as the future lives.
    pub async fn serve(self, listener: TcpListener) {
        let endpoint = Arc::new(self);
        let router = Router::new()
            .route(names::WAKE_PATH, post(receive_wake))
            .route("/metrics", get(metrics))
            .with_state(endpoint.clone());
        let answer = move |peer: IpAddr, mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            router.clone().oneshot(request)
        };
        // Prepared at once, so that the first wake need not wait for it.
        let serving = SERVER.serve_with_tls(listener, endpoint.tls.clone(), answer);
        tokio::join!(endpoint.callers.prepare(), serving);
    }
}

async fn metrics(State(endpoint): State<Arc<WakeEndpoint>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], endpoint.metrics.encode()).into_response()
}

async fn receive_wake(
    State(endpoint): State<Arc<WakeEndpoint>>,
    Extension(peer): Extension<IpAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match endpoint.receive(peer, &headers, body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => {
            endpoint.metrics.wake_refused(refusal.reason());
            refusal.into_response()
        }
    }
}

impl WakeEndpoint {
    async fn receive(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<WakeAnswer, Refusal> {
        let caller = self.caller(peer, headers).await?;
        let wake = parse_body(body).await?;
        // A caller without a token could name any number of namespaces.
        let namespace = match caller {
            Caller::Vouched(_) => wake.namespace.clone(),
            Caller::Anonymous(_) => String::new(),
        };
        if !self.caller_rate.allows(&(caller, namespace)) {
            return Err(Refusal::TooOften);
        }
        let service = ServiceKey::new(wake.namespace.as_str(), wake.svc.as_str());
        if !self.service_rate.allows(&service) {
            return Err(Refusal::TooOften);
        }
        let (answer, outcome) = oneshot::channel();
        let pending = PendingWake {
            namespace: service.namespace,
            service: service.service,
            client: wake.client.clone(),
            answer,
        };
        self.wakes.try_send(pending).map_err(|_| Refusal::Busy)?;
        let passed_on = headers.contains_key(names::PASSED_ON_HEADER);
        let promise = match timeout(ANSWER_TIMEOUT, outcome).await {
            Ok(Ok(WakeOutcome::Scaled)) => {
                if !passed_on {
                    self.tell_leader(wake, headers);
                }
                None
            }
            Ok(Ok(WakeOutcome::AlreadyAwake(None))) if !passed_on => {
                let authorization = headers.get(header::AUTHORIZATION);
                self.leader.promise(&wake, authorization).await
            }
            Ok(Ok(WakeOutcome::AlreadyAwake(promise))) => promise,
            Ok(Ok(WakeOutcome::NotManaged)) => return Err(Refusal::NotManaged),
            Ok(Ok(WakeOutcome::Refused(why))) => return Err(Refusal::Refused(why.sentence)),
            Ok(Ok(WakeOutcome::Failed { retry: true })) | Ok(Err(_)) => {
                return Err(Refusal::TryAgain);
            }
            Ok(Ok(WakeOutcome::Failed { retry: false })) => return Err(Refusal::Failed),
            Err(_) => return Err(Refusal::NoAnswer),
        };
        Ok(WakeAnswer {
            promise,
            ..WakeAnswer::received()
        })
    }

    /// Only the leader writes the status, which says what woke a service, and whom it was woken for.
    fn tell_leader(&self, wake: WakeRequest, headers: &HeaderMap) {
        let leader = self.leader.clone();
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        tokio::spawn(async move { leader.promise(&wake, authorization.as_ref()).await });
    }

    async fn caller(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Caller, Refusal> {
        match headers.get(header::AUTHORIZATION) {
            None if (self.tokenless)(peer.to_canonical()) => Ok(Caller::Anonymous(peer)),
            None => Err(Refusal::NoToken),
            Some(shown) => {
                let token = shown
                    .to_str()
                    .ok()
                    .and_then(|text| text.strip_prefix("Bearer "));
                let token = token.ok_or(Refusal::NotBearer)?;
                let vouched = self.callers.vouched(peer, token).await;
                Ok(Caller::Vouched(vouched.map_err(Refusal::Caller)?))
            }
        }
    }
}

/// The wake that a caller asks for.
async fn parse_body(body: Body) -> Result<WakeRequest, Refusal> {
    let bytes = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) | Err(_) => return Err(Refusal::NotAWake),
    };
    let wake: WakeRequest = serde_json::from_slice(&bytes).map_err(|_| Refusal::NotAWake)?;
    let is_name = |text: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !text.is_empty() && text.len() <= 253 && text.chars().all(allowed)
    };
    if !is_name(&wake.namespace) || !is_name(&wake.svc) {
        return Err(Refusal::NotAWake);
    }
    Ok(WakeRequest {
        client: wake.client.map(WakeClient::bounded),
        ..wake
    })
}
