//! Every label, annotation, finalizer, object, header, path and field-manager name, once.
//! Do not spell one of these anywhere else.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// API group of the ElastiService, and prefix of every label and annotation of ours.
pub const GROUP: &str = "elasti.truefoundry.com";
/// Name of the CustomResourceDefinition.
pub const CRD: &str = "elastiservices.elasti.truefoundry.com";
/// The resource's plural, as in RBAC rules.
pub const PLURAL: &str = "elastiservices";
/// Keeps an ElastiService from being deleted until its target is awake and our objects are gone.
pub const FINALIZER: &str = "elasti.truefoundry.com/finalizer";

/// Field manager of everything that the operator applies.
pub const FIELD_MANAGER: &str = "elasti-operator";
/// Field manager of what the command line writes with the user's own permissions.
pub const CLI_FIELD_MANAGER: &str = "elasti-cli";
/// The reporting controller of the operator's Events.
pub const EVENT_REPORTER: &str = "elasti.truefoundry.com/operator";
/// The lease that the leader among the operators holds.
pub const LEASE: &str = "elasti-operator";
/// On that lease: the identity of the holder, a space, and the address where it takes wakes.
pub const LEADER_ADDRESS_ANNOTATION: &str = "elasti.truefoundry.com/leader-address";
/// The name that the certificate of every operator has.
pub const OPERATOR_TLS_NAME: &str = "elasti-operator";
/// The name that the certificate of every resolver has.
pub const RESOLVER_TLS_NAME: &str = "elasti-resolver";
/// Audience of the token with which a resolver requests a wake.
pub const WAKE_AUDIENCE: &str = "elasti-operator";
/// Audience of the token with which the operator asks a resolver for its activity. The two audiences differ, so that
/// neither side can reuse the token that it received.
pub const ACTIVITY_AUDIENCE: &str = "elasti-resolver";

/// Which tool manages an object, by the common Kubernetes label.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Our value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "elasti";
/// On every object of ours: the ElastiService that it serves.
pub const ELASTI_SERVICE_LABEL: &str = "elasti.truefoundry.com/elastiservice";
/// On an EndpointSlice: the Service that it belongs to.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// On an EndpointSlice: the controller that manages it.
pub const SLICE_MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Our value of [`SLICE_MANAGED_BY_LABEL`]; Kubernetes' own controllers leave such slices alone.
pub const SLICE_MANAGED_BY_ELASTI: &str = "elasti.truefoundry.com";
/// Value of [`SLICE_MANAGED_BY_LABEL`] on slices that Kubernetes creates from a selector: the only ones to forward to.
pub const SLICE_MANAGED_BY_KUBERNETES: &str = "endpointslice-controller.k8s.io";
/// On resolver pods and on their Service.
pub const RESOLVER_LABEL: &str = "app";
/// The resolver's value of [`RESOLVER_LABEL`].
pub const RESOLVER_LABEL_VALUE: &str = "elasti-resolver";

/// On a KEDA ScaledObject: `"true"` while the target sleeps.
pub const KEDA_PAUSED_ANNOTATION: &str = "autoscaling.keda.sh/paused";
/// On a KEDA ScaledObject: `"0"` while the target sleeps.
pub const KEDA_PAUSED_REPLICAS_ANNOTATION: &str = "autoscaling.keda.sh/paused-replicas";
/// On a KEDA ScaledObject: what its pause annotations were before ours, so that deletion restores them.
pub const KEDA_BEFORE_ANNOTATION: &str = "elasti.truefoundry.com/keda-before";
/// On an ElastiService: when a user requested a wake (RFC 3339).
pub const WAKE_REQUESTED_ANNOTATION: &str = "elasti.truefoundry.com/wake-requested";
/// On an ElastiService: when a user requested sleep without waiting for the cooldown (RFC 3339).
pub const SLEEP_REQUESTED_ANNOTATION: &str = "elasti.truefoundry.com/sleep-requested";

/// Reason of the pod condition by which we take a pod out of rotation.
pub const DRAIN_REASON: &str = "ElastiDrain";

/// How readily a ReplicaSet stops a pod: among pods that are alike, those of the lowest cost first.
pub const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
/// The lowest cost, which we give to pods that a scale-down of ours is to stop.
pub const LOWEST_DELETION_COST: &str = "-2147483648";

/// Header with the reason, from a closed set, why the resolver answered in place of the target.
pub const REASON_HEADER: &str = "x-elasti-reason";

