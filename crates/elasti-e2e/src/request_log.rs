//! The log of every request of a test and its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::client::{Answer, Lost};

/// One request and what became of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The app it was for.
    pub app: String,
    /// Its path, different for each request.
    pub path: String,
    /// When it was sent.
    pub sent_at: Instant,
    /// How long it took.
    pub took: Duration,
    /// What came back.
    pub outcome: Result<Answer, Lost>,
}

/// All requests of one test; clones share it.
#[derive(Clone, Debug, Default)]
pub struct RequestLog {
    entries: Arc<Mutex<Vec<Entry>>>,
    last: Arc<AtomicU64>,
}

impl RequestLog {
    /// A number that no other request of this test has.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Writes one down.
    pub fn write(&self, entry: Entry) {
        self.entries.lock().push(entry);
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<Entry> {
        self.entries.lock().clone()
    }

    /// Those without a whole answer of the app's own.
    #[must_use]
    pub fn lost(&self) -> Vec<Entry> {
        let mut all = self.all();
        all.retain(|entry| !matches!(&entry.outcome, Ok(answer) if answer.code() == 200));
        all
    }

    /// Ends the test if a request got no whole answer of the app's own.
    pub fn assert_nothing_lost(&self) {
        let lost = self.lost();
        let total = self.all().len();
        assert!(lost.is_empty(), "{} of {total} lost: {lost:#?}", lost.len());
    }
}
