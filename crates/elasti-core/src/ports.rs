//! Allocates a stable listen port at every resolver for each (service, port), with a quarantine before reuse.
//! It does not ask the system whether a port is free: the whole range belongs to Elasti.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use elasti_api::ListenPort;
use jiff::{SignedDuration, Timestamp};

/// Where listen ports come from unless the operator's settings say otherwise.
///
/// 29,999 - 10,000 + 1 = 20,000 ports: 10,000 services of two ports each, or 10,000 of one port while as many are in quarantine.
/// It ends below Kubernetes' node ports (30,000 to 32,767) and Linux' ephemeral ports (32,768 to 60,999),
/// so that no outgoing connection can sit on a listen port, and starts above every fixed port of ours
/// (8012, 8013, 8080, 8081).
pub const DEFAULT_RANGE: RangeInclusive<u16> = 10_000..=29_999;

/// How long a released port stays unused before another service may have it.
///
/// A connection for the old owner can still arrive while a resolver has a silent watch (75 s until it notices) and
/// nodes apply the removal of the slice (settle time 2 s); ingress controllers and meshes, which follow slices on their own, get
/// a minute: 75 + 2 + 60 = 137 s, rounded up to 5 min. The cost: 20,000 ports sustain 66 releases a second.
///
/// The quarantine is in memory only. After a restart the order of the plan still holds (a deleted service releases its
/// ports only after its slice has been gone for the settle time), and the chance that a new service's search starts at a
/// port that was just released is one in 20,000.
pub const DEFAULT_QUARANTINE: SignedDuration = SignedDuration::from_mins(5);

/// One Service in one namespace: the key of waiting rooms, ports and routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub service: String,
}

impl ServiceKey {
    /// The key of this Service in this namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, service: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            service: service.into(),
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)
    }
}

/// A port of a Service that needs a listen port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WantedPort {
    /// Name of the Service port; empty where the Service has one unnamed port.
    pub name: String,
    /// The Service's port.
    pub port: u16,
}

impl WantedPort {
    fn is(&self, given: &ListenPort) -> bool {
        self.name == given.name && self.port == given.port
    }
}

/// Too few listen ports are free, or the namespace has its share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "{missing} more listen ports are needed than this namespace may have; widen the operator's port range or remove unused ElastiServices"
)]
pub struct PortsExhausted {
    /// How many more are needed than are free, or than the namespace may have.
    pub missing: usize,
    /// When the next port leaves quarantine; `None` if none is in it.
    pub requeue_at: Option<Timestamp>,
}

/// A released port in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Quarantined {
    owner: ServiceKey,
    port: u16,
    until: Timestamp,
}

/// Which service has which listen port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortAllocator {
    range: RangeInclusive<u16>,
    quarantine: SignedDuration,
    given: BTreeMap<ServiceKey, Vec<ListenPort>>,
    /// The same by listen port.
    owners: BTreeMap<u16, ServiceKey>,
    quarantined: BTreeMap<u16, Quarantined>,
    /// No namespace gets more than its share.
    shared: bool,
}

impl PortAllocator {
    /// An empty allocator for a range of ports.
    #[must_use]
    pub fn new(range: RangeInclusive<u16>, quarantine: SignedDuration) -> Self {
        Self {
            range,
            quarantine,
            given: BTreeMap::new(),
            owners: BTreeMap::new(),
            quarantined: BTreeMap::new(),
            shared: false,
        }
    }

    /// From now on each namespace may have half of the ports that the others leave, those in quarantine counted: however
    /// many ports one takes, or gives back to take new ones, some are left for the next. It keeps what it has.
    #[must_use]
    pub fn shared_by_namespaces(self) -> Self {
        Self {
            shared: true,
            ..self
        }
    }

