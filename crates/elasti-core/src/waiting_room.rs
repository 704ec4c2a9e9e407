//! Who may wait for a pod, how many, how long, and who leaves first: bounds that hold, and fairness between services.
//! It never holds a connection or a byte of a request: the shell keeps those and shows its ticket.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::Hold;
use jiff::{SignedDuration, Timestamp};

use crate::ports::ServiceKey;

/// What each service may hold without drawing on the shared pool: its first request, with up to this many bytes.
///
/// 64 KiB is the most that a resolver reads of one request before it holds it (the head; everything after it stays
/// unread in the kernel), so a first request never needs the pool, and no flood of another service can refuse it (S9).
/// At worst 10,000 sleeping services x 64 KiB = 640 MiB; a usual head is below 2 KiB: 10,000 x 2 KiB = 20 MiB.
pub const OWN_BYTES: u64 = 64 * 1024;

/// The bounds of one resolver.
///
/// Each service owns one request and [`OWN_BYTES`]. What it holds beyond that draws on a pool that all share, under a
/// dynamic threshold (Choudhury and Hahne, alpha = 1): a service may take from the pool at most as much as is still
/// free in it. One busy service alone thus ends at 1/2 of the pool, two end at 1/3 each, n at 1/(n+1) each, and
/// 1/(n+1) is always left for the next one; no service needs a fixed share, and none can take everything.
///
/// So at all times: requests <= `shared_requests` + services, bytes <= `shared_bytes` + services x [`OWN_BYTES`].
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
/// 128 MiB of shared bytes are 6.5 KiB for each of them, three usual heads; one service may have the half that it
/// could reach alone. 80 + 128 = 208 MiB: half of what a resolver of 512 MiB has below its watermark of 80 % (410 MiB).
/// 600 s is the contract's `REQ_TIMEOUT`.
impl Default for Limits {
    fn default() -> Self {
        Self {
            shared_requests: 20_000,
            shared_bytes: 128 * 1024 * 1024,
            service_requests: 10_000,
            service_bytes: 64 * 1024 * 1024,
            timeout: SignedDuration::from_secs(600),
        }
    }
}

impl Limits {
    /// The bounds of one service's room. `spec.hold` may ask for more requests or bytes than the default, because the
    /// pool bounds them all; at least one request may always wait.
    #[must_use]
    pub fn room(&self, hold: Option<&Hold>) -> RoomLimits {
        let Hold {
            timeout_seconds,
            max_requests,
            max_bytes,
        } = hold.cloned().unwrap_or_default();
        let asked = timeout_seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
        RoomLimits {
            requests: max_requests.unwrap_or(self.service_requests).max(1),
            bytes: max_bytes.unwrap_or(self.service_bytes),
            timeout: asked.map_or(self.timeout, |asked| asked.min(self.timeout)),
        }
    }
}

/// The bounds of one service's room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RoomLimits {
    /// Most requests.
    pub requests: u32,
    /// Most bytes.
    pub bytes: u64,
    /// The longest wait.
    pub timeout: SignedDuration,
}

/// One waiter's place. Tickets are given in arrival order and never twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Why a request may not wait. A retry is always worth it: once the service is awake nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// The service's own bound of requests.
    #[error("Too many requests already wait for this service; it is starting.")]
    ServiceFull,
    /// The service's own bound of bytes.
    #[error("The requests that wait for this service hold too many bytes; it is starting.")]
    ServiceBytes,
    /// The shared pool's requests.
    #[error("Too many requests wait for services that are starting.")]
    SharedFull,
    /// The shared pool's bytes.
    #[error("The requests that wait for services that are starting hold too many bytes.")]
    SharedBytes,
    /// The resolver is about to stop.
    #[error("This resolver is shutting down; another one answers a retry.")]
    ShuttingDown,
    /// The resolver's memory is near its limit.
    #[error("This resolver is short of memory.")]
    MemoryHigh,
}

/// Whose bound a refusal hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
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

    /// The word, fit for `x-elasti-reason` and a metric label.
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

    /// Whose bound it was.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::ServiceFull | Self::ServiceBytes => Fault::Service,
            Self::SharedFull | Self::SharedBytes => Fault::Shared,
            Self::ShuttingDown | Self::MemoryHigh => Fault::Resolver,
        }
    }

    /// The value of `Retry-After`: a usual start takes about 5 s, another resolver is there at once,
    /// and memory frees as waiters leave.
    #[must_use]
    pub fn retry_after_seconds(self) -> u32 {
        match self {
            Self::ShuttingDown => 1,
            Self::ServiceFull | Self::ServiceBytes | Self::SharedFull | Self::SharedBytes => 5,
            Self::MemoryHigh => 10,
        }
    }
}

