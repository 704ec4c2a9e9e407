//! EndpointSlices of a managed Service: those of Kubernetes, and ours that point at the resolvers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use elasti_api::ListenPort;
use elasti_api::names::{self, IpFamily};
use k8s_openapi::api::discovery::v1::{self as discovery_v1, EndpointSlice};

use super::predecessor;
use super::service::family;
use crate::observed::{Endpoint, Family, Owned, PortsGiven, SliceRole, SliceShape};

/// What is kept of an EndpointSlice.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceFacts {
    /// Kubernetes' own controller manages it.
    pub by_kubernetes: bool,
    /// Elasti manages it.
    pub by_elasti: bool,
    /// KubeElasti made it.
    pub by_predecessor: bool,
    /// The uid of the ElastiService that owns it.
    pub owner: Option<String>,
    /// The family of its addresses.
    pub family: Family,
    /// Names and numbers of its ports; only kept where Kubernetes does not manage it.
    pub ports: Vec<(String, u16)>,
    /// Its endpoints; only kept where Kubernetes manages it.
    pub endpoints: Vec<Endpoint>,
    /// Addresses and their nodes; only kept where no pod stands behind the endpoints. An endpoint whose conditions do
    /// not fit the role is left out, so that the slice is written again.
    pub addresses: Vec<(IpAddr, Box<str>)>,
    /// When nodes use it, if it is ours.
    pub role: SliceRole,
}

/// A slice with the names that a cache keeps in its own way.
#[derive(Clone, Copy, Debug)]
pub struct FoundSlice<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Its resource version.
    pub version: &'a str,
    /// The Service that its label names.
    pub service: Option<&'a str>,
    /// What is kept of it.
    pub facts: &'a SliceFacts,
}

impl SliceFacts {
    /// Reads an EndpointSlice.
    #[must_use]
    pub fn from_object(slice: &EndpointSlice) -> Self {
        let labels = slice.metadata.labels.as_ref();
        let manager = labels.and_then(|all| all.get(names::SLICE_MANAGED_BY_LABEL));
        let manager = manager.map(String::as_str);
        let by_kubernetes = manager == Some(names::SLICE_MANAGED_BY_KUBERNETES);
        let mut facts = Self {
            by_kubernetes,
            by_elasti: manager == Some(names::SLICE_MANAGED_BY_ELASTI),
            by_predecessor: predecessor::made_slice(slice),
            owner: super::owner(&slice.metadata),
            family: family(&slice.address_type),
            ports: Vec::new(),
            endpoints: Vec::new(),
            addresses: Vec::new(),
            role: role(slice),
        };
        if !by_kubernetes {
            let ports = slice.ports.iter().flatten();
            let number = |port: Option<i32>| port.and_then(|n| u16::try_from(n).ok());
            facts.ports = ports
                .map(|p| {
                    let name = p.name.clone().unwrap_or_default();
                    (name, number(p.port).unwrap_or_default())
                })
                .collect();
        }
        for endpoint in &slice.endpoints {
            let pod = endpoint.target_ref.as_ref().and_then(|t| t.name.as_ref());
            if pod.is_none() && (by_kubernetes || fits(endpoint, facts.role)) {
                let addresses = endpoint.addresses.iter();
                let node = endpoint.node_name.clone().unwrap_or_default();
                let parsed = addresses.filter_map(|a| a.parse::<IpAddr>().ok());
                facts
                    .addresses
                    .extend(parsed.map(|a| (a, node.as_str().into())));
            }
            if by_kubernetes {
                let conditions = endpoint.conditions.as_ref();
                facts.endpoints.push(Endpoint {
                    pod: pod.cloned().unwrap_or_default(),
                    ready: is_ready(endpoint),
                    terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
                });
            }
        }
        facts
    }
}

/// Kubernetes takes an endpoint without this condition for ready.
fn is_ready(endpoint: &discovery_v1::Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|c| c.ready).unwrap_or(true)
}

/// Nodes use a slice with a ready endpoint always, and one without as a net.
fn role(slice: &EndpointSlice) -> SliceRole {
    match slice.endpoints.iter().any(is_ready) {
        true => SliceRole::Redirect,
        false => SliceRole::Net,
    }
}