    /// Restores the ports recorded in a status, at start. Returns the entries that cannot be kept: the listen port is
    /// outside the range, another service's or quarantined, the service already has a different one for that port, or its
    /// namespace has its share.
    pub fn remember(&mut self, owner: &ServiceKey, ports: &[ListenPort]) -> Vec<ListenPort> {
        let mut refused = Vec::new();
        for port in ports {
            if self.ports_of(owner).contains(port) {
                continue;
            }
            if self.may_remember(owner, port) {
                self.give(owner, port.clone());
            } else {
                refused.push(port.clone());
            }
        }
        refused
    }

    /// The listen ports of a service whose Service has the ports `wanted`, sorted by name.
    /// A pair (name, port) that has one keeps it; a new pair gets a free one; that of a pair no longer wanted is released.
    ///
    /// # Errors
    /// If too few are free. Nothing has changed then.
    pub fn assign(
        &mut self,
        owner: &ServiceKey,
        wanted: &[WantedPort],
        now: Timestamp,
    ) -> Result<Vec<ListenPort>, PortsExhausted> {
        let wanted: BTreeSet<&WantedPort> = wanted.iter().collect();
        let (kept, dropped): (Vec<_>, Vec<_>) = self
            .ports_of(owner)
            .iter()
            .cloned()
            .partition(|given| wanted.iter().any(|w| w.is(given)));
        let new: Vec<&WantedPort> = wanted
            .into_iter()
            .filter(|w| !kept.iter().any(|given| w.is(given)))
            .collect();
        let chosen = self.choose(owner, &new, &dropped, now)?;

        self.quarantined.retain(|_, port| port.until > now);
        for port in &dropped {
            self.reclaim(owner, port, now);
        }
        for port in chosen {
            self.give(owner, port);
        }
        Ok(self.ports_of(owner).to_vec())
    }

    /// Releases all listen ports of a service; they are quarantined before another may have them.
    pub fn release(&mut self, owner: &ServiceKey, now: Timestamp) {
        self.quarantined.retain(|_, port| port.until > now);
        for port in self.ports_of(owner).to_vec() {
            self.reclaim(owner, &port, now);
        }
    }

    /// Whose listen port this is.
    #[must_use]
    pub fn owner_of(&self, listen_port: u16) -> Option<&ServiceKey> {
        self.owners.get(&listen_port)
    }

    fn ports_of(&self, owner: &ServiceKey) -> &[ListenPort] {
        self.given.get(owner).map_or(&[], Vec::as_slice)
    }

    fn may_remember(&self, owner: &ServiceKey, port: &ListenPort) -> bool {
        let mine = self.ports_of(owner);
        let has_another = mine
            .iter()
            .any(|given| given.name == port.name && given.port == port.port);
        let quarantined_for_another = self
            .quarantined
            .get(&port.listen_port)
            .is_some_and(|one| one.owner != *owner || one.port != port.port);
        let is_counted = self.quarantined.contains_key(&port.listen_port);
        self.range.contains(&port.listen_port)
            && !self.owners.contains_key(&port.listen_port)
            && !has_another
            && !quarantined_for_another
            && (is_counted || self.left_for(&owner.namespace, Timestamp::MIN) > 0)
    }

    /// How many more ports a namespace may have, however many are free.
    fn left_for(&self, namespace: &str, now: Timestamp) -> usize {
        if !self.shared {
            return usize::MAX;
        }
        let is_own = |owner: &ServiceKey| owner.namespace == namespace;
        let from = ServiceKey::new(namespace, "");
        let given = { self.given.range(from..) }.take_while(|(owner, _)| is_own(owner));
        let given: usize = given.map(|(_, ports)| ports.len()).sum();
        let quarantined = || self.quarantined.values().filter(|port| port.until > now);
        let own = given + quarantined().filter(|port| is_own(&port.owner)).count();
        let of_all = self.owners.len() + quarantined().count();
        let left_by_others = self.range.len().saturating_sub(of_all - own);
        left_by_others.div_ceil(2).saturating_sub(own)
    }

