//! The keys of a terminal, one at a time: without Enter, and without an echo on the screen.

use std::io::{IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// More than anyone types before the screen has followed.
const WAITING_KEYS: usize = 64;

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
}

/// Keys as they are pressed; the terminal is left as it was.
pub(super) struct Keys {
    pressed: mpsc::Receiver<Key>,
    _mode: Option<KeyMode>,
}

/// A terminal that hands over each key at once. Ctrl-C stays a signal.
struct KeyMode(Termios);

impl KeyMode {
    fn enter() -> Option<Self> {
        let input = std::io::stdin();
        let before = tcgetattr(&input).ok()?;
        let mut keys = before.clone();
        keys.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Now, &keys).ok()?;
        Some(Self(before))
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

impl Keys {
    /// Without a terminal no key ever comes.
    pub(super) fn listen() -> Self {
        let (sender, pressed) = mpsc::channel(WAITING_KEYS);
        let mode = match std::io::stdin().is_terminal() {
            true => KeyMode::enter(),
            false => None,
        };
        if mode.is_some() {
            // A read of standard input cannot be cancelled: the thread ends with the process.
            std::thread::spawn(move || read(&sender));
        }
        Self {
            pressed,
            _mode: mode,
        }
    }

    pub(super) async fn next(&mut self) -> Key {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

fn read(keys: &mpsc::Sender<Key>) {
    let mut some = [0_u8; 64];
    while let Ok(read @ 1..) = std::io::stdin().read(&mut some) {
        for key in decode(some.get(..read).unwrap_or_default()) {
            if keys.blocking_send(key).is_err() {
                return;
            }
        }
    }
}

/// What was pressed. A terminal sends an arrow as one sequence, so an escape at the end is the key of that name.
fn decode(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.as_ref();
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        let sequences = [
            ("\x1b[A", Key::Up),
            ("\x1bOA", Key::Up),
            ("\x1b[B", Key::Down),
            ("\x1bOB", Key::Down),
        ];
        let found = { sequences.into_iter() }.find(|(sequence, _)| rest.starts_with(sequence));
        let (length, key) = match (found, first) {
            (Some((sequence, key)), _) => (sequence.len(), Some(key)),
            (None, '\r' | '\n') => (1, Some(Key::Enter)),
            (None, '\x1b') => (1, Some(Key::Escape)),
            (None, '\x7f' | '\x08') => (1, Some(Key::Backspace)),
            (None, other) => (
                other.len_utf8(),
                (!other.is_control()).then_some(Key::Char(other)),
            ),
        };
        keys.extend(key);
        rest = rest.get(length..).unwrap_or_default();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::{Key, decode};

    #[test]
    fn keys_and_sequences_are_told_apart() {
        assert_eq!(decode(b"q"), [Key::Char('q')]);
        assert_eq!(
            decode(b"\x1b[A\x1b[B\x1bOB"),
            [Key::Up, Key::Down, Key::Down]
        );
        assert_eq!(decode(b"\x1b"), [Key::Escape]);
        assert_eq!(
            decode("ä\r\x7f".as_bytes()),
            [Key::Char('ä'), Key::Enter, Key::Backspace]
        );
        assert_eq!(decode(b"\x01"), []);
    }
}
