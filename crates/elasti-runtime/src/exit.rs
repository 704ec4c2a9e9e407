//! How a command ends: a line on standard error where it failed, an event for Sentry, and an exit code.

use std::process::ExitCode;

use crate::sentry::Delivery;

/// What the exit codes of every command mean, for its help text.
pub const CODES: &str = "Exit codes: 0 fine, 1 trouble found or work not done, 2 wrong usage.";

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

/// Logs why a process failed, and waits until Sentry has it.
pub async fn reported(ended: anyhow::Result<()>, sentry: Delivery) -> anyhow::Result<()> {
    if let Err(error) = &ended {
        tracing::error!(why = format!("{error:#}"), "the process ends with an error");
    }
    sentry.end().await;
    ended
}
