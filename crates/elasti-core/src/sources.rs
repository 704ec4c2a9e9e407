//! Who may reach a service through a resolver: by the source address alone, whatever the request says.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::str::FromStr;

use elasti_api::AllowFrom;
use jiff::SignedDuration;

/// How long a source is waited for that no pod of the allowed namespaces has yet: a kubelet reports the address of a
/// pod after it has started its containers, and a watch brings it a moment later.
pub const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(3);
/// How long the first list of a namespace's pods may take; until then nothing is known of its pods.
pub const LISTED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The first address, with an IPv4 address always written as one.
    first: IpAddr,
    /// How many leading bits count.
    bits: u8,
}

/// Text that is no block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no CIDR such as 10.0.0.0/8 or fd00::/8")]
pub struct NotACidr(pub String);

/// IPv4 addresses that are written as IPv6 addresses have this prefix: `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

impl FromStr for Cidr {
    type Err = NotACidr;

    fn from_str(text: &str) -> Result<Self, NotACidr> {
        let wrong = || NotACidr(text.to_owned());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        // `parse` would take a sign.
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (first, bits) = match (address.to_canonical(), address) {
            (first @ IpAddr::V4(_), IpAddr::V6(_)) if bits >= MAPPED_BITS => {
                (first, bits - MAPPED_BITS)
            }
            // Wider than all mapped addresses: a block of IPv6.
            (IpAddr::V4(_), IpAddr::V6(_)) => (address, bits),
            (first, _) => (first, bits),
        };
        let most = if first.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(wrong());
        }
        Ok(Self { first, bits })
    }
}

impl Cidr {
    /// Whether an address is in the block. One that is mapped into IPv6 counts as the IPv4 address that it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let differing = match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differing >= u32::from(self.bits)
    }
}

/// Which sources a service accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRule {
    /// Pods of these namespaces.
    namespaces: Vec<String>,
    /// These addresses.
    cidrs: Vec<Cidr>,
}

/// What is known of a source and one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// A pod of the namespace has this address.
    Pod,
    /// No pod that is known has it.
    NoPod,
    /// The pods of the namespace have not been listed yet.
    Unlisted,
    /// The pods of the namespace cannot be read, or too many namespaces are named.
    Unreadable,
}

impl SourceRule {
    /// The rule of a spec, or of the default, for a service in this namespace; and what of it cannot be used, which
    /// allows no client.
    #[must_use]
    pub fn new(allowed: &AllowFrom, own_namespace: &str) -> (Self, Vec<NotACidr>) {
        let own = allowed.same_namespace.unwrap_or_default();
        let own = own.then(|| own_namespace.to_owned());
        let mut namespaces: Vec<String> =
            own.into_iter().chain(allowed.namespaces.clone()).collect();
        namespaces.sort();
        namespaces.dedup();
        let (mut cidrs, mut invalid) = (Vec::new(), Vec::new());
        for text in &allowed.cidrs {
            match text.parse() {
                Ok(cidr) => cidrs.push(cidr),
                Err(wrong) => invalid.push(wrong),
            }
        }
        (Self { namespaces, cidrs }, invalid)
    }

    /// Whether a source may come in; `None` while that may still turn out. It has waited for so long already.
    #[must_use]
    pub fn admits(
        &self,
        source: IpAddr,
        waited: SignedDuration,
        membership: impl Fn(&str) -> Membership,
    ) -> Option<bool> {
        if self.cidrs.iter().any(|cidr| cidr.contains(source)) {
            return Some(true);
        }
        let known: Vec<Membership> = { self.namespaces.iter() }
            .map(|name| membership(name))
            .collect();
        let has = |one| known.contains(&one);
        let may_follow = has(Membership::Unlisted) && waited < LISTED_WITHIN
            || has(Membership::NoPod) && waited < SEEN_WITHIN;
        match has(Membership::Pod) {
            true => Some(true),
            false => (!may_follow).then_some(false),
        }
    }
}
