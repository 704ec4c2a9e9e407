//! Why an object is refused, in Kubernetes' own words.

use std::fmt;

use serde_json::Value;

use crate::path::Path;

/// The kinds of refusal that Kubernetes knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// A required value is missing.
    Required,
    /// A value is malformed or out of bounds.
    Invalid,
    /// A value has the wrong type.
    TypeInvalid,
    /// A value is not in the closed list.
    NotSupported,
    /// A text is too long.
    TooLong,
    /// A list or a map has too many entries.
    TooMany,
    /// An entry of a list occurs twice.
    Duplicate,
    /// A value is not permitted here.
    Forbidden,
}

impl RefusalKind {
    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
        }
    }

    /// Rules run only on objects whose shape is right.
    pub(crate) fn blocks_rules(self) -> bool {
        match self {
            Self::NotSupported
            | Self::Required
            | Self::TooLong
            | Self::TooMany
            | Self::TypeInvalid => true,
            Self::Invalid | Self::Duplicate | Self::Forbidden => false,
        }
    }
}

/// One reason why an object is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Path to the value, for example `spec.triggers[0].type`.
    pub field: String,
    /// What kind of refusal it is.
    pub kind: RefusalKind,
    /// The value that is refused, where Kubernetes shows one.
    pub value: Option<Value>,
    /// What is wrong or what to write instead; may be empty.
    pub detail: String,
}

impl Refusal {
    pub(crate) fn new(
        path: &Path,
        kind: RefusalKind,
        value: impl Into<Option<Value>>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            field: path.to_string(),
            kind,
            value: value.into(),
            detail: detail.into(),
        }
    }

    /// Said beside refusals that keep the rules from running.
    pub(crate) fn rules_not_checked() -> Self {
        Self::new(
            &Path::default(),
            RefusalKind::Invalid,
            Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.field.as_str() {
            "" => "<nil>",
            field => field,
        };
        write!(f, "{field}: {}", self.kind.text())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
