//! The attacks: what each is called in docs/security.md, and what begins it. Each goes on until the tenant is dropped.

use super::tenant::Tenant;

/// Everything that is tried, in this order; those of one wave begin together.
pub(crate) const WAVES: [&[Attack]; 12] = [
    &[Attack::MadeUpKinds, Attack::OldVersionOfDeployment],
    // Those that need a service which sleeps come first: later ones keep the attacker's own awake.
    &[
        Attack::HeldConnections,
        Attack::SilentConnections,
        Attack::SlowHeads,
    ],
    &[
        Attack::UnreadStreams,
        Attack::UnfinishedHeaders,
        Attack::MadeUpHosts,
        Attack::ForgedText,
        Attack::PressedProbes,
        Attack::AimedProbes,
        Attack::ThroughResolvers,
    ],
    &[
        Attack::ScaleFights,
        Attack::ChangingPorts,
        Attack::ClaimedPorts,
    ],
    &[
        Attack::FlappingSpecs,
        Attack::FlappingPods,
        Attack::WakeAndSleep,
    ],
    &[Attack::RegexBombs, Attack::OddSchedules],
    &[
        Attack::GiantObjects,
        Attack::NeighboursNames,
        Attack::TargetsElsewhere,
        Attack::HandWrittenSlices,
        Attack::ForgedAddresses,
        Attack::FalseResolvers,
        Attack::FalsePredecessors,
    ],
    &[
        Attack::ManyServices,
        Attack::OneSelector,
        Attack::NamespaceAgain,
        Attack::NeverDeleted,
    ],
    &[Attack::SlowTriggers, Attack::SilentServers],
    &[
        Attack::EndlessAnswers,
        Attack::RedirectedQueries,
        Attack::NotNumbers,
    ],
    &[
        Attack::AdminPortFlood,
        Attack::FalseCertificates,
        Attack::WakesWithoutToken,
    ],
    &[
        Attack::RefusedWrites,
        Attack::HangingWrites,
        Attack::HangingEvents,
    ],
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    MadeUpKinds,
    OldVersionOfDeployment,
    SlowTriggers,
    SilentServers,
    EndlessAnswers,
    RedirectedQueries,
    NotNumbers,
    RegexBombs,
    OddSchedules,
    GiantObjects,
    NeighboursNames,
    TargetsElsewhere,
    HandWrittenSlices,
    ForgedAddresses,
    FalseResolvers,
    FalsePredecessors,
    ManyServices,
    OneSelector,
    FlappingSpecs,
    FlappingPods,
    WakeAndSleep,
    ChangingPorts,
    ClaimedPorts,
    ScaleFights,
    NamespaceAgain,
    NeverDeleted,
    HeldConnections,
    SilentConnections,
    SlowHeads,
    UnreadStreams,
    UnfinishedHeaders,
    MadeUpHosts,
    ForgedText,
    PressedProbes,
    AimedProbes,
    AdminPortFlood,
    FalseCertificates,
    WakesWithoutToken,
    ThroughResolvers,
    RefusedWrites,
    HangingWrites,
    HangingEvents,
}

