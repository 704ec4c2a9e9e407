//! How a command that failed ends: a few words on standard error, for processes word to Sentry, and an exit code.
//! Never ends the process itself: `main` returns the code.

use std::process::ExitCode;

use elasti_runtime::sentry::Delivery;

/// What the exit codes of every command mean, for its help text.
#[cfg(feature = "cli")]
pub(crate) const CODES: &str =
    "Exit codes: 0 fine, 1 trouble found or work not done, 2 wrong usage.";

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failed {
    /// What it was told cannot be used: exit code 2, like a wrong argument.
    Told(String),
    /// It did its work, found trouble, and has said so already: exit code 1.
    #[cfg(feature = "cli")]
    Trouble,
    /// Everything else: exit code 1.
    Work(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Work(error.into())
    }
}

/// The code to end with, after the line is written.
pub(crate) fn code(ended: Result<(), Failed>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Told(line)) => {
            eprintln!("elasti: {line}");
            ExitCode::from(2)
        }
        #[cfg(feature = "cli")]
        Err(Failed::Trouble) => ExitCode::FAILURE,
        Err(Failed::Work(error)) => {
            eprintln!("elasti: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs why a process ends if it should not, and lets Sentry hear of it before it does.
pub(crate) async fn reported(ended: anyhow::Result<()>, sentry: Delivery) -> anyhow::Result<()> {
    if let Err(error) = &ended {
        tracing::error!(why = format!("{error:#}"), "the process ends with an error");
    }
    sentry.end().await;
    ended
}
