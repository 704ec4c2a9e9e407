//! A hold that has ended: how long it took and how it ended, for metrics, the access log and spans.

use std::time::Duration;

use tokio::time::Instant;

use crate::answer::Failure;

/// A hold that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedHold {
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    /// Why the request was not released.
    pub(crate) refused: Option<Failure>,
}

impl EndedHold {
    /// One that ends now.
    pub(crate) fn now(since: Instant, refused: Option<Failure>) -> Self {
        Self {
            since,
            until: Instant::now(),
            refused,
        }
    }

    pub(crate) fn took(&self) -> Duration {
        self.until.duration_since(self.since)
    }

    /// `released`, or the reason why not.
    pub(crate) fn outcome(&self) -> &'static str {
        self.refused
            .map_or("released", |failure| failure.reason().as_str())
    }
}
