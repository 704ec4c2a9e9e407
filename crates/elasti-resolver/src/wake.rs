//! Wakes sleeping services: tells the operator, watches the pods while that lasts.
//! Never writes to the cluster, and never has two tasks for one service.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::{WakeRequest, names};
use elasti_core::ports::ServiceKey;
use http::{Request, header};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::follow::{Change, follow};
use crate::operators::{Connection, Operators};
use crate::resolver::Resolver;
use crate::woken::WokenPods;

/// One attempt, kept connection and new one together; the operator answers after one write, usually within 10 ms.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The same over a connection that was kept: its operator's node may be gone without a word.
const KEPT_TIMEOUT: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// So that a wake goes out within 2 s after the operator is back.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);
/// While someone waits and no pod is ready the wake is said again: somebody may have scaled down in between.
const SAY_AGAIN: Duration = Duration::from_secs(5);
/// How often a task looks whether it is still needed; readiness itself is never polled.
const STILL_NEEDED: Duration = Duration::from_millis(250);

/// Why the operator did not take a wake; every one of them is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WakeFault {
    #[error("the token cannot be read")]
    Token,
    #[error("no operator can be reached")]
    Unreachable,
    #[error("the operator did not answer")]
    NoAnswer,
    #[error("the operator does not accept our token")]
    Unauthorized,
    #[error("the operator refused")]
    Refused,
}

impl WakeFault {
    /// The metric's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Unreachable => "unreachable",
            Self::NoAnswer => "no_answer",
            Self::Unauthorized => "unauthorized",
            Self::Refused => "refused",
        }
    }
}

/// The wakes under way.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    running: Mutex<HashSet<ServiceKey>>,
    pub(crate) operators: Arc<Operators>,
}

/// Someone waits for this service: makes sure that a task attends to it.
pub(crate) fn needed(resolver: &Arc<Resolver>, key: &ServiceKey) {
    if resolver.wakes.running.lock().insert(key.clone()) {
        tokio::spawn(attend(resolver.clone(), key.clone()));
    }
}

async fn attend(resolver: Arc<Resolver>, key: ServiceKey) {
    let mut watching = std::pin::pin!(watch_pods(&resolver, &key));
    loop {
        tokio::select! {
            () = &mut watching => {}
            () = ask(&resolver, &key) => {}
        }
        // Whoever waits has taken a place before asking for us, so under this lock nobody is overlooked.
        let mut running = resolver.wakes.running.lock();
        if is_over(&resolver, &key) {
            running.remove(&key);
            break;
        }
    }
    resolver.routes.woken(&key, None);
}

/// Nobody waits, and the slices have caught up with what the pods say.
fn is_over(resolver: &Resolver, key: &ServiceKey) -> bool {
    let table = resolver.table.load();
    let waits = resolver.hold.held(key) > 0 && table.services.contains_key(key);
    !waits && (table.ready_pods(key) == 0 || resolver.routes.slices_show_a_pod(key))
}

/// Tells the operator until it has heard, and again while it does not help.
async fn ask(resolver: &Arc<Resolver>, key: &ServiceKey) {
    let mut pause = BACKOFF_MIN;
    while resolver.hold.held(key) > 0 {
        let said = timeout(TIMEOUT, say(resolver, key))
            .await
            .unwrap_or(Err(WakeFault::NoAnswer));
        resolver.metrics.wake(said);
        let next = match said {
            Ok(()) => {
                pause = BACKOFF_MIN;
                SAY_AGAIN
            }
            Err(fault) => {
                tracing::warn!(service = %key, %fault, "a wake was not taken; it is tried again");
                pause = pause.saturating_mul(2).min(BACKOFF_MAX);
                pause
            }
        };
        // Half to whole, so that resolvers do not ask in step.
        let again = Instant::now() + next.mul_f64(rand::random_range(0.5..1.0));
        while Instant::now() < again && resolver.hold.held(key) > 0 {
            sleep(STILL_NEEDED.min(again.saturating_duration_since(Instant::now()))).await;
        }
    }
    while resolver.hold.held(key) == 0 && !is_over(resolver, key) {
        sleep(STILL_NEEDED).await;
    }
}

