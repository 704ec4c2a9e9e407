//! Why a call to the cluster came to nothing: whose fault it is and what to say about it, in a closed list.
//! Never carries free text into a metric.

/// Why a call came to nothing. All of them are tried again, ever later, on facts read anew.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Someone wrote in between, or something else has the name.
    #[error("someone else changed it in between: {0}")]
    Conflict(String),
    /// What should be written is not there.
    #[error("it does not exist: {0}")]
    Missing(String),
    /// The operator lacks a right.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// The API server finds the object wrong, or a quota or webhook refuses it.
    #[error("refused: {0}")]
    Refused(String),
    /// The API server has too much to do, or failed.
    #[error("the API server failed: {0}")]
    ServerFailed(String),
    /// No answer; whether it took effect is not known.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The proof for the step no longer holds.
    #[error("too late for this step; the facts are read anew")]
    Expired,
    /// Another operator leads by now.
    #[error("another operator leads")]
    NotLeader,
}

impl Error {
    /// The metric's word.
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

    /// A part of the normal course: nobody has to know.
    pub(crate) fn is_routine(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Expired | Self::NotLeader)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let said = status.message.chars().take(300).collect();
                match status.code {
                    404 => Self::Missing(said),
                    409 | 412 => Self::Conflict(said),
                    401 | 403 => Self::Forbidden(said),
                    429 | 500..=599 => Self::ServerFailed(said),
                    _ => Self::Refused(said),
                }
            }
            other => Self::NoAnswer(other.to_string().chars().take(300).collect()),
        }
    }
}
