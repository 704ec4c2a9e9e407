//! What the two processes share, seen from outside.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod http_server;
mod old_certificate;
mod peer_tls;
mod sentry;
mod watch;
