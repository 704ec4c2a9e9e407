//! One pod behind one port of a service: its address, its requests in flight and its pooled connections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use elasti_core::backends::{self, Backend, Candidate};
use tokio::time::Instant;

use crate::forward::pool::Pool;
use crate::pod_lookups::Standing;

/// What stays with a pod while the table around it is rebuilt.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    pub(crate) in_flight: AtomicU32,
    pub(crate) pool: Pool,
    /// Whether the pod has this address.
    pub(crate) standing: Standing,
}

/// A backend with its state.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) backend: Backend,
    /// The leader promised not to stop it before then.
    pub(crate) promised_until: Option<Instant>,
    pub(crate) state: Arc<PodState>,
}

/// Counts one request as in flight to a pod for as long as it lives.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<PodState>);

impl Pod {
    pub(crate) fn begin_request(&self) -> InFlightGuard {
        self.state.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.state.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate for Pod {
    fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Judged anew for each request: not one is sent after the end of a promise.
    fn usable(&self) -> bool {
        let promised = || {
            let until = self.promised_until;
            until.is_some_and(|until| Instant::now() < until) && self.backend.usable_if_promised()
        };
        !self.state.standing.is_refused() && (self.backend.usable() || promised())
    }

    fn in_flight(&self) -> u32 {
        self.state.in_flight.load(Ordering::Relaxed)
    }
}

/// The pod for the next request.
pub(crate) fn choose<'a>(pods: &'a [Pod], tried: &BTreeSet<String>) -> Option<&'a Pod> {
    // One pod, the usual case right after a wake, needs no random number.
    let pick = if pods.len() > 1 { rand::random() } else { 0 };
    backends::choose(pods, tried, pick)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use elasti_api::{PromisedPod, WakePromise};
    use tokio::time::advance;

    use super::*;
    use crate::promise::Promise;

    /// A pod that is marked, and what the leader promised about the pod with `uid`.
    fn marked(uid: &str, promise: &Promise) -> Pod {
        Pod {
            backend: Backend {
                pod: "cart-1".into(),
                uid: uid.into(),
                address: ([10, 0, 0, 1], 80).into(),
                ready: false,
                terminating: false,
                marked: true,
                probed: false,
                sick: false,
            },
            promised_until: promise.covers(uid),
            state: Arc::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_marked_pod_is_usable_exactly_while_a_promise_covers_it() {
        let pods = vec![PromisedPod {
            name: "cart-1".into(),
            uid: "1".into(),
        }];
        let sent_at = Instant::now();
        // The answer took 200 ms, which count.
        advance(Duration::from_millis(200)).await;
        let promise = Promise::new(WakePromise { millis: 1000, pods }, sent_at);
        let (covered, another) = (marked("1", &promise), marked("2", &promise));
        assert!(covered.usable());
        assert!(!another.usable(), "a new pod of the same name");
        advance(Duration::from_millis(799)).await;
        assert!(covered.usable());
        advance(Duration::from_millis(1)).await;
        assert!(!covered.usable());
        assert!(choose(&[covered], &BTreeSet::new()).is_none());
    }
}
