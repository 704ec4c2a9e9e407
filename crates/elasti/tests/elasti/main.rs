//! The binary as users, Kubernetes and clients see it: commands and their output, processes, signals and exit codes.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod process;
mod sandbox;
mod transcript;

mod both_clusters;
mod check;
mod clients;
mod commands;
mod demo;
mod demo_real;
mod documents;
mod floods;
mod lint;
mod pages;
mod resolver_process;
mod sentry;
mod uninstall_hook;
