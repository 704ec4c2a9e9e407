//! The terminal: colour, width, and a progress line.
//! No colour without a terminal or with NO_COLOR, and only blue and yellow, which colour-blind people can tell apart.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, interval_at};

const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[34m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Shorter waits show no progress.
const PROGRESS_DELAY: Duration = Duration::from_secs(1);
const REWRITE_INTERVAL: Duration = Duration::from_millis(200);
const REPEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Emphasis of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// None.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Asleep.
    Calm,
    /// A problem.
    Alert,
}

/// What standard output can show.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Whether to use colour.
    pub colour: bool,
    /// Columns; `None` if what reads is no terminal and takes lines of any length.
    pub columns: Option<usize>,
    /// Rows.
    pub rows: usize,
    /// It is a terminal on which lines can be rewritten.
    pub live: bool,
}

impl Terminal {
    /// Standard output as it is.
    pub fn of_output() -> Self {
        let out = std::io::stdout();
        let live = out.is_terminal() && !is_dumb();
        let size = rustix::termios::tcgetwinsize(&out).ok();
        let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let written = std::env::var("COLUMNS").ok();
        let written = written
            .and_then(|text| text.parse().ok())
            .filter(|n| *n > 0);
        Self {
            colour: live && !is_set("NO_COLOR"),
            columns: written.or(size.map(|size| usize::from(size.ws_col))),
            rows: size.map_or(24, |size| usize::from(size.ws_row)),
            live,
        }
    }

    /// No terminal at all: lines of any length, without colour.
    pub fn plain() -> Self {
        Self {
            colour: false,
            columns: None,
            rows: 24,
            live: false,
        }
    }

    /// The text in its tone, where there is colour.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let on = match tone {
            _ if !self.colour => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Strong => BOLD,
            Tone::Calm => BLUE,
            Tone::Alert => YELLOW,
        };
        format!("{on}{text}{PLAIN}")
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Waits, and shows progress on standard error if it takes longer than a second.
pub async fn while_waiting<T>(what: impl Fn() -> String, waited: impl Future<Output = T>) -> T {
    let rewrites = rewrites_progress();
    let since = Instant::now();
    let every = match rewrites {
        true => REWRITE_INTERVAL,
        false => REPEAT_INTERVAL,
    };
    let mut ticks = interval_at(since + PROGRESS_DELAY, every);
    tokio::pin!(waited);
    let result = loop {
        tokio::select! {
            result = &mut waited => break result,
            _ = ticks.tick() => show(rewrites, &what(), since.elapsed()),
        }
    };
    clear_progress();
    result
}

/// Removes the line of progress.
pub fn clear_progress() {
    if rewrites_progress() {
        let _ = write!(std::io::stderr(), "{CLEAR_LINE}");
    }
}

fn rewrites_progress() -> bool {
    std::io::stderr().is_terminal() && !is_dumb()
}

fn show(rewrites: bool, what: &str, waited: Duration) {
    let seconds = waited.as_secs();
    let (start, end) = match rewrites {
        true => (CLEAR_LINE, ""),
        false => ("", "\n"),
    };
    let mut screen = std::io::stderr();
    // With standard error closed the work goes on.
    let _ = write!(screen, "{start}... {what} ({seconds} s){end}");
    let _ = screen.flush();
}
