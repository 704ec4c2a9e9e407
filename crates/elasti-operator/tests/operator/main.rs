//! The operator's parts against a simulated API server, resolvers and Prometheus. Clocks are paused, and every wait is
//! for a condition.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod activity;
mod at_rest;
mod environment;
mod leader;
mod prometheus;
mod scripted_server;
mod wake;
