//! The reason for a decision: a word from the closed list, one sentence, and when it may change.

use elasti_api::Reason;
use jiff::Timestamp;

/// The sentence of `Reason::TargetNotFound`, for the operator and for those that look for the target themselves.
pub const TARGET_NOT_FOUND: &str = "The target does not exist.";

/// A time for a sentence: in whole seconds, as everywhere else in a status.
pub(crate) fn clock(moment: Timestamp) -> impl std::fmt::Display {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// The reason for a decision, fit for `why`, a condition and an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The machine-readable reason.
    pub reason: Reason,
    /// One sentence for people.
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

    /// The same reason, about another Service of the pods.
    #[must_use]
    pub(crate) fn about(mut self, service: &str) -> Self {
        self.sentence = format!("Service {service}: {}", self.sentence);
        self
    }

    /// The same reason, which may change at `moment`.
    #[must_use]
    pub fn until(mut self, moment: Timestamp) -> Self {
        self.until = Some(moment);
        self
    }
}
