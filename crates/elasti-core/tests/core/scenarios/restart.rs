//! No timer is in memory only: after an operator dies in any phase, the next one reaches the same end.

use crate::scenarios::script::{Scenario, busy, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Phase;

/// The way down, with an operator that dies in `phase`.
fn on_the_way_down(phase: Phase) -> String {
    let way = |restart: bool| {
        let scenario = busy(|_| {}).trigger_reads(quiet()).until_phase(phase);
        let scenario = if restart {
            scenario.operator_restarts(5)
        } else {
            scenario
        };
        scenario.until("08:40")
    };
    same_end(way(true), &way(false))
}

/// The way up after a first request, with an operator that dies in `phase`.
fn on_the_way_up(phase: Phase) -> String {
    let way = |restart: bool| {
        let scenario = sleeping(|_| {}).at("08:20:05").request();
        let scenario = scenario.until_phase(phase);
        let scenario = if restart {
            scenario.operator_restarts(5)
        } else {
            scenario
        };
        scenario.until("08:30")
    };
    same_end(way(true), &way(false))
}

fn same_end(with: Scenario, without: &Scenario) -> String {
    assert_eq!(with.end(), without.end(), "the restart changed the end");
    with.transcript()
}

#[test]
fn a_restart_while_serving_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_down(Phase::Serving));
}

#[test]
fn a_restart_while_redirecting_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_down(Phase::Redirecting));
}

#[test]
fn a_restart_while_draining_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_down(Phase::Draining));
}

#[test]
fn a_restart_while_asleep_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_down(Phase::Asleep));
}

#[test]
fn a_restart_while_waking_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_up(Phase::Waking));
}

#[test]
fn a_restart_while_restoring_ends_as_without_it() {
    insta::assert_snapshot!(on_the_way_up(Phase::Restoring));
}

#[test]
fn quiet_time_survives_a_short_gap_without_an_operator() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:10")
        .operator_restarts(90)
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn quiet_time_restarts_after_a_long_gap_without_an_operator() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:10")
        .operator_restarts(180)
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_request_that_comes_while_no_operator_runs_is_held_until_one_does() {
    let scenario = sleeping(|_| {})
        .at("08:20")
        .operator_restarts(30)
        .at("08:20:05")
        .request()
        .until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}
