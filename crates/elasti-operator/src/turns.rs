//! Turns: who writes a target's scale waits until the one before has heard how his write ended.
//! Never decides who may write: the plan and the wake do.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::name::TargetName;

/// The turns of the targets that are being written.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<TargetName, Arc<Turn<()>>>>);

impl Turns {
    /// Waits for a turn, which lasts as long as what this gives.
    pub(crate) async fn wait(&self, name: &TargetName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(name.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
