//! The closed list of reasons: one word each, the same in status, Events, metrics, answers and CLI.

/// Why a service is as it is, or why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A trigger reads at or above its threshold.
    TriggerActive,
    /// A trigger has no usable reading.
    TriggerUnknown,
    /// A resolver has requests waiting or in flight, or has just had some.
    Traffic,
    /// A user requested a wake.
    WakeRequested,
    /// A request arrived while it slept, and a resolver requested the wake.
    WokenByRequest,
    /// A user requested sleep, and no request has arrived since.
    SleepRequested,
    /// Quiet, but not for the whole cooldown yet.
    CoolingDown,
    /// Quiet for the whole cooldown.
    Idle,
    /// Outside the active window.
    OutsideWindow,
    /// The active window is invalid.
    InvalidWindow,
    /// `spec.paused` is true.
    Paused,
    /// No resolver is ready.
    NoResolver,
    /// The Service sends within a node only, and not every node has a ready resolver.
    NodesWithoutResolver,
    /// A ready resolver does not respond to the operator.
    ResolverUnreachable,
    /// A ready resolver does not listen for this service yet.
    RouteNotReady,
    /// New connections begin to go to the resolvers too.
    Redirecting,
    /// Pods are being taken out of rotation.
    Draining,
    /// The kubelets undo the drain too often for it to be safe.
    TicksTooDense,
    /// Another ElastiService, or a foreign object with our name, is in conflict with this one.
    Conflict,
    /// Something else writes the target's replicas.
    Contended,
    /// Something other than Elasti scaled the target up.
    Manual,
    /// A Service of this shape cannot be redirected.
    Unsupported,
    /// The Service does not exist.
    ServiceNotFound,
    /// The target does not exist.
    TargetNotFound,
    /// The autoscaler that the spec names does not exist.
    AutoscalerNotFound,
    /// No free listen port is left.
    PortsExhausted,
    /// The ElastiService is being deleted.
    Deleting,
    /// This replica is not the leader.
    NotLeader,
    /// Pods are starting.
    Starting,
    /// Pods are ready and return to rotation.
    Restoring,
    /// The pod waits for a node.
    NotScheduled,
    /// The pod's init containers take long.
    Initializing,
    /// The image could not be pulled so far.
    Pulling,
    /// The container has died and is restarted.
    Restarting,
    /// The pod runs, and its readiness probe has not passed yet.
    NotReady,
    /// A quota leaves no room for the pod now.
    QuotaExceeded,
    /// An admission webhook does not answer.
    WebhookFailed,
    /// The pod did not start in the time that the spec allows.
    CannotStart,
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
}

impl Reason {
    /// Every reason, for tables and tests.
    pub const ALL: [Self; 43] = [
        Self::TriggerActive,
        Self::TriggerUnknown,
        Self::Traffic,
        Self::WakeRequested,
        Self::WokenByRequest,
        Self::SleepRequested,
        Self::CoolingDown,
        Self::Idle,
        Self::OutsideWindow,
        Self::InvalidWindow,
        Self::Paused,
        Self::NoResolver,
        Self::NodesWithoutResolver,
        Self::ResolverUnreachable,
        Self::RouteNotReady,
        Self::Redirecting,
        Self::Draining,
        Self::TicksTooDense,
        Self::Conflict,
        Self::Contended,
        Self::Manual,
        Self::Unsupported,
        Self::ServiceNotFound,
        Self::TargetNotFound,
        Self::AutoscalerNotFound,
        Self::PortsExhausted,
        Self::Deleting,
        Self::NotLeader,
        Self::Starting,
        Self::Restoring,
        Self::NotScheduled,
        Self::Initializing,
        Self::Pulling,
        Self::Restarting,
        Self::NotReady,
        Self::QuotaExceeded,
        Self::WebhookFailed,
        Self::CannotStart,
        Self::ImagePull,
        Self::CrashLoop,
        Self::Unschedulable,
        Self::PodRefused,
        Self::NeverReady,
    ];

    /// Something keeps the pods of a wake from starting, and it may pass by itself: requests are held.
    #[must_use]
    pub fn is_delay(self) -> bool {
        matches!(
            self,
            Self::NotScheduled
                | Self::Initializing
                | Self::Pulling
                | Self::Restarting
                | Self::NotReady
                | Self::QuotaExceeded
                | Self::WebhookFailed
        )
    }

    /// Something keeps the pods of a wake from starting: waiting longer does not help.
    #[must_use]
    pub fn is_obstacle(self) -> bool {
        matches!(
            self,
            Self::CannotStart
                | Self::ImagePull
                | Self::CrashLoop
                | Self::Unschedulable
                | Self::PodRefused
                | Self::NeverReady
        )
    }

    /// The reason of this word, as a status has it.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The word, fit for `status.reason`, a condition and a metric label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TriggerActive => "TriggerActive",
            Self::TriggerUnknown => "TriggerUnknown",
            Self::Traffic => "Traffic",
            Self::WakeRequested => "WakeRequested",
            Self::WokenByRequest => "WokenByRequest",
            Self::SleepRequested => "SleepRequested",
            Self::CoolingDown => "CoolingDown",
            Self::Idle => "Idle",
            Self::OutsideWindow => "OutsideWindow",
            Self::InvalidWindow => "InvalidWindow",
            Self::Paused => "Paused",
            Self::NoResolver => "NoResolver",
            Self::NodesWithoutResolver => "NodesWithoutResolver",
            Self::ResolverUnreachable => "ResolverUnreachable",
            Self::RouteNotReady => "RouteNotReady",
            Self::Redirecting => "Redirecting",
            Self::Draining => "Draining",
            Self::TicksTooDense => "TicksTooDense",
            Self::Conflict => "Conflict",
            Self::Contended => "Contended",
            Self::Manual => "Manual",
            Self::Unsupported => "Unsupported",
            Self::ServiceNotFound => "ServiceNotFound",
            Self::TargetNotFound => "TargetNotFound",
            Self::AutoscalerNotFound => "AutoscalerNotFound",
            Self::PortsExhausted => "PortsExhausted",
            Self::Deleting => "Deleting",
            Self::NotLeader => "NotLeader",
            Self::Starting => "Starting",
            Self::Restoring => "Restoring",
            Self::NotScheduled => "NotScheduled",
            Self::Initializing => "Initializing",
            Self::Pulling => "Pulling",
            Self::Restarting => "Restarting",
            Self::NotReady => "NotReady",
            Self::QuotaExceeded => "QuotaExceeded",
            Self::WebhookFailed => "WebhookFailed",
            Self::CannotStart => "CannotStart",
            Self::ImagePull => "ImagePull",
            Self::CrashLoop => "CrashLoop",
            Self::Unschedulable => "Unschedulable",
            Self::PodRefused => "PodRefused",
            Self::NeverReady => "NeverReady",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Reason;

    #[test]
    fn every_reason_is_one_word_that_a_condition_accepts_and_no_two_are_alike() {
        let words: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        for word in words {
            assert!(word.starts_with(|c: char| c.is_ascii_uppercase()), "{word}");
            assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
            assert_eq!(Reason::from_word(word).map(Reason::as_str), Some(word));
        }
    }
}
