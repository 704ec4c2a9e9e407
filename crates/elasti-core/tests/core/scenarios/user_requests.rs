//! Shows S4 with a person's word: sleep without the cooldown if asked for, but never under load or in doubt.
//! It never shows a wish that outlives what came after it.

use crate::scenarios::script::{busy_day, sleeping_day};
use crate::scenarios::world::{quiet, unknown};
use elasti_api::Phase;
use elasti_core::observed::UserRequest;

#[test]
fn a_person_puts_it_to_sleep_before_the_cooldown_is_over_and_wakes_it_again() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .sleep_requested()
        .until_phase(Phase::Asleep)
        .until("08:05")
        .wake_requested()
        .until("08:06");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_request_after_the_request_for_sleep_counts_for_more() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .sleep_requested()
        .until_phase(Phase::Asleep)
        .at("08:03")
        .request()
        .until("08:17");
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
    let day = day.until("08:19");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_for_sleep_waits_for_a_trigger_in_doubt_and_then_comes_too_late() {
    let day = busy_day(|_| {})
        .trigger_reads(unknown())
        .at("08:01")
        .sleep_requested()
        .at("08:05")
        .trigger_reads(quiet())
        .until("08:10");
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
}

#[test]
fn a_wake_by_a_person_lasts_for_a_cooldown() {
    let day = sleeping_day(|_| {})
        .at("08:10")
        .wake_requested()
        .until("08:24");
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
    let day = day.until("08:26");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn sleep_that_is_asked_for_after_a_wake_calls_the_wake_off() {
    let day = sleeping_day(|_| {})
        .at("08:10")
        .wake_requested()
        .at("08:12")
        .sleep_requested()
        .until("08:13");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_that_is_no_time_or_lies_far_ahead_is_ignored_and_that_is_said() {
    let ready = |day: &crate::scenarios::script::Day| {
        let mut conditions = day.world.status.conditions.iter();
        conditions
            .find(|c| c.type_ == "Ready")
            .unwrap()
            .message
            .clone()
    };
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .happens("a person asks for sleep in words", |world| {
            world.sleep_request = UserRequest::Unreadable;
        })
        .until("08:02");
    assert!(
        ready(&day).contains("sleep-requested is ignored: it is not a time"),
        "{}",
        ready(&day)
    );
    let day = day
        .happens("a person asks for sleep next year", |world| {
            world.sleep_request = UserRequest::At("2027-01-01T00:00:00Z".parse().unwrap());
        })
        .until("08:03");
    assert!(
        ready(&day).contains("sleep-requested is ignored: its time has not come"),
        "{}",
        ready(&day)
    );
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
}

#[test]
fn a_request_from_a_clock_that_is_a_little_ahead_counts_when_its_time_has_come() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .happens("a person whose clock is ahead asks for sleep", |world| {
            world.sleep_request = UserRequest::At("2026-03-02T08:01:40Z".parse().unwrap());
        })
        .until("08:01:39");
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
    let day = day.until("08:02:10");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_from_a_clock_that_is_a_little_ahead_calls_a_wake_off_when_its_time_has_come() {
    let day = sleeping_day(|_| {})
        .at("08:10")
        .wake_requested()
        .at("08:12")
        .happens("a person whose clock is ahead asks for sleep", |world| {
            world.sleep_request = UserRequest::At("2026-03-02T08:12:10.500Z".parse().unwrap());
        })
        .until("08:12:10");
    assert_eq!(day.world.status.phase, Some(Phase::Serving));
    let day = day.until("08:12:28");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_restart_keeps_the_quiet_time_although_triggers_are_unread_for_a_moment() {
    let day = busy_day(|_| {}).trigger_reads(quiet()).at("08:10");
    let before = day.world.status.clone();
    let day = day.operator_restarts(5).until("08:10:04");
    let day = day.until("08:11");
    assert_eq!(day.world.status, before, "nothing is written");
    let day = day.until("08:17");
    assert_eq!(day.world.status.phase, Some(Phase::Asleep));
}
