//! End-to-end tests that need a process, and its processors, for themselves: they measure its CPU time and memory, drive
//! timeouts close to their limits, or end it (a run of the campaign that never ends).
#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod campaign;
mod churn;
mod crowd;
mod first_byte;
mod hostile;

use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

/// Held by the one test that runs.
async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}
