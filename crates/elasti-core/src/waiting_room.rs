//! Which requests may wait for a pod, how many, for how long, and in which order they leave: limits and fairness.
//! It only counts: the resolver keeps the connections and bytes, and identifies each by its ticket.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::Hold;
use jiff::SignedDuration;

use crate::ports::ServiceKey;

mod pace;

pub use pace::ReleasePace;

/// What each service may hold without using the shared pool: its first request, with up to this many bytes.
///
/// 128 KiB is the most that a resolver has in memory of one request while it holds it, so a first request never needs
/// the pool, and no flood of another service can cause its refusal (S9). 64 KiB are its head. 64 KiB are the window of an
/// HTTP/2 stream, whose body is read as far as that. The body of an HTTP/1 request stays unread in the kernel, but for
/// what came with the end of its head.
/// At worst 10,000 sleeping services x 128 KiB = 1,280 MiB; a usual head is below 2 KiB: 10,000 x 2 KiB = 20 MiB.
pub const RESERVED_BYTES: u64 = 128 * 1024;

/// The limits of one resolver.
///
/// Each service has one request and [`RESERVED_BYTES`] reserved. What it holds beyond that comes from a shared pool, under a
/// dynamic threshold (Choudhury and Hahne, alpha = 1): a service may take from the pool at most as much as is still
/// free in it. One busy service alone thus ends at 1/2 of the pool, two end at 1/3 each, n at 1/(n+1) each, and
/// 1/(n+1) is always left for the next one; no service needs a fixed share, and none can take everything.
///
/// So at all times: requests <= `shared_requests` + services, bytes <= `shared_bytes` + services x [`RESERVED_BYTES`]. Only
/// requests that come back from a pod that could not be reached may exceed it: they were in memory all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests in the pool.
    pub shared_requests: u32,
    /// Bytes in the pool.
    pub shared_bytes: u64,
    /// Requests of one service, unless its `spec.hold` says otherwise.
    pub service_requests: u32,
    /// Bytes of one service, unless its `spec.hold` says otherwise.
    pub service_bytes: u64,
    /// The longest wait; `spec.hold` can only shorten it.
    pub timeout: SignedDuration,
}

/// 20,000 shared requests let one busy service hold 10,000 (a half) and cost 20,000 x 4 KiB = 80 MiB while unread.
/// 256 MiB of shared bytes are 13 KiB for each of them, three usual heads with their tables; one service may use the half that it could reach
/// alone, which is 2,000 HTTP/2 streams with a window of 64 KiB each. 80 + 256 = 336 MiB: four fifths of what a resolver
/// of 512 MiB has below its watermark of 80 % (410 MiB).
/// 600 s is the default of `REQ_TIMEOUT`.
impl Default for Limits {
    fn default() -> Self {
        Self {
            shared_requests: 20_000,
            shared_bytes: 256 * 1024 * 1024,
            service_requests: 10_000,
            service_bytes: 128 * 1024 * 1024,
            timeout: SignedDuration::from_secs(600),
        }
    }
}

impl Limits {
    /// The limits of one service's room. `spec.hold` may ask for more requests or bytes than the default, because the
    /// pool limits them all; at least one request may always wait, however large it is.
    #[must_use]
    pub fn room(&self, hold: Option<&Hold>) -> RoomLimits {
        let Hold {
            timeout_seconds,
            max_requests,
            max_bytes,
            when_down: _,
            fail_fast_seconds: _,
            allow_from: _,
        } = hold.cloned().unwrap_or_default();
        let asked = timeout_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        RoomLimits {
            requests: max_requests.unwrap_or(self.service_requests).max(1),
            bytes: max_bytes.unwrap_or(self.service_bytes).max(RESERVED_BYTES),
            timeout: asked.map_or(self.timeout, |asked| asked.min(self.timeout)),
        }
    }
}

/// The limits of one service's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoomLimits {
    /// Most requests.
    pub requests: u32,
    /// Most bytes.
    pub bytes: u64,
    /// The longest wait.
    pub timeout: SignedDuration,
}

/// Identifies one request that waits or waited. Tickets are given in arrival order and never twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Why a request may not wait. A retry always makes sense: once the service is awake nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// The service's own limit of requests.
    #[error("Too many requests are already waiting for this service, which is starting.")]
    ServiceFull,
    /// The service's own limit of bytes.
    #[error("The requests waiting for this service use too much memory; it is starting.")]
    ServiceBytes,
    /// The shared pool's requests.
    #[error("Too many requests are waiting for services that are starting.")]
    SharedFull,
    /// The shared pool's bytes.
    #[error("The requests waiting for services that are starting use too much memory.")]
    SharedBytes,
    /// The resolver is shutting down.
    #[error("This resolver is shutting down; another one answers a retry.")]
    ShuttingDown,
    /// The resolver's memory is near its limit.
    #[error("This resolver is short of memory.")]
    MemoryHigh,
}

