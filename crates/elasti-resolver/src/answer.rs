//! The only place where a failure becomes a response, for HTTP or gRPC.
//! Never quotes a request, a host or an error text: a client could choose what others read.

use elasti_api::{AnswerReason, ProbeAnswer, Reason, names};
use elasti_core::ports::ServiceKey;
use elasti_core::waiting_room::{LimitScope, Refusal};
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Body as _;

use crate::forward::body::Body;
use crate::hold::HoldError;
use crate::waiting_page;

/// Why a request has no response of the target's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// A bound of the waiting rooms.
    #[error("{0}")]
    Refused(Refusal),
    /// It waited as long as it may.
    #[error("The service did not start in time; it is still starting.")]
    Deadline,
    /// Its pods cannot start.
    #[error("{}", obstacle(*.0).1)]
    Obstacle(Reason),
    /// None of its pods is ready although it is awake, and the spec asks not to wait then.
    #[error("None of the service's pods is ready.")]
    Down,
    /// A pod may have seen the request, but closed the connection without an answer.
    #[error(
        "The service closed the connection without an answer; whether it did the work is not known."
    )]
    PodClosed,
    /// The pods have accepted connections and said nothing on them: they have seen nothing of the request.
    #[error("The service accepts connections, but does not begin to speak HTTP/2 on them.")]
    PodSilent,
    /// The ElastiService was deleted, or its port changed, while the client was connected.
    #[error("Elasti no longer manages this service; a retry goes straight to it.")]
    Deleted,
    /// The pod refused the stream before it did anything; a client may send it again, whatever it is.
    #[error("The service refused the request before it did anything.")]
    StreamRefused,
    /// A gRPC call was held as long as it allows itself.
    #[error("The service did not start within the time that the call allows.")]
    GrpcTimeout,
    /// Elasti does not manage what was asked for.
    #[error("No service that Elasti manages has this name or port.")]
    NotManaged,
    /// The service does not accept requests from this address.
    #[error("The service does not accept requests from this address.")]
    SourceNotAllowed,
    /// The resolver is no forward proxy.
    #[error("CONNECT is not possible here.")]
    ConnectMethod,
    /// Two hosts, or a body that does not follow its own framing.
    #[error("The request is malformed.")]
    Malformed,
    /// More than a waiting request may keep in memory.
    #[error("The head of the request is too large.")]
    HeadTooLarge,
    /// The client has disconnected; this is only counted.
    #[error("The client has disconnected.")]
    ClientDisconnected,
}

impl From<HoldError> for Failure {
    fn from(why: HoldError) -> Self {
        match why {
            HoldError::Refused(refusal) => Self::Refused(refusal),
            HoldError::Deadline => Self::Deadline,
            HoldError::Obstacle(reason) => Self::Obstacle(reason),
            HoldError::Deleted => Self::Deleted,
        }
    }
}

impl Failure {
    /// The value of `x-elasti-reason`, and a label of metrics.
    pub(crate) fn reason(self) -> AnswerReason {
        match self {
            Self::Refused(refusal) => match refusal {
                Refusal::ServiceFull => AnswerReason::ServiceFull,
                Refusal::ServiceBytes => AnswerReason::ServiceBytes,
                Refusal::SharedFull => AnswerReason::SharedFull,
                Refusal::SharedBytes => AnswerReason::SharedBytes,
                Refusal::ShuttingDown => AnswerReason::ShuttingDown,
                Refusal::MemoryHigh => AnswerReason::MemoryHigh,
            },
            Self::Deadline => AnswerReason::HoldDeadline,
            Self::Obstacle(reason) => obstacle(reason).0,
            Self::Down => AnswerReason::Down,
            Self::PodClosed => AnswerReason::PodClosed,
            Self::PodSilent => AnswerReason::PodSilent,
            Self::Deleted => AnswerReason::ServiceDeleted,
            Self::StreamRefused => AnswerReason::StreamRefused,
            Self::GrpcTimeout => AnswerReason::GrpcTimeout,
            Self::NotManaged => AnswerReason::NotManaged,
            Self::SourceNotAllowed => AnswerReason::SourceNotAllowed,
            Self::ConnectMethod => AnswerReason::ConnectMethod,
            Self::Malformed => AnswerReason::Malformed,
            Self::HeadTooLarge => AnswerReason::HeadTooLarge,
            Self::ClientDisconnected => AnswerReason::ClientLeft,
        }
    }

