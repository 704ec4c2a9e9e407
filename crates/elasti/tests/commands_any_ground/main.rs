//! Commands for any ground: the simulated cluster, and with `cargo xtask e2e` the chart on a real cluster, word for word the same.
//! Never looks inside: each transcript is kept as a snapshot beside these files, one for both grounds.
#![cfg(feature = "cli")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod person;
#[path = "../words/mod.rs"]
mod words;

#[cfg(feature = "demo")]
mod demo;
mod doctors;
mod failing_wakes;
