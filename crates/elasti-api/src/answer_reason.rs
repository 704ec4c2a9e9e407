//! The closed list of reasons in `x-elasti-reason`: why a resolver answered in place of the target.

/// Why a request has no answer of the target's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnswerReason {
    /// The service's own limit of waiting requests.
    ServiceFull,
    /// The service's own limit of waiting bytes.
    ServiceBytes,
    /// The limit of waiting requests of all services together.
    SharedFull,
    /// The limit of waiting bytes of all services together.
    SharedBytes,
    /// The resolver is shutting down.
    ShuttingDown,
    /// The resolver's memory is near its limit.
    MemoryHigh,
    /// It waited until its deadline.
    HoldDeadline,
    /// The image cannot be pulled.
    ImagePull,
    /// The container keeps crashing.
    CrashLoop,
    /// No node takes the pod.
    Unschedulable,
    /// A quota or an admission rule refuses the pod.
    PodRefused,
    /// The pod runs, but its readiness probe fails.
    NeverReady,
    /// The pods cannot start for another reason.
    CannotStart,
    /// None of its pods is ready, and the spec asks not to hold requests then.
    Down,
    /// The waiting page: the service is being woken.
    Starting,
    /// A pod may have received the request, but closed the connection without a response.
    PodClosed,
    /// The pod accepted connections and said nothing on them, where HTTP/2 begins with SETTINGS.
    PodSilent,
    /// The pod refused the HTTP/2 stream before it did anything, which is passed on; only in metrics.
    StreamRefused,
    /// A gRPC call waited as long as its own `grpc-timeout` allows.
    GrpcTimeout,
    /// No managed service has this name or port.
    NotManaged,
    /// The service does not accept requests from this address.
    SourceNotAllowed,
    /// The ElastiService was deleted, or its port changed, while a client was connected.
    ServiceDeleted,
    /// The resolver is no forward proxy.
    ConnectMethod,
    /// The request head is larger than a waiting request may be.
    HeadTooLarge,
    /// The request is not well-formed HTTP.
    Malformed,
    /// The client disconnected before the response; only in metrics.
    ClientLeft,
}

impl AnswerReason {
    /// All of them, in the order in which the docs list them.
    pub const ALL: [Self; 26] = [
        Self::ServiceFull,
        Self::ServiceBytes,
        Self::SharedFull,
        Self::SharedBytes,
        Self::ShuttingDown,
        Self::MemoryHigh,
        Self::HoldDeadline,
        Self::ImagePull,
        Self::CrashLoop,
        Self::Unschedulable,
        Self::PodRefused,
        Self::NeverReady,
        Self::CannotStart,
        Self::Down,
        Self::Starting,
        Self::PodClosed,
        Self::PodSilent,
        Self::StreamRefused,
        Self::GrpcTimeout,
        Self::NotManaged,
        Self::SourceNotAllowed,
        Self::ServiceDeleted,
        Self::ConnectMethod,
        Self::HeadTooLarge,
        Self::Malformed,
        Self::ClientLeft,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceFull => "ServiceFull",
            Self::ServiceBytes => "ServiceBytes",
            Self::SharedFull => "SharedFull",
            Self::SharedBytes => "SharedBytes",
            Self::ShuttingDown => "ShuttingDown",
            Self::MemoryHigh => "MemoryHigh",
            Self::HoldDeadline => "HoldDeadline",
            Self::ImagePull => "ImagePull",
            Self::CrashLoop => "CrashLoop",
            Self::Unschedulable => "Unschedulable",
            Self::PodRefused => "PodRefused",
            Self::NeverReady => "NeverReady",
            Self::CannotStart => "CannotStart",
            Self::Down => "Down",
            Self::Starting => "Starting",
            Self::PodClosed => "PodClosed",
            Self::PodSilent => "PodSilent",
            Self::StreamRefused => "StreamRefused",
            Self::GrpcTimeout => "GrpcTimeout",
            Self::NotManaged => "NotManaged",
            Self::SourceNotAllowed => "SourceNotAllowed",
            Self::ServiceDeleted => "ServiceDeleted",
            Self::ConnectMethod => "ConnectMethod",
            Self::HeadTooLarge => "HeadTooLarge",
            Self::Malformed => "Malformed",
            Self::ClientLeft => "ClientLeft",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::AnswerReason;

    #[test]
    fn every_word_is_its_own_and_named_like_its_reason() {
        let words: BTreeSet<&str> = AnswerReason::ALL.map(AnswerReason::as_str).into();
        assert_eq!(words.len(), AnswerReason::ALL.len());
        for reason in AnswerReason::ALL {
            assert_eq!(format!("{reason:?}"), reason.as_str());
        }
    }
}
