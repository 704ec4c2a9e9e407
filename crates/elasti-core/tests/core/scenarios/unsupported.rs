//! A Service that cannot be redirected, and a port range that is used up, are reported and keep the service awake.

use crate::scenarios::script::{scenario_with, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Handover;
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
    insta::assert_snapshot!(refused(|s| s.selector.clear()));
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
