//! Tests of the core: the model checker, tables over the planner, golden scenarios, and the core's dependencies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    missing_docs,
    reason = "tests may panic, and nothing outside uses them"
)]

mod adoption;
mod laws;
mod model;
mod plan_tables;
mod purity;
mod scenarios;
mod windows;
