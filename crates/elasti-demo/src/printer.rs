//! How the demo speaks: timed lines on standard output, progress on standard error.
//! Colour only adds to the words: it is there only on a terminal, never with NO_COLOR, and only blue and yellow.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use tokio::time::{Instant, interval_at};

const BOLD: &str = "\x1b[1m";
const BLUE: &str = "\x1b[1;34m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";
const CLEAR_LINE: &str = "\r\x1b[2K";

/// From when on waiting is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// How often a line that can be rewritten is, and one that cannot is followed by another.
const REWRITTEN_EVERY: Duration = Duration::from_millis(200);
const REPEATED_EVERY: Duration = Duration::from_secs(5);

/// The teller's voice.
#[derive(Debug)]
pub(crate) struct Printer {
    started: Instant,
    colour: bool,
    rewrites: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            started: Instant::now(),
            colour: std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb,
            rewrites: std::io::stderr().is_terminal() && !dumb,
        }
    }

    /// One line without a time.
    pub(crate) fn say(&self, line: &str) {
        // Nobody listens: the story goes on, and its end is the exit code.
        let _ = writeln!(std::io::stdout(), "{line}");
    }

    /// One thing that happened: when, in one word, and in a sentence.
    pub(crate) fn tell(&self, at: Instant, word: &str, sentence: &str) {
        self.hush();
        let seconds = at.saturating_duration_since(self.started).as_secs_f64();
        let (on, off) = match (self.colour, word) {
            (false, _) => ("", ""),
            (true, "asleep") => (BLUE, PLAIN),
            (true, "held") => (YELLOW, PLAIN),
            (true, _) => (BOLD, PLAIN),
        };
        self.say(&format!("{seconds:>6.1} s  {on}{word:<9}{off} {sentence}"));
    }

    /// Takes back a line of progress.
    pub(crate) fn hush(&self) {
        if self.rewrites {
            let _ = write!(std::io::stderr(), "{CLEAR_LINE}");
        }
    }

    /// Waits, and says for what as soon as it takes longer than a second.
    pub(crate) async fn while_waiting<T>(&self, what: &str, waited: impl Future<Output = T>) -> T {
        let since = Instant::now();
        let every = match self.rewrites {
            true => REWRITTEN_EVERY,
            false => REPEATED_EVERY,
        };
        let mut ticks = interval_at(since + SHOWN_AFTER, every);
        tokio::pin!(waited);
        let result = loop {
            tokio::select! {
                result = &mut waited => break result,
                _ = ticks.tick() => self.show(what, since.elapsed()),
            }
        };
        self.hush();
        result
    }

    fn show(&self, what: &str, waited: Duration) {
        let seconds = waited.as_secs_f64();
        let (start, end) = match self.rewrites {
            true => (CLEAR_LINE, ""),
            false => ("", "\n"),
        };
        let mut screen = std::io::stderr();
        let _ = write!(screen, "{start}          ... {what} ({seconds:.1} s){end}");
        let _ = screen.flush();
    }
}
