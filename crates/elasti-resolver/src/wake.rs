//! Wakes sleeping services: asks the operator, and watches the pods until the slices show them.
//! The resolver itself has no write permission in the cluster.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{MOST_WAKES_AT_ONCE, WakeAnswer, WakeClient, WakeRequest, names};
use elasti_core::ports::ServiceKey;
use elasti_runtime::lane::Lane;
use http::{Request, header};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::follow::{Urgency, follow};
use crate::hold::Hold;
use crate::metrics::Metrics;
use crate::operators::{Connection, Operators};
use crate::probe_ahead::{MOST_PROBED, Probes};
use crate::promise::Promise;
use crate::routes::Routes;
use crate::starting_pods::{Probed, StartingPods};

/// One attempt, pooled connection and new one together; the operator answers after one write, usually within 10 ms.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// The same over a pooled connection: its operator's node may have died without closing it.
const POOLED_TIMEOUT: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// So that a wake goes out within 2 s after the operator is back.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);
/// While requests are held and no pod is ready the wake is repeated: the target may have been scaled down in between.
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Where many services are woken, as many wakes are repeated a second: each costs the API server a read, and takes its time
/// from the controllers that start the pods.
const REPEATS_PER_SECOND: u32 = 20;
/// The longest that a repeated wake waits for the others.
const REPEAT_INTERVAL_MAX: Duration = Duration::from_secs(15);
/// Services whose private Service and pods are read at the same time; each takes two calls of a few milliseconds.
const MOST_FIRST_LOOKS: usize = 16;
/// How often a task checks whether it is still needed; readiness itself is never polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// When a wake that was accepted is repeated, while so many services are being woken.
fn repeat_interval(services: usize) -> Duration {
    let seconds = u32::try_from(services).unwrap_or(u32::MAX) / REPEATS_PER_SECOND;
    Duration::from_secs(seconds.into()).clamp(REPEAT_INTERVAL, REPEAT_INTERVAL_MAX)
}

/// Why the operator did not accept a wake; each of them is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WakeError {
    #[error("the token cannot be read")]
    Token,
    #[error("no operator can be reached")]
    Unreachable,
    #[error("the operator cannot prove by TLS that it is one")]
    Untrusted,
    #[error("the operator did not answer")]
    NoAnswer,
    #[error("the operator does not accept our token")]
    Unauthorized,
    #[error("the operator refused")]
    Refused,
}

impl WakeError {
    /// The metric's label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Unreachable => "unreachable",
            Self::Untrusted => "untrusted",
            Self::NoAnswer => "no_answer",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
        }
    }
}

/// Runs one task for each service that is being woken.
pub(crate) struct WakeTasks {
    pub(crate) client: Client,
    /// Host and port.
    pub(crate) operator: String,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) operators: Arc<Operators>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) probes: Probes,
    pub(crate) metrics: Arc<Metrics>,
    /// Wake requests tell who they are for.
    pub(crate) tells_clients: bool,
    pub(crate) running: Arc<RunningWakes>,
    pub(crate) turns: Turns,
}

/// The services that are being woken.
pub(crate) type RunningWakes = Mutex<HashMap<ServiceKey, Arc<RunningWake>>>;

/// A few calls at a time are answered sooner than a thousand. Namespaces take turns: a webhook may hold up the wakes of one
/// of them.
#[derive(Debug)]
pub(crate) struct Turns {
    /// An operator closes connections of which one address has too many.
    requests: Arc<Lane>,
    /// The first look at the pods, which must not take the API server from the wakes.
    first_looks: Arc<Lane>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            requests: Lane::new(MOST_WAKES_AT_ONCE),
            first_looks: Lane::new(MOST_FIRST_LOOKS),
        }
    }
}

/// What a task shares with the requests that it runs for.
#[derive(Debug)]
pub(crate) struct RunningWake {
    /// Tells it that a request is held.
    held: Notify,
    /// Requests are held, so that its watch must notice silence soon.
    urgent: watch::Sender<bool>,
    /// Who the first of them is from.
    client: Option<Box<WakeClient>>,
}