    /// One free listen port for each of `new`; changes nothing. Those of `dropped` are about to be quarantined.
    fn choose(
        &self,
        owner: &ServiceKey,
        new: &[&WantedPort],
        dropped: &[ListenPort],
        now: Timestamp,
    ) -> Result<Vec<ListenPort>, PortsExhausted> {
        let mut chosen: BTreeMap<u16, &WantedPort> = BTreeMap::new();
        let mut missing = 0;
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let mut left = self.left_for(&owner.namespace, now);
        let had = self.had(owner, dropped);
        for wanted in new {
            let had_it = |listen_port: &u16| had.contains(&(wanted.port, *listen_port));
            let free = |listen_port: &u16| {
                !chosen.contains_key(listen_port)
                    && (self.is_free(*listen_port, now) || had_it(listen_port))
            };
            let own = dropped.iter().map(|d| d.listen_port).filter(had_it);
            let before = had.range((wanted.port, 0)..=(wanted.port, u16::MAX));
            let own = own.chain(before.map(|(_, listen_port)| *listen_port));
            let found = own.chain(self.candidates(owner, wanted.port)).find(free);
            // One that it had is counted already.
            let is_more = found.is_some_and(|listen_port| !had_it(&listen_port));
            match found.filter(|_| !is_more || left > 0) {
                Some(listen_port) => {
                    left -= usize::from(is_more);
                    chosen.insert(listen_port, wanted);
                }
                None => missing += 1,
            }
        }
        if missing > 0 {
            let ends = self.quarantined.values().map(|port| port.until);
            let requeue_at = ends.filter(|until| *until > now).min();
            return Err(PortsExhausted {
                missing,
                requeue_at,
            });
        }
        let listen = |(listen_port, wanted): (u16, &WantedPort)| ListenPort {
            name: wanted.name.clone(),
            port: wanted.port,
            listen_port,
        };
        Ok(chosen.into_iter().map(listen).collect())
    }

    /// No service has it and it is not quarantined.
    fn is_free(&self, listen_port: u16, now: Timestamp) -> bool {
        let quarantined = |port: &Quarantined| port.until > now;
        !self.owners.contains_key(&listen_port)
            && !self.quarantined.get(&listen_port).is_some_and(quarantined)
    }

    /// Which listen port this service had for which port until just now, as port and listen port: what still arrives there is
    /// meant for it, so it may have it back for this very port without a quarantine.
    fn had(&self, owner: &ServiceKey, dropped: &[ListenPort]) -> BTreeSet<(u16, u16)> {
        let dropped = dropped.iter().map(|d| (d.port, d.listen_port));
        let own = { self.quarantined.iter() }.filter(|(_, one)| one.owner == *owner);
        let own = own.map(|(listen_port, one)| (one.port, *listen_port));
        dropped.chain(own).collect()
    }

    /// The whole range, from a start that depends on the owner and the port only: a restarted operator or another
    /// replica tries the same ports in the same order.
    fn candidates(&self, owner: &ServiceKey, port: u16) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let size = u64::from(last.saturating_sub(first)) + 1;
        let offset = stable_hash(&format!("{owner}:{port}")) % size;
        let start = first.saturating_add(u16::try_from(offset).unwrap_or(0));
        (start..=last).chain(first..start)
    }

    fn give(&mut self, owner: &ServiceKey, port: ListenPort) {
        self.quarantined.remove(&port.listen_port);
        self.owners.insert(port.listen_port, owner.clone());
        let ports = self.given.entry(owner.clone()).or_default();
        ports.push(port);
        ports.sort();
    }

    fn reclaim(&mut self, owner: &ServiceKey, port: &ListenPort, now: Timestamp) {
        let until = now.checked_add(self.quarantine).unwrap_or(Timestamp::MAX);
        let released = Quarantined {
            owner: owner.clone(),
            port: port.port,
            until,
        };
        self.quarantined.insert(port.listen_port, released);
        self.owners.remove(&port.listen_port);
        if let Some(ports) = self.given.get_mut(owner) {
            ports.retain(|given| given != port);
            if ports.is_empty() {
                self.given.remove(owner);
            }
        }
    }
}

/// FNV-1a: the same in every process and every version, unlike the standard library's hashers.
fn stable_hash(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests;
