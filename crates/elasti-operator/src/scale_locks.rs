//! One write of a target's scale at a time: the next one starts when the write before it has its answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::name::TargetName;

/// A lock for each target that is being written.
#[derive(Debug, Default)]
pub(crate) struct ScaleLocks(Mutex<HashMap<TargetName, Arc<tokio::sync::Mutex<()>>>>);

impl ScaleLocks {
    /// Waits for the target's lock.
    pub(crate) async fn lock(&self, name: &TargetName) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(name.clone()).or_default().clone()
        };
        lock.lock_owned().await
    }
}