    /// Whose fault it was, as a label for metrics.
    pub(crate) fn fault(self) -> &'static str {
        match self {
            Self::Refused(refusal) => match refusal.scope() {
                LimitScope::Service => "service",
                LimitScope::Shared => "shared",
                LimitScope::Resolver => "resolver",
            },
            Self::Deadline
            | Self::Obstacle(_)
            | Self::Down
            | Self::PodClosed
            | Self::PodSilent
            | Self::StreamRefused
            | Self::GrpcTimeout
            | Self::Deleted => "service",
            Self::NotManaged
            | Self::SourceNotAllowed
            | Self::ConnectMethod
            | Self::Malformed
            | Self::HeadTooLarge
            | Self::ClientDisconnected => "client",
        }
    }

    /// Seconds after which a retry is worth it; none where it never is, or where it could do the work twice.
    fn retry_after_seconds(self) -> Option<u32> {
        match self {
            Self::Refused(refusal) => Some(refusal.retry_after_seconds()),
            Self::Deadline | Self::Down | Self::PodSilent => Some(5),
            Self::Deleted => Some(1),
            Self::Obstacle(_) => Some(30),
            Self::PodClosed
            | Self::StreamRefused
            | Self::GrpcTimeout
            | Self::NotManaged
            | Self::SourceNotAllowed
            | Self::ConnectMethod
            | Self::Malformed
            | Self::HeadTooLarge
            | Self::ClientDisconnected => None,
        }
    }

    /// The same, unless the client has left.
    pub(crate) fn told_status(self) -> Option<StatusCode> {
        (self != Self::ClientDisconnected).then(|| self.status())
    }

    /// The status of its response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Refused(_)
            | Self::Deadline
            | Self::Obstacle(_)
            | Self::Down
            | Self::PodSilent
            | Self::Deleted
            | Self::StreamRefused
            | Self::ClientDisconnected => StatusCode::SERVICE_UNAVAILABLE,
            Self::GrpcTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::PodClosed => StatusCode::BAD_GATEWAY,
            Self::NotManaged => StatusCode::NOT_FOUND,
            Self::SourceNotAllowed => StatusCode::FORBIDDEN,
            Self::ConnectMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        }
    }
}

/// What a client is told of an obstacle.
fn obstacle(reason: Reason) -> (AnswerReason, &'static str) {
    match reason {
        Reason::ImagePull => (
            AnswerReason::ImagePull,
            "The service cannot start: its image cannot be pulled.",
        ),
        Reason::CrashLoop => (
            AnswerReason::CrashLoop,
            "The service cannot start: its container keeps crashing.",
        ),
        Reason::Unschedulable => (
            AnswerReason::Unschedulable,
            "The service cannot start: no node fits its pod.",
        ),
        Reason::PodRefused => (
            AnswerReason::PodRefused,
            "The service cannot start: a quota or an admission rule refuses its pod.",
        ),
        Reason::NeverReady => (
            AnswerReason::NeverReady,
            "The service has started, but its readiness probe fails.",
        ),
        _ => (
            AnswerReason::CannotStart,
            "The service cannot start in the time that it is given.",
        ),
    }
}

/// Whether a request speaks gRPC, so that a failure must be a gRPC status.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The response to a request that failed.
pub(crate) fn failure(failure: Failure, grpc: bool) -> Response<Body> {
    let sentence = failure.to_string();
    let mut response = if grpc {
        grpc_failure(failure, &sentence)
    } else {
        let mut response = Response::new(Body::from_text(format!("{sentence}\n")));
        *response.status_mut() = failure.status();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        response
    };
    set_headers(
        &mut response,
        failure.reason(),
        failure.retry_after_seconds(),
    );
    if grpc && let Some(seconds) = failure.retry_after_seconds() {
        // What gRPC's own retries obey; `Retry-After` is for others.
        response.headers_mut().insert(
            HeaderName::from_static("grpc-retry-pushback-ms"),
            HeaderValue::from(seconds.saturating_mul(1000)),
        );
    }
    response
}

