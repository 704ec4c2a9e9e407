//! The cluster of the demo: the simulated one in this process, or the kubeconfig's.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::request_log::{Entry, RequestLog};
use super::timeline::Timeline;

/// One service of the demo.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// Its cluster address.
    pub(crate) address: SocketAddr,
    /// The address for people.
    pub(crate) host: String,
    /// The path that clients request.
    pub(crate) path: &'static str,
}

impl Service {
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.host, self.path)
    }
}

/// The first request to every service.
pub(crate) struct First {
    pub(crate) sent_at: Instant,
    /// Their outcomes, once they have ended.
    pub(crate) answers: JoinSet<anyhow::Result<Vec<Entry>>>,
}

/// What the steps need of a cluster.
pub(crate) trait Backend {
    /// Requests that go on until they are stopped.
    type Traffic;

    fn services(&self) -> &[Service];
    fn timeline(&self) -> &Timeline;
    fn requests(&self) -> &RequestLog;
    /// How many requests resolvers hold for these services.
    async fn held(&self) -> usize;
    /// Sends one request to each service.
    async fn send_first(&self, timeout: Duration) -> anyhow::Result<First>;
    /// Sends one request to each service at this interval.
    async fn send(&self, every: Duration, timeout: Duration) -> anyhow::Result<Self::Traffic>;
    /// Sends no more, and waits for outstanding responses.
    async fn stop(&self, traffic: Self::Traffic) -> anyhow::Result<()>;
    /// Why services may sleep now, after this many milliseconds without a request.
    fn why_idle(&self, quiet_millis: &str) -> String;
    /// How the user can send a request.
    fn invitation(&self) -> String;
    /// Creates again what the user deleted of these services; says what that was, or what went wrong.
    async fn restore(&self) -> Vec<String>;
}
