//! Which requests may wait, which leave first, and that no slot leaks.

use proptest::prelude::*;

use super::*;

/// The listen port of most waiters.
const PORT: u16 = 20_001;

fn key(service: &str) -> ServiceKey {
    ServiceKey::new("shop", service)
}

/// A pool of 10 requests and 100 bytes beyond what each service has reserved; rooms that only the pool limits.
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
        match rooms.admit(&key(service), PORT, room, 0) {
            Ok(ticket) => tickets.push(ticket),
            Err(refusal) => return (tickets, refusal),
        }
    }
}

#[test]
fn one_service_alone_takes_its_reserved_slot_and_half_of_the_pool() {
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
        let first = rooms.admit(&quiet, PORT, &room, RESERVED_BYTES);
        assert!(first.is_ok(), "{first:?}");
    }
}

#[test]
fn s9_holds_while_memory_is_high() {
    let (mut rooms, room) = small();
    flood(&mut rooms, &room, "noisy");
    rooms.set_admission(Admission::ReservedOnly);
    assert!(rooms.admit(&key("quiet"), PORT, &room, 1_000).is_ok());
    let second = rooms.admit(&key("quiet"), PORT, &room, 0);
    assert_eq!(second, Err(Refusal::MemoryHigh));
    rooms.set_admission(Admission::Open);
    assert!(rooms.admit(&key("quiet"), PORT, &room, 0).is_ok());
}

#[test]
fn a_first_request_with_more_bytes_than_are_reserved_takes_the_rest_from_the_pool() {
    let (mut rooms, room) = small();
    let large = rooms.admit(&key("cart"), PORT, &room, RESERVED_BYTES + 100);
    assert!(large.is_ok());
    let larger = rooms.admit(&key("till"), PORT, &room, RESERVED_BYTES + 1);
    assert_eq!(larger, Err(Refusal::SharedBytes));
    assert!(rooms.admit(&key("cart"), PORT, &room, 0).is_ok());
    assert!(
        rooms
            .admit(&key("till"), PORT, &room, RESERVED_BYTES)
            .is_ok()
    );
}

#[test]
fn bytes_of_the_pool_are_shared_by_the_same_threshold() {
    let (mut rooms, room) = small();
    assert!(
        rooms
            .admit(&key("cart"), PORT, &room, RESERVED_BYTES + 50)
            .is_ok()
    );
    let one_more = rooms.admit(&key("cart"), PORT, &room, 1);
    assert_eq!(one_more, Err(Refusal::SharedBytes));
    assert!(rooms.admit(&key("cart"), PORT, &room, 0).is_ok());
    assert!(
        rooms
            .admit(&key("till"), PORT, &room, RESERVED_BYTES + 50)
            .is_ok()
    );
}

#[test]
fn a_services_own_bounds_come_from_its_hold() {
    let limits = Limits::default();
    let hold = Hold {
        timeout_seconds: Some(30),
        max_requests: Some(2),
        max_bytes: Some(RESERVED_BYTES + 10),
        when_down: None,
        fail_fast_seconds: None,
        allow_from: None,
    };
    let room = limits.room(Some(&hold));
    let mut rooms = WaitingRooms::new(&limits);
    let cart = key("cart");
    assert_eq!(
        rooms.admit(&cart, PORT, &room, RESERVED_BYTES + 11),
        Err(Refusal::ServiceBytes)
    );
    assert!(rooms.admit(&cart, PORT, &room, RESERVED_BYTES + 9).is_ok());
    assert_eq!(
        rooms.admit(&cart, PORT, &room, 2),
        Err(Refusal::ServiceBytes)
    );
    assert!(rooms.admit(&cart, PORT, &room, 1).is_ok());
    assert_eq!(
        rooms.admit(&cart, PORT, &room, 0),
        Err(Refusal::ServiceFull)
    );
    assert_eq!(room.timeout, SignedDuration::from_secs(30));
}

#[test]
fn a_first_request_waits_however_few_bytes_its_service_may_hold() {
    let limits = Limits::default();
    let hold = Hold {
        max_bytes: Some(65_536),
        ..Hold::default()
    };
    let room = limits.room(Some(&hold));
    let mut rooms = WaitingRooms::new(&limits);
    let first = rooms.admit(&key("cart"), PORT, &room, RESERVED_BYTES);
    assert!(first.is_ok(), "{first:?}");
    let second = rooms.admit(&key("cart"), PORT, &room, 1);
    assert_eq!(second, Err(Refusal::ServiceBytes));
}

