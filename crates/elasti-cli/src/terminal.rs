//! What the terminal can do: colour, width, and a line that tells what is waited for.
//! Colour only adds to words: never without a terminal, never with NO_COLOR, and only blue and yellow, which everyone can tell apart.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, interval_at};

const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[34m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\r\x1b[2K";

/// From when on waiting is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const REWRITTEN_EVERY: Duration = Duration::from_millis(200);
const REPEATED_EVERY: Duration = Duration::from_secs(5);

/// How a piece of text is to stand out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Asleep.
    Calm,
    /// Worth a look.
    Alert,
}

/// What standard output can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) colour: bool,
    /// Columns; `None` if what reads is no terminal and takes lines of any length.
    pub(crate) columns: Option<usize>,
    pub(crate) rows: usize,
    /// It is a terminal on which lines can be rewritten.
    pub(crate) live: bool,
}

impl Terminal {
    /// Standard output as it is.
    pub(crate) fn of_output() -> Self {
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
    pub(crate) fn plain() -> Self {
        Self {
            colour: false,
            columns: None,
            rows: 24,
            live: false,
        }
    }

    /// The text in its tone, where there is colour.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
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

/// Waits, and says for what on standard error as soon as it takes longer than a second.
pub(crate) async fn while_waiting<T>(
    what: impl Fn() -> String,
    waited: impl Future<Output = T>,
) -> T {
    let rewrites = std::io::stderr().is_terminal() && !is_dumb();
    let since = Instant::now();
    let every = match rewrites {
        true => REWRITTEN_EVERY,
        false => REPEATED_EVERY,
    };
    let mut ticks = interval_at(since + SHOWN_AFTER, every);
    tokio::pin!(waited);
    let result = loop {
        tokio::select! {
            result = &mut waited => break result,
            _ = ticks.tick() => show(rewrites, &what(), since.elapsed()),
        }
    };
    if rewrites {
        let _ = write!(std::io::stderr(), "{CLEAR_LINE}");
    }
    result
}

fn show(rewrites: bool, what: &str, waited: Duration) {
    let seconds = waited.as_secs();
    let (start, end) = match rewrites {
        true => (CLEAR_LINE, ""),
        false => ("", "\n"),
    };
    let mut screen = std::io::stderr();
    // Nobody looks: the work goes on.
    let _ = write!(screen, "{start}... {what} ({seconds} s){end}");
    let _ = screen.flush();
}
