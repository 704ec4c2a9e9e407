//! Which addresses may receive a service's requests at all, and which ready pod gets the next one.
//! Addresses in EndpointSlices are not trusted: anyone who may write slices could aim requests anywhere.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use elasti_api::names::SLICE_MANAGED_BY_KUBERNETES;
use k8s_openapi::api::core::v1 as core_v1;

use crate::facts::{PodFacts, PodId};

/// One pod that a service's requests can go to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backend {
    /// Name of the pod.
    pub pod: String,
    /// Its uid: a new pod of the same name is another pod.
    pub uid: String,
    /// Its address and the port behind the Service's port; an IPv4 address is always written as one.
    pub address: SocketAddr,
    /// It is ready.
    pub ready: bool,
    /// It is terminating.
    pub terminating: bool,
    /// It has our drain mark: about to be stopped, or to be unmarked.
    pub marked: bool,
    /// Its own probes have just passed here, and nothing else keeps it from being ready: the kubelet has yet to say so.
    pub probed: bool,
    /// Its containers are known not to be ready. Slices do not tell; a promise is given only for pods whose are.
    pub sick: bool,
}

impl Backend {
    /// It may receive a request.
    #[must_use]
    pub fn usable(&self) -> bool {
        (self.ready || self.probed) && !self.terminating && !self.marked
    }

    /// It may receive a request while the leader's promise covers it, although it is marked.
    #[must_use]
    pub fn usable_if_promised(&self) -> bool {
        !self.terminating && !self.sick
    }
}

/// One address of one endpoint, with what its EndpointSlice says about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SliceEndpoint {
    /// Namespace of the slice.
    pub namespace: String,
    /// Label `endpointslice.kubernetes.io/managed-by`; empty where there is none.
    pub managed_by: String,
    /// The endpoint's `targetRef`.
    pub target: Option<TargetRef>,
    /// The address as it stands in the slice.
    pub address: String,
    /// The number of the slice's port; `None` where the slice leaves it open.
    pub port: Option<u16>,
    /// Condition `ready`; missing means true, by the Kubernetes API.
    pub ready: Option<bool>,
    /// Condition `terminating`; missing means false.
    pub terminating: Option<bool>,
}

/// What an endpoint refers to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Which addresses are allowed beyond those of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressPolicy {
    /// Loopback is allowed. Only the in-process simulated cluster sets it.
    pub allow_loopback: bool,
}

/// Why an endpoint is not a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum NotABackend {
    /// Something other than the endpoint-slice controller created the slice.
    #[error("the slice was not created by the endpoint-slice controller")]
    ForeignSlice,
    /// The slice or the pod is in another namespace.
    #[error("the slice or its pod is in another namespace")]
    ForeignNamespace,
    /// The endpoint refers to something other than a pod, or to nothing.
    #[error("the endpoint does not refer to a pod")]
    NotAPod,
    /// The address cannot be parsed.
    #[error("the address is not an IP address")]
    NotAnAddress,
    /// There is no port to connect to.
    #[error("the slice names no port")]
    NoPort,
    /// The address is a loopback address.
    #[error("the address is a loopback address")]
    Loopback,
    /// The address is link-local; cloud metadata services live there.
    #[error("the address is link-local")]
    LinkLocal,
    /// The address is a cloud's metadata service.
    #[error("the address is a metadata service")]
    Metadata,
    /// The address is the unspecified one, or of "this network".
    #[error("the address is unspecified")]
    Unspecified,
    /// The address is of a group of hosts.
    #[error("the address is a multicast or broadcast address")]
    Multicast,
    /// The address is a resolver's: the request would loop.
    #[error("the address is a resolver's own")]
    Resolver,
}

/// The backend behind an endpoint of a service in `namespace`, without a mark.
/// `resolvers` are the addresses of all resolvers.
///
/// # Errors
/// If a check fails.
pub fn admit(
    endpoint: &SliceEndpoint,
    namespace: &str,
    resolvers: &BTreeSet<IpAddr>,
    policy: AddressPolicy,
) -> Result<Backend, NotABackend> {
    let SliceEndpoint {
        namespace: slice_namespace,
        managed_by,
        target,
        address,
        port,
        ready,
        terminating,
    } = endpoint;
    if managed_by != SLICE_MANAGED_BY_KUBERNETES {
        return Err(NotABackend::ForeignSlice);
    }
    let pod = target
        .as_ref()
        .filter(|target| target.kind == "Pod" && !target.name.is_empty())
        .ok_or(NotABackend::NotAPod)?;
    if slice_namespace != namespace || pod.namespace != namespace {
        return Err(NotABackend::ForeignNamespace);
    }
    let ip: IpAddr = address.parse().map_err(|_| NotABackend::NotAnAddress)?;
    let ip = check_address(ip, resolvers, policy)?;
    let port = port.filter(|port| *port != 0).ok_or(NotABackend::NoPort)?;
    Ok(Backend {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        address: SocketAddr::new(ip, port),
        ready: ready.unwrap_or(true),
        terminating: terminating.unwrap_or(false),
        marked: false,
        probed: false,
        sick: false,
    })
}

