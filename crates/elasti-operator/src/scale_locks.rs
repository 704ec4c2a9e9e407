//! One write of a target's scale at a time: the next one starts when the write before it has its answer. Promises that
//! nothing is scaled down take the same lock.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::name::{TargetName, Workload};

/// How long an ended promise is remembered: reports of resolvers from before its end prove nothing, and those are too old
/// by then anyway.
const REMEMBERED_FOR: SignedDuration = SignedDuration::from_mins(1);

/// A lock for each target that is being written, and until when nothing may be scaled down.
#[derive(Debug, Default)]
pub(crate) struct ScaleLocks {
    locks: Mutex<HashMap<Workload, Arc<tokio::sync::Mutex<()>>>>,
    /// Outlives the term in which it was given: a promise holds until it ends.
    promised: Mutex<HashMap<Workload, Timestamp>>,
}

/// The lock of one target.
pub(crate) struct ScaleLock<'a> {
    locks: &'a ScaleLocks,
    name: &'a TargetName,
    _held: OwnedMutexGuard<()>,
}

impl ScaleLocks {
    /// Waits for the target's lock.
    pub(crate) async fn lock<'a>(&'a self, name: &'a TargetName) -> ScaleLock<'a> {
        let lock = {
            let mut locks = self.locks.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(name.workload()).or_default().clone()
        };
        ScaleLock {
            locks: self,
            name,
            _held: lock.lock_owned().await,
        }
    }

    /// Until when the last promise about a target lasts, or lasted.
    pub(crate) fn promised_until(&self, name: &TargetName) -> Option<Timestamp> {
        self.promised.lock().get(&name.workload()).copied()
    }

    /// When the last promise about any target ends, or ended.
    pub(crate) fn last_promise_ends(&self) -> Option<Timestamp> {
        self.promised.lock().values().max().copied()
    }
}

impl ScaleLock<'_> {
    /// A promise about the target has not ended.
    pub(crate) fn is_promised(&self, now: Timestamp) -> bool {
        let until = self.locks.promised_until(self.name);
        until.is_some_and(|until| now < until)
    }

    /// Nothing scales the target down before `until`.
    pub(crate) fn promise(&self, until: Timestamp, now: Timestamp) {
        let mut promised = self.locks.promised.lock();
        promised.retain(|_, ended| now.duration_since(*ended) < REMEMBERED_FOR);
        let last = promised.entry(self.name.workload()).or_insert(until);
        *last = until.max(*last);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use jiff::{SignedDuration, Timestamp};

    use super::ScaleLocks;
    use crate::name::{KindName, Name, TargetName};

    fn target(name: &str) -> TargetName {
        TargetName {
            kind: KindName::new("apps", "v1", "Deployment"),
            name: Name::new("shop", name),
        }
    }

    #[tokio::test]
    async fn a_promise_waits_for_the_write_in_flight_and_holds_until_it_ends() {
        let locks = ScaleLocks::default();
        let (cart, other) = (target("cart"), target("other"));
        let (now, second) = (Timestamp::UNIX_EPOCH, SignedDuration::from_secs(1));
        let write = locks.lock(&cart).await;
        assert!(locks.lock(&cart).now_or_never().is_none());
        drop(write);
        let lock = locks.lock(&cart).await;
        lock.promise(now + second * 5, now);
        // A shorter one, of a lease that ends soon, takes nothing back.
        lock.promise(now + second * 2, now);
        assert!(lock.is_promised(now) && lock.is_promised(now + second * 4));
        assert!(!lock.is_promised(now + second * 5));
        assert!(!locks.lock(&other).await.is_promised(now));
        assert_eq!(locks.last_promise_ends(), Some(now + second * 5));
    }
}
