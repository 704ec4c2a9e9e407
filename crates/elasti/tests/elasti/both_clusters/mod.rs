//! Commands for any sandbox: the simulated cluster, and with `cargo xtask e2e` the chart on a real cluster, word for word the same.
//! Never looks inside: each transcript is kept as a snapshot beside these files, one for both grounds.

mod user;

mod check_and_lint;
mod demo;
mod failing_wakes;
