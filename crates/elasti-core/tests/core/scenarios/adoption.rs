//! S12 and S1: a service that KubeElasti put to sleep is left to its operator while that lives, and adopted after it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use elasti_api::{ListenPort, Mode};
use elasti_core::observed::{Author, Family, Owned, PrivateServiceShape, SliceRole, SliceShape};

use crate::scenarios::script::scenario_with;
use crate::scenarios::world::{World, quiet};

/// As KubeElasti leaves a service: at zero, with a slice that leads to its own resolver.
fn left_asleep(world: &mut World) {
    world.trigger = quiet();
    world.scale(0, Author::Other("manager".into()));
    world.finalizer = true;
    world.status.mode = Some(Mode::Proxy);
    let port = ListenPort {
        name: String::new(),
        port: 0,
        listen_port: 8012,
    };
    let old_resolver = IpAddr::V4(Ipv4Addr::new(10, 244, 0, 10));
    world.slice = Owned::Ours(vec![SliceShape {
        family: Family::V4,
        role: SliceRole::Redirect,
        ports: vec![port],
        endpoints: BTreeMap::from([(old_resolver, String::new())]),
    }]);
    if let Some(service) = world.service.clone() {
        world.private_service = Owned::Ours(PrivateServiceShape {
            selector: service.selector,
            ports: service.ports,
            families: service.families,
        });
    }
}

#[test]
fn a_service_that_was_left_asleep_keeps_sleeping_and_wakes_with_the_first_request() {
    let scenario = scenario_with(left_asleep)
        .at("08:10")
        .request()
        .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn nothing_is_written_before_the_other_operator_has_ended() {
    let scenario = scenario_with(|world| {
        left_asleep(world);
        world.predecessor = Some("elasti/manager-0".into());
    })
    .at("08:10")
    .happens("KubeElasti's operator ends", |world| {
        world.predecessor = None;
    })
    .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}