/// The response to an HTTP/1 request whose head is not read to its end, as it is sent.
pub(crate) fn as_text(why: Failure) -> Vec<u8> {
    let (parts, body) = failure(why, false).into_parts();
    let mut text = format!("HTTP/1.1 {}\r\nconnection: close\r\n", parts.status).into_bytes();
    let length = body.size_hint().exact().unwrap_or(0);
    text.extend(format!("content-length: {length}\r\n").into_bytes());
    for (name, value) in &parts.headers {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    text.extend(b"\r\n");
    if let Body::Own(Some(body)) = body {
        text.extend(body);
    }
    text
}

/// The headers of every response of ours, whatever its body.
fn set_headers(
    response: &mut Response<Body>,
    reason: AnswerReason,
    retry_after_seconds: Option<u32>,
) {
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static(names::REASON_HEADER),
        HeaderValue::from_static(reason.as_str()),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = retry_after_seconds {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
}

/// What a browser sees while a service is being woken.
pub(crate) fn waiting(key: &ServiceKey, delay: Option<Reason>) -> Response<Body> {
    let mut response = Response::new(Body::from_text(waiting_page::render(key, delay)));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(waiting_page::POLICY),
    );
    set_headers(
        &mut response,
        AnswerReason::Starting,
        Some(waiting_page::REFRESH_SECONDS),
    );
    response
}

/// Trailers-only: the status stands in the head and there is no body.
/// 14 is UNAVAILABLE, 4 DEADLINE_EXCEEDED, 12 UNIMPLEMENTED, 3 INVALID_ARGUMENT,
/// 7 PERMISSION_DENIED, 8 RESOURCE_EXHAUSTED, 2 UNKNOWN.
fn grpc_failure(failure: Failure, sentence: &str) -> Response<Body> {
    let code = match failure {
        Failure::Refused(_)
        | Failure::Deadline
        | Failure::Obstacle(_)
        | Failure::Down
        | Failure::PodSilent
        | Failure::Deleted
        | Failure::StreamRefused
        | Failure::ClientDisconnected => 14_u16,
        Failure::GrpcTimeout => 4,
        Failure::NotManaged | Failure::ConnectMethod => 12,
        Failure::SourceNotAllowed => 7,
        Failure::HeadTooLarge => 8,
        Failure::Malformed => 3,
        Failure::PodClosed => 2,
    };
    let mut response = Response::new(Body::from_text(""));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from(code),
    );
    if let Ok(message) = HeaderValue::from_str(sentence) {
        headers.insert(HeaderName::from_static("grpc-message"), message);
    }
    response
}

/// The response of a probe rule.
pub(crate) fn probe(rule: &ProbeAnswer) -> Response<Body> {
    let mut response = Response::new(Body::from_text(rule.body.clone().unwrap_or_default()));
    // Core refuses rules with any other status.
    *response.status_mut() = StatusCode::from_u16(rule.status).unwrap_or(StatusCode::OK);
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_when_to_come_back_and_why() {
        let response = failure(Failure::Refused(Refusal::ServiceFull), false);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "5");
        assert_eq!(response.headers()[names::REASON_HEADER], "ServiceFull");
    }

    #[test]
    fn grpc_gets_unavailable_in_the_head_and_no_body() {
        let response = failure(Failure::Deadline, true);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert!(http_body::Body::is_end_stream(response.body()));
    }

    #[test]
    fn every_refusal_and_obstacle_keeps_its_reason() {
        for refusal in Refusal::ALL {
            assert_eq!(
                Failure::Refused(refusal).reason().as_str(),
                refusal.as_str()
            );
        }
        for reason in Reason::ALL.into_iter().filter(|one| one.is_obstacle()) {
            assert_eq!(Failure::Obstacle(reason).reason().as_str(), reason.as_str());
        }
    }

    #[test]
    fn the_docs_say_what_each_failure_becomes() {
        let docs = include_str!("../../../docs/answers.md");
        let obstacles = Reason::ALL.into_iter().filter(|one| one.is_obstacle());
        let obstacles = obstacles.chain([Reason::Conflict]);
        let all = Refusal::ALL.map(Failure::Refused).into_iter();
        let all = all.chain(obstacles.map(Failure::Obstacle)).chain([
            Failure::Deadline,
            Failure::PodClosed,
            Failure::Deleted,
            Failure::GrpcTimeout,
            Failure::NotManaged,
            Failure::SourceNotAllowed,
            Failure::ConnectMethod,
            Failure::HeadTooLarge,
            Failure::Malformed,
        ]);
        for one in all {
            let (plain, grpc) = (failure(one, false), failure(one, true));
            let retry = plain.headers().get(header::RETRY_AFTER);
            let row = format!(
                "| `{}` | {} | {} | {} |",
                one.reason().as_str(),
                plain.status().as_u16(),
                retry.map_or("-", |value| value.to_str().unwrap()),
                grpc.headers()["grpc-status"].to_str().unwrap(),
            );
            assert!(docs.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_request_that_a_pod_may_have_done_has_no_retry_after() {
        let response = failure(Failure::PodClosed, false);
        assert_eq!(response.status(), 502);
        assert!(!response.headers().contains_key("retry-after"));
    }
}
