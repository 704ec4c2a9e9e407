//! Every error of the API server and its Kubernetes `Status` body.

use serde_json::{Value, json};

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn new(
        reason: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            reason,
            message: message.into(),
            field: field.into(),
        }
    }

    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let text = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        Self::new("FieldValueRequired", field, text)
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new(
            "FieldValueInvalid",
            field,
            format!("Invalid value: {value}: {why}"),
        )
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(
            "FieldValueDuplicate",
            field,
            format!("Duplicate value: {value}"),
        )
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<String> = allowed
            .iter()
            .map(|choice| format!("\"{choice}\""))
            .collect();
        let text = format!(
            "Unsupported value: {value}: supported values: {}",
            allowed.join(", ")
        );
        Self::new("FieldValueNotSupported", field, text)
    }

    fn body(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

/// What a refusal is about: the group and plural (or kind) and the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl About {
    pub(crate) fn new(group: &str, kind: &str, name: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self, causes: &[Cause]) -> Value {
        let mut details = json!({});
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
        ] {
            if !text.is_empty() {
                set(&mut details, key, json!(text));
            }
        }
        if !causes.is_empty() {
            set(
                &mut details,
                "causes",
                causes.iter().map(Cause::body).collect(),
            );
        }
        details
    }
}

/// The closed list of refusals.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{} {:?} not found", .0.qualified(), .0.name)]
    NotFound(About),
    #[error("the server could not find the requested resource")]
    NoSuchResource,
    #[error("404 page not found")]
    NoSuchPath,
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("{} {:?} already exists", .0.qualified(), .0.name)]
    AlreadyExists(About),
    #[error("Operation cannot be fulfilled on {} {:?}: {why}", about.qualified(), about.name)]
    Conflict { about: About, why: String },
    #[error("{message}")]
    ApplyConflict { message: String, causes: Vec<Cause> },
    #[error("{}", invalid_message(about, causes))]
    Invalid { about: About, causes: Vec<Cause> },
    #[error("the server rejected our request due to an error in our request")]
    PatchDoesNotApply,
    #[error("{0}")]
    BadRequest(String),
    #[error("{message}")]
    Forbidden {
        about: About,
        message: String,
        causes: Vec<Cause>,
    },
    #[error("Unauthorized")]
    Unauthorized,
    #[error("{0}")]
    UnsupportedMediaType(&'static str),
    #[error("406: Not Acceptable\n\nAvailable representations: application/json")]
    NotAcceptable,
    #[error("{0}")]
    Expired(String),
    #[error("Timeout: Too large resource version: {asked}, current: {current}")]
    VersionTooLarge { asked: u64, current: u64 },
    #[error("the server has received too many requests and has asked us to try again later")]
    TooManyRequests { retry_after_seconds: u64 },
    #[error("{message}")]
    Evicted { message: String },
    #[error("{0}")]
    ServiceUnavailable(String),
    /// An error without a reason, as storage and apply give them.
    #[error("{0}")]
    Internal(String),
    #[error("Internal error occurred: {0}")]
    InternalError(String),
}

pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn invalid_message(about: &About, causes: &[Cause]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let joined = if texts.len() == 1 {
        texts.concat()
    } else {
        format!("[{}]", texts.join(", "))
    };
    format!(
        "{} \"{}\" is invalid: {joined}",
        about.qualified(),
        about.name
    )
}

impl ApiError {
    /// The HTTP code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) | Self::NoSuchResource | Self::NoSuchPath => 404,
            Self::MethodNotAllowed => 405,
            Self::AlreadyExists(_) | Self::Conflict { .. } | Self::ApplyConflict { .. } => 409,
            Self::Invalid { .. } | Self::PatchDoesNotApply => 422,
            Self::BadRequest(_) => 400,
            Self::Forbidden { .. } => 403,
            Self::Unauthorized => 401,
            Self::UnsupportedMediaType(_) => 415,
            Self::NotAcceptable => 406,
            Self::Expired(_) => 410,
            Self::VersionTooLarge { .. } => 504,
            Self::TooManyRequests { .. } | Self::Evicted { .. } => 429,
            Self::Internal(_) | Self::InternalError(_) => 500,
            Self::ServiceUnavailable(_) => 503,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) | Self::NoSuchResource | Self::NoSuchPath => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::Conflict { .. } | Self::ApplyConflict { .. } => "Conflict",
            Self::Invalid { .. } | Self::PatchDoesNotApply => "Invalid",
            Self::BadRequest(_) => "BadRequest",
            Self::Forbidden { .. } => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::UnsupportedMediaType(_) => "UnsupportedMediaType",
            Self::NotAcceptable => "NotAcceptable",
            Self::Expired(_) => "Expired",
            Self::VersionTooLarge { .. } => "Timeout",
            Self::TooManyRequests { .. } | Self::Evicted { .. } => "TooManyRequests",
            Self::Internal(_) => "",
            Self::InternalError(_) => "InternalError",
            Self::ServiceUnavailable(_) => "ServiceUnavailable",
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NotFound(about) | Self::AlreadyExists(about) | Self::Conflict { about, .. } => {
                Some(about.details(&[]))
            }
            Self::Forbidden { about, causes, .. } => Some(about.details(causes)),
            Self::Invalid { about, causes } => Some(about.details(causes)),
            Self::ApplyConflict { causes, .. } => Some(About::default().details(causes)),
            Self::NoSuchResource
            | Self::MethodNotAllowed
            | Self::PatchDoesNotApply
            | Self::NotAcceptable => Some(json!({})),
            Self::UnsupportedMediaType(text) => text.starts_with("415").then(|| json!({})),
            Self::VersionTooLarge { .. } => Some(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1
            })),
            Self::TooManyRequests {
                retry_after_seconds,
            } => Some(json!({"retryAfterSeconds": retry_after_seconds})),
            Self::InternalError(why) => Some(json!({"causes": [{"message": why}]})),
            Self::Evicted { message } => {
                Some(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]}))
            }
            _ => None,
        }
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.to_string(), "code": self.code()
        });
        if !self.reason().is_empty() {
            set(&mut status, "reason", json!(self.reason()));
        }
        if let Some(details) = self.details() {
            set(&mut status, "details", details);
        }
        status
    }

    /// The `Retry-After` header, where there is one.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Self::TooManyRequests {
                retry_after_seconds,
            } => Some(*retry_after_seconds),
            Self::VersionTooLarge { .. } => Some(1),
            _ => None,
        }
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}