/// Says it over a kept connection, or else over a new one. To say it twice does no harm: a wake is one write at most.
async fn say(resolver: &Resolver, key: &ServiceKey) -> Result<(), WakeFault> {
    let operators = &resolver.wakes.operators;
    if let Some(kept) = operators.kept().await {
        let said = timeout(KEPT_TIMEOUT, say_over(resolver, kept, key)).await;
        match said {
            Ok(Err(WakeFault::NoAnswer)) | Err(_) => {}
            Ok(said) => return said,
        }
    }
    let new = operators.connect(&resolver.settings.operator).await?;
    say_over(resolver, new, key).await
}

async fn say_over(
    resolver: &Resolver,
    mut operator: Connection,
    key: &ServiceKey,
) -> Result<(), WakeFault> {
    let wake = WakeRequest {
        count: u32::try_from(resolver.hold.held(key))
            .unwrap_or(u32::MAX)
            .max(1),
        svc: key.service.clone(),
        namespace: key.namespace.clone(),
    };
    let body = serde_json::to_vec(&wake).map_err(|_| WakeFault::Refused)?;
    let request = request(resolver, body)?;
    let answer = operator
        .send_request(request)
        .await
        .map_err(|_| WakeFault::NoAnswer)?;
    let status = answer.status();
    // A short answer is read to its end so that the connection can be kept; nothing of it is needed.
    let body = http_body_util::Limited::new(answer.into_body(), 64 * 1024);
    if http_body_util::BodyExt::collect(body).await.is_ok() {
        resolver.wakes.operators.keep(operator);
    }
    match status.as_u16() {
        200..=299 => Ok(()),
        401 | 403 => Err(WakeFault::Unauthorized),
        _ => Err(WakeFault::Refused),
    }
}

fn request(resolver: &Resolver, body: Vec<u8>) -> Result<Request<Full<Bytes>>, WakeFault> {
    let mut request = Request::post(names::WAKE_PATH)
        .header(header::HOST, resolver.settings.operator.as_str())
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(path) = &resolver.settings.token_file {
        // The kubelet replaces the file while we run; it lies in memory, so reading it does not block.
        let token = std::fs::read_to_string(path).map_err(|_| WakeFault::Token)?;
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()));
    }
    request
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| WakeFault::Token)
}

/// Follows the pods behind a service for as long as the future lives.
async fn watch_pods(resolver: &Arc<Resolver>, key: &ServiceKey) {
    let services: Api<Service> = Api::namespaced(resolver.client.clone(), &key.namespace);
    let private = names::private_service(&key.service);
    let service = loop {
        match services.get(&private).await {
            Ok(service) => break service,
            // Without it the slices alone tell when a pod is ready, a second later.
            Err(error) => {
                tracing::warn!(service = %key, %error, "the private Service cannot be read")
            }
        }
        sleep(BACKOFF_MAX).await;
    };
    let selector = service
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.clone())
        .unwrap_or_default();
    let selector: Vec<String> = selector
        .iter()
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    let mut pods = WokenPods::of(&service);
    resolver.routes.woken(key, Some(pods.clone()));
    if selector.is_empty() {
        // All pods of the namespace would match.
        return std::future::pending().await;
    }
    let api: Api<Pod> = Api::namespaced(resolver.client.clone(), &key.namespace);
    follow(
        api,
        Some(selector.join(",")),
        resolver.hold.urgent(),
        |change| {
            match change {
                Change::All(all) => pods.replace(&all),
                Change::Set(pod) => pods.set(&pod),
                Change::Gone(pod) => pods.remove(&pod),
            }
            resolver.routes.woken(key, Some(pods.clone()));
        },
    )
    .await;
}
