//! What the sample apps were asked: one line for each request that reached a pod.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// A node keeps this many visits; the longest test makes a tenth of them.
const LIMIT: usize = 500_000;

/// One request that reached a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The pod.
    pub pod: String,
    /// The request's path.
    pub path: String,
}

/// The visits of one node, in order; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Visits(Arc<Mutex<VecDeque<Visit>>>);

impl Visits {
    pub(crate) fn write(&self, pod: &str, path: &str) {
        let mut visits = self.0.lock();
        if visits.len() >= LIMIT {
            visits.pop_front();
        }
        visits.push_back(Visit {
            pod: pod.to_owned(),
            path: path.to_owned(),
        });
    }

    pub(crate) fn all(&self) -> Vec<Visit> {
        self.0.lock().iter().cloned().collect()
    }
}
