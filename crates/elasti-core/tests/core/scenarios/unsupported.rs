//! A Service that cannot be redirected, and a port range that is used up, are reported and keep the service awake.

use crate::scenarios::script::{scenario_with, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Handover;
use elasti_core::labels::Labels;
use elasti_core::observed::{Service, ServiceKind};
use elasti_core::ports::{DEFAULT_QUARANTINE, PortAllocator, ServiceKey, WantedPort};

fn refused(change: impl Fn(&mut Service)) -> String {
    scenario_with(|world| {
        world.trigger = quiet();
        world.service.iter_mut().for_each(change);
    })
    .until("08:20")
    .transcript()
}

#[test]
fn a_headless_service_is_refused() {
    insta::assert_snapshot!(refused(|s| s.kind = ServiceKind::Headless));
}

#[test]
fn an_external_name_is_refused() {
    insta::assert_snapshot!(refused(|s| s.kind = ServiceKind::ExternalName));
}

#[test]
fn a_service_without_a_selector_is_refused() {
    insta::assert_snapshot!(refused(|s| s.selector = Labels::default()));
}

#[test]
fn a_service_with_udp_only_is_refused() {
    insta::assert_snapshot!(refused(|s| s.ports.iter_mut().for_each(|p| p.tcp = false)));
}

#[test]
fn a_service_that_publishes_unready_pods_is_refused_where_they_should_drain() {
    insta::assert_snapshot!(refused(|s| s.publishes_unready = true));
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.spec.handover = Some(Handover::Redirect);
        world
            .service
            .iter_mut()
            .for_each(|s| s.publishes_unready = true);
    });
    let told = scenario.until("08:20").transcript();
    assert!(
        told.contains("Asleep       proxy  0"),
        "without a drain it sleeps: {told}"
    );
}

#[test]
fn a_service_that_becomes_headless_while_asleep_is_woken_and_restored() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .happens("the Service becomes headless", |world| {
            world
                .service
                .iter_mut()
                .for_each(|s| s.kind = ServiceKind::Headless);
        })
        .until("08:06");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_service_that_does_not_exist_is_reported() {
    let scenario = scenario_with(|world| world.service = None).until("08:01");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_used_up_port_range_keeps_the_service_awake_until_a_port_is_free() {
    let other = ServiceKey::new("shop", "other");
    let wanted = [WantedPort {
        name: "http".into(),
        port: 80,
    }];
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.ports = PortAllocator::new(20_000..=20_000, DEFAULT_QUARANTINE);
        world.ports.assign(&other, &wanted, world.now).unwrap();
    })
    .at("08:20")
    .happens("the other service lets its port go", |world| {
        world.ports.release(&other, world.now);
    })
    .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}

/// A Service that sends only to endpoints on the client's own node, in a cluster of these nodes.
fn within_nodes(world: &mut crate::scenarios::world::World, nodes: &[&str]) {
    world.trigger = quiet();
    world
        .service
        .iter_mut()
        .for_each(|s| s.internal_local = true);
    let nodes = nodes.iter().map(|name| (*name).to_owned());
    world.nodes = nodes
        .map(|name| (name, jiff::SignedDuration::from_secs(7)))
        .collect();
}

#[test]
fn an_internal_policy_of_local_sleeps_only_with_a_resolver_on_every_node() {
    let covered = scenario_with(|world| within_nodes(world, &["node-a", "node-b"]));
    let covered = covered.until("08:20");
    assert_eq!(covered.world.replicas(), Some(0));
    let open = scenario_with(|world| within_nodes(world, &["node-a", "node-b", "node-c"]));
    insta::assert_snapshot!(open.until("08:20").transcript());
}

#[test]
fn a_node_that_loses_its_resolver_for_longer_than_the_grace_wakes_a_local_service() {
    let scenario = sleeping(|world| within_nodes(world, &["node-a", "node-b"]))
        .at("08:05")
        .resolver(2, false)
        .until("08:05:25");
    assert_eq!(
        scenario.world.replicas(),
        Some(0),
        "it may just be replaced"
    );
    insta::assert_snapshot!(scenario.until("08:06").transcript());
}

#[test]
fn a_dual_stack_service_does_not_sleep_without_resolvers_of_both_families() {
    let dual = |s: &mut Service| {
        s.families.insert(elasti_core::observed::Family::V6);
    };
    insta::assert_snapshot!(refused(dual));
}

#[test]
fn a_udp_port_beside_tcp_is_reported_and_does_not_keep_it_awake() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        let ports = &mut world.service.as_mut().unwrap().ports;
        let mut dns = ports[0].clone();
        (dns.name, dns.port, dns.tcp) = ("dns".into(), 53, false);
        ports.push(dns);
    })
    .until("08:20");
    assert_eq!(scenario.world.replicas(), Some(0));
    let transcript = scenario.transcript();
    let sentence = "Port 53 of the Service is not TCP: while the target sleeps nothing answers there, and it is not woken.";
    assert!(transcript.contains(sentence), "{transcript}");
}

#[test]
fn a_service_of_more_than_a_hundred_ports_sleeps_and_keeps_them_all() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        let ports = &mut world.service.as_mut().unwrap().ports;
        let first = ports[0].clone();
        for n in 1..150_u16 {
            let mut port = first.clone();
            (port.name, port.port) = (format!("p{n}"), 1000 + n);
            ports.push(port);
        }
    })
    .until("08:20");
    assert_eq!(scenario.world.replicas(), Some(0));
    let slices = scenario.world.slice.ours().unwrap();
    assert_eq!(slices[0].ports.len(), 150);
}
