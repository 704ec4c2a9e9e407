//! S12 and S6: of two ElastiServices for one Service only the older has effects; the younger reports Conflict and takes over later.

use crate::scenarios::script::{older, scenario_with};
use crate::scenarios::world::quiet;
use elasti_core::observed::{Author, Owned};

#[test]
fn the_younger_reports_conflict_does_nothing_and_takes_over_when_the_older_is_deleted() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.scale(0, Author::Elasti);
        world.rival = older("web-first");
        (world.slice, world.private_service) = (Owned::Foreign, Owned::Foreign);
    })
    .at("08:30")
    .happens("the older one is deleted: it wakes the target", |world| {
        world.scale(1, Author::Elasti);
    })
    .at("08:30:06")
    .happens("the older one removes its objects and is gone", |world| {
        (world.slice, world.private_service) = (Owned::Missing, Owned::Missing);
        world.rival = None;
    })
    .until("08:50");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn the_younger_is_deleted_without_touching_what_the_older_manages() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.scale(0, Author::Elasti);
        world.rival = older("web-first");
        (world.slice, world.private_service) = (Owned::Foreign, Owned::Foreign);
        world.finalizer = true;
    })
    .at("08:30")
    .deleted()
    .until("08:31");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_foreign_object_with_our_name_is_not_touched() {
    let scenario = scenario_with(|world| world.private_service = Owned::Foreign)
        .at("08:30")
        .happens("the foreign Service is renamed", |world| {
            world.private_service = Owned::Missing;
        })
        .until("08:31");
    insta::assert_snapshot!(scenario.transcript());
}
