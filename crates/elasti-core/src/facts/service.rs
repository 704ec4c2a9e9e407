//! Services: the public one as far as redirecting cares, and our private one.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::observed::{Family, Owned, PrivateServiceShape, Service, ServiceKind, ServicePort};

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceFacts {
    /// The uid of the ElastiService that owns it.
    pub owner: Option<String>,
    /// It is a ClusterIP Service without anything that a private Service must not have.
    pub plain: bool,
    /// The Service as a decision takes it.
    pub service: Service,
}

impl ServiceFacts {
    /// Reads a Service.
    #[must_use]
    pub fn from_object(object: core_v1::Service) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            owner: super::owner(&object.metadata),
            plain: matches!(spec.type_.as_deref(), None | Some("ClusterIP"))
                && spec.external_ips.is_none(),
            service: service(spec),
        }
    }
}

/// Our private Service: found under its name, and whether it belongs to the ElastiService of this uid.
#[must_use]
pub fn private_service(me_uid: &str, found: Option<&ServiceFacts>) -> Owned<PrivateServiceShape> {
    let Some(found) = found else {
        return Owned::Missing;
    };
    if found.owner.as_deref() != Some(me_uid) {
        return Owned::Foreign;
    }
    let Service {
        selector,
        ports,
        families,
        ..
    } = &found.service;
    Owned::Ours(PrivateServiceShape {
        selector: selector.clone(),
        // Someone gave it more than a cluster IP: it is not what it should be.
        ports: ports.iter().filter(|_| found.plain).cloned().collect(),
        families: families.clone(),
    })
}

fn service(spec: core_v1::ServiceSpec) -> Service {
    let kind = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
        (Some("ExternalName"), _) => ServiceKind::ExternalName,
        (_, Some("None")) => ServiceKind::Headless,
        _ => ServiceKind::ClusterIp,
    };
    let families = spec.ip_families.unwrap_or_default();
    let families: BTreeSet<Family> = families.iter().map(|one| family(one)).collect();
    let families = match families.is_empty() {
        true => BTreeSet::from([Family::V4]),
        false => families,
    };
    let ports = spec.ports.unwrap_or_default();
    Service {
        kind,
        selector: spec.selector.unwrap_or_default().into(),
        ports: ports.into_iter().map(port).collect(),
        families,
        external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
        publishes_unready: spec.publish_not_ready_addresses == Some(true),
    }
}

/// `IPv4` or `IPv6`, as Services and EndpointSlices spell it.
pub(super) fn family(word: &str) -> Family {
    match word {
        "IPv6" => Family::V6,
        _ => Family::V4,
    }
}

fn port(port: core_v1::ServicePort) -> ServicePort {
    let number = u16::try_from(port.port).unwrap_or_default();
    ServicePort {
        name: port.name.unwrap_or_default(),
        port: number,
        target_port: match port.target_port {
            Some(IntOrString::Int(number)) => number.to_string(),
            Some(IntOrString::String(name)) => name,
            None => number.to_string(),
        },
        tcp: port.protocol.as_deref().is_none_or(|p| p == "TCP"),
        app_protocol: port.app_protocol,
    }
}