/// Whose limit a refusal hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitScope {
    /// The service's own load or settings.
    Service,
    /// The load of all services together.
    Shared,
    /// The resolver's own state.
    Resolver,
}

impl Refusal {
    /// Every refusal, for tables and tests.
    pub const ALL: [Self; 6] = [
        Self::ServiceFull,
        Self::ServiceBytes,
        Self::SharedFull,
        Self::SharedBytes,
        Self::ShuttingDown,
        Self::MemoryHigh,
    ];

    /// The reason for `x-elasti-reason` and metric labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceFull => "ServiceFull",
            Self::ServiceBytes => "ServiceBytes",
            Self::SharedFull => "SharedFull",
            Self::SharedBytes => "SharedBytes",
            Self::ShuttingDown => "ShuttingDown",
            Self::MemoryHigh => "MemoryHigh",
        }
    }

    /// Whose limit it was.
    #[must_use]
    pub fn scope(self) -> LimitScope {
        match self {
            Self::ServiceFull | Self::ServiceBytes => LimitScope::Service,
            Self::SharedFull | Self::SharedBytes => LimitScope::Shared,
            Self::ShuttingDown | Self::MemoryHigh => LimitScope::Resolver,
        }
    }

    /// The value of `Retry-After`: a usual start takes about 5 s, another resolver is available at once,
    /// and memory is freed as waiters leave.
    #[must_use]
    pub fn retry_after_seconds(self) -> u32 {
        match self {
            Self::ShuttingDown => 1,
            Self::ServiceFull | Self::ServiceBytes | Self::SharedFull | Self::SharedBytes => 5,
            Self::MemoryHigh => 10,
        }
    }
}

/// Which requests are admitted at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Admission {
    /// All within the limits.
    #[default]
    Open,
    /// Memory is high: only what a service has reserved, nothing from the pool. A first request is still admitted (S9).
    ReservedOnly,
    /// The resolver is shutting down: no new requests. Those that wait keep waiting.
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    service: ServiceKey,
    listen_port: u16,
    bytes: u64,
}

/// What one service, or the pool, holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Load {
    requests: u64,
    bytes: u64,
}

impl Load {
    /// `None` on overflow.
    fn with(self, bytes: u64) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_add(1)?,
            bytes: self.bytes.checked_add(bytes)?,
        })
    }

    fn without(self, bytes: u64) -> Self {
        Self {
            requests: self.requests.saturating_sub(1),
            bytes: self.bytes.saturating_sub(bytes),
        }
    }

    /// The part of a service's load that comes from the pool.
    fn pooled(self) -> Self {
        Self {
            requests: self.requests.saturating_sub(1),
            bytes: self.bytes.saturating_sub(RESERVED_BYTES),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// One service's room. Its ports share its limits, but each has a queue of its own: a port without a pod must not keep the
/// requests for another one waiting. Tickets grow, so their order is the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Room {
    /// By listen port; a port without waiters has no queue here.
    queues: BTreeMap<u16, BTreeSet<Ticket>>,
    load: Load,
}

/// All rooms of one resolver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitingRooms {
    pool: Load,
    admission: Admission,
    next_ticket: u64,
    waiters: BTreeMap<Ticket, Waiter>,
    /// A service without waiters has no room here, so this map is as bounded as the waiters.
    rooms: BTreeMap<ServiceKey, Room>,
    /// What all rooms together use of the pool.
    pooled: Load,
}