/// The operator's path for wake requests.
pub const WAKE_PATH: &str = "/informer/incoming-request";
/// Header of a wake request that a follower passed on to the leader; such a one is not passed on again.
pub const PASSED_ON_HEADER: &str = "x-elasti-passed-on";
/// A resolver's path for its activity report.
pub const ACTIVITY_PATH: &str = "/activity";
/// A resolver's path for its metrics; `?name=` selects one family.
pub const METRICS_PATH: &str = "/metrics";
/// The resolver's gauge of held requests, by namespace and Service.
pub const HELD_METRIC: &str = "elasti_resolver_queued_count";
/// A resolver's path that shows whether it holds requests of one service.
pub const QUEUE_STATUS_PATH: &str = "/queue-status";

/// Condition types of the ElastiService, by the Kubernetes conventions.
pub mod condition {
    /// The summary: Elasti can manage this service.
    pub const READY: &str = "Ready";
    /// The target exists and can be scaled.
    pub const TARGET_FOUND: &str = "TargetFound";
    /// Every trigger has a usable reading.
    pub const TRIGGERS_HEALTHY: &str = "TriggersHealthy";
    /// New connections go to the resolver.
    pub const TRAFFIC_REDIRECTED: &str = "TrafficRedirected";
    /// The target is at 0 replicas and the resolver answers.
    pub const ASLEEP: &str = "Asleep";
    /// Another ElastiService, or a foreign object with our name, is in conflict with this one.
    pub const CONFLICT: &str = "Conflict";
    /// Something else writes the target's replicas.
    pub const CONTENDED: &str = "Contended";
    /// Services of the target's pods lose their endpoints while it sleeps; absent if there are none.
    pub const UNMANAGED_SERVICES: &str = "UnmanagedServices";
    /// The API server refuses something that Elasti has to write; absent while it does not.
    pub const STEP_FAILED: &str = "StepFailed";
    /// Metrics of triggers have no series, and their queries fall back on a value that is always there; absent while not.
    pub const METRICS_MISSING: &str = "MetricsMissing";
    /// All of them, in the order in which they are shown.
    pub const ALL: [&str; 10] = [
        READY,
        TARGET_FOUND,
        TRIGGERS_HEALTHY,
        TRAFFIC_REDIRECTED,
        ASLEEP,
        CONFLICT,
        CONTENDED,
        UNMANAGED_SERVICES,
        STEP_FAILED,
        METRICS_MISSING,
    ];
}

/// Reasons of Events on the ElastiService and on its target.
pub mod event {
    /// The target was scaled, up or down.
    pub const SUCCESS_TO_SCALE: &str = "SuccessToScale";
    /// The target could not be scaled.
    pub const FAILED_TO_SCALE: &str = "FailedToScale";
    /// New connections go to the resolver from now on.
    pub const TRAFFIC_REDIRECTED: &str = "TrafficRedirected";
    /// New connections go to the pods again.
    pub const TRAFFIC_RESTORED: &str = "TrafficRestored";
    /// Activity during the drain: the target stays awake.
    pub const SLEEP_CANCELLED: &str = "SleepCancelled";
    /// The target was scaled up, but its pods cannot start.
    pub const WAKE_STUCK: &str = "WakeStuck";
    /// No resolver is ready: the target is woken and kept awake.
    pub const NO_RESOLVER: &str = "NoResolver";
    /// Another ElastiService, or a foreign object with our name, is in conflict with this one.
    pub const CONFLICT: &str = "Conflict";
    /// Something else writes the target's replicas.
    pub const CONTENDED: &str = "Contended";
    /// The kubelets leave no moment at which the pods could be drained together: the target stays awake.
    pub const CANNOT_DRAIN: &str = "CannotDrain";
    /// A scale-down stopped a pod that was still in rotation.
    pub const WRONG_POD_STOPPED: &str = "WrongPodStopped";
    /// The API server refuses something that Elasti has to write.
    pub const STEP_FAILED: &str = "StepFailed";
    /// Metrics of a trigger have no series, so that it always reads the value that its query falls back on.
    pub const METRICS_MISSING: &str = "MetricsMissing";
}

/// Longest name of a Service: a DNS label.
const MAX_SERVICE_NAME: usize = 63;
/// Longest name of an EndpointSlice: a DNS subdomain.
const MAX_SLICE_NAME: usize = 253;

/// Which addresses an EndpointSlice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpFamily {
    /// IPv4 addresses.
    V4,
    /// IPv6 addresses.
    V6,
}