impl std::fmt::Debug for WakeTasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WakeTasks")
            .field("operator", &self.operator)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl WakeTasks {
    /// Requests are held for this service: starts its task unless it runs already.
    pub(crate) fn ensure_running(
        self: &Arc<Self>,
        key: &ServiceKey,
        client: Option<Box<WakeClient>>,
    ) {
        let mut running = self.running.lock();
        if let Some(wake) = running.get(key) {
            return wake.held.notify_one();
        }
        let wake = Arc::new(RunningWake {
            held: Notify::new(),
            urgent: watch::Sender::new(true),
            client,
        });
        running.insert(key.clone(), wake.clone());
        tokio::spawn(self.clone().run(key.clone(), wake));
    }

    async fn run(self: Arc<Self>, key: ServiceKey, wake: Arc<RunningWake>) {
        let mut watching = std::pin::pin!(self.watch_pods(&key, wake.urgent.subscribe()));
        loop {
            tokio::select! {
                () = &mut watching => {}
                () = self.request_until_awake(&key, &wake) => {}
            }
            // A request takes its ticket before it asks for this task, so under this lock none is overlooked.
            let mut running = self.running.lock();
            if self.is_done(&key) {
                running.remove(&key);
                break;
            }
        }
        self.routes.set_starting_pods(&key, None);
    }

    /// Nothing is held, and the slices have caught up with the pods.
    fn is_done(&self, key: &ServiceKey) -> bool {
        let table = &self.routes.table;
        let waits = self.hold.held(key) > 0 && table.service(key).is_some();
        !waits && (table.ready_pods(key) == 0 || self.routes.slices_show_a_pod(key))
    }

    /// Sends the wake until the operator has accepted it, and again while requests are still held.
    async fn request_until_awake(&self, key: &ServiceKey, wake: &RunningWake) {
        let mut backoff = BACKOFF_MIN;
        wake.urgent.send_replace(true);
        let namespace = Arc::<str>::from(key.namespace.as_str());
        while self.hold.held(key) > 0 {
            let turn = self.turns.requests.permit(&namespace, false).await;
            if self.hold.held(key) == 0 {
                break;
            }
            let result = timeout(ATTEMPT_TIMEOUT, self.request(key, wake))
                .await
                .unwrap_or(Err(WakeError::NoAnswer));
            drop(turn);
            self.metrics.wake(result);
            let next = match result {
                Ok(()) => {
                    backoff = BACKOFF_MIN;
                    repeat_interval(self.running.lock().len())
                }
                Err(error) => {
                    tracing::warn!(service = %key, %error, "wake request failed; retrying");
                    backoff = backoff.saturating_mul(2).min(BACKOFF_MAX);
                    backoff
                }
            };
            // Half to whole, so that resolvers do not ask in step.
            let again = Instant::now() + next.mul_f64(rand::random_range(0.5..1.0));
            while Instant::now() < again && self.hold.held(key) > 0 {
                sleep(POLL_INTERVAL.min(again.saturating_duration_since(Instant::now()))).await;
            }
        }
        wake.urgent.send_replace(false);
        while self.hold.held(key) == 0 && !self.is_done(key) {
            // A promise may have ended: the next request that is held needs another one at once.
            let _ = timeout(POLL_INTERVAL, wake.held.notified()).await;
        }
    }

    /// Over a pooled connection, or over a new one where that fails. A wake may arrive twice: it is idempotent.
    async fn request(&self, key: &ServiceKey, wake: &RunningWake) -> Result<(), WakeError> {
        if let Some(pooled) = self.operators.take().await {
            match timeout(POOLED_TIMEOUT, self.request_over(pooled, key, wake)).await {
                Ok(Err(WakeError::NoAnswer)) | Err(_) => {}
                Ok(result) => return result,
            }
        }
        let new = self.operators.connect(&self.operator).await?;
        self.request_over(new, key, wake).await
    }

    async fn request_over(
        &self,
        mut operator: Connection,
        key: &ServiceKey,
        running: &RunningWake,
    ) -> Result<(), WakeError> {
        let sent_at = Instant::now();
        let wake = WakeRequest {
            count: u32::try_from(self.hold.held(key))
                .unwrap_or(u32::MAX)
                .max(1),
            svc: key.service.clone(),
            namespace: key.namespace.clone(),
            client: running.client.as_deref().cloned(),
        };
        let body = serde_json::to_vec(&wake).map_err(|_| WakeError::Refused)?;
        let request = self.http_request(body)?;
        let response = operator
            .send_request(request)
            .await
            .map_err(|_| WakeError::NoAnswer)?;
        let status = response.status();
        // A short response is read to its end so that the connection can be pooled.
        let body = http_body_util::Limited::new(response.into_body(), 64 * 1024);
        let body = http_body_util::BodyExt::collect(body).await;
        if body.is_ok() {
            self.operators.put(operator);
        }
        match status.as_u16() {
            200..=299 => {
                let body = body.map(http_body_util::Collected::to_bytes);
                // Operators of another version may answer with something else.
                let answer = body.map(|body| serde_json::from_slice::<WakeAnswer>(&body).ok());
                if let Some(promise) = answer.ok().flatten().and_then(|answer| answer.promise) {
                    self.routes.set_promise(key, Promise::new(promise, sent_at));
                }
                Ok(())
            }
            401 | 403 => Err(WakeError::Unauthorized),
            _ => Err(WakeError::Refused),
        }
    }

    fn http_request(&self, body: Vec<u8>) -> Result<Request<Full<Bytes>>, WakeError> {
        let mut request = Request::post(names::WAKE_PATH)
            .header(header::HOST, self.operator.as_str())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(path) = &self.token_file {
            // The kubelet replaces the file while we run; it lies in memory, so reading it does not block.
            let token = std::fs::read_to_string(path).map_err(|_| WakeError::Token)?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        request
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| WakeError::Token)
    }

    /// Follows the pods behind a service for as long as the future lives.
    async fn watch_pods(&self, key: &ServiceKey, urgent: watch::Receiver<bool>) {
        let services: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        let private = names::private_service(&key.service);
        let namespace = Arc::<str>::from(key.namespace.as_str());
        let (service, turn) = loop {
            let turn = self.turns.first_looks.permit(&namespace, false).await;
            match services.get(&private).await {
                Ok(service) => break (service, Mutex::new(turn)),
                // Until then only the slices show when a pod is ready, a second later.
                Err(error) => {
                    tracing::warn!(service = %key, %error, "cannot get private Service")
                }
            }
            drop(turn);
            sleep(BACKOFF_MAX).await;
        };
        let pods = Mutex::new(StartingPods::new(&service));
        let publish = || {
            let pods = pods.lock().clone();
            self.routes.set_starting_pods(key, Some(pods));
        };
        publish();
        let selector = service.spec.and_then(|spec| spec.selector);
        let labels = selector.into_iter().flatten();
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if labels.is_empty() {
            drop(turn);
            // All pods of the namespace would match.
            return std::future::pending().await;
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let (to_probe, probed) = watch::channel(Vec::new());
        let on_change = |change| {
            drop(turn.lock().take());
            let mut locked = pods.lock();
            locked.apply(change);
            to_probe.send_replace(locked.to_probe(MOST_PROBED));
            drop(locked);
            publish();
        };
        let on_result = |pod: &Probed, passes| {
            pods.lock().set_passed(pod, passes);
            publish();
        };
        let running = self.running.clone();
        let urgency = Urgency::ForOneOf(urgent, Box::new(move || running.lock().len()));
        let follow = follow(api, Some(labels.join(",")), usize::MAX, urgency, on_change);
        let probe = self.probes.run(key, probed, on_result);
        tokio::join!(follow, probe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wakes_of_many_services_are_repeated_less_often() {
        for few in [1, 20, 100] {
            assert_eq!(repeat_interval(few), REPEAT_INTERVAL);
        }
        assert_eq!(repeat_interval(200), Duration::from_secs(10));
        for many in [300, 1_000, usize::MAX] {
            assert_eq!(repeat_interval(many), REPEAT_INTERVAL_MAX);
        }
    }
}
