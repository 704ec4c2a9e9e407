//! The response to a wake that was refused: a code, a reason from a closed list, and a sentence. A caller that is not
//! authenticated learns nothing about a service.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use elasti_runtime::callers::NotVouched;
use serde_json::json;

/// Why a wake was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The caller shows no token.
    #[error("Show a service account token for the audience elasti-operator.")]
    NoToken,
    /// The caller shows something other than a bearer token.
    #[error("Show the token as `Authorization: Bearer`.")]
    NotBearer,
    /// Kubernetes does not vouch for the caller.
    #[error("{0}")]
    Caller(NotVouched),
    /// The body is not a wake.
    #[error("The body must be {{\"count\":1,\"svc\":\"...\",\"namespace\":\"...\"}}.")]
    NotAWake,
    /// Too many wakes.
    #[error("Too many wakes; try again later.")]
    TooOften,
    /// Too many wakes are in progress.
    #[error("Too many wakes are under way; try again.")]
    Busy,
    /// No ElastiService has this Service.
    #[error("No ElastiService manages this Service.")]
    NotManaged,
    /// The plan does not allow it; this is its sentence.
    #[error("{0}")]
    Refused(String),
    /// The scale write failed, and may not the next time.
    #[error("The target could not be scaled; try again.")]
    TryAgain,
    /// The scale write failed, and will again.
    #[error("The target cannot be scaled.")]
    Failed,
    /// The operator is too slow.
    #[error("The wake takes longer than it should; try again.")]
    NoAnswer,
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::NotAWake => StatusCode::BAD_REQUEST,
            Self::NoToken | Self::NotBearer | Self::Caller(NotVouched::BadToken(_)) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Caller(NotVouched::Stranger) => StatusCode::FORBIDDEN,
            Self::NotManaged => StatusCode::NOT_FOUND,
            Self::TooOften | Self::Caller(NotVouched::TooOften) => StatusCode::TOO_MANY_REQUESTS,
            Self::Caller(NotVouched::NotChecked)
            | Self::Busy
            | Self::Refused(_)
            | Self::TryAgain
            | Self::Failed
            | Self::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoToken => "no-token",
            Self::NotBearer | Self::Caller(NotVouched::BadToken(_)) => "bad-token",
            Self::Caller(NotVouched::Stranger) => "stranger",
            Self::Caller(NotVouched::NotChecked) => "token-not-reviewed",
            Self::NotAWake => "not-a-wake",
            Self::TooOften | Self::Caller(NotVouched::TooOften) => "too-often",
            Self::Busy => "busy",
            Self::NotManaged => "not-managed",
            Self::Refused(_) => "refused",
            Self::TryAgain => "scale-failed",
            Self::Failed => "scale-refused",
            Self::NoAnswer => "no-answer",
        }
    }

    /// Waiting a second may help.
    fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Caller(NotVouched::NotChecked | NotVouched::TooOften)
                | Self::TooOften
                | Self::Busy
                | Self::TryAgain
                | Self::NoAnswer
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"reason": self.reason(), "message": self.to_string()});
        let mut response = (self.code(), Json(body)).into_response();
        if self.is_temporary() {
            let second = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, second);
        }
        response
    }
}
