//! Why something is as it is: a word from the closed list, one sentence, and when it is worth looking again.
//! It never decides; the rooms that decide build it.

use elasti_api::Reason;
use jiff::Timestamp;

/// The sentence of `Reason::TargetNotFound`, for the operator and for those that look for the target themselves.
pub const TARGET_NOT_FOUND: &str = "The target does not exist.";

/// A moment for a sentence: in whole seconds, as everywhere else in a status.
pub(crate) fn clock(moment: Timestamp) -> impl std::fmt::Display {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// The reason for a decision, fit for `why`, a condition and an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The word.
    pub reason: Reason,
    /// One sentence for a person.
    pub sentence: String,
    /// When the answer may change by the passing of time alone.
    pub until: Option<Timestamp>,
}

impl Why {
    /// A reason that only an event can change.
    #[must_use]
    pub fn new(reason: Reason, sentence: impl Into<String>) -> Self {
        Self {
            reason,
            sentence: sentence.into(),
            until: None,
        }
    }

    /// The same reason, worth another look at `moment`.
    #[must_use]
    pub fn until(mut self, moment: Timestamp) -> Self {
        self.until = Some(moment);
        self
    }
}
