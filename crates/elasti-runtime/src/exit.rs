//! How a command ends: a line on standard error where it failed, an event for Sentry, and an exit code.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::file_limit;
use crate::sentry::{self, Reports};

/// What the exit codes of every command mean, for its help text.
pub const CODES: &str = "Exit codes: 0 success, 1 problem found or command failed, 2 wrong usage.";

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failed {
    /// Arguments or environment that cannot be used: exit code 2, as clap has it.
    Usage(String),
    /// It did its work, found problems, and has printed them: exit code 1.
    Reported,
    /// Everything else: exit code 1.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Prints why it failed, and gives the exit code.
pub fn code(ended: Result<(), Failed>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Usage(line)) => {
            eprintln!("elasti: {line}");
            ExitCode::from(2)
        }
        Err(Failed::Reported) => ExitCode::FAILURE,
        Err(Failed::Other(error)) => {
            eprintln!("elasti: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a process to its end. Why it failed goes to the log, and to Sentry if that is set up.
pub fn run(
    process: &'static str,
    reports: &Reports,
    sentry: Option<sentry::Settings>,
    work: impl Future<Output = anyhow::Result<()>>,
) -> Result<(), Failed> {
    file_limit::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let ended = runtime.block_on(async {
        let delivery = reports.start(sentry, process);
        let ended = work.await;
        if let Err(error) = &ended {
            tracing::error!(why = format!("{error:#}"), "the process ends with an error");
        }
        delivery.end().await;
        ended
    });
    // A pending DNS lookup must not delay the exit.
    runtime.shutdown_background();
    ended.map_err(Failed::from)
}
