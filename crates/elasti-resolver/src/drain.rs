//! How a resolver ends: not ready first, accepting for the settle time, then no new ones, and whoever waits is served.
//! Never cuts a connection off by itself; the second signal is the caller's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::resolver::Resolver;

/// How far a resolver is with ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It is not.
    #[default]
    Open,
    /// It says that it is not ready, and still accepts.
    Leaving,
    /// It accepts nothing new.
    Closing,
}

/// Waits for the stage in which connections should end.
#[derive(Debug)]
pub(crate) struct Closing {
    stage: watch::Receiver<Stage>,
    told: bool,
}

impl Closing {
    pub(crate) fn new(stage: watch::Receiver<Stage>) -> Self {
        Self { stage, told: false }
    }

    /// Ends once, when closing begins.
    pub(crate) async fn begins(&mut self) {
        if self.told
            || self
                .stage
                .wait_for(|stage| *stage == Stage::Closing)
                .await
                .is_err()
        {
            std::future::pending::<()>().await;
        }
        self.told = true;
    }
}

/// Counts the connections that are there.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    count: watch::Sender<usize>,
}

/// One connection that is there.
#[derive(Debug)]
pub(crate) struct Present(watch::Sender<usize>);

impl Presence {
    pub(crate) fn enter(&self) -> Present {
        self.count
            .send_modify(|count| *count = count.saturating_add(1));
        Present(self.count.clone())
    }

    async fn empty(&self) {
        // The sender is ours, so this ends only when the count is 0.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Ends when every connection has. Nodes stop sending new ones within `settle`, so until then all are accepted.
pub(crate) async fn drain(resolver: &Arc<Resolver>, settle: Duration) {
    resolver.stage.send_replace(Stage::Leaving);
    sleep(settle).await;
    resolver.stage.send_replace(Stage::Closing);
    resolver.presence.empty().await;
}
