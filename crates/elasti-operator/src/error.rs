//! Why a call to the cluster failed, as a closed list: what to do about it, and the label in metrics.

/// How the API server begins when a webhook that it must ask does not answer.
const FAILED_WEBHOOK: &str = "failed calling webhook";

/// Why a call failed. All of them are retried, with backoff, on facts read again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// It was written in between, or another object has the name.
    #[error("changed in between: {0}")]
    Conflict(String),
    /// The object to write does not exist.
    #[error("it does not exist: {0}")]
    Missing(String),
    /// The operator lacks a permission.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// The API server finds the object invalid, or a quota or webhook refuses it.
    #[error("refused: {0}")]
    Refused(String),
    /// The API server is overloaded, or failed.
    #[error("the API server failed: {0}")]
    ServerFailed(String),
    /// No answer; whether it took effect is not known.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The proof for the step no longer holds.
    #[error("too late for this step; the facts are read again")]
    Expired,
    /// Another operator leads by now.
    #[error("another operator leads")]
    NotLeader,
}

impl Error {
    /// The label in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Missing(_) => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Refused(_) => "refused",
            Self::ServerFailed(_) => "server_failed",
            Self::NoAnswer(_) => "no_answer",
            Self::Expired => "expired",
            Self::NotLeader => "not_leader",
        }
    }

    /// It may have taken effect all the same.
    pub(crate) fn is_uncertain(&self) -> bool {
        matches!(self, Self::ServerFailed(_) | Self::NoAnswer(_))
    }

    /// Trying again does not help: someone has to allow it.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Forbidden(_))
    }

    /// Expected in normal operation: nothing to warn about.
    pub(crate) fn is_routine(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Expired | Self::NotLeader)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let message: String = status.message.chars().take(300).collect();
                match status.code {
                    // A webhook that fails refuses as much as one that says no.
                    500 if message.contains(FAILED_WEBHOOK) => Self::Refused(message),
                    404 => Self::Missing(message),
                    409 | 412 => Self::Conflict(message),
                    401 | 403 => Self::Forbidden(message),
                    429 | 500..=599 => Self::ServerFailed(message),
                    _ => Self::Refused(message),
                }
            }
            other => Self::NoAnswer(other.to_string().chars().take(300).collect()),
        }
    }
}
