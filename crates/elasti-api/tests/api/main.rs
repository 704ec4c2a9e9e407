//! Tests of the API: what the CRD accepts, refuses and shows.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a table or CRD that cannot be read fails the test"
)]

mod acceptance;
mod crd;
mod upgrade;
