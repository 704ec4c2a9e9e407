//! Which addresses a trigger may name: a tenant must not reach through the operator what only the operator can reach.
//! A name is resolved only for the connection that follows, so that it cannot change in between.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The operator's own pod.
    #[error("its address is a loopback address")]
    Loopback,
    /// The operator's own node, or a cloud's metadata service.
    #[error("its address is a link-local address")]
    LinkLocal,
    /// A cloud's metadata service outside the link-local range.
    #[error("its address belongs to a cloud's metadata service")]
    Metadata,
    /// Not the address of one server.
    #[error("its address is not that of a single server")]
    NotAServer,
}

/// Metadata services that do not hide in the link-local range: AWS and GCP by IPv6, Alibaba, Oracle, Azure.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Whether a trigger may name this address.
///
/// # Errors
/// If not.
pub fn check(address: IpAddr) -> Result<(), Forbidden> {
    match address {
        IpAddr::V4(address) => check_v4(address),
        IpAddr::V6(address) => {
            inner_v4(address).map_or(Ok(()), check_v4)?;
            check_v6(address)
        }
    }
}

fn check_v4(address: Ipv4Addr) -> Result<(), Forbidden> {
    if address.is_loopback() {
        Err(Forbidden::Loopback)
    } else if address.is_link_local() {
        Err(Forbidden::LinkLocal)
    } else if METADATA_V4.contains(&address) {
        Err(Forbidden::Metadata)
    } else if address.octets()[0] == 0 || address.is_multicast() || address.is_broadcast() {
        // The system dials itself for 0.0.0.0.
        Err(Forbidden::NotAServer)
    } else {
        Ok(())
    }
}

fn check_v6(address: Ipv6Addr) -> Result<(), Forbidden> {
    if address.is_loopback() {
        Err(Forbidden::Loopback)
    } else if address.is_unicast_link_local() {
        Err(Forbidden::LinkLocal)
    } else if METADATA_V6.contains(&address) {
        Err(Forbidden::Metadata)
    } else if address.is_unspecified() || address.is_multicast() {
        Err(Forbidden::NotAServer)
    } else {
        Ok(())
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64 or 6to4.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        // `::` and `::1` are IPv6's own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(join(high, low))
        }
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

/// Checks a host that is written as an address; such a host is never resolved.
///
/// # Errors
/// If it may not be named.
pub fn check_written(server: &Url) -> Result<(), Forbidden> {
    let host = server.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse().map_or(Ok(()), check)
}

/// Finds the addresses of a name for one connection, and refuses the name if any of them is forbidden.
#[derive(Clone, Copy, Debug)]
pub struct CheckedNames;

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            for address in &found {
                check(address.ip())?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The refusal that made a request fail, if one did.
#[must_use]
pub fn refusal(error: &(dyn Error + 'static)) -> Option<Forbidden> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(forbidden) = error.downcast_ref::<Forbidden>() {
            return Some(*forbidden);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check_text(address: &str) -> Result<(), Forbidden> {
        check(address.parse().unwrap())
    }

    #[test]
    fn servers_of_a_cluster_are_allowed() {
        for address in [
            "10.0.0.7",
            "192.168.1.1",
            "172.16.0.1",
            "8.8.8.8",
            "100.64.0.1",
            "fd00::1",
            "2001:db8::1",
            "64:ff9b::808:808",
        ] {
            assert_eq!(check_text(address), Ok(()), "{address}");
        }
    }

    #[test]
    fn what_only_the_operator_can_reach_is_refused_however_it_is_written() {
        for (address, why) in [
            ("127.0.0.1", Forbidden::Loopback),
            ("127.255.0.9", Forbidden::Loopback),
            ("::1", Forbidden::Loopback),
            ("::ffff:127.0.0.1", Forbidden::Loopback),
            ("::127.0.0.1", Forbidden::Loopback),
            ("64:ff9b::7f00:1", Forbidden::Loopback),
            ("2002:7f00:1::", Forbidden::Loopback),
            ("169.254.169.254", Forbidden::LinkLocal),
            ("169.254.170.2", Forbidden::LinkLocal),
            ("fe80::1", Forbidden::LinkLocal),
            ("::ffff:169.254.169.254", Forbidden::LinkLocal),
            ("64:ff9b::a9fe:a9fe", Forbidden::LinkLocal),
            ("fd00:ec2::254", Forbidden::Metadata),
            ("fd20:ce::254", Forbidden::Metadata),
            ("100.100.100.200", Forbidden::Metadata),
            ("168.63.129.16", Forbidden::Metadata),
            ("192.0.0.192", Forbidden::Metadata),
            ("0.0.0.0", Forbidden::NotAServer),
            ("0.1.2.3", Forbidden::NotAServer),
            ("::", Forbidden::NotAServer),
            ("::ffff:0.0.0.0", Forbidden::NotAServer),
            ("224.0.0.1", Forbidden::NotAServer),
            ("255.255.255.255", Forbidden::NotAServer),
            ("ff02::1", Forbidden::NotAServer),
        ] {
            assert_eq!(check_text(address), Err(why), "{address}");
        }
    }

    #[test]
    fn odd_spellings_of_an_address_are_seen_through() {
        for server in [
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1:9090/",
            "http://0177.0.0.1/",
            "http://[::ffff:7f00:1]:9090/",
            "http://[::1]/",
        ] {
            let server = Url::parse(server).unwrap();
            assert_eq!(check_written(&server), Err(Forbidden::Loopback), "{server}");
        }
    }

    #[tokio::test]
    async fn a_name_is_checked_by_what_it_resolves_to() {
        let resolved = CheckedNames.resolve("localhost".parse().unwrap()).await;
        let error = resolved.map(|_| ()).unwrap_err();
        assert_eq!(refusal(error.as_ref()), Some(Forbidden::Loopback));
    }
}
