//! End-to-end tests for any ground: the simulated cluster, and with `cargo xtask e2e` the chart on a real cluster, word for word the same.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod boundaries;
mod changes;
mod kinds;
mod life;
mod predecessor;
mod protocols;
mod wakes;