impl WaitingRooms {
    /// Empty rooms around a shared pool.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            pool: Load {
                requests: limits.shared_requests.into(),
                bytes: limits.shared_bytes,
            },
            admission: Admission::Open,
            next_ticket: 0,
            waiters: BTreeMap::new(),
            rooms: BTreeMap::new(),
            pooled: Load::default(),
        }
    }

    /// Changes which requests are admitted; those that wait stay.
    pub fn set_admission(&mut self, admission: Admission) {
        self.admission = admission;
    }

    /// Lets one more request wait for a port of a service, with this many bytes of it in memory.
    ///
    /// # Errors
    /// If a limit would be exceeded, or no requests are admitted. Nothing has changed then.
    pub fn admit(
        &mut self,
        service: &ServiceKey,
        listen_port: u16,
        limits: &RoomLimits,
        bytes: u64,
    ) -> Result<Ticket, Refusal> {
        let before = self.load(service);
        let after = before.with(bytes).ok_or(Refusal::ServiceBytes)?;
        self.check_admission(before, after)?;
        check_service(after, limits)?;
        self.check_pool(before, after)?;

        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        self.insert(ticket, service, listen_port, bytes);
        Ok(ticket)
    }

    /// A request that was released, and found no pod after all, waits again: it keeps its turn, before all that came
    /// later, and its admission, whatever the limits say by now.
    pub fn admit_again(
        &mut self,
        ticket: Ticket,
        service: &ServiceKey,
        listen_port: u16,
        bytes: u64,
    ) -> Ticket {
        // Never twice at the same time.
        self.leave(ticket);
        self.insert(ticket, service, listen_port, bytes);
        ticket
    }

    fn insert(&mut self, ticket: Ticket, service: &ServiceKey, listen_port: u16, bytes: u64) {
        let before = self.load(service);
        let after = before.plus(Load { requests: 1, bytes });
        let waiter = Waiter {
            service: service.clone(),
            listen_port,
            bytes,
        };
        self.waiters.insert(ticket, waiter);
        let room = self.rooms.entry(service.clone()).or_default();
        room.queues.entry(listen_port).or_default().insert(ticket);
        room.load = after;
        self.pooled = self.pooled.minus(before.pooled()).plus(after.pooled());
    }

    /// The waiter has left. False if it was no longer waiting; calling it twice is harmless.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return false;
        };
        let Waiter {
            service,
            listen_port,
            bytes,
        } = waiter;
        let before = self.load(&service);
        let after = before.without(bytes);
        self.pooled = self.pooled.minus(before.pooled()).plus(after.pooled());
        if let Some(room) = self.rooms.get_mut(&service) {
            room.load = after;
            if let Some(queue) = room.queues.get_mut(&listen_port) {
                queue.remove(&ticket);
                if queue.is_empty() {
                    room.queues.remove(&listen_port);
                }
            }
            if room.queues.is_empty() {
                self.rooms.remove(&service);
            }
        }
        true
    }

    /// The first waiters for a port in the order of their arrival. They have left the rooms and must be answered.
    #[must_use = "these waiters have left the rooms and must be answered"]
    pub fn release(
        &mut self,
        service: &ServiceKey,
        listen_port: u16,
        at_most: usize,
    ) -> Vec<Ticket> {
        let queue = self.queue(service, listen_port).into_iter().flatten();
        let first: Vec<Ticket> = queue.take(at_most).copied().collect();
        for ticket in &first {
            self.leave(*ticket);
        }
        first
    }

    /// Every waiter of a service. They have left the rooms and must be answered.
    #[must_use = "these waiters have left the rooms and must be answered"]
    pub fn release_all(&mut self, service: &ServiceKey) -> Vec<Ticket> {
        let ports = self.ports(service).into_iter();
        ports
            .flat_map(|port| self.release(service, port, usize::MAX))
            .collect()
    }

    /// How many wait for a service.
    #[must_use]
    pub fn held(&self, service: &ServiceKey) -> usize {
        usize::try_from(self.load(service).requests).unwrap_or(usize::MAX)
    }

    /// How many wait for a port of a service.
    #[must_use]
    pub fn held_at(&self, service: &ServiceKey, listen_port: u16) -> usize {
        let queue = self.queue(service, listen_port);
        queue.map_or(0, BTreeSet::len)
    }

    /// The listen ports of a service that requests wait for.
    #[must_use]
    pub fn ports(&self, service: &ServiceKey) -> Vec<u16> {
        let room = self.rooms.get(service);
        room.map_or_else(Vec::new, |room| room.queues.keys().copied().collect())
    }

    /// How many wait in total.
    #[must_use]
    pub fn held_total(&self) -> usize {
        self.waiters.len()
    }

    fn queue(&self, service: &ServiceKey, listen_port: u16) -> Option<&BTreeSet<Ticket>> {
        self.rooms.get(service)?.queues.get(&listen_port)
    }

    fn load(&self, service: &ServiceKey) -> Load {
        self.rooms
            .get(service)
            .map_or_else(Load::default, |r| r.load)
    }

    fn check_admission(&self, before: Load, after: Load) -> Result<(), Refusal> {
        match self.admission {
            Admission::Closed => Err(Refusal::ShuttingDown),
            Admission::ReservedOnly if after.pooled() != before.pooled() => {
                Err(Refusal::MemoryHigh)
            }
            Admission::ReservedOnly | Admission::Open => Ok(()),
        }
    }

    /// The dynamic threshold: what a service takes from the pool is at most what is free in it just before.
    /// A first request takes no request from the pool, and one without bytes takes no bytes.
    fn check_pool(&self, before: Load, after: Load) -> Result<(), Refusal> {
        let free = self.pool.minus(self.pooled);
        let takes = after.pooled();
        if takes.requests > free.requests {
            return Err(Refusal::SharedFull);
        }
        if takes.bytes > before.pooled().bytes && takes.bytes > free.bytes {
            return Err(Refusal::SharedBytes);
        }
        Ok(())
    }
}

fn check_service(after: Load, limits: &RoomLimits) -> Result<(), Refusal> {
    if after.requests > u64::from(limits.requests) {
        return Err(Refusal::ServiceFull);
    }
    if after.bytes > limits.bytes {
        return Err(Refusal::ServiceBytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
