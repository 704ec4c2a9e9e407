//! Commands with the same transcripts on the simulated cluster and, with `cargo xtask e2e`, on a real one with the chart.

mod user;

mod check_and_lint;
mod demo;
mod failing_wakes;