/// The endpoint has the conditions of this role.
fn fits(endpoint: &discovery_v1::Endpoint, role: SliceRole) -> bool {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let serving = conditions.serving.unwrap_or(true);
    let terminating = conditions.terminating.unwrap_or(false);
    match role {
        SliceRole::Redirect => is_ready(endpoint) && serving && !terminating,
        SliceRole::Net => serving && terminating,
    }
}

/// The Service's own endpoints.
#[must_use]
pub fn endpoints(slices: &[FoundSlice<'_>]) -> Vec<Endpoint> {
    let own = slices.iter().filter(|slice| slice.facts.by_kubernetes);
    own.flat_map(|slice| slice.facts.endpoints.iter().cloned())
        .collect()
}

/// Differs whenever the Service's own endpoints changed, even if they changed back.
#[must_use]
pub fn endpoints_version(slices: &[FoundSlice<'_>]) -> String {
    let own = slices.iter().filter(|slice| slice.facts.by_kubernetes);
    let parts: Vec<String> = own.map(|s| format!("{}:{}", s.uid, s.version)).collect();
    parts.join(",")
}

/// Whose slices of a Service are asked for.
#[derive(Clone, Copy, Debug)]
pub struct SliceOwner<'a> {
    uid: &'a str,
    adopts: bool,
}

impl<'a> SliceOwner<'a> {
    /// The ElastiService with this uid. What KubeElasti left without an owner is for the one that manages a Service which
    /// some ElastiService names: KubeElasti made slices for no others.
    #[must_use]
    pub fn new(uid: &'a str, adopts: bool) -> Self {
        Self { uid, adopts }
    }

    /// Whether it owns or adopts this slice.
    #[must_use]
    pub fn owns(&self, slice: &SliceFacts) -> bool {
        match slice.owner.as_deref() {
            Some(owner) => owner == self.uid,
            None => slice.by_predecessor && self.adopts,
        }
    }
}

/// Our slices of one Service, put together by family. A slice says where a port is listened for, not which number the
/// Service gives it: the ports that were given, and those that the status records, do.
#[must_use]
pub fn our_slices(
    owner: SliceOwner<'_>,
    service: &str,
    slices: &[FoundSlice<'_>],
    given: &PortsGiven,
    recorded: &[ListenPort],
) -> Owned<Vec<SliceShape>> {
    let is_ours = |slice: &FoundSlice<'_>| owner.owns(slice.facts);
    let has_our_name = |slice: &FoundSlice<'_>| {
        let family = match slice.facts.family {
            Family::V4 => IpFamily::V4,
            Family::V6 => IpFamily::V6,
        };
        slice.name == names::resolver_slice(service, family, 0)
    };
    if slices.iter().any(|s| has_our_name(s) && !is_ours(s)) {
        return Owned::Foreign;
    }
    // A slice of ours whose labels were changed has no effect: it is as good as missing.
    let in_effect = |s: &&FoundSlice<'_>| {
        let labelled = s.facts.by_elasti || s.facts.by_predecessor;
        is_ours(s) && labelled && s.service == Some(service)
    };
    let mut shapes: BTreeMap<(Family, SliceRole, Vec<ListenPort>), SliceShape> = BTreeMap::new();
    for slice in slices.iter().filter(in_effect) {
        let ports = slice.facts.ports.iter();
        let mut ports: Vec<ListenPort> = ports
            .map(|(name, number)| listen_port(name, *number, given, recorded))
            .collect();
        ports.sort();
        let family = slice.facts.family;
        let role = slice.facts.role;
        let shape = shapes.entry((family, role, ports.clone()));
        let shape = shape.or_insert_with(|| SliceShape {
            family,
            role,
            ports,
            endpoints: BTreeMap::new(),
        });
        let addresses = slice.facts.addresses.iter();
        let pairs = addresses.map(|(address, node)| (*address, node.to_string()));
        shape.endpoints.extend(pairs);
    }
    match shapes.is_empty() {
        true => Owned::Missing,
        false => Owned::Ours(shapes.into_values().collect()),
    }
}

fn listen_port(name: &str, number: u16, given: &PortsGiven, recorded: &[ListenPort]) -> ListenPort {
    let given = match given {
        PortsGiven::Given(given) => given.as_slice(),
        PortsGiven::Exhausted => &[],
    };
    let mut known = given.iter().chain(recorded);
    let same = known.find(|p| p.name == name && p.listen_port == number);
    same.cloned().unwrap_or_else(|| ListenPort {
        name: name.to_owned(),
        port: 0,
        listen_port: number,
    })
}
