//! Bounds what unfinished heads of HTTP/1 requests take of the memory of the process: clients may send a head as slowly as
//! they like for 30 s, on any number of connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// What hyper's first buffer has room for is part of what a connection costs, and is not counted.
const FREE_BYTES: usize = 8 * 1024;
/// 290 heads of 64 KiB at the same moment, or 2,000 of 16 KiB. One that is not sent slowly on purpose is whole within a
/// moment, and is not counted any more.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Those of all connections.
#[derive(Debug)]
pub(crate) struct UnfinishedHeads {
    bytes: AtomicUsize,
    most: usize,
}

impl Default for UnfinishedHeads {
    fn default() -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            most: MAX_BYTES,
        }
    }
}

impl UnfinishedHeads {
    /// For one connection.
    pub(crate) fn connection(self: &Arc<Self>) -> Arc<UnfinishedHead> {
        Arc::new(UnfinishedHead {
            all: self.clone(),
            bytes: AtomicUsize::new(0),
            upload: Mutex::default(),
            no_more: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        })
    }

    /// False if there would be too many.
    fn take(&self, bytes: usize) -> bool {
        let add = |taken: usize| {
            let after = taken.checked_add(bytes)?;
            (after <= self.most).then_some(after)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        bytes == 0 || self.bytes.fetch_update(set, fetch, add).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// That of one connection. Its reads and its requests take turns, so its own counts need no order between them.
#[derive(Debug)]
pub(crate) struct UnfinishedHead {
    all: Arc<UnfinishedHeads>,
    /// Read since the last head was whole.
    bytes: AtomicUsize,
    /// While it is open, what is read belongs to no head.
    upload: Mutex<Weak<OpenUpload>>,
    /// Nothing that is read belongs to a head any more.
    no_more: AtomicBool,
    refused: AtomicBool,
}

impl UnfinishedHead {
    /// So many bytes have been read; false if there is no room for them.
    pub(crate) fn read(&self, count: usize) -> bool {
        if self.no_more.load(Ordering::Relaxed) || self.upload.lock().strong_count() > 0 {
            return true;
        }
        let before = self.bytes.load(Ordering::Relaxed);
        let after = before.saturating_add(count);
        let fits = self.all.take(counted(after) - counted(before));
        if fits {
            self.bytes.store(after, Ordering::Relaxed);
        } else {
            self.refused.store(true, Ordering::Relaxed);
        }
        fits
    }

    /// A head is whole. If a body follows, what is read belongs to it for as long as a part of this lives: until the
    /// body has ended and its request has been answered, whichever is later.
    pub(crate) fn whole(&self, body_follows: bool) -> Option<Arc<OpenUpload>> {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.all.give_back(counted(bytes));
        let upload = body_follows.then(Arc::default);
        *self.upload.lock() = upload.as_ref().map(Arc::downgrade).unwrap_or_default();
        upload
    }

    /// No other head comes.
    pub(crate) fn was_last(&self) {
        self.no_more.store(true, Ordering::Relaxed);
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.all.give_back(counted(bytes));
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

impl Drop for UnfinishedHead {
    fn drop(&mut self) {
        drop(self.whole(false));
    }
}

/// A request with a body, of which both the body and the response have a part.
#[derive(Debug, Default)]
pub(crate) struct OpenUpload;

fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections with this much of a head each, until one is refused.
    fn fill(all: &Arc<UnfinishedHeads>, bytes: usize) -> Vec<Arc<UnfinishedHead>> {
        let mut open = Vec::new();
        loop {
            let one = all.connection();
            if !one.read(bytes) {
                assert!(one.was_refused());
                return open;
            }
            open.push(one);
        }
    }

    #[test]
    fn heads_that_are_sent_slowly_take_no_more_than_their_bound() {
        let all = Arc::<UnfinishedHeads>::default();
        let open = fill(&all, 60 * 1024);
        assert_eq!(open.len(), MAX_BYTES / (52 * 1024));
        let small = all.connection();
        assert!(small.read(FREE_BYTES), "a usual head is always read");
        assert!(!small.read(64 * 1024));
        drop(open[0].whole(false));
        assert!(all.connection().read(60 * 1024), "a whole head makes room");
        drop((open, small));
        assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_body_is_no_head_and_the_next_head_is_one_again() {
        let all = Arc::<UnfinishedHeads>::default();
        let one = all.connection();
        assert!(one.read(100));
        let body = one.whole(true);
        let answer = body.clone();
        assert!(one.read(10 * MAX_BYTES));
        drop(answer);
        assert!(one.read(10 * MAX_BYTES), "it was answered early");
        drop(body);
        assert!(!one.read(10 * MAX_BYTES));
    }

    #[test]
    fn what_follows_the_last_request_is_no_head() {
        let all = Arc::<UnfinishedHeads>::default();
        let one = all.connection();
        drop(one.whole(true));
        one.was_last();
        assert!(one.read(10 * MAX_BYTES));
    }

    /// As many connections as one listener may have, and the memory that the chart gives a resolver.
    #[test]
    fn without_a_bound_slow_heads_take_more_memory_than_a_resolver_has() {
        let (connections, memory) = (16_384, 512 << 20);
        for (most, takes) in [(MAX_BYTES, false), (usize::MAX, true)] {
            let all = Arc::new(UnfinishedHeads {
                most,
                ..UnfinishedHeads::default()
            });
            let open: Vec<_> = (0..connections).map(|_| all.connection()).collect();
            for one in &open {
                one.read(60 * 1024);
            }
            assert_eq!(all.bytes.load(Ordering::Relaxed) > memory, takes);
        }
    }
}
