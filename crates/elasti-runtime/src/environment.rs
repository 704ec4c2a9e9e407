//! Reads environment variables, and names every wrong value at once.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value} cannot be used: {needed} is needed")]
pub struct WrongValue {
    /// The flag or variable.
    pub name: &'static str,
    /// What it says, in quotes; `(hidden)` where it may be a secret.
    pub value: String,
    /// What it should say.
    pub needed: &'static str,
}

/// Every value that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(WrongValue::to_string).collect::<Vec<_>>().join("; "))]
pub struct WrongValues(pub Vec<WrongValue>);

/// One variable, as `--help` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

/// One variable, for the tables.
#[must_use]
pub const fn variable(
    name: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        default,
        meaning,
    }
}

/// Reads variables, and remembers what of them was wrong. An empty one counts as absent.
pub struct Reading<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
    wrong: Vec<WrongValue>,
}

impl fmt::Debug for Reading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("wrong", &self.wrong)
            .finish_non_exhaustive()
    }
}

impl<'a> Reading<'a> {
    /// Reads through `get`.
    pub fn new(get: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let wrong = Vec::new();
        Self { get, wrong }
    }

    /// A variable as it stands.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let value = (self.get)(name)?.trim().to_owned();
        Some(value).filter(|value| !value.is_empty())
    }

    /// What stands between commas.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        let parts = text.split(',').map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// A port; 0 would open an unpredictable one.
    pub fn port(&mut self, name: &'static str) -> Option<u16> {
        self.parsed::<NonZeroU16>(name, "a port number")
            .map(Into::into)
    }

    /// A variable that must be a `T`.
    pub fn parsed<T: FromStr>(&mut self, name: &'static str, needed: &'static str) -> Option<T> {
        let value = self.text(name)?;
        self.parse(name, &value, &value, needed)
    }

    /// The part `text` of the value `whole`, which must be a `T`.
    pub fn parse<T: FromStr>(
        &mut self,
        name: &'static str,
        whole: &str,
        text: &str,
        needed: &'static str,
    ) -> Option<T> {
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.is_wrong(name, format!("{whole:?}"), needed);
        }
        parsed
    }

    /// A value that may be a secret cannot be used.
    pub fn wrong_secret(&mut self, name: &'static str, needed: &'static str) {
        self.is_wrong(name, "(hidden)".into(), needed);
    }

    fn is_wrong(&mut self, name: &'static str, value: String, needed: &'static str) {
        self.wrong.push(WrongValue {
            name,
            value,
            needed,
        });
    }

    /// Ends the reading; says in one log line which accepted `flags` and variables have no use here.
    ///
    /// # Errors
    /// If values cannot be used: all of them.
    pub fn end(self, flags: &[&str], without_use: &[&str]) -> Result<(), WrongValues> {
        if !self.wrong.is_empty() {
            return Err(WrongValues(self.wrong));
        }
        let given = without_use.iter().filter(|name| self.text(name).is_some());
        let unused: Vec<&str> = flags.iter().chain(given).copied().collect();
        if !unused.is_empty() {
            tracing::info!(
                unused = unused.join(", "),
                "flags or variables have no effect here"
            );
        }
        Ok(())
    }
}
