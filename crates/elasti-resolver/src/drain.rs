//! How a resolver ends: not ready first, accepting for the settle time, then nothing new, and held requests are served.
//! Never cuts a connection off by itself; the second signal is the caller's.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// How far a resolver is with ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Serving,
    /// It reports that it is not ready, and still accepts.
    Leaving,
    /// It accepts nothing new.
    Closing,
}

/// From start to shutdown: the stage, and the connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    stage: watch::Sender<Stage>,
    connections: watch::Sender<usize>,
}

impl Lifecycle {
    pub(crate) fn is_serving(&self) -> bool {
        *self.stage.borrow() == Stage::Serving
    }

    pub(crate) fn is_closing(&self) -> bool {
        *self.stage.borrow() == Stage::Closing
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing {
            stage: self.stage.subscribe(),
            begun: false,
        }
    }

    /// Counts a connection as open for as long as the guard lives.
    pub(crate) fn count_connection(&self) -> ConnectionGuard {
        self.connections
            .send_modify(|count| *count = count.saturating_add(1));
        ConnectionGuard(self.connections.clone())
    }

    /// Ends when every connection has. Nodes stop sending new ones within `settle`, so until then all are accepted.
    pub(crate) async fn drain(&self, settle: Duration) {
        self.stage.send_replace(Stage::Leaving);
        sleep(settle).await;
        self.stage.send_replace(Stage::Closing);
        let mut open = self.connections.subscribe();
        // The sender is ours, so this ends only when the count is 0.
        let _ = open.wait_for(|count| *count == 0).await;
    }
}

/// Waits for the stage in which connections should end.
#[derive(Debug)]
pub(crate) struct Closing {
    stage: watch::Receiver<Stage>,
    begun: bool,
}

impl Closing {
    /// Ends once, when closing begins.
    pub(crate) async fn begins(&mut self) {
        if self.begun
            || self
                .stage
                .wait_for(|stage| *stage == Stage::Closing)
                .await
                .is_err()
        {
            std::future::pending::<()>().await;
        }
        self.begun = true;
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(watch::Sender<usize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
