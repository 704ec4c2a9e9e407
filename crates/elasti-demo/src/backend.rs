//! Where the story plays: the simulated cluster in this process, or the kubeconfig's cluster.
//! Never tells anything: it lets requests be sent, and shows what is seen.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ledger::{Entry, Ledger};
use super::timeline::Timeline;

/// One service of the demo.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    /// Its cluster address.
    pub(crate) address: SocketAddr,
    /// How people write that address.
    pub(crate) host: String,
    /// What visitors ask it for.
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
    /// What became of them, once they have ended.
    pub(crate) answers: JoinSet<anyhow::Result<Vec<Entry>>>,
}

/// What a story needs of the place where it plays.
pub(crate) trait Backend {
    /// Requests that go on until they are stopped.
    type Traffic;

    fn services(&self) -> &[Service];
    fn timeline(&self) -> &Timeline;
    fn ledger(&self) -> &Ledger;
    /// How many requests resolvers hold for these services.
    async fn held(&self) -> usize;
    /// Lets triggers read what is to be read, for ever.
    async fn meter(&self);
    /// Sends one request to each service.
    async fn send_first(&self, patience: Duration) -> anyhow::Result<First>;
    /// Sends one request to each service at this pace.
    async fn send(&self, every: Duration, patience: Duration) -> anyhow::Result<Self::Traffic>;
    /// Sends no more, and waits for the answers that are due.
    async fn stop(&self, traffic: Self::Traffic) -> anyhow::Result<()>;
    /// Why services may sleep now; nobody has come for so many milliseconds.
    fn why_idle(&self, quiet_millis: &str) -> String;
    /// How to take part.
    fn invitation(&self) -> String;
}
