//! One line of the report: what was checked, the verdict, and the fix.

use serde::Serialize;

use crate::refusal;

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Healthy.
    Ok,
    /// It works, or could not be checked.
    Warn,
    /// Broken.
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

/// How the message of a check begins whose objects could not be read.
pub(crate) const UNREAD: &str = "not checked: ";

impl Line {
    /// The part of the report that it belongs to, and the page that explains it.
    pub(crate) fn section(&self) -> (&'static str, &'static str) {
        match self.check {
            "cluster" | "crd" => ("Cluster", "docs/operations.md#upgrade"),
            "operator" | "resolver" | "versions" | "lease" | "wake-path" => {
                ("Installation", "docs/operations.md#check-the-installation")
            }
            "permissions" => ("Permissions", "docs/security.md#what-each-process-may-do"),
            "services" | "slices" | "policies" | "prometheus" => {
                ("Services", "docs/troubleshooting.md#by-symptom")
            }
            "network" => ("Network", "docs/security.md#where-requests-go"),
            _ => ("Leftovers and migration", "docs/migration.md"),
        }
    }

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

    /// Something that the user may not read, or that the server did not return.
    pub(crate) fn unseen(check: &'static str, what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::warn(
                check,
                format!("{UNREAD}you may not read {what}"),
                "run elasti check as someone with that permission",
            ),
            other => Self::warn(
                check,
                format!("{UNREAD}{what} cannot be read: {}", refusal::root(other)),
                "try again; if it persists, inspect the API server",
            ),
        }
    }
}
