//! Journeys for any ground: the town, and with `cargo xtask journeys` the chart on a real cluster, word for word the same.
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