#[test]
fn the_default_limits_let_one_service_hold_two_thousand_streams_with_full_windows() {
    let limits = Limits::default();
    let mut rooms = WaitingRooms::new(&limits);
    let room = limits.room(None);
    for at in 0..2_000 {
        let stream = rooms.admit(&key("cart"), PORT, &room, 64 * 1024 + 1_000);
        assert!(stream.is_ok(), "{at}: {stream:?}");
    }
}

#[test]
fn a_hold_never_outlives_the_resolvers_timeout_and_lets_at_least_one_wait() {
    let hold = Hold {
        timeout_seconds: Some(100_000),
        max_requests: Some(0),
        max_bytes: None,
        when_down: None,
        fail_fast_seconds: None,
        allow_from: None,
    };
    let limits = Limits::default();
    let room = limits.room(Some(&hold));
    assert_eq!((room.requests, room.timeout), (1, limits.timeout));
    assert_eq!(room.bytes, limits.service_bytes);
}

#[test]
fn a_size_that_overflows_is_refused() {
    let (mut rooms, mut room) = small();
    room.bytes = u64::MAX;
    assert!(rooms.admit(&key("cart"), PORT, &room, 1).is_ok());
    let giant = rooms.admit(&key("cart"), PORT, &room, u64::MAX);
    assert_eq!(giant, Err(Refusal::ServiceBytes));
}

#[test]
fn waiters_are_released_in_the_order_of_their_arrival() {
    let (mut rooms, room) = small();
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.push(rooms.admit(&key("cart"), PORT, &room, 0).unwrap());
        rooms.admit(&key("till"), PORT, &room, 0).ok();
    }
    rooms.leave(tickets[1]);
    let first = rooms.release(&key("cart"), PORT, 2);
    assert_eq!(first, vec![tickets[0], tickets[2]]);
    let rest = rooms.release(&key("cart"), PORT, 10);
    assert_eq!(rest, vec![tickets[3], tickets[4]]);
    assert_eq!(rooms.release(&key("cart"), PORT, 10), vec![]);
}

#[test]
fn each_port_has_a_queue_of_its_own_within_the_limits_of_its_service() {
    let (mut rooms, mut room) = small();
    room.requests = 4;
    let cart = key("cart");
    let mut admit = |port| rooms.admit(&cart, port, &room, 0);
    let (first, other, second) = (admit(1).unwrap(), admit(2).unwrap(), admit(1).unwrap());
    let third = admit(1).unwrap();
    assert_eq!(admit(2), Err(Refusal::ServiceFull));
    assert_eq!((rooms.held_at(&cart, 1), rooms.held_at(&cart, 2)), (3, 1));
    assert_eq!((rooms.held(&cart), rooms.ports(&cart)), (4, vec![1, 2]));
    assert_eq!(rooms.release(&cart, 3, 10), vec![]);
    assert_eq!(rooms.release(&cart, 1, 2), vec![first, second]);
    assert_eq!(rooms.release(&key("till"), 1, 10), vec![]);
    assert_eq!(rooms.release_all(&cart), vec![third, other]);
    assert_eq!((rooms.held(&cart), rooms.ports(&cart)), (0, vec![]));
}

#[test]
fn closing_admission_keeps_those_that_wait() {
    let (mut rooms, room) = small();
    let ticket = rooms.admit(&key("cart"), PORT, &room, 0).unwrap();
    rooms.set_admission(Admission::Closed);
    let late = rooms.admit(&key("till"), PORT, &room, 0);
    assert_eq!(late, Err(Refusal::ShuttingDown));
    assert_eq!(rooms.release(&key("cart"), PORT, 1), vec![ticket]);
}

#[test]
fn one_that_comes_back_keeps_its_turn_and_its_admission() {
    let (mut rooms, mut room) = small();
    room.requests = 2;
    let cart = key("cart");
    let first = rooms.admit(&cart, PORT, &room, 7).unwrap();
    assert_eq!(rooms.release(&cart, PORT, 1), vec![first]);
    let later = rooms.admit(&cart, PORT, &room, 0).unwrap();
    let last = rooms.admit(&cart, PORT, &room, 0).unwrap();
    assert_eq!(
        rooms.admit(&cart, PORT, &room, 0),
        Err(Refusal::ServiceFull)
    );
    for admission in [Admission::ReservedOnly, Admission::Closed] {
        rooms.set_admission(admission);
        assert_eq!(rooms.admit_again(first, &cart, PORT, 9), first);
        assert_eq!((rooms.held(&cart), rooms.load(&cart).bytes), (3, 9));
    }
    assert_eq!(rooms.release(&cart, PORT, 10), vec![first, later, last]);
    assert_eq!(rooms.pooled, Load::default());
}

