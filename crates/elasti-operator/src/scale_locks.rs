//! One writer of a target's scale at a time: the next one starts when the write before it has its answer.
//! Never decides who may write: the plan and the wake do.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::name::TargetName;

/// The turns of the targets that are being written.
#[derive(Debug, Default)]
pub(crate) struct ScaleLocks(Mutex<HashMap<TargetName, Arc<Turn<()>>>>);

impl ScaleLocks {
    /// Waits for a turn, which lasts as long as what this gives.
    pub(crate) async fn wait(&self, name: &TargetName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut scale_locks = self.0.lock();
            scale_locks.retain(|_, turn| Arc::strong_count(turn) > 1);
            scale_locks.entry(name.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
