//! What the sample apps were asked: one line for each request that reached a pod.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A node keeps this many visits; the longest test makes a tenth of them.
const LIMIT: usize = 500_000;

/// One request that reached a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The pod.
    pub pod: String,
    /// The request's path.
    pub path: String,
    /// When it came.
    pub at: Instant,
}

/// The visits of one node, in order; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Visits(Arc<Mutex<VecDeque<Visit>>>);

impl Visits {
    pub(crate) fn write(&self, pod: &str, path: &str) {
        let mut visits = self.0.lock();
        if visits.len() >= LIMIT {
            visits.pop_front();
        }
        visits.push_back(Visit {
            pod: pod.to_owned(),
            path: path.to_owned(),
            at: Instant::now(),
        });
    }

    pub(crate) fn all(&self) -> Vec<Visit> {
        self.0.lock().iter().cloned().collect()
    }

    /// How many of the last `window` went to pods that `counts` accepts.
    #[must_use]
    pub fn count_within(&self, window: Duration, counts: impl Fn(&str) -> bool) -> usize {
        let now = Instant::now();
        let visits = self.0.lock();
        let recent = visits.iter().rev();
        let recent = recent.take_while(|one| now.saturating_duration_since(one.at) < window);
        recent.filter(|one| counts(&one.pod)).count()
    }
}