#[test]
fn every_refusal_has_a_reason_a_sentence_and_a_time_to_retry() {
    let mut words = BTreeSet::new();
    for refusal in Refusal::ALL {
        assert!(words.insert(refusal.as_str()));
        assert_eq!(refusal.as_str(), format!("{refusal:?}"));
        assert!(refusal.to_string().ends_with('.'));
        assert!((1..=10).contains(&refusal.retry_after_seconds()));
    }
    assert_eq!(Refusal::ServiceFull.scope(), LimitScope::Service);
    assert_eq!(Refusal::SharedBytes.scope(), LimitScope::Shared);
    assert_eq!(Refusal::MemoryHigh.scope(), LimitScope::Resolver);
}

#[test]
fn r5_slots_do_not_leak_under_contention() {
    let (mut rooms, room) = small();
    let empty = rooms.clone();
    for round in 0..200 {
        let (tickets, _) = flood(&mut rooms, &room, "cart");
        assert_eq!(tickets.len(), 6, "round {round}: slots are missing");
        // Each waiter ends in two ways at once, as a refusal, a client and a pod race in a busy resolver.
        let released = rooms.release(&key("cart"), PORT, 3);
        let refused = rooms.release_all(&key("cart"));
        assert_eq!(released.len() + refused.len(), 6);
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
            let admitted = rooms.admit(&warm, PORT, &room, 2_000);
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
    let in_test = rooms.admit(&test, PORT, &room, 7).unwrap();
    let in_live = rooms.admit(&live, PORT, &room, 9).unwrap();
    assert_eq!((rooms.held(&test), rooms.held(&live)), (1, 1));
    assert_eq!((rooms.load(&test).bytes, rooms.load(&live).bytes), (7, 9));
    assert_eq!(rooms.release(&test, PORT, 10), vec![in_test]);
    assert_eq!((rooms.held(&test), rooms.held(&live)), (0, 1));
    assert_eq!(rooms.release(&live, PORT, 10), vec![in_live]);
}

#[test]
fn r8_a_client_that_left_frees_its_slot_at_once_and_only_once() {
    let (mut rooms, room) = small();
    let (tickets, _) = flood(&mut rooms, &room, "cart");
    assert!(rooms.leave(tickets[2]));
    assert!(!rooms.leave(tickets[2]));
    let next = rooms.admit(&key("cart"), PORT, &room, 0).unwrap();
    assert!(!tickets.contains(&next));
    let full = rooms.admit(&key("cart"), PORT, &room, 0);
    assert_eq!(full, Err(Refusal::SharedFull));
    assert!(!rooms.release(&key("cart"), PORT, 100).contains(&tickets[2]));
}

#[derive(Clone, Debug)]
enum Move {
    Admit {
        service: u8,
        port: u16,
        bytes: u64,
    },
    Leave(usize),
    Release {
        service: u8,
        port: u16,
        at_most: usize,
    },
    ReleaseAll {
        service: u8,
    },
    Admission(Admission),
}

fn a_move() -> impl Strategy<Value = Move> {
    let bytes = prop_oneof![0u64..60, RESERVED_BYTES - 5..RESERVED_BYTES + 60];
    let admission = prop_oneof![
        Just(Admission::Open),
        Just(Admission::ReservedOnly),
        Just(Admission::Closed)
    ];
    prop_oneof![
        12 => (0u8..4, 1u16..4, bytes)
            .prop_map(|(service, port, bytes)| Move::Admit { service, port, bytes }),
        3 => any::<usize>().prop_map(Move::Leave),
        2 => (0u8..4, 1u16..4, 0usize..4)
            .prop_map(|(service, port, at_most)| Move::Release { service, port, at_most }),
        1 => (0u8..4).prop_map(|service| Move::ReleaseAll { service }),
        1 => admission.prop_map(Move::Admission),
    ]
}

/// One that should wait.
#[derive(Clone, Debug)]
struct Expected {
    ticket: Ticket,
    service: ServiceKey,
    port: u16,
    bytes: u64,
}

/// What the rooms should hold, counted in the simplest way.
fn check(rooms: &WaitingRooms, expected: &[Expected]) {
    let mut pooled = Load::default();
    for n in 0..4 {
        let service = key(&format!("s{n}"));
        let mine: Vec<_> = expected.iter().filter(|w| w.service == service).collect();
        let bytes = mine.iter().map(|w| w.bytes).sum::<u64>();
        assert_eq!(rooms.held(&service), mine.len());
        assert_eq!(rooms.load(&service).bytes, bytes);
        let ports: BTreeSet<u16> = mine.iter().map(|w| w.port).collect();
        assert_eq!(rooms.ports(&service), ports.into_iter().collect::<Vec<_>>());
        for port in 1..4 {
            let at_port = mine.iter().filter(|w| w.port == port);
            assert_eq!(rooms.held_at(&service, port), at_port.count());
        }
        let requests = mine.len() as u64;
        pooled = pooled.plus(Load { requests, bytes }.pooled());
    }
    assert_eq!(rooms.pooled, pooled);
    assert!(pooled.requests <= rooms.pool.requests && pooled.bytes <= rooms.pool.bytes);
    assert_eq!(rooms.held_total(), expected.len());
}

proptest! {
    #[test]
    fn bounds_hold_sums_agree_and_no_slot_leaks(
        moves in prop::collection::vec(a_move(), 1..120),
    ) {
        let (mut rooms, room) = small();
        let empty = rooms.clone();
        let mut expected: Vec<Expected> = Vec::new();
        let mut gone: Vec<Ticket> = Vec::new();
        for next in moves {
            match next {
                Move::Admit { service, port, bytes } => {
                    let service = key(&format!("s{service}"));
                    let first = rooms.held(&service) == 0;
                    let before = rooms.clone();
                    match rooms.admit(&service, port, &room, bytes) {
                        Ok(ticket) => {
                            prop_assert!(rooms.admission != Admission::Closed);
                            expected.push(Expected { ticket, service, port, bytes });
                        }
                        Err(refusal) => {
                            prop_assert_eq!(&rooms, &before);
                            let own = first && bytes <= RESERVED_BYTES;
                            prop_assert!(!own || refusal == Refusal::ShuttingDown, "S9");
                        }
                    }
                }
                Move::Leave(n) if !expected.is_empty() => {
                    let ticket = expected.remove(n % expected.len()).ticket;
                    prop_assert!(rooms.leave(ticket));
                    gone.push(ticket);
                }
                Move::Leave(_) => {}
                Move::Release { service, port, at_most } => {
                    let service = key(&format!("s{service}"));
                    let mine = expected.iter().filter(|w| w.service == service && w.port == port);
                    let first: Vec<Ticket> = mine.take(at_most).map(|w| w.ticket).collect();
                    prop_assert_eq!(&rooms.release(&service, port, at_most), &first);
                    expected.retain(|w| !first.contains(&w.ticket));
                    gone.extend(first);
                }
                Move::ReleaseAll { service } => {
                    let service = key(&format!("s{service}"));
                    let released = rooms.release_all(&service);
                    for waiter in &expected {
                        let mine = waiter.service == service;
                        prop_assert_eq!(released.contains(&waiter.ticket), mine);
                    }
                    expected.retain(|w| w.service != service);
                    gone.extend(released);
                }
                Move::Admission(admission) => rooms.set_admission(admission),
            }
            for ticket in &gone {
                prop_assert!(!rooms.leave(*ticket));
            }
            check(&rooms, &expected);
        }
        for n in 0..4 {
            let _ = rooms.release_all(&key(&format!("s{n}")));
        }
        rooms.next_ticket = empty.next_ticket;
        rooms.set_admission(Admission::Open);
        prop_assert_eq!(rooms, empty);
    }
}

/// What would happen if names alone were keys, or if all shared one room: the neighbour's requests have the room of a flood.
#[test]
fn in_the_room_of_a_flood_a_neighbours_first_request_is_refused() {
    for (neighbour, admitted) in [("cart", false), ("till", true)] {
        let (mut rooms, room) = small();
        flood(&mut rooms, &room, "cart");
        let first = rooms.admit(&key(neighbour), PORT, &room, RESERVED_BYTES);
        assert_eq!(first.is_ok(), admitted, "{first:?}");
    }
}
