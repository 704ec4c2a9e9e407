//! L6 and R20: a missing target is reported and never created; one already at zero is redirected as it is.

use crate::scenarios::script::{scenario_with, sleeping};
use crate::scenarios::world::quiet;
use elasti_core::observed::Author;

#[test]
fn the_target_is_deleted_while_asleep_and_the_elasti_service_after_it() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .target_deleted()
        .at("08:10")
        .deleted()
        .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn the_target_is_deleted_while_serving_and_comes_back() {
    let scenario = scenario_with(|_| {})
        .at("08:05")
        .target_deleted()
        .at("08:10")
        .scaled_by("kubectl", 1)
        .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_target_already_at_zero_gets_its_redirect_at_once_and_wakes_with_a_request() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.scale(0, Author::Other("kubectl".into()));
    })
    .at("08:00:05")
    .request()
    .until("08:01");
    insta::assert_snapshot!(scenario.transcript());
}
