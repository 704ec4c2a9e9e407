//! The leader's answer to a wake for a target that is scaled up: no write downwards for a while. Resolvers may then
//! send requests to pods that are marked for a drain, without waiting until the mark is removed.

use elasti_api::PromisedPod;
use jiff::{SignedDuration, Timestamp};

use crate::observed::{Leadership, Observed, Pod};
use crate::plan::zero_may_be_acted_on_until;

/// So many pods answer what was held, and the message stays small: 32 x 330 bytes are 11 kB.
const MAX_PODS: usize = 32;

/// No write downwards before `until`, and the pods that may receive requests until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Never later than the end of the leader's lease, so that the next leader need not know of it.
    pub until: Timestamp,
    /// At least one; none of them terminates or may be about to.
    pub pods: Vec<PromisedPod>,
}

impl Promise {
    /// What can be promised by these facts. Nothing while a scale-down may have been sent whose effect is not seen yet,
    /// by this process or by the one before it: which pods it stops is not known.
    #[must_use]
    pub fn observe(o: &Observed) -> Option<Self> {
        let Leadership::Leader { until: lease_end } = o.leadership else {
            return None;
        };
        let just_began = o.since(o.stable_since.watching_since) < o.settings.settle;
        if o.replicas().unwrap_or(0) == 0 || is_going_down(o) || just_began {
            return None;
        }
        let until = o.now.checked_add(o.settings.promise).ok()?.min(lease_end);
        let pods: Vec<PromisedPod> = o
            .pods
            .iter()
            .filter(|pod| may_receive(pod))
            .take(MAX_PODS)
            .map(|pod| PromisedPod {
                name: pod.name.clone(),
                uid: pod.uid.clone(),
            })
            .collect();
        (until > o.now && !pods.is_empty()).then_some(Self { until, pods })
    }

    /// How long it lasts from `now` on.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> SignedDuration {
        self.until.duration_since(now).max(SignedDuration::ZERO)
    }
}

/// Pods may be about to be stopped: after anything but our own writes, until controllers have caught up.
fn is_going_down(o: &Observed) -> bool {
    let catching_up = || zero_may_be_acted_on_until(o).is_some_and(|moment| o.now < moment);
    o.stable_since.steady.is_none() && catching_up()
}

/// Alive, and ready but for our mark.
fn may_receive(pod: &Pod) -> bool {
    pod.containers_ready && !pod.terminating && (pod.ready || pod.marked)
}
