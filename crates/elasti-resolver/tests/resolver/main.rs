//! The tests of the resolver, in one binary. Most run with a paused clock: every wait is for a condition.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod corpus;
mod docs;
mod faults;
mod first_request;
mod hold;
mod ipv6;
mod many;
mod pods;
mod processes;
mod refusals;
mod streams;
mod ten_thousand;
