//! What the tests of several crates share.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on fails"
)]

pub mod api_client;
pub mod fixture;
pub mod operator_stub;
pub mod predecessor_metrics;
pub mod sentry_stub;
pub mod test_names;
pub mod tls;
