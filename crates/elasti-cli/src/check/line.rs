//! One line of the doctor's report: what was looked at, how it is, what to do.
//! Never looks itself.

use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, or could not be looked at.
    Warn,
    /// Something does not work.
    Fail,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// One word of a closed list, for example `crd` or `lease`.
    pub check: &'static str,
    /// The outcome.
    pub verdict: Verdict,
    /// What was found.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Line {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Ok,
            message: message.into(),
            fix: None,
        }
    }

    pub(crate) fn warn(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warn,
            fix: Some(fix.into()),
            ..Self::ok(check, message)
        }
    }

    pub(crate) fn fail(
        check: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Fail,
            ..Self::warn(check, message, fix)
        }
    }

    /// Something that the user may not look at, or that the server did not tell.
    pub(crate) fn unseen(check: &'static str, what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::warn(
                check,
                format!("not checked: you may not read {what}"),
                "let someone with that right run elasti check",
            ),
            other => Self::warn(
                check,
                format!("not checked: {what} cannot be read: {other}"),
                "try again; if it stays so, look at the API server",
            ),
        }
    }
}
