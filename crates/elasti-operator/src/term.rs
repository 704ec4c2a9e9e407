//! Whether this process leads, and since when without a break.

use elasti_core::observed::Leadership;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The time for which this process leads without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) began: Timestamp,
    /// Until when the leader before this one surely watched the services.
    pub(crate) previous_leader_until: Option<Timestamp>,
}

/// The lease as the election reports it, and the term that follows from it.
#[derive(Debug)]
pub(crate) struct Terms {
    lease: watch::Receiver<Leadership>,
    current: Mutex<Option<Term>>,
}

impl Terms {
    pub(crate) fn new(lease: watch::Receiver<Leadership>) -> Self {
        Self {
            lease,
            current: Mutex::default(),
        }
    }

    /// Until when this process may write.
    pub(crate) fn leadership(&self) -> Leadership {
        *self.lease.borrow()
    }

    pub(crate) fn current(&self) -> Option<Term> {
        *self.current.lock()
    }

    /// Whether this process decides.
    pub(crate) fn leads(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn begin(&self, term: Term) {
        *self.current.lock() = Some(term);
    }

    pub(crate) fn end(&self) {
        *self.current.lock() = None;
    }
}