/// Whether the pod that a slice names has the address that the slice gives it. Who may write slices can forge everything
/// that [`admit`] looks at; the status of a pod is written by its kubelet, and by no role for the users of a namespace. Once
/// a pod has ended, its address may be another's. One on its node's network counts: who may create it is on that network
/// anyway.
#[must_use]
pub fn has_address(pod: &core_v1::Pod, backend: &Backend) -> bool {
    let id = PodId::from_object(pod);
    let facts = PodFacts::from_object(pod);
    let is_named = id.name == backend.pod && id.uid == backend.uid && !id.uid.is_empty();
    let mut addresses = facts.addresses.iter().map(IpAddr::to_canonical);
    is_named && !facts.ended && addresses.any(|address| address == backend.address.ip())
}

/// It may be the name of an object, and nothing else.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| is_one(byte) || b"-.".contains(&byte))
}

/// The address in its plain form, if a request may go there. Pods that are watched during a wake are checked here too.
///
/// # Errors
/// If no pod can have it, or a resolver has it.
pub fn check_address(
    address: IpAddr,
    resolvers: &BTreeSet<IpAddr>,
    policy: AddressPolicy,
) -> Result<IpAddr, NotABackend> {
    let plain = address.to_canonical();
    let embedded = match plain {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => embedded_v4(v6).map(IpAddr::V4),
    };
    let allowed = |reason: &NotABackend| *reason == NotABackend::Loopback && policy.allow_loopback;
    if let Some(reason) = forbidden(plain).filter(|reason| !allowed(reason)) {
        return Err(reason);
    }
    if let Some(reason) = embedded.and_then(forbidden) {
        return Err(reason);
    }
    let is_own = |own: &IpAddr| {
        let own = own.to_canonical();
        own == plain || Some(own) == embedded
    };
    if resolvers.iter().any(is_own) {
        return Err(NotABackend::Resolver);
    }
    Ok(plain)
}

/// Why no pod can have this address.
fn forbidden(address: IpAddr) -> Option<NotABackend> {
    if address.is_loopback() {
        return Some(NotABackend::Loopback);
    }
    if address.is_multicast() {
        return Some(NotABackend::Multicast);
    }
    match address {
        // Linux takes all of 0.0.0.0/8 for "this host".
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some(NotABackend::Unspecified),
        IpAddr::V4(v4) if v4.is_link_local() => Some(NotABackend::LinkLocal),
        IpAddr::V4(v4) if v4.is_broadcast() => Some(NotABackend::Multicast),
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) if v6.is_unspecified() => Some(NotABackend::Unspecified),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(NotABackend::LinkLocal),
        IpAddr::V6(v6) if METADATA_V6.contains(&v6) => Some(NotABackend::Metadata),
        IpAddr::V6(_) => None,
    }
}

/// Metadata services outside the link-local range: of AWS (`fd00:ec2::254`) and of Google (`fd20:ce::254`).
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254),
];

/// The IPv4 address that a translator or tunnel on the path would turn this one into: IPv4-compatible (`::a.b.c.d`),
/// NAT64 (`64:ff9b::a.b.c.d`) and 6to4 (`2002:ab:cd::`). IPv4-mapped ones are already plain.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(v4(high, low))
        }
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Something that can receive a request.
pub trait Candidate {
    /// The pod behind it.
    fn backend(&self) -> &Backend;
    /// Requests in flight to it from this resolver.
    fn in_flight(&self) -> u32;
    /// It may receive a request now.
    fn usable(&self) -> bool {
        self.backend().usable()
    }
}

/// The usable candidate with the fewest requests in flight, except those whose pod was `tried`; `pick` breaks ties.
///
/// This scans every candidate. Two random choices would do where there are thousands, or where counting is
/// expensive; a service has a handful of pods with counts at hand, so the least loaded is exact.
/// Equal counts must be broken at random all the same: right after a wake all counts are 0, and every resolver asks at once.
/// Counts may change meanwhile; then it may be any usable candidate, but it is one if there is one.
#[must_use]
pub fn choose<'a, C: Candidate>(
    all: &'a [C],
    tried: &BTreeSet<String>,
    pick: u64,
) -> Option<&'a C> {
    let candidates = || {
        all.iter()
            .filter(|one| one.usable() && !tried.contains(&one.backend().pod))
    };
    let fewest = candidates().map(Candidate::in_flight).min()?;
    let least_loaded = || candidates().filter(|one| one.in_flight() <= fewest);
    let ties = u64::try_from(least_loaded().count()).unwrap_or(u64::MAX);
    let index = pick.checked_rem(ties).unwrap_or(0);
    least_loaded()
        .nth(usize::try_from(index).unwrap_or(0))
        .or_else(|| candidates().next())
}

#[cfg(test)]
mod tests;
