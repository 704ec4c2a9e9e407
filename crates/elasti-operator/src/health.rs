//! Whether the operator lives and is ready, in a way that means something.
//! Never calls a slow API a death: only what does not even try any more is dead.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use elasti_runtime::http_server::HttpServer;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::operator::Operator;

/// A watch tries something at least every 20 s, a list every 30 s; twice that and a little more is a death.
const LONGEST_SILENCE: Duration = Duration::from_secs(90);

/// For the health and metrics ports, which only the kubelet and Prometheus call.
pub(crate) const SCRAPED: HttpServer = HttpServer {
    max_connections: 256,
    max_connections_per_peer: 256,
    header_timeout: Duration::from_secs(30),
};

/// The sign of life of one task: it beats whenever the task tries something anew.
#[derive(Debug)]
pub(crate) struct Pulse {
    expected_by: Mutex<Instant>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            expected_by: Mutex::new(Instant::now() + LONGEST_SILENCE),
        }
    }
}

impl Pulse {
    /// Still trying.
    pub(crate) fn beat(&self) {
        self.rest(Duration::ZERO);
    }

    /// Still trying, but not before this has passed.
    pub(crate) fn rest(&self, rest: Duration) {
        *self.expected_by.lock() = Instant::now() + rest + LONGEST_SILENCE;
    }

    fn is_alive(&self) -> bool {
        Instant::now() < *self.expected_by.lock()
    }
}

/// The pulses of one operator.
#[derive(Debug, Default)]
pub(crate) struct Pulses(Mutex<Vec<Arc<Pulse>>>);

impl Pulses {
    /// One more task that must live.
    pub(crate) fn one_more(&self) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::default());
        self.0.lock().push(pulse.clone());
        pulse
    }

    /// All of them still try.
    pub(crate) fn all_alive(&self) -> bool {
        self.0.lock().iter().all(|pulse| pulse.is_alive())
    }
}

/// Serves `/healthz` and `/readyz` for as long as the future lives.
pub(crate) async fn serve(operator: Arc<Operator>, listener: TcpListener) {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(operator);
    let answer = move |_, request| router.clone().oneshot(request);
    SCRAPED.serve(listener, answer).await;
}

async fn healthz(State(operator): State<Arc<Operator>>) -> (StatusCode, &'static str) {
    if !operator.pulses.all_alive() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "a watch is stuck");
    }
    if operator.queue.is_wedged() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the work queue is stuck");
    }
    (StatusCode::OK, "ok")
}

async fn readyz(State(operator): State<Arc<Operator>>) -> (StatusCode, &'static str) {
    if operator.is_ready() {
        (StatusCode::OK, "ok")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster is still being read",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_tries_lives_and_one_that_does_not_even_try_is_dead() {
        let pulses = Pulses::default();
        let pulse = pulses.one_more();
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(30)).await;
            pulse.beat();
            assert!(pulses.all_alive(), "a slow API is not a death");
        }
        tokio::time::advance(LONGEST_SILENCE + Duration::from_secs(1)).await;
        assert!(!pulses.all_alive());
    }
}
