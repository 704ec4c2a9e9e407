//! The environment of end-to-end tests: a simulated or a real cluster, operators, resolvers, clients, and a log of every
//! request. Tests reach an operator or a resolver only through sockets and the API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::missing_panics_doc
)]

mod app;
mod client;
mod cluster;
mod permissions;
mod pod_watcher;
mod readings;
mod request_log;
mod scale_writes;
mod stand_in;
mod test_env;

pub use app::{App, Blueprint, Target, blueprint};
pub use client::{Answer, KeepAliveClient, Lost, get, get_of, greeting};
pub use cluster::{Installation, OPERATOR, RESOLVER, traefik};
pub use elasti_testkit::api_client::{ApiClient, MERGE, STRATEGIC};
pub use pod_watcher::{Edge, PodWatcher};
pub use request_log::{Entry, RequestLog};
pub use scale_writes::ScaleWrites;
pub use test_env::{NODE, OPERATOR_USER, RESOLVER_USER, TestEnv, TestEnvConfig, times};

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// How long a test waits for something that must come: only a broken build reaches it. On a real node a kubelet's ticks
/// and settle times have their full length.
pub const TIMEOUT: Duration = Duration::from_secs(120);

fn until_timeout() -> Duration {
    match cluster::is_real() {
        true => 3 * TIMEOUT,
        false => TIMEOUT,
    }
}

/// Waits for a condition.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = timeout(until_timeout(), async {
        while !holds().await {
            sleep(Duration::from_millis(15)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Logs of a failing test, if `RUST_LOG` asks for them.
pub fn logs() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    if let Ok(filter) = filter {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_test_writer()
            .try_init();
    }
}
