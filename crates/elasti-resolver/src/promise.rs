//! What the leader promised about the pods of a service: it stops none of them for a while, so requests may go to them
//! although they are marked.

use std::collections::HashSet;
use std::time::Duration;

use elasti_api::WakePromise;
use tokio::time::Instant;

/// A promise of the leader.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) until: Instant,
    /// The uids of the pods that it covers.
    pods: HashSet<String>,
}

impl Promise {
    /// Counts from before the wake was sent, so that it ends here no later than at the leader. One of another version may
    /// last longer than any of ours, but not for ever.
    pub(crate) fn new(promise: WakePromise, sent_at: Instant) -> Self {
        let lasts = Duration::from_millis(promise.millis).min(MAX_DURATION);
        Self {
            until: sent_at + lasts,
            pods: promise.pods.into_iter().map(|pod| pod.uid).collect(),
        }
    }

    /// Until when it covers the pod with this uid.
    pub(crate) fn covers(&self, uid: &str) -> Option<Instant> {
        self.pods.contains(uid).then_some(self.until)
    }
}

/// Far more than any leader's lease.
const MAX_DURATION: Duration = Duration::from_secs(60);
