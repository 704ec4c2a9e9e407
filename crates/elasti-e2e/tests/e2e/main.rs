//! End-to-end tests: operators, resolvers and clients in a cluster. `cargo xtask e2e` runs those in `both_clusters` and
//! `installation` on a real one.
#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
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
mod predecessor;
mod promises;
mod user_requests;
mod wakes;
