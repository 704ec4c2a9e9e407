//! What lint has to say: one finding a fault, with where it is and what to write instead.

use std::fmt;

use serde::Serialize;

use super::document::Document;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// It cannot work as it is written.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

/// The closed list of what is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Rule {
    /// The file can be read.
    Yaml,
    /// The schema and the rules of the CRD.
    Schema,
    /// A field that the CRD does not know.
    UnknownField,
    /// A trigger's settings.
    Trigger,
    /// A trigger's query.
    Promql,
    /// The active window.
    Window,
    /// The answers to probes.
    Probe,
    /// The Service.
    Service,
    /// The target.
    Target,
    /// The ports of Service and target.
    Ports,
    /// HPA and KEDA.
    Autoscaler,
    /// Another ElastiService.
    Conflict,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) rule: Rule,
    pub(crate) file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<u64>,
    /// Name of the ElastiService, with its namespace where the file gives one.
    pub(crate) object: String,
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) fix: String,
}

impl Finding {
    pub(crate) fn new(
        document: &Document,
        (severity, rule): (Severity, Rule),
        field: &str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let position = document.position(field);
        Self {
            severity,
            rule,
            file: document.file.clone(),
            line: position.map(|position| position.line),
            column: position.map(|position| position.column),
            object: match document.namespace() {
                Some(namespace) => format!("{namespace}/{}", document.name()),
                None => document.name().to_owned(),
            },
            field: field.to_owned(),
            message: message.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, ": {word}: ")?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.message)?;
        if !self.fix.is_empty() {
            write!(f, "\n    fix: {}", self.fix)?;
        }
        Ok(())
    }
}
