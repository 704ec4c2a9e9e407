//! One JSON line an event on standard output, filtered by `RUST_LOG`.
//! Never logs by itself.

use tracing_subscriber::EnvFilter;

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("logs are already set up in this process")]
pub struct AlreadySetUp;

/// Sends all events of this process to standard output as JSON lines. Without `RUST_LOG`, from level info on.
///
/// # Errors
/// If it was called before.
pub fn to_stdout() -> Result<(), AlreadySetUp> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
        .map_err(|_| AlreadySetUp)
}
