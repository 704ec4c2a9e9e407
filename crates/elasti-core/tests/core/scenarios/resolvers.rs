//! R14 and S1: a lost resolver leaves the slice at once; with none left for the grace time the service wakes and serves by itself.

use crate::scenarios::script::{busy, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Phase;

#[test]
fn one_of_two_resolvers_is_lost_and_comes_back_while_the_service_sleeps() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .resolver(1, false)
        .at("08:06")
        .request()
        .at("08:06:01")
        .resolver(1, true)
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn with_no_resolver_for_longer_than_the_grace_the_service_wakes_and_its_slice_goes() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .resolver(1, false)
        .resolver(2, false)
        .at("08:05:35")
        .resolver(1, true)
        .until("08:25");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn resolvers_that_return_within_the_grace_wake_nothing() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .resolver(1, false)
        .resolver(2, false)
        .at("08:05:20")
        .resolver(2, true)
        .until("08:10");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_resolver_that_does_not_answer_blocks_sleep() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:10")
        .resolver_answers(2, false)
        .at("08:18")
        .resolver_answers(2, true)
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_resolver_that_starts_during_the_drain_joins_before_it_goes_on() {
    let scenario = busy(|world| world.resolvers[1].ready = false)
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:34")
        .resolver(2, true)
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}
