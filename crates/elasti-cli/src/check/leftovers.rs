//! Leftovers of an earlier KubeElasti, or of an ElastiService that is gone.

use elasti_api::names::{self, IpFamily};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

use super::fleet::Fleet;
use super::installation::Installation;
use super::line::Line;

const CHECK: &str = "leftovers";

pub(super) fn check(installation: &Installation, fleet: &Fleet, lines: &mut Vec<Line>) {
    let mut found = Vec::new();
    for old in &installation.predecessor {
        let (namespace, name) = (old.namespace().unwrap_or_default(), old.name_any());
        found.push(Line::fail(
            CHECK,
            format!("KubeElasti still runs as {namespace}/{name}: two operators conflict"),
            format!("kubectl delete deployment {name} -n {namespace}; never helm uninstall KubeElasti, which deletes the CRD and every ElastiService"),
        ));
    }
    for slice in fleet
        .slices
        .iter()
        .flatten()
        .filter(|slice| is_orphan(slice, fleet))
    {
        let (namespace, name) = (slice.namespace().unwrap_or_default(), slice.name_any());
        found.push(Line::fail(
            CHECK,
            format!("EndpointSlice {namespace}/{name} routes a Service to resolvers, but no ElastiService has that Service"),
            format!("check that its pods run, then: kubectl delete endpointslice {name} -n {namespace}"),
        ));
    }
    for service in fleet.all_services.iter().flatten() {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let is_private = name.starts_with("elasti-") && name.contains("-pvt-");
        let has_owner = fleet.services.iter().any(|one| {
            one.namespace().as_deref() == Some(&namespace)
                && names::private_service(&one.spec.service) == name
        });
        if is_private && !has_owner {
            found.push(Line::warn(
                CHECK,
                format!(
                    "Service {namespace}/{name} is a private Service that no ElastiService uses"
                ),
                format!("kubectl delete service {name} -n {namespace}"),
            ));
        }
    }
    // What could not be read has its own line, and must not be reported as absent.
    let is_seen = fleet.slices.is_some() && fleet.all_services.is_some();
    if found.is_empty() && is_seen {
        let message = "no leftovers of an earlier installation";
        found.push(Line::ok(CHECK, message));
    }
    lines.extend(found);
}

/// Named as ours, for a Service that no ElastiService has.
fn is_orphan(slice: &EndpointSlice, fleet: &Fleet) -> bool {
    let Some(service) = slice.labels().get(names::SERVICE_NAME_LABEL) else {
        return false;
    };
    let base = names::resolver_slice(service, IpFamily::V4, 0);
    let is_ours = slice.name_any().starts_with(&base);
    let has_owner = fleet
        .services
        .iter()
        .any(|one| one.spec.service == *service && one.namespace() == slice.namespace());
    is_ours && !has_owner
}
