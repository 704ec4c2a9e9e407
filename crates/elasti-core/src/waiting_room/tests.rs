//! Which requests may wait, which leave first, and that no slot leaks.

use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

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
        match rooms.admit(&key(service), room, 0, at(0)) {
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
        let first = rooms.admit(&quiet, &room, RESERVED_BYTES, at(0));
        assert!(first.is_ok(), "{first:?}");
    }
}

#[test]
fn s9_holds_while_memory_is_high() {
    let (mut rooms, room) = small();
    flood(&mut rooms, &room, "noisy");
    rooms.set_admission(Admission::ReservedOnly);
    assert!(rooms.admit(&key("quiet"), &room, 1_000, at(0)).is_ok());
    let second = rooms.admit(&key("quiet"), &room, 0, at(0));
    assert_eq!(second, Err(Refusal::MemoryHigh));
    rooms.set_admission(Admission::Open);
    assert!(rooms.admit(&key("quiet"), &room, 0, at(0)).is_ok());
}

#[test]
fn a_first_request_with_more_bytes_than_are_reserved_takes_the_rest_from_the_pool() {
    let (mut rooms, room) = small();
    let large = rooms.admit(&key("cart"), &room, RESERVED_BYTES + 100, at(0));
    assert!(large.is_ok());
    let larger = rooms.admit(&key("till"), &room, RESERVED_BYTES + 1, at(0));
    assert_eq!(larger, Err(Refusal::SharedBytes));
    assert!(rooms.admit(&key("cart"), &room, 0, at(0)).is_ok());
    assert!(
        rooms
            .admit(&key("till"), &room, RESERVED_BYTES, at(0))
            .is_ok()
    );
}

#[test]
fn bytes_of_the_pool_are_shared_by_the_same_threshold() {
    let (mut rooms, room) = small();
    assert!(
        rooms
            .admit(&key("cart"), &room, RESERVED_BYTES + 50, at(0))
            .is_ok()
    );
    let one_more = rooms.admit(&key("cart"), &room, 1, at(0));
    assert_eq!(one_more, Err(Refusal::SharedBytes));
    assert!(rooms.admit(&key("cart"), &room, 0, at(0)).is_ok());
    assert!(
        rooms
            .admit(&key("till"), &room, RESERVED_BYTES + 50, at(0))
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
        when_down: None,
        fail_fast_seconds: None,
        allow_from: None,
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
fn closing_admission_keeps_those_that_wait() {
    let (mut rooms, room) = small();
    let ticket = rooms.admit(&key("cart"), &room, 0, at(0)).unwrap();
    rooms.set_admission(Admission::Closed);
    let late = rooms.admit(&key("till"), &room, 0, at(0));
    assert_eq!(late, Err(Refusal::ShuttingDown));
    assert_eq!(rooms.release(&key("cart"), 1), vec![ticket]);
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
        12 => (0u8..4, bytes).prop_map(|(service, bytes)| Move::Admit { service, bytes }),
        3 => any::<usize>().prop_map(Move::Leave),
        2 => (0u8..4, 0usize..4).prop_map(|(service, at_most)| Move::Release { service, at_most }),
        2 => (1i64..40).prop_map(Move::Expire),
        1 => admission.prop_map(Move::Admission),
    ]
}

/// What the rooms should hold, counted in the simplest way.
type Expected = Vec<(Ticket, ServiceKey, u64, Timestamp)>;

fn check(rooms: &WaitingRooms, expected: &Expected) {
    let mut pooled = Load::default();
    for n in 0..4 {
        let service = key(&format!("s{n}"));
        let mine: Vec<_> = expected.iter().filter(|w| w.1 == service).collect();
        let bytes = mine.iter().map(|w| w.2).sum::<u64>();
        assert_eq!(rooms.held(&service), mine.len());
        assert_eq!(rooms.held_bytes(&service), bytes);
        let requests = mine.len() as u64;
        pooled = pooled.plus(Load { requests, bytes }.pooled());
    }
    assert_eq!(rooms.pooled, pooled);
    assert!(pooled.requests <= rooms.pool.requests && pooled.bytes <= rooms.pool.bytes);
    assert_eq!(rooms.held_total(), expected.len());
    assert_eq!(
        rooms.held_bytes_total(),
        expected.iter().map(|w| w.2).sum::<u64>()
    );
    assert_eq!(rooms.next_deadline(), expected.iter().map(|w| w.3).min());
}

proptest! {
    #[test]
    fn bounds_hold_sums_agree_and_no_slot_leaks(
        moves in prop::collection::vec(a_move(), 1..120),
    ) {
        let (mut rooms, room) = small();
        let empty = rooms.clone();
        let mut expected = Expected::new();
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
                            prop_assert!(rooms.admission != Admission::Closed);
                            expected.push((ticket, service, bytes, at(second + 60)));
                        }
                        Err(refusal) => {
                            prop_assert_eq!(&rooms, &before);
                            let own = first && bytes <= RESERVED_BYTES;
                            prop_assert!(!own || refusal == Refusal::ShuttingDown, "S9");
                        }
                    }
                }
                Move::Leave(n) if !expected.is_empty() => {
                    let ticket = expected.remove(n % expected.len()).0;
                    prop_assert!(rooms.leave(ticket));
                    gone.push(ticket);
                }
                Move::Leave(_) => {}
                Move::Release { service, at_most } => {
                    let service = key(&format!("s{service}"));
                    let mine = expected.iter().filter(|w| w.1 == service);
                    let first: Vec<Ticket> = mine.take(at_most).map(|w| w.0).collect();
                    prop_assert_eq!(&rooms.release(&service, at_most), &first);
                    expected.retain(|w| !first.contains(&w.0));
                    gone.extend(first);
                }
                Move::Expire(seconds) => {
                    second += seconds;
                    let due = rooms.expired(at(second));
                    for waiter in &expected {
                        prop_assert_eq!(due.contains(&waiter.0), waiter.3 <= at(second));
                    }
                    expected.retain(|w| !due.contains(&w.0));
                    gone.extend(due);
                }
                Move::Admission(admission) => rooms.set_admission(admission),
            }
            for ticket in &gone {
                prop_assert!(!rooms.leave(*ticket));
            }
            check(&rooms, &expected);
        }
        let _ = rooms.expired(Timestamp::MAX);
        rooms.next_ticket = empty.next_ticket;
        rooms.set_admission(Admission::Open);
        prop_assert_eq!(rooms, empty);
    }
}
