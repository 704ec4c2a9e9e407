//! Shows L6 and R20: a target that is missing is said so and never made up; one already at zero is taken as it is found.
//! It never shows an object of ours that outlives the ElastiService.

use crate::scenarios::script::{day_with, sleeping_day};
use crate::scenarios::world::quiet;
use elasti_core::observed::Author;

#[test]
fn the_target_is_deleted_while_asleep_and_the_elasti_service_after_it() {
    let day = sleeping_day(|_| {})
        .at("08:05")
        .target_deleted()
        .at("08:10")
        .deleted()
        .until("08:11");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn the_target_is_deleted_while_serving_and_comes_back() {
    let day = day_with(|_| {})
        .at("08:05")
        .target_deleted()
        .at("08:10")
        .scaled_by("kubectl", 1)
        .until("08:11");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_target_already_at_zero_gets_its_redirect_at_once_and_wakes_with_a_request() {
    let day = day_with(|world| {
        world.trigger = quiet();
        world.scale(0, Author::Other("kubectl".into()));
    })
    .at("08:00:05")
    .request()
    .until("08:01");
    insta::assert_snapshot!(day.tell());
}
