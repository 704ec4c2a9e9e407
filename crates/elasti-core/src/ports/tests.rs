//! Listen ports are stable, and not reused too early.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const QUARANTINE: SignedDuration = SignedDuration::from_secs(300);

fn port_allocator(range: RangeInclusive<u16>) -> PortAllocator {
    PortAllocator::new(range, QUARANTINE)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn key(service: &str) -> ServiceKey {
    ServiceKey::new("shop", service)
}

fn wanted(name: &str, port: u16) -> WantedPort {
    WantedPort {
        name: name.into(),
        port,
    }
}

fn listen(name: &str, port: u16, listen_port: u16) -> ListenPort {
    ListenPort {
        name: name.into(),
        port,
        listen_port,
    }
}

#[test]
fn the_default_range_has_room_for_ten_thousand_services_and_touches_no_other_range() {
    assert_eq!(DEFAULT_RANGE.count(), 20_000);
    for foreign in [8012, 8013, 8080, 8081, 30_000, 32_768] {
        assert!(!DEFAULT_RANGE.contains(&foreign), "{foreign}");
    }
    let mut port_allocator = PortAllocator::new(DEFAULT_RANGE, DEFAULT_QUARANTINE);
    for n in 0..10_000 {
        let ports = [wanted("http", 80), wanted("grpc", 9090)];
        let given = port_allocator.assign(&key(&format!("s{n}")), &ports, at(0));
        assert_eq!(given.map(|g| g.len()), Ok(2));
    }
}

#[test]
fn a_key_reads_as_namespace_and_service() {
    assert_eq!(key("cart").to_string(), "shop/cart");
}

#[test]
fn the_start_of_the_search_is_pinned_so_that_an_upgrade_moves_no_port() {
    let mut port_allocator = PortAllocator::new(DEFAULT_RANGE, DEFAULT_QUARANTINE);
    let given = port_allocator.assign(&key("cart"), &[wanted("http", 80)], at(0));
    assert_eq!(given, Ok(vec![listen("http", 80, 20_174)]));
}

#[test]
fn a_pair_keeps_its_listen_port_when_other_ports_come_and_go() {
    let mut port_allocator = port_allocator(100..=199);
    let before = port_allocator
        .assign(&key("cart"), &[wanted("http", 80)], at(0))
        .unwrap();
    let more = [
        wanted("grpc", 9090),
        wanted("http", 80),
        wanted("admin", 81),
    ];
    let after = port_allocator.assign(&key("cart"), &more, at(1)).unwrap();
    assert_eq!(after.len(), 3);
    assert!(after.contains(&before[0]));
    let fewer = port_allocator
        .assign(&key("cart"), &[wanted("http", 80)], at(2))
        .unwrap();
    assert_eq!(fewer, before);
}

#[test]
fn the_order_of_the_services_ports_does_not_matter() {
    let ports = [
        wanted("grpc", 9090),
        wanted("http", 80),
        wanted("admin", 81),
    ];
    let mut turned = ports.clone();
    turned.reverse();
    let given = port_allocator(100..=199).assign(&key("cart"), &ports, at(0));
    assert_eq!(
        given,
        port_allocator(100..=199).assign(&key("cart"), &turned, at(0))
    );
}

#[test]
fn a_port_that_is_wanted_twice_is_given_once() {
    let twice = [wanted("http", 80), wanted("http", 80)];
    let given = port_allocator(100..=199)
        .assign(&key("cart"), &twice, at(0))
        .unwrap();
    assert_eq!(given.len(), 1);
}

#[test]
fn a_renamed_port_keeps_its_listen_port() {
    let mut port_allocator = port_allocator(100..=199);
    let before = port_allocator
        .assign(&key("cart"), &[wanted("web", 80)], at(0))
        .unwrap();
    let after = port_allocator
        .assign(&key("cart"), &[wanted("http", 80)], at(1))
        .unwrap();
    assert_eq!(before[0].listen_port, after[0].listen_port);
}

#[test]
fn a_port_number_that_changes_does_not_inherit_what_still_arrives_for_the_old_one() {
    let mut port_allocator = port_allocator(100..=100);
    port_allocator
        .assign(&key("cart"), &[wanted("http", 80)], at(0))
        .unwrap();
    let changed = port_allocator.assign(&key("cart"), &[wanted("http", 81)], at(1));
    assert!(changed.is_err());
    port_allocator.release(&key("cart"), at(2));
    let returned = port_allocator.assign(&key("cart"), &[wanted("http", 81)], at(3));
    assert!(returned.is_err());
}

#[test]
fn a_released_port_is_quarantined_before_another_service_gets_it() {
    let mut port_allocator = port_allocator(100..=100);
    port_allocator
        .assign(&key("cart"), &[wanted("", 80)], at(0))
        .unwrap();
    port_allocator.release(&key("cart"), at(10));
    assert_eq!(port_allocator.owner_of(100), None);

    let early = port_allocator.assign(&key("till"), &[wanted("", 80)], at(309));
    let exhausted = PortsExhausted {
        missing: 1,
        requeue_at: Some(at(310)),
    };
    assert_eq!(early, Err(exhausted));
    let late = port_allocator.assign(&key("till"), &[wanted("", 80)], at(310));
    assert_eq!(late, Ok(vec![listen("", 80, 100)]));
    assert_eq!(port_allocator.owner_of(100), Some(&key("till")));
}

#[test]
fn a_service_that_comes_back_gets_its_old_port_at_once() {
    let mut port_allocator = port_allocator(100..=199);
    let before = port_allocator
        .assign(&key("cart"), &[wanted("", 80)], at(0))
        .unwrap();
    port_allocator.release(&key("cart"), at(10));
    let after = port_allocator
        .assign(&key("cart"), &[wanted("", 80)], at(11))
        .unwrap();
    assert_eq!(before, after);
}

#[test]
fn too_few_free_ports_leave_the_allocator_unchanged() {
    let mut port_allocator = port_allocator(100..=101);
    port_allocator
        .assign(&key("cart"), &[wanted("a", 1)], at(0))
        .unwrap();
    port_allocator
        .assign(&key("till"), &[wanted("a", 1)], at(0))
        .unwrap();
    let before = port_allocator.clone();
    let more = [wanted("b", 2), wanted("c", 3)];
    let refused = port_allocator
        .assign(&key("cart"), &more, at(1))
        .unwrap_err();
    assert_eq!((refused.missing, refused.requeue_at), (2, None));
    assert_eq!(port_allocator, before);
}

/// One Service whose 100 ports get new numbers every second would have all 20,000 in quarantine after 200 s.
#[test]
fn a_namespace_that_takes_new_ports_every_second_leaves_half_to_the_others() {
    let mut port_allocator =
        PortAllocator::new(DEFAULT_RANGE, DEFAULT_QUARANTINE).shared_by_namespaces();
    let web = ServiceKey::new("hostile", "web");
    let mut refused = None;
    for second in 0..120u16 {
        let ports: Vec<WantedPort> = (0..100).map(|n| wanted("", 1 + 100 * second + n)).collect();
        let given = port_allocator.assign(&web, &ports, at(second.into()));
        refused = refused.or(given.err().map(|_| second));
        let seen: Vec<ListenPort> = (0..50)
            .map(|n| second * 50 + n)
            .map(|n| listen("", n, 10_000 + n))
            .collect();
        port_allocator.remember(&ServiceKey::new("hostile", "other"), &seen);
    }
    assert!(refused.is_some());
    let held = port_allocator.owners.len() + port_allocator.quarantined.len();
    assert_eq!(held, 10_000, "what a status says counts too");
    for n in 0..50 {
        let ports = [wanted("http", 80), wanted("grpc", 9090)];
        let given = port_allocator.assign(&key(&format!("s{n}")), &ports, at(250));
        assert_eq!(given.map(|g| g.len()), Ok(2));
    }
    // Its quarantine ends, and with it the bound.
    let given = port_allocator.assign(&web, &[wanted("", 80)], at(700));
    assert_eq!(given.map(|g| g.len()), Ok(1));
}

#[test]
fn a_namespace_keeps_the_ports_that_it_has_beyond_its_share() {
    let mut port_allocator = port_allocator(100..=109);
    let ports: Vec<WantedPort> = (0..8).map(|n| wanted("", 80 + n)).collect();
    let before = port_allocator.assign(&key("cart"), &ports, at(0)).unwrap();
    port_allocator = port_allocator.shared_by_namespaces();
    let after = port_allocator.assign(&key("cart"), &ports, at(1));
    assert_eq!(after, Ok(before));
    let more = port_allocator.assign(&key("till"), &[wanted("", 80)], at(1));
    assert_eq!(more.map_err(|error| error.missing), Err(1));
    let other = ServiceKey::new("other", "web");
    let given = port_allocator.assign(&other, &[wanted("", 80)], at(1));
    assert_eq!(
        given.map(|g| g.len()),
        Ok(1),
        "one of the two that are left"
    );
}

#[test]
fn an_empty_range_gives_nothing() {
    #[allow(clippy::reversed_empty_ranges)]
    let mut port_allocator = port_allocator(2..=1);
    assert!(
        port_allocator
            .assign(&key("cart"), &[wanted("", 80)], at(0))
            .is_err()
    );
    assert_eq!(port_allocator.assign(&key("cart"), &[], at(0)), Ok(vec![]));
}

#[test]
fn the_last_port_of_all_can_be_given() {
    let mut port_allocator = port_allocator(u16::MAX..=u16::MAX);
    let given = port_allocator.assign(&key("cart"), &[wanted("", 80)], at(0));
    assert_eq!(given, Ok(vec![listen("", 80, u16::MAX)]));
}

#[test]
fn what_a_status_records_is_kept_and_given_again() {
    let mut port_allocator = port_allocator(100..=199);
    let ports = [listen("grpc", 9090, 142), listen("http", 80, 117)];
    assert_eq!(port_allocator.remember(&key("cart"), &ports), vec![]);
    assert_eq!(port_allocator.remember(&key("cart"), &ports), vec![]);
    let both = [wanted("http", 80), wanted("grpc", 9090)];
    assert_eq!(
        port_allocator.assign(&key("cart"), &both, at(0)),
        Ok(ports.to_vec())
    );
}

#[test]
fn what_a_status_records_is_refused_where_it_cannot_be_true() {
    let mut port_allocator = port_allocator(100..=199);
    assert_eq!(
        port_allocator.remember(&key("cart"), &[listen("", 80, 117)]),
        vec![]
    );
    let table = [
        ("till", listen("", 80, 117), "another has it"),
        ("till", listen("", 80, 99), "outside the range"),
        ("till", listen("", 80, 200), "outside the range"),
        ("cart", listen("", 80, 118), "the pair has another"),
        ("cart", listen("", 81, 117), "used for another pair"),
    ];
    for (service, port, why) in table {
        let refused = port_allocator.remember(&key(service), std::slice::from_ref(&port));
        assert_eq!(refused, vec![port], "{why}");
    }
    port_allocator.release(&key("cart"), at(0));
    let quarantined = [listen("", 80, 117)];
    assert_eq!(
        port_allocator.remember(&key("till"), &quarantined),
        quarantined.to_vec()
    );
    assert_eq!(port_allocator.remember(&key("cart"), &quarantined), vec![]);
}

#[derive(Clone, Debug)]
enum Change {
    Assign(u8, BTreeSet<u16>),
    Release(u8),
    Remember(u8, u16, u16),
    Wait(i64),
}

fn change() -> impl Strategy<Value = Change> {
    let service = 0u8..5;
    prop_oneof![
        4 => (service.clone(), prop::collection::btree_set(80u16..84, 0..4))
            .prop_map(|(s, p)| Change::Assign(s, p)),
        2 => service.clone().prop_map(Change::Release),
        1 => (service, 80u16..84, 98u16..114).prop_map(|(s, p, l)| Change::Remember(s, p, l)),
        1 => (1i64..400).prop_map(Change::Wait),
    ]
}

fn want(ports: &BTreeSet<u16>) -> Vec<WantedPort> {
    ports.iter().map(|p| wanted(&format!("p{p}"), *p)).collect()
}

/// Which service had each port last, and until when it is quarantined: tracked apart from the allocator, to check it.
type History = BTreeMap<u16, (ServiceKey, Option<Timestamp>)>;

fn follow(port_allocator: &PortAllocator, history: &mut History, now: Timestamp) {
    for listen_port in 90u16..=120 {
        let owner = port_allocator.owner_of(listen_port);
        match (owner, history.get(&listen_port).cloned()) {
            (Some(owner), before) => {
                if let Some((last, until)) = before
                    && last != *owner
                {
                    let until = until.expect("a port changed hands without a release");
                    assert!(until <= now, "{listen_port} changed hands before {until}");
                }
                history.insert(listen_port, (owner.clone(), None));
            }
            (None, Some((last, None))) => {
                let until = now + QUARANTINE;
                history.insert(listen_port, (last, Some(until)));
            }
            (None, _) => {}
        }
    }
}

proptest! {
    #[test]
    fn no_port_has_two_owners_and_none_is_reused_before_its_quarantine_ends(
        changes in prop::collection::vec(change(), 1..60),
    ) {
        let mut port_allocator = port_allocator(100..=111);
        let mut history = History::new();
        let mut second = 0;
        for change in changes {
            let now = at(second);
            match change {
                Change::Assign(s, ports) => {
                    let before = port_allocator.clone();
                    match port_allocator.assign(&key(&format!("s{s}")), &want(&ports), now) {
                        Ok(given) => prop_assert_eq!(given.len(), ports.len()),
                        Err(_) => prop_assert_eq!(&port_allocator, &before),
                    }
                }
                Change::Release(s) => port_allocator.release(&key(&format!("s{s}")), now),
                Change::Remember(s, port, listen_port) => {
                    let port = listen(&format!("p{port}"), port, listen_port);
                    port_allocator.remember(&key(&format!("s{s}")), &[port]);
                }
                Change::Wait(seconds) => second += seconds,
            }
            let mut seen = BTreeSet::new();
            for (owner, ports) in &port_allocator.given {
                for port in ports {
                    prop_assert!(seen.insert(port.listen_port));
                    prop_assert!((100..=111).contains(&port.listen_port));
                    prop_assert_eq!(port_allocator.owner_of(port.listen_port), Some(owner));
                    prop_assert!(!port_allocator.quarantined.contains_key(&port.listen_port));
                }
            }
            prop_assert_eq!(seen.len(), port_allocator.owners.len());
            follow(&port_allocator, &mut history, now);
        }
    }

    #[test]
    fn a_services_ports_stay_whatever_the_others_do(
        before in prop::collection::vec(change(), 0..20),
        after in prop::collection::vec(change(), 0..40),
    ) {
        let mut port_allocator = port_allocator(100..=120);
        let mut second = 0;
        let mine = key("mine");
        let ports = [wanted("http", 80), wanted("grpc", 81)];
        let mut run = |port_allocator: &mut PortAllocator, changes: Vec<Change>| {
            for change in changes {
                let now = at(second);
                match change {
                    Change::Assign(s, ports) => {
                        let _ = port_allocator.assign(&key(&format!("s{s}")), &want(&ports), now);
                    }
                    Change::Release(s) => port_allocator.release(&key(&format!("s{s}")), now),
                    Change::Remember(s, port, listen_port) => {
                        let port = listen(&format!("p{port}"), port, listen_port);
                        port_allocator.remember(&key(&format!("s{s}")), &[port]);
                    }
                    Change::Wait(seconds) => second += seconds,
                }
            }
            at(second)
        };
        let now = run(&mut port_allocator, before);
        let Ok(given) = port_allocator.assign(&mine, &ports, now) else { return Ok(()) };
        let now = run(&mut port_allocator, after);
        prop_assert_eq!(port_allocator.assign(&mine, &ports, now), Ok(given.clone()));

        // A restarted operator that reads the statuses in any order gives the same.
        let mut restarted = PortAllocator::new(100..=120, QUARANTINE);
        for (owner, ports) in port_allocator.given.iter().rev() {
            prop_assert_eq!(restarted.remember(owner, ports), vec![]);
        }
        prop_assert_eq!(restarted.assign(&mine, &ports, now), Ok(given));
    }
}

#[test]
fn without_shares_one_namespace_takes_every_listen_port() {
    for (shared, left) in [(false, 0), (true, 50)] {
        let mut port_allocator = port_allocator(100..=199);
        if shared {
            port_allocator = port_allocator.shared_by_namespaces();
        }
        let hostile = |n: u16| ServiceKey::new("hostile", format!("s{n}"));
        for n in 0..100 {
            let _ = port_allocator.assign(&hostile(n), &[wanted("", 80)], at(0));
        }
        let free = (100..=199).filter(|port| port_allocator.owner_of(*port).is_none());
        assert_eq!(free.count(), left);
        let neighbour = port_allocator.assign(&key("cart"), &[wanted("", 80)], at(1));
        assert_eq!(neighbour.is_ok(), shared);
    }
}