impl Attack {
    /// The first cell of its row in docs/security.md.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::MadeUpKinds => "60 kinds that do not exist",
            Self::OldVersionOfDeployment => "`apps/v1beta1`, which is not served",
            Self::SlowTriggers => {
                "50 objects of 32 triggers, 4 s each, at the neighbour's Prometheus"
            }
            Self::SilentServers => "triggers at 24 servers that are silent",
            Self::EndlessAnswers => "a Prometheus whose answers never end, or come a byte a second",
            Self::RedirectedQueries => {
                "a Prometheus that redirects to what only the operator reaches"
            }
            Self::NotNumbers => "a Prometheus that says NaN, Inf, or something else than HTTP",
            Self::RegexBombs => "regular expressions that explode, with requests",
            Self::OddSchedules => "windows of each minute, and time zones that do not exist",
            Self::GiantObjects => "objects of 200 KiB",
            Self::NeighboursNames => "an ElastiService and a Service with the neighbour's names",
            Self::TargetsElsewhere => "ElastiServices that name the neighbour's Service and target",
            Self::HandWrittenSlices => "slices by hand that claim to be the neighbour's",
            Self::ForgedAddresses => "slices of its own with the address of the neighbour's pod",
            Self::FalseResolvers => "pods with the resolvers' label",
            Self::FalsePredecessors => {
                "pods as of KubeElasti's resolvers, and wakes from their address"
            }
            Self::ManyServices => "100 ElastiServices at once (nightly: 500)",
            Self::OneSelector => "100 Services with the selector of one target (nightly: 500)",
            Self::FlappingSpecs => "a spec that changes every 20 ms",
            Self::FlappingPods => "pods that become ready and unready ten times a second",
            Self::WakeAndSleep => "requests to wake and to sleep, 20 a second",
            Self::ChangingPorts => "a Service whose 20 ports have new numbers every 200 ms",
            Self::ClaimedPorts => "the neighbour's listen ports in a status",
            Self::ScaleFights => "a target that is scaled to zero as soon as it is woken",
            Self::NamespaceAgain => "a namespace that is deleted and made again",
            Self::NeverDeleted => {
                "20 ElastiServices that are deleted, with finalizers that never go"
            }
            Self::HeldConnections => "500 requests for a pod that never starts (nightly: 10,000)",
            Self::SilentConnections => "300 connections that say nothing",
            Self::SlowHeads => "300 heads that never end",
            Self::UnreadStreams => "2,000 HTTP/2 requests of clients that never read",
            Self::UnfinishedHeaders => "100 HTTP/2 headers without their CONTINUATION",
            Self::MadeUpHosts => "requests for made-up hosts at the host route",
            Self::ForgedText => "paths and user agents that fake lines and control terminals",
            Self::PressedProbes => "20 pods with probes that never pass, and a request for them",
            Self::AimedProbes => "a readiness probe whose `host` is another host",
            Self::AdminPortFlood => "200 connections to each port 8013",
            Self::FalseCertificates => {
                "garbage for a handshake, and wakes over TLS with an expired certificate"
            }
            Self::WakesWithoutToken => "wakes without a token, or with a made-up one",
            Self::ThroughResolvers => "reach the neighbour through a resolver",
            Self::RefusedWrites => "writes that a quota refuses",
            Self::HangingWrites => "writes that hang, as with a webhook",
            Self::HangingEvents => "Events that hang",
        }
    }

    pub(crate) async fn begin(self, tenant: &mut Tenant) {
        match self {
            Self::MadeUpKinds => tenant.made_up_kinds().await,
            Self::OldVersionOfDeployment => tenant.old_version_of_deployment().await,
            Self::SlowTriggers => tenant.slow_triggers().await,
            Self::SilentServers => tenant.silent_servers().await,
            Self::EndlessAnswers => tenant.endless_answers().await,
            Self::RedirectedQueries => tenant.redirected_queries().await,
            Self::NotNumbers => tenant.not_numbers().await,
            Self::RegexBombs => tenant.regex_bombs().await,
            Self::OddSchedules => tenant.odd_schedules().await,
            Self::GiantObjects => tenant.giant_objects().await,
            Self::NeighboursNames => tenant.neighbours_names().await,
            Self::TargetsElsewhere => tenant.targets_elsewhere().await,
            Self::HandWrittenSlices => tenant.hand_written_slices().await,
            Self::ForgedAddresses => tenant.forged_addresses().await,
            Self::FalseResolvers => tenant.false_resolvers().await,
            Self::FalsePredecessors => tenant.false_predecessors().await,
            Self::ManyServices => tenant.many_services().await,
            Self::OneSelector => tenant.one_selector().await,
            Self::FlappingSpecs => tenant.flapping_specs().await,
            Self::FlappingPods => tenant.flapping_pods().await,
            Self::WakeAndSleep => tenant.wake_and_sleep().await,
            Self::ChangingPorts => tenant.changing_ports().await,
            Self::ClaimedPorts => tenant.claimed_ports().await,
            Self::ScaleFights => tenant.scale_fights().await,
            Self::NamespaceAgain => tenant.namespace_again(),
            Self::NeverDeleted => tenant.never_deleted().await,
            Self::HeldConnections => tenant.held_connections().await,
            Self::SilentConnections => tenant.silent_connections().await,
            Self::SlowHeads => tenant.slow_heads().await,
            Self::UnreadStreams => tenant.unread_streams().await,
            Self::UnfinishedHeaders => tenant.unfinished_headers().await,
            Self::MadeUpHosts => tenant.made_up_hosts(),
            Self::ForgedText => tenant.forged_text().await,
            Self::PressedProbes => tenant.pressed_probes().await,
            Self::AimedProbes => tenant.aimed_probes().await,
            Self::AdminPortFlood => tenant.admin_port_flood().await,
            Self::FalseCertificates => tenant.false_certificates(),
            Self::WakesWithoutToken => tenant.wakes_without_token(),
            Self::ThroughResolvers => tenant.through_resolvers().await,
            Self::RefusedWrites => tenant.refused_writes(),
            Self::HangingWrites => tenant.hanging_writes(),
            Self::HangingEvents => tenant.hanging_events(),
        }
    }
}