impl IpFamily {
    /// The `addressType` of an EndpointSlice.
    #[must_use]
    pub fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Name of the private Service, which always selects `service`'s pods.
#[must_use]
pub fn private_service(service: &str) -> String {
    fit(
        "elasti-",
        service,
        &format!("-pvt-{}", hash(service)),
        MAX_SERVICE_NAME,
    )
}

/// Name of an EndpointSlice that routes `service` to the resolvers.
///
/// The first IPv4 slice has the name that KubeElasti uses. More are needed for IPv6 and for more resolvers
/// than one slice holds; they add a suffix after the hash.
#[must_use]
pub fn resolver_slice(service: &str, family: IpFamily, index: u32) -> String {
    let mut tail = format!("-endpointslice-to-resolver-{}", hash(service));
    if family == IpFamily::V6 {
        tail.push_str("-v6");
    }
    if index > 0 {
        // Writing to a String cannot fail.
        let _ = write!(tail, "-{index}");
    }
    fit("elasti-", service, &tail, MAX_SLICE_NAME)
}

/// First 10 hex digits of the SHA-256 of the whole service name: keeps truncated names distinct.
fn hash(service: &str) -> String {
    let digest = Sha256::digest(service.as_bytes());
    digest.iter().take(5).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Joins the three parts; the middle one is truncated so that the whole fits, without a trailing `-`.
fn fit(head: &str, middle: &str, tail: &str, max: usize) -> String {
    let room = max.saturating_sub(head.len() + tail.len());
    let cut = match middle.char_indices().nth(room) {
        None => middle,
        Some((end, _)) => middle.get(..end).unwrap_or(middle).trim_end_matches('-'),
    };
    format!("{head}{cut}{tail}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::{prop_assert, prop_assert_eq, prop_assert_ne, proptest};

    use super::{IpFamily, hash, private_service, resolver_slice};

    #[test]
    fn the_hash_has_its_check_value() {
        assert_eq!(hash("target-deployment"), "9696239e87");
    }

    #[test]
    fn names_are_those_of_kube_elasti() {
        assert_eq!(
            private_service("target-deployment"),
            "elasti-target-deployment-pvt-9696239e87"
        );
        assert_eq!(
            resolver_slice("target-deployment", IpFamily::V4, 0),
            "elasti-target-deployment-endpointslice-to-resolver-9696239e87"
        );
        assert_eq!(
            resolver_slice("target-deployment", IpFamily::V6, 0),
            "elasti-target-deployment-endpointslice-to-resolver-9696239e87-v6"
        );
        assert_eq!(
            resolver_slice("target-deployment", IpFamily::V4, 3),
            "elasti-target-deployment-endpointslice-to-resolver-9696239e87-3"
        );
    }

    #[test]
    fn a_long_name_is_truncated_without_a_trailing_dash() {
        // "elasti-" (7) and "-pvt-" with the hash (15) leave 41 of 63 characters for the service.
        let fits = "a".repeat(41);
        assert_eq!(private_service(&fits).len(), 63);
        assert!(private_service(&fits).starts_with(&format!("elasti-{fits}-pvt-")));

        let long = "b".repeat(63);
        let kept = "b".repeat(41);
        assert!(private_service(&long).starts_with(&format!("elasti-{kept}-pvt-")));

        let dashed = format!("{}--{}", "c".repeat(39), "d".repeat(20));
        let kept = "c".repeat(39);
        assert!(private_service(&dashed).starts_with(&format!("elasti-{kept}-pvt-")));
    }

    #[test]
    fn a_name_that_fits_keeps_its_dashes() {
        let dashed = format!("{}--d", "c".repeat(38));
        assert!(private_service(&dashed).starts_with(&format!("elasti-{dashed}-pvt-")));
    }

    fn is_dns_label(name: &str) -> bool {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
    }

    proptest! {
        #[test]
        fn every_service_gets_a_valid_private_service(service in "[a-z]([-a-z0-9]{0,61}[a-z0-9])?") {
            let name = private_service(&service);
            prop_assert!(is_dns_label(&name) && name.len() <= 63, "{}", name);
            prop_assert!(name.ends_with(&format!("-pvt-{}", hash(&service))), "{}", name);
        }

        #[test]
        fn every_service_gets_valid_slices_that_differ(
            service in "[a-z]([-a-z0-9]{0,300}[a-z0-9])?",
            index in 0_u32..,
        ) {
            let names: HashSet<String> = [IpFamily::V4, IpFamily::V6]
                .into_iter()
                .flat_map(|family| [0, 1, 1 + index / 2].map(|i| resolver_slice(&service, family, i)))
                .collect();
            prop_assert_eq!(names.len(), if index < 2 { 4 } else { 6 });
            for name in names {
                prop_assert!(is_dns_label(&name) && name.len() <= 253, "{}", name);
            }
        }

        #[test]
        fn services_that_share_their_truncated_name_get_distinct_names(
            shared in "[a-z]{50}", one in "[a-z0-9]{5,12}", other in "[a-z0-9]{5,12}",
        ) {
            if one != other {
                prop_assert_ne!(
                    private_service(&format!("{shared}{one}")),
                    private_service(&format!("{shared}{other}"))
                );
            }
        }
    }
}
