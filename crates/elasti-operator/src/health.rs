//! Liveness and readiness. A slow API server is not a reason to restart: only a task that has stopped trying is.

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

use crate::cluster::Cluster;

/// A watch that brings nothing is renewed after 75 s, a page of a list after 30 s; twice that and a little more means that
/// it is stuck.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(180);

/// For the health and metrics ports, which only the kubelet and Prometheus call.
pub(crate) const SCRAPED: HttpServer = HttpServer {
    max_connections: 256,
    max_connections_per_peer: 32,
    header_timeout: Duration::from_secs(30),
};

/// The heartbeat of one task: it beats whenever the task tries something again.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    expected_by: Mutex<Instant>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            expected_by: Mutex::new(Instant::now() + HEARTBEAT_TIMEOUT),
        }
    }
}

impl Heartbeat {
    /// Still trying.
    pub(crate) fn beat(&self) {
        self.beat_after(Duration::ZERO);
    }

    /// Still trying, but the next beat comes only after this pause.
    pub(crate) fn beat_after(&self, pause: Duration) {
        *self.expected_by.lock() = Instant::now() + pause + HEARTBEAT_TIMEOUT;
    }

    fn is_alive(&self) -> bool {
        Instant::now() < *self.expected_by.lock()
    }
}

/// The heartbeats of one operator's tasks.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    tasks: Mutex<Vec<Arc<Heartbeat>>>,
    groups: Mutex<Vec<Arc<Heartbeats>>>,
}

impl Heartbeats {
    /// One more task that must keep trying.
    pub(crate) fn register(&self) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat::default());
        self.tasks.lock().push(heartbeat.clone());
        heartbeat
    }

    /// Tasks that must keep trying until they are ended together.
    pub(crate) fn group(&self) -> Arc<Self> {
        let group = Arc::new(Self::default());
        self.groups.lock().push(group.clone());
        group
    }

    /// The tasks of a group were ended.
    pub(crate) fn end_group(&self, group: &Arc<Self>) {
        self.groups.lock().retain(|one| !Arc::ptr_eq(one, group));
    }

    /// All of them still try.
    pub(crate) fn all_alive(&self) -> bool {
        let tasks = self.tasks.lock().iter().all(|task| task.is_alive());
        tasks && self.groups.lock().iter().all(|group| group.all_alive())
    }
}

/// Serves `/healthz` and `/readyz` for as long as the future lives.
pub(crate) async fn serve(
    cluster: Arc<Cluster>,
    heartbeats: Arc<Heartbeats>,
    listener: TcpListener,
) {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state((cluster, heartbeats));
    let answer = move |_, request| router.clone().oneshot(request);
    SCRAPED.serve(listener, answer).await;
}

type Checked = State<(Arc<Cluster>, Arc<Heartbeats>)>;

async fn healthz(State((cluster, heartbeats)): Checked) -> (StatusCode, &'static str) {
    if !heartbeats.all_alive() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "a watch is stuck");
    }
    if cluster.queue.is_stuck() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the work queue is stuck");
    }
    (StatusCode::OK, "ok")
}

async fn readyz(State((cluster, _)): Checked) -> (StatusCode, &'static str) {
    match cluster.store.cache().is_listed() {
        true => (StatusCode::OK, "ok"),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the cluster is still being read",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_is_alive_for_as_long_as_it_keeps_trying() {
        let heartbeats = Heartbeats::default();
        let heartbeat = heartbeats.register();
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(75)).await;
            heartbeat.beat();
            assert!(
                heartbeats.all_alive(),
                "a slow API server is no reason to restart"
            );
        }
        let group = heartbeats.group();
        let _ends = group.register();
        tokio::time::advance(HEARTBEAT_TIMEOUT + Duration::from_secs(1)).await;
        assert!(!heartbeats.all_alive());
        heartbeat.beat();
        assert!(!heartbeats.all_alive(), "the group does not try any more");
        heartbeats.end_group(&group);
        assert!(heartbeats.all_alive());
    }
}
