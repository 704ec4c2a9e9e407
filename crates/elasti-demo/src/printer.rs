//! The demo's output: timed lines on standard output, progress on standard error.

use std::io::Write as _;

use elasti_cli::terminal::{self, Terminal, Tone};
use tokio::time::Instant;

/// Prints the steps.
#[derive(Debug)]
pub(crate) struct Printer {
    started: Instant,
    terminal: Terminal,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            terminal: Terminal::of_output(),
        }
    }

    /// One line without a time.
    pub(crate) fn line(&self, line: &str) {
        // With a closed pipe the demo goes on: the exit code still counts.
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// One step: when, in one word, and in a sentence.
    pub(crate) fn step(&self, at: Instant, word: &str, sentence: &str) {
        self.clear_progress();
        let seconds = at.saturating_duration_since(self.started).as_secs_f64();
        let tone = match word {
            "asleep" => Tone::Calm,
            "held" => Tone::Alert,
            _ => Tone::Strong,
        };
        let word = self.terminal.paint(tone, &format!("{word:<9}"));
        self.line(&format!("{seconds:>6.1} s  {word} {sentence}"));
    }

    /// Removes the line of progress.
    pub(crate) fn clear_progress(&self) {
        terminal::clear_progress();
    }

    /// Waits, and shows progress if it takes longer than a second.
    pub(crate) async fn while_waiting<T>(&self, what: &str, waited: impl Future<Output = T>) -> T {
        terminal::while_waiting(|| what.to_owned(), waited).await
    }
}
