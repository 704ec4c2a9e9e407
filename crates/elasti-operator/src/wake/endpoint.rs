//! The HTTP endpoint for wakes, on every replica: it answers "received" only once the scale was written.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use elasti_api::{WakeAnswer, names};
use elasti_core::ports::ServiceKey;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use elasti_runtime::callers::{Callers, TokenHash};
use elasti_runtime::pace::Pace;

use super::refusal::Refusal;
use super::{PendingWake, WakeOutcome};
use crate::metrics::Metrics;

/// Resolvers keep 4 connections each; 200 resolvers and a few probes fit.
const CONNECTIONS: usize = 1024;
/// One pod that opens connections for nothing gets no more than this.
const CONNECTIONS_PER_PEER: usize = 64;
/// Also how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Two names of 253 bytes, a number and keys are 600 bytes.
const MAX_BODY_BYTES: usize = 4096;
/// The resolver gives up after 3 s and tries another replica.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2500);
/// A resolver that wakes a thousand services at once is served; one that never stops is not.
const CALLER_PACE: (f64, f64) = (500.0, 2000.0);
/// 200 resolvers that all ask for one service within a second are served.
const SERVICE_PACE: (f64, f64) = (20.0, 200.0);
/// Services whose rate is limited: 10,000 entries of 200 bytes are 2 MB.
const MAX_SERVICES: usize = 10_000;
/// Callers whose rate is limited.
const MAX_CALLERS: usize = 1024;

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

/// The endpoint.
pub struct WakeEndpoint {
    callers: Callers,
    allow_anonymous: bool,
    caller_pace: Pace<Caller>,
    service_pace: Pace<ServiceKey>,
    wakes: mpsc::Sender<PendingWake>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for WakeEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeEndpoint").finish_non_exhaustive()
    }
}

impl WakeEndpoint {
    /// Hands wakes to `wakes`; `metrics` counts those that are refused, and is served under `GET /metrics`.
    #[must_use]
    pub fn new(
        client: Client,
        settings: WakeSettings,
        wakes: mpsc::Sender<PendingWake>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let WakeSettings {
            callers,
            allow_anonymous,
        } = settings;
        Self {
            callers: Callers::new(client, names::WAKE_AUDIENCE, callers),
            allow_anonymous,
            caller_pace: Pace::new(CALLER_PACE, MAX_CALLERS),
            service_pace: Pace::new(SERVICE_PACE, MAX_SERVICES),
            wakes,
            metrics,
        }
    }

    /// Serves for as long as the future lives.
    pub async fn serve(self, listener: TcpListener) {
        let endpoint = Arc::new(self);
        let router = Router::new()
            .route(names::WAKE_PATH, post(receive_wake))
            .route("/metrics", get(metrics))
            .with_state(endpoint.clone());
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let peers = Arc::new(Peers::default());
        let mut connections = JoinSet::new();
        // So that the first wake need not wait for it.
        connections.spawn(async move { endpoint.callers.prepare().await });
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if let Some(permit) = peers.admit(peer.ip(), permit) {
                        connections.spawn(connection(router.clone(), stream, peer, permit));
                    }
                }
                // Usually too many open files; it passes.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

async fn connection(router: Router, stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.ip());
        router.clone().oneshot(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // It is no error if the caller closes the connection.
    let _ = served.await;
    drop(permit);
}

/// How many connections each peer has.
#[derive(Debug, Default)]
struct Peers(Mutex<HashMap<IpAddr, usize>>);

/// One connection that counts until it is dropped.
struct ConnectionPermit {
    peers: Arc<Peers>,
    peer: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Peers {
    fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        permit: OwnedSemaphorePermit,
    ) -> Option<ConnectionPermit> {
        let mut counts = self.0.lock();
        let count = counts.entry(peer).or_default();
        if *count >= CONNECTIONS_PER_PEER {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit {
            peers: self.clone(),
            peer,
            _permit: permit,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
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
        Ok(()) => Json(WakeAnswer::received()).into_response(),
        Err(refusal) => {
            endpoint.metrics.wake_refused(refusal.reason());
            refusal.into_response()
        }
    }
}

impl WakeEndpoint {
    async fn receive(&self, peer: IpAddr, headers: &HeaderMap, body: Body) -> Result<(), Refusal> {
        let caller = self.caller(peer, headers).await?;
        if !self.caller_pace.allows(&caller) {
            return Err(Refusal::TooOften);
        }
        let service = parse_body(body).await?;
        if !self.service_pace.allows(&service) {
            return Err(Refusal::TooOften);
        }
        let (answer, outcome) = oneshot::channel();
        let wake = PendingWake {
            namespace: service.namespace,
            service: service.service,
            answer,
        };
        self.wakes.try_send(wake).map_err(|_| Refusal::Busy)?;
        match timeout(ANSWER_TIMEOUT, outcome).await {
            Ok(Ok(WakeOutcome::Scaled | WakeOutcome::AlreadyAwake)) => Ok(()),
            Ok(Ok(WakeOutcome::NotManaged)) => Err(Refusal::NotManaged),
            Ok(Ok(WakeOutcome::Refused(why))) => Err(Refusal::Refused(why.sentence)),
            Ok(Ok(WakeOutcome::Failed { retry: true })) | Ok(Err(_)) => Err(Refusal::TryAgain),
            Ok(Ok(WakeOutcome::Failed { retry: false })) => Err(Refusal::Failed),
            Err(_) => Err(Refusal::NoAnswer),
        }
    }

    async fn caller(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Caller, Refusal> {
        match headers.get(header::AUTHORIZATION) {
            None if self.allow_anonymous => Ok(Caller::Anonymous(peer)),
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

/// The service that a caller names.
async fn parse_body(body: Body) -> Result<ServiceKey, Refusal> {
    let bytes = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) | Err(_) => return Err(Refusal::NotAWake),
    };
    let wake: elasti_api::WakeRequest =
        serde_json::from_slice(&bytes).map_err(|_| Refusal::NotAWake)?;
    let is_name = |text: &str| {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !text.is_empty() && text.len() <= 253 && text.chars().all(allowed)
    };
    if !is_name(&wake.namespace) || !is_name(&wake.svc) {
        return Err(Refusal::NotAWake);
    }
    Ok(ServiceKey::new(wake.namespace, wake.svc))
}
