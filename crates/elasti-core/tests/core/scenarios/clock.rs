//! The clock jumps: one that is set back neither blocks a restore for an hour nor shortens a drain.

use crate::scenarios::script::{busy, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Phase;

#[test]
fn a_clock_set_back_by_an_hour_while_serving_lets_it_sleep_a_cooldown_later() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:10")
        .clock_set_back(3600)
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_clock_set_back_by_an_hour_while_draining_does_not_trust_the_ticks_it_saw() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:37.500")
        .clock_set_back(3600)
        .until("08:40");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_clock_set_back_by_an_hour_while_restoring_restores_in_seconds() {
    let scenario = sleeping(|_| {})
        .at("08:20:05")
        .request()
        .until_phase(Phase::Restoring)
        .at("08:20:09")
        .clock_set_back(3600)
        .until("08:40");
    insta::assert_snapshot!(scenario.transcript());
}
