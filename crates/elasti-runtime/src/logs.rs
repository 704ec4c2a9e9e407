//! One JSON line an event on standard output, filtered by `RUST_LOG`; errors are kept for Sentry too.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::sentry::Reports;

/// Why logs could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("logs are already set up in this process")]
pub struct AlreadySetUp;

/// Sends all events of this process to standard output as JSON lines. Without `RUST_LOG`, from level info on.
/// Returns the Sentry layer, which keeps nothing until it is started.
///
/// # Errors
/// If it was called before.
pub fn to_stdout() -> Result<Reports, AlreadySetUp> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt::layer().json().flatten_event(true);
    let reports = Reports::default();
    registry()
        .with(lines.with_filter(filter))
        .with(reports.clone().with_filter(LevelFilter::ERROR))
        .try_init()
        .map_err(|_| AlreadySetUp)?;
    Ok(reports)
}
