//! End-to-end tests: operators, resolvers and clients in a cluster. `cargo xtask e2e` runs those in `both_clusters` and
//! `installation` on a real one, with `--slow` those in `slow` too, and with `--partners` those in `partners`.
#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod adoption;
mod both_clusters;
mod boundaries;
mod changes;
mod groups;
mod installation;
mod monitoring;
mod namespaced;
mod neighbours;
mod partners;
mod predecessor;
mod promises;
mod slow;
mod slow_starts;
mod tls;
mod user_requests;
mod wakes;
