//! The commands that people use, as processes on a simulated cluster: what they print, where, and with which exit code.
//! Never looks inside: each transcript is kept as a snapshot beside these files.
#![cfg(feature = "cli")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod scene;
#[path = "../words/mod.rs"]
mod words;

mod failing_wakes;
mod listing;
mod manners;
mod pausing;
mod reasons;
mod screens;
mod user_requests;