/// Who is let in at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// Everyone within the bounds.
    #[default]
    Open,
    /// Memory is high: only what a service owns, nothing from the pool. A first request still gets in (S9).
    OwnOnly,
    /// The resolver shuts down: nobody new. Who waits goes on waiting.
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    service: ServiceKey,
    bytes: u64,
    deadline: Timestamp,
}

/// What one service, or the pool, holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Load {
    requests: u64,
    bytes: u64,
}

impl Load {
    /// `None` where the sum cannot be counted.
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

    /// The part of a service's load that draws on the pool.
    fn drawn(self) -> Self {
        Self {
            requests: self.requests.saturating_sub(1),
            bytes: self.bytes.saturating_sub(OWN_BYTES),
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

/// One service's room. Tickets grow, so their order is the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Room {
    tickets: BTreeSet<Ticket>,
    load: Load,
}

/// All rooms of one resolver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitingRooms {
    pool: Load,
    door: Door,
    next_ticket: u64,
    waiters: BTreeMap<Ticket, Waiter>,
    /// A service that nobody waits for has no room here, so this map is as bounded as the waiters.
    rooms: BTreeMap<ServiceKey, Room>,
    deadlines: BTreeSet<(Timestamp, Ticket)>,
    /// What all rooms together draw on the pool.
    drawn: Load,
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
            door: Door::Open,
            next_ticket: 0,
            waiters: BTreeMap::new(),
            rooms: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            drawn: Load::default(),
        }
    }

    /// Changes who is let in; whoever waits stays.
    pub fn set_door(&mut self, door: Door) {
        self.door = door;
    }

    /// Lets one more request wait, with this many bytes of it in memory.
    /// A request that was released and found no pod after all comes back here, with what is left of its time.
    ///
    /// # Errors
    /// If a bound would be exceeded, or the door is not open. Nothing has changed then.
    pub fn admit(
        &mut self,
        service: &ServiceKey,
        limits: &RoomLimits,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Ticket, Refusal> {
        let before = self.load(service);
        let after = before.with(bytes).ok_or(Refusal::ServiceBytes)?;
        self.check_door(before, after)?;
        check_service(after, limits)?;
        self.check_pool(before, after)?;

        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        let deadline = now.checked_add(limits.timeout).unwrap_or(Timestamp::MAX);
        let waiter = Waiter {
            service: service.clone(),
            bytes,
            deadline,
        };
        self.waiters.insert(ticket, waiter);
        self.deadlines.insert((deadline, ticket));
        let room = self.rooms.entry(service.clone()).or_default();
        room.tickets.insert(ticket);
        room.load = after;
        self.drawn = self.drawn.minus(before.drawn()).plus(after.drawn());
        Ok(ticket)
    }

    /// The waiter has left. False if it was no longer waiting; saying so twice does no harm.
    pub fn leave(&mut self, ticket: Ticket) -> bool {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return false;
        };
        let Waiter {
            service,
            bytes,
            deadline,
        } = waiter;
        self.deadlines.remove(&(deadline, ticket));
        let before = self.load(&service);
        let after = before.without(bytes);
        self.drawn = self.drawn.minus(before.drawn()).plus(after.drawn());
        if let Some(room) = self.rooms.get_mut(&service) {
            room.tickets.remove(&ticket);
            room.load = after;
            if room.tickets.is_empty() {
                self.rooms.remove(&service);
            }
        }
        true
    }

    /// The waiters whose time is up, first deadline first. They have left the rooms and must be answered.
    #[must_use = "these waiters have left the rooms and must be answered"]
    pub fn expired(&mut self, now: Timestamp) -> Vec<Ticket> {
        let due: Vec<Ticket> = self
            .deadlines
            .iter()
            .take_while(|(deadline, _)| *deadline <= now)
            .map(|(_, ticket)| *ticket)
            .collect();
        for ticket in &due {
            self.leave(*ticket);
        }
        due
    }

    /// When the next waiter's time is up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The first waiters of a service in the order of their arrival. They have left the rooms and must be forwarded.
    #[must_use = "these waiters have left the rooms and must be forwarded"]
    pub fn release(&mut self, service: &ServiceKey, at_most: usize) -> Vec<Ticket> {
        let Some(room) = self.rooms.get(service) else {
            return Vec::new();
        };
        let first: Vec<Ticket> = room.tickets.iter().take(at_most).copied().collect();
        for ticket in &first {
            self.leave(*ticket);
        }
        first
    }

    /// How many wait for a service.
    #[must_use]
    pub fn held(&self, service: &ServiceKey) -> usize {
        self.rooms.get(service).map_or(0, |room| room.tickets.len())
    }

    /// How many wait in all.
    #[must_use]
    pub fn held_total(&self) -> usize {
        self.waiters.len()
    }

    /// The bytes in memory of those who wait for a service.
    #[must_use]
    pub fn held_bytes(&self, service: &ServiceKey) -> u64 {
        self.load(service).bytes
    }

    /// The bytes in memory of all who wait.
    #[must_use]
    pub fn held_bytes_total(&self) -> u64 {
        let bytes = self.rooms.values().map(|room| room.load.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The services that someone waits for.
    pub fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.rooms.keys()
    }

    fn load(&self, service: &ServiceKey) -> Load {
        self.rooms
            .get(service)
            .map_or_else(Load::default, |r| r.load)
    }

    fn check_door(&self, before: Load, after: Load) -> Result<(), Refusal> {
        match self.door {
            Door::Closed => Err(Refusal::ShuttingDown),
            Door::OwnOnly if after.drawn() != before.drawn() => Err(Refusal::MemoryHigh),
            Door::OwnOnly | Door::Open => Ok(()),
        }
    }

    /// The dynamic threshold: what a service takes from the pool is at most what is free in it just before.
    /// A first request takes no request of the pool, and one without bytes of its own takes no bytes.
    fn check_pool(&self, before: Load, after: Load) -> Result<(), Refusal> {
        let free = self.pool.minus(self.drawn);
        let takes = after.drawn();
        if takes.requests > free.requests {
            return Err(Refusal::SharedFull);
        }
        if takes.bytes > before.drawn().bytes && takes.bytes > free.bytes {
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

/// How many waiters to let go at once, so that the herd does not trample the first pod.
///
/// It starts with [`ReleasePace::START`] requests in flight per ready pod and doubles with each whole batch that was
/// answered, up to [`ReleasePace::MOST`]; a failure halves it. 10,000 waiters at one pod need
/// 8 + 16 + ... + 512 = 1,016 in 7 rounds, then 9 rounds of 1,024: 16 round trips instead of one blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleasePace {
    per_pod: usize,
    answered: usize,
}

impl ReleasePace {
    /// In flight per ready pod at first.
    pub const START: usize = 8;
    /// In flight per ready pod at most.
    pub const MOST: usize = 1024;

    /// The pace for a service that has just woken.
    #[must_use]
    pub fn new() -> Self {
        Self {
            per_pod: Self::START,
            answered: 0,
        }
    }

    /// How many more may go now; never anything without a ready pod.
    #[must_use]
    pub fn allowance(&self, ready_pods: usize, in_flight: usize) -> usize {
        self.batch(ready_pods).saturating_sub(in_flight)
    }

    /// A released request was answered by a pod (`ok`), or could not be delivered to one.
    pub fn answered(&mut self, ready_pods: usize, ok: bool) {
        if !ok {
            self.per_pod = (self.per_pod / 2).max(1);
            self.answered = 0;
            return;
        }
        self.answered = self.answered.saturating_add(1);
        if self.answered >= self.batch(ready_pods.max(1)) {
            self.per_pod = self.per_pod.saturating_mul(2).min(Self::MOST);
            self.answered = 0;
        }
    }

    fn batch(self, ready_pods: usize) -> usize {
        self.per_pod.saturating_mul(ready_pods)
    }
}

impl Default for ReleasePace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn key(service: &str) -> ServiceKey {
        ServiceKey::new("shop", service)
    }

    /// A pool of 10 requests and 100 bytes beyond what each service owns; rooms that only the pool bounds.
    fn small() -> (WaitingRooms, RoomLimits) {
        let limits = Limits {
            shared_requests: 10,
            shared_bytes: 100,
            service_requests: 1_000,
            service_bytes: 1_000_000,
            timeout: SignedDuration::from_secs(60),
        };
        (WaitingRooms::new(&limits), limits.room(None))
    }

    /// Admits requests of one service until one is refused.
    fn flood(rooms: &mut WaitingRooms, room: &RoomLimits, service: &str) -> (Vec<Ticket>, Refusal) {
        let mut tickets = Vec::new();
        loop {
            match rooms.admit(&key(service), room, 0, at(0)) {
                Ok(ticket) => tickets.push(ticket),
                Err(refusal) => return (tickets, refusal),
            }
        }
    }

    #[test]
    fn one_service_alone_takes_its_own_slot_and_half_of_the_pool() {
        let (mut rooms, room) = small();
        let (tickets, refusal) = flood(&mut rooms, &room, "cart");
        assert_eq!(tickets.len(), 1 + 5);
        assert_eq!(refusal, Refusal::SharedFull);
    }

    #[test]
    fn the_default_limits_let_one_service_hold_ten_thousand() {
        let limits = Limits::default();
        let mut rooms = WaitingRooms::new(&limits);
        let room = limits.room(None);
        let (tickets, refusal) = flood(&mut rooms, &room, "cart");
        assert_eq!(tickets.len(), 10_000);
        assert_eq!(refusal, Refusal::ServiceFull);
        let (tickets, _) = flood(&mut rooms, &room, "till");
        assert!(tickets.len() > 5_000, "{}", tickets.len());
    }

    #[test]
    fn s9_a_flood_never_refuses_another_services_first_request() {
        let (mut rooms, room) = small();
        for n in 0..20 {
            flood(&mut rooms, &room, &format!("noisy{n}"));
        }
        for n in 0..1_000 {
            let quiet = key(&format!("quiet{n}"));
            let first = rooms.admit(&quiet, &room, OWN_BYTES, at(0));
            assert!(first.is_ok(), "{first:?}");
        }
    }

    #[test]
    fn s9_holds_while_memory_is_high() {
        let (mut rooms, room) = small();
        flood(&mut rooms, &room, "noisy");
        rooms.set_door(Door::OwnOnly);
        assert!(rooms.admit(&key("quiet"), &room, 1_000, at(0)).is_ok());
        let second = rooms.admit(&key("quiet"), &room, 0, at(0));
        assert_eq!(second, Err(Refusal::MemoryHigh));
        rooms.set_door(Door::Open);
        assert!(rooms.admit(&key("quiet"), &room, 0, at(0)).is_ok());
    }

    #[test]
    fn a_first_request_with_more_bytes_than_a_service_owns_draws_the_rest_from_the_pool() {
        let (mut rooms, room) = small();
        let large = rooms.admit(&key("cart"), &room, OWN_BYTES + 100, at(0));
        assert!(large.is_ok());
        let larger = rooms.admit(&key("till"), &room, OWN_BYTES + 1, at(0));
        assert_eq!(larger, Err(Refusal::SharedBytes));
        assert!(rooms.admit(&key("cart"), &room, 0, at(0)).is_ok());
        assert!(rooms.admit(&key("till"), &room, OWN_BYTES, at(0)).is_ok());
    }

    #[test]
    fn bytes_of_the_pool_are_shared_by_the_same_threshold() {
        let (mut rooms, room) = small();
        assert!(
            rooms
                .admit(&key("cart"), &room, OWN_BYTES + 50, at(0))
                .is_ok()
        );
        let one_more = rooms.admit(&key("cart"), &room, 1, at(0));
        assert_eq!(one_more, Err(Refusal::SharedBytes));
        assert!(rooms.admit(&key("cart"), &room, 0, at(0)).is_ok());
        assert!(
            rooms
                .admit(&key("till"), &room, OWN_BYTES + 50, at(0))
                .is_ok()
        );
    }

    #[test]
    fn a_services_own_bounds_come_from_its_hold() {
        let limits = Limits::default();
        let hold = Hold {
            timeout_seconds: Some(30),
            max_requests: Some(2),
            max_bytes: Some(10),
        };
        let room = limits.room(Some(&hold));
        let mut rooms = WaitingRooms::new(&limits);
        let cart = key("cart");
        assert_eq!(
            rooms.admit(&cart, &room, 11, at(0)),
            Err(Refusal::ServiceBytes)
        );
        assert!(rooms.admit(&cart, &room, 9, at(0)).is_ok());
        assert_eq!(
            rooms.admit(&cart, &room, 2, at(0)),
            Err(Refusal::ServiceBytes)
        );
        assert!(rooms.admit(&cart, &room, 1, at(0)).is_ok());
        assert_eq!(
            rooms.admit(&cart, &room, 0, at(0)),
            Err(Refusal::ServiceFull)
        );
        assert_eq!(rooms.next_deadline(), Some(at(30)));
    }

    #[test]
    fn a_hold_never_outlives_the_resolvers_timeout_and_lets_at_least_one_wait() {
        let hold = Hold {
            timeout_seconds: Some(100_000),
            max_requests: Some(0),
            max_bytes: None,
        };
        let limits = Limits::default();
        let room = limits.room(Some(&hold));
        assert_eq!((room.requests, room.timeout), (1, limits.timeout));
        assert_eq!(room.bytes, limits.service_bytes);
    }

    #[test]
    fn a_size_that_cannot_be_counted_is_refused() {
        let (mut rooms, mut room) = small();
        room.bytes = u64::MAX;
        assert!(rooms.admit(&key("cart"), &room, 1, at(0)).is_ok());
        let giant = rooms.admit(&key("cart"), &room, u64::MAX, at(0));
        assert_eq!(giant, Err(Refusal::ServiceBytes));
    }

    #[test]
    fn waiters_are_released_in_the_order_of_their_arrival() {
        let (mut rooms, room) = small();
        let mut tickets = Vec::new();
        for _ in 0..5 {
            tickets.push(rooms.admit(&key("cart"), &room, 0, at(0)).unwrap());
            rooms.admit(&key("till"), &room, 0, at(0)).ok();
        }
        rooms.leave(tickets[1]);
        let first = rooms.release(&key("cart"), 2);
        assert_eq!(first, vec![tickets[0], tickets[2]]);
        let rest = rooms.release(&key("cart"), 10);
        assert_eq!(rest, vec![tickets[3], tickets[4]]);
        assert_eq!(rooms.release(&key("cart"), 10), vec![]);
    }

    #[test]
    fn a_waiter_ends_exactly_at_its_deadline() {
        let (mut rooms, mut room) = small();
        let patient = rooms.admit(&key("cart"), &room, 0, at(0)).unwrap();
        room.timeout = SignedDuration::from_secs(10);
        let hasty = rooms.admit(&key("cart"), &room, 0, at(5)).unwrap();
        assert_eq!(rooms.next_deadline(), Some(at(15)));
        assert_eq!(rooms.expired(at(14)), vec![]);
        assert_eq!(rooms.expired(at(15)), vec![hasty]);
        assert_eq!(rooms.next_deadline(), Some(at(60)));
        assert_eq!(rooms.expired(at(1_000)), vec![patient]);
        assert_eq!(rooms.next_deadline(), None);
    }

    #[test]
    fn a_closed_door_keeps_those_who_wait() {
        let (mut rooms, room) = small();
        let ticket = rooms.admit(&key("cart"), &room, 0, at(0)).unwrap();
        rooms.set_door(Door::Closed);
        let late = rooms.admit(&key("till"), &room, 0, at(0));
        assert_eq!(late, Err(Refusal::ShuttingDown));
        assert_eq!(rooms.release(&key("cart"), 1), vec![ticket]);
    }

    #[test]
    fn every_refusal_has_a_word_a_sentence_and_a_time_to_retry() {
        let mut words = BTreeSet::new();
        for refusal in Refusal::ALL {
            assert!(words.insert(refusal.as_str()));
            assert_eq!(refusal.as_str(), format!("{refusal:?}"));
            assert!(refusal.to_string().ends_with('.'));
            assert!((1..=10).contains(&refusal.retry_after_seconds()));
        }
        assert_eq!(Refusal::ServiceFull.fault(), Fault::Service);
        assert_eq!(Refusal::SharedBytes.fault(), Fault::Shared);
        assert_eq!(Refusal::MemoryHigh.fault(), Fault::Resolver);
    }

    #[test]
    fn r5_slots_do_not_leak_under_contention() {
        let (mut rooms, room) = small();
        let empty = rooms.clone();
        for round in 0..200 {
            let (tickets, _) = flood(&mut rooms, &room, "cart");
            assert_eq!(tickets.len(), 6, "round {round}: slots are missing");
            // Each waiter ends in two ways at once, as a deadline, a client and a pod race in a busy resolver.
            let released = rooms.release(&key("cart"), 3);
            let expired = rooms.expired(at(60));
            assert_eq!(released.len() + expired.len(), 6);
            for ticket in tickets {
                assert!(!rooms.leave(ticket));
            }
        }
        rooms.next_ticket = empty.next_ticket;
        assert_eq!(rooms, empty);
    }

    #[test]
    fn r6_one_cold_service_does_not_starve_the_rest() {
        let limits = Limits::default();
        let mut rooms = WaitingRooms::new(&limits);
        let room = limits.room(None);
        flood(&mut rooms, &room, "cold");
        for n in 0..100 {
            let warm = key(&format!("warm{n}"));
            for request in 0..50 {
                let admitted = rooms.admit(&warm, &room, 2_000, at(0));
                assert!(admitted.is_ok(), "{warm} request {request}: {admitted:?}");
            }
        }
    }

    #[test]
    fn r7_two_namespaces_with_one_service_name_do_not_share_a_room() {
        let (mut rooms, room) = small();
        let (test, live) = (
            ServiceKey::new("test", "cart"),
            ServiceKey::new("live", "cart"),
        );
        let in_test = rooms.admit(&test, &room, 7, at(0)).unwrap();
        let in_live = rooms.admit(&live, &room, 9, at(0)).unwrap();
        assert_eq!((rooms.held(&test), rooms.held(&live)), (1, 1));
        assert_eq!((rooms.held_bytes(&test), rooms.held_bytes(&live)), (7, 9));
        assert_eq!(rooms.release(&test, 10), vec![in_test]);
        assert_eq!(rooms.services().collect::<Vec<_>>(), vec![&live]);
        assert_eq!(rooms.release(&live, 10), vec![in_live]);
    }

    #[test]
    fn r8_a_client_that_left_frees_its_slot_at_once_and_only_once() {
        let (mut rooms, room) = small();
        let (tickets, _) = flood(&mut rooms, &room, "cart");
        assert!(rooms.leave(tickets[2]));
        assert!(!rooms.leave(tickets[2]));
        let next = rooms.admit(&key("cart"), &room, 0, at(0)).unwrap();
        assert!(!tickets.contains(&next));
        let full = rooms.admit(&key("cart"), &room, 0, at(0));
        assert_eq!(full, Err(Refusal::SharedFull));
        assert!(!rooms.release(&key("cart"), 100).contains(&tickets[2]));
    }

    #[derive(Clone, Debug)]
    enum Move {
        Admit { service: u8, bytes: u64 },
        Leave(usize),
        Release { service: u8, at_most: usize },
        Expire(i64),
        Door(Door),
    }

    fn a_move() -> impl Strategy<Value = Move> {
        let bytes = prop_oneof![0u64..60, OWN_BYTES - 5..OWN_BYTES + 60];
        let door = prop_oneof![Just(Door::Open), Just(Door::OwnOnly), Just(Door::Closed)];
        prop_oneof![
            12 => (0u8..4, bytes).prop_map(|(service, bytes)| Move::Admit { service, bytes }),
            3 => any::<usize>().prop_map(Move::Leave),
            2 => (0u8..4, 0usize..4).prop_map(|(service, at_most)| Move::Release { service, at_most }),
            2 => (1i64..40).prop_map(Move::Expire),
            1 => door.prop_map(Move::Door),
        ]
    }

    /// What the rooms should hold, kept in the plainest way.
    type Ledger = Vec<(Ticket, ServiceKey, u64, Timestamp)>;

    fn check(rooms: &WaitingRooms, ledger: &Ledger) {
        let mut drawn = Load::default();
        for n in 0..4 {
            let service = key(&format!("s{n}"));
            let mine: Vec<_> = ledger.iter().filter(|w| w.1 == service).collect();
            let bytes = mine.iter().map(|w| w.2).sum::<u64>();
            assert_eq!(rooms.held(&service), mine.len());
            assert_eq!(rooms.held_bytes(&service), bytes);
            let requests = mine.len() as u64;
            drawn = drawn.plus(Load { requests, bytes }.drawn());
        }
        assert_eq!(rooms.drawn, drawn);
        assert!(drawn.requests <= rooms.pool.requests && drawn.bytes <= rooms.pool.bytes);
        assert_eq!(rooms.held_total(), ledger.len());
        assert_eq!(
            rooms.held_bytes_total(),
            ledger.iter().map(|w| w.2).sum::<u64>()
        );
        assert_eq!(rooms.next_deadline(), ledger.iter().map(|w| w.3).min());
    }

    proptest! {
        #[test]
        fn bounds_hold_sums_agree_and_no_slot_leaks(
            moves in prop::collection::vec(a_move(), 1..120),
        ) {
            let (mut rooms, room) = small();
            let empty = rooms.clone();
            let mut ledger = Ledger::new();
            let mut gone: Vec<Ticket> = Vec::new();
            let mut second = 0;
            for next in moves {
                match next {
                    Move::Admit { service, bytes } => {
                        let service = key(&format!("s{service}"));
                        let first = rooms.held(&service) == 0;
                        let before = rooms.clone();
                        match rooms.admit(&service, &room, bytes, at(second)) {
                            Ok(ticket) => {
                                prop_assert!(rooms.door != Door::Closed);
                                ledger.push((ticket, service, bytes, at(second + 60)));
                            }
                            Err(refusal) => {
                                prop_assert_eq!(&rooms, &before);
                                let own = first && bytes <= OWN_BYTES;
                                prop_assert!(!own || refusal == Refusal::ShuttingDown, "S9");
                            }
                        }
                    }
                    Move::Leave(n) if !ledger.is_empty() => {
                        let ticket = ledger.remove(n % ledger.len()).0;
                        prop_assert!(rooms.leave(ticket));
                        gone.push(ticket);
                    }
                    Move::Leave(_) => {}
                    Move::Release { service, at_most } => {
                        let service = key(&format!("s{service}"));
                        let mine = ledger.iter().filter(|w| w.1 == service);
                        let first: Vec<Ticket> = mine.take(at_most).map(|w| w.0).collect();
                        prop_assert_eq!(&rooms.release(&service, at_most), &first);
                        ledger.retain(|w| !first.contains(&w.0));
                        gone.extend(first);
                    }
                    Move::Expire(seconds) => {
                        second += seconds;
                        let due = rooms.expired(at(second));
                        for waiter in &ledger {
                            prop_assert_eq!(due.contains(&waiter.0), waiter.3 <= at(second));
                        }
                        ledger.retain(|w| !due.contains(&w.0));
                        gone.extend(due);
                    }
                    Move::Door(door) => rooms.set_door(door),
                }
                for ticket in &gone {
                    prop_assert!(!rooms.leave(*ticket));
                }
                check(&rooms, &ledger);
            }
            let _ = rooms.expired(Timestamp::MAX);
            rooms.next_ticket = empty.next_ticket;
            rooms.set_door(Door::Open);
            prop_assert_eq!(rooms, empty);
        }

        #[test]
        fn the_pace_never_lets_more_go_than_its_pods_may_have(
            answers in prop::collection::vec(any::<bool>(), 0..5_000),
            pods in 0usize..50,
            in_flight in 0usize..100_000,
        ) {
            let mut pace = ReleasePace::new();
            for ok in answers {
                pace.answered(pods, ok);
            }
            let most = pods * ReleasePace::MOST;
            prop_assert!(pace.allowance(pods, in_flight) + in_flight <= most.max(in_flight));
            prop_assert!(pods == 0 || pace.allowance(pods, 0) >= 1);
        }
    }

    #[test]
    fn the_pace_doubles_with_each_answered_batch_and_halves_on_a_failure() {
        let mut pace = ReleasePace::new();
        assert_eq!(pace.allowance(0, 0), 0);
        assert_eq!(pace.allowance(1, 0), 8);
        assert_eq!(pace.allowance(3, 20), 4);
        for _ in 0..23 {
            pace.answered(3, true);
        }
        assert_eq!(pace.allowance(3, 0), 24);
        pace.answered(3, true);
        assert_eq!(pace.allowance(3, 0), 48);
        for _ in 0..40 {
            pace.answered(3, true);
        }
        pace.answered(3, false);
        for _ in 0..23 {
            pace.answered(3, true);
        }
        assert_eq!(pace.allowance(3, 0), 24);
        for _ in 0..10 {
            pace.answered(3, false);
        }
        assert_eq!(pace.allowance(3, 0), 3);
    }

    #[test]
    fn ten_thousand_waiters_at_one_pod_need_sixteen_rounds() {
        let mut pace = ReleasePace::new();
        let (mut waiting, mut rounds) = (10_000, 0);
        while waiting > 0 {
            let batch = pace.allowance(1, 0).min(waiting);
            waiting -= batch;
            rounds += 1;
            for _ in 0..batch {
                pace.answered(1, true);
            }
        }
        assert_eq!(rounds, 16);
    }
}
