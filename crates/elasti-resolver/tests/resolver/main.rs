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

mod bounds;
mod channels;
mod corpus;
mod docs;
mod endings;
mod faults;
mod first_request;
mod forged;
mod grpc;
mod hold;
mod ipv6;
mod many;
mod pods;
mod ports;
mod probe_ahead;
mod processes;
mod refusals;
mod sources;
mod streams;
mod telling;
mod ten_thousand;
mod tls;
mod windows;
