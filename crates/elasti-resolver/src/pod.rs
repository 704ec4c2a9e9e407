//! One pod behind one port of a service, as the forwarders see it: what is under way to it, what is kept open to it.
//! Never decides whether it may be used: its `Backend` says that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use elasti_core::backends::{self, Backend, Candidate};

use crate::forward::pool::Pool;

/// What stays with a pod while the table around it is rebuilt.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    pub(crate) in_flight: AtomicU32,
    pub(crate) pool: Pool,
}

/// A backend with its ties.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) backend: Backend,
    pub(crate) state: Arc<PodState>,
}

/// Counts one request as under way to a pod for as long as it lives.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<PodState>);

impl Pod {
    pub(crate) fn under_way(&self) -> UnderWay {
        self.state.in_flight.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.state.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate for Pod {
    fn backend(&self) -> &Backend {
        &self.backend
    }

    fn in_flight(&self) -> u32 {
        self.state.in_flight.load(Ordering::Relaxed)
    }
}

/// The pod for the next request.
pub(crate) fn choose<'a>(pods: &'a [Pod], tried: &BTreeSet<String>) -> Option<&'a Pod> {
    // One pod, the usual case right after a wake, needs no luck.
    let pick = if pods.len() > 1 { rand::random() } else { 0 };
    backends::choose(pods, tried, pick)
}
