//! S4 and user requests: sleep without the cooldown on request, but never under load or in doubt.

use crate::scenarios::script::{busy, sleeping};
use crate::scenarios::world::{quiet, unknown};
use elasti_api::Phase;
use elasti_core::observed::{Reading, UserRequest};

#[test]
fn a_user_puts_it_to_sleep_before_the_cooldown_ends_and_wakes_it_again() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .sleep_requested()
        .until_phase(Phase::Asleep)
        .until("08:05")
        .wake_requested()
        .until("08:06");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_request_after_the_request_for_sleep_takes_precedence() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .sleep_requested()
        .until_phase(Phase::Asleep)
        .at("08:03")
        .request()
        .until("08:17");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
    let scenario = scenario.until("08:19");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_for_sleep_waits_for_a_trigger_in_doubt_and_then_comes_too_late() {
    let scenario = busy(|_| {})
        .trigger_reads(unknown())
        .at("08:01")
        .sleep_requested()
        .at("08:05")
        .trigger_reads(quiet())
        .until("08:10");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
}

/// An uptime shorter than the cooldown is a waiting time, which a user need not wait for.
#[test]
fn a_request_for_sleep_does_not_wait_until_the_source_was_up_for_the_whole_cooldown() {
    let restarted = |quiet_now| Reading::Unknown {
        why: "the server was not up for the whole cooldown".into(),
        quiet_now,
    };
    let scenario = busy(|_| {}).trigger_reads(restarted(true)).until("08:30");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
    let scenario = scenario.sleep_requested().until_phase(Phase::Asleep);
    let scenario = scenario.trigger_reads(restarted(false)).until("09:00");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
    let scenario = busy(|_| {}).trigger_reads(restarted(false)).at("08:01");
    let scenario = scenario.sleep_requested().until("08:05");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
}

#[test]
fn a_wake_by_a_user_lasts_for_a_cooldown() {
    let scenario = sleeping(|_| {}).at("08:10").wake_requested().until("08:24");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
    let scenario = scenario.until("08:26");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

/// A start that takes longer than the cooldown, and how long the service serves after it.
fn short_cooldown(world: &mut crate::scenarios::world::World) {
    world.spec.cooldown_period = 2;
    world.start_takes = jiff::SignedDuration::from_secs(4);
}

#[test]
fn a_cooldown_counts_from_the_ready_pod_however_long_it_took_to_start() {
    let scenario = sleeping(short_cooldown)
        .at("08:10")
        .wake_requested()
        .at("08:10:04")
        .until_phase(Phase::Serving)
        .until_phase(Phase::Asleep);
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_cooldown_counts_from_the_ready_pod_although_the_operator_died_before_it() {
    let scenario = sleeping(short_cooldown)
        .at("08:10")
        .wake_requested()
        .at("08:10:02")
        .operator_restarts(2)
        .until_phase(Phase::Serving)
        .until_phase(Phase::Asleep);
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn sleep_that_is_requested_before_the_woken_pod_is_ready_still_counts() {
    let scenario = sleeping(|world| world.start_takes = jiff::SignedDuration::from_secs(20))
        .at("08:10")
        .wake_requested()
        .at("08:10:10")
        .sleep_requested()
        .until("08:11");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn sleep_that_is_requested_after_a_wake_cancels_the_wake() {
    let scenario = sleeping(|_| {})
        .at("08:10")
        .wake_requested()
        .at("08:12")
        .sleep_requested()
        .until("08:13");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_that_is_no_time_or_is_far_ahead_is_ignored_and_reported() {
    let ready = |scenario: &crate::scenarios::script::Scenario| {
        let mut conditions = scenario.world.status.conditions.iter();
        conditions
            .find(|c| c.type_ == "Ready")
            .unwrap()
            .message
            .clone()
    };
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .happens("a user requests sleep in words", |world| {
            world.sleep_request = UserRequest::Unreadable;
        })
        .until("08:02");
    assert!(
        ready(&scenario).contains("sleep-requested is ignored: it is not a time"),
        "{}",
        ready(&scenario)
    );
    let scenario = scenario
        .happens("a user requests sleep next year", |world| {
            world.sleep_request = UserRequest::At("2027-01-01T00:00:00Z".parse().unwrap());
        })
        .until("08:03");
    assert!(
        ready(&scenario).contains("sleep-requested is ignored: its time is in the future"),
        "{}",
        ready(&scenario)
    );
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
}

#[test]
fn a_request_from_a_clock_that_is_a_little_ahead_counts_when_its_time_has_come() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:01")
        .happens("a user whose clock is ahead requests sleep", |world| {
            world.sleep_request = UserRequest::At("2026-03-02T08:01:40Z".parse().unwrap());
        })
        .until("08:01:39");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
    let scenario = scenario.until("08:02:10");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_request_from_a_clock_that_is_a_little_ahead_cancels_a_wake_when_its_time_has_come() {
    let scenario = sleeping(|_| {})
        .at("08:10")
        .wake_requested()
        .at("08:12")
        .happens("a user whose clock is ahead requests sleep", |world| {
            world.sleep_request = UserRequest::At("2026-03-02T08:12:10.500Z".parse().unwrap());
        })
        .until("08:12:10");
    assert_eq!(scenario.world.status.phase, Some(Phase::Serving));
    let scenario = scenario.until("08:12:28");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}

#[test]
fn a_restart_keeps_the_quiet_time_although_triggers_are_unread_for_a_moment() {
    let scenario = busy(|_| {}).trigger_reads(quiet()).at("08:10");
    let before = scenario.world.status.clone();
    let scenario = scenario.operator_restarts(5).until("08:10:04");
    let scenario = scenario.until("08:11");
    assert_eq!(scenario.world.status, before, "nothing is written");
    let scenario = scenario.until("08:17");
    assert_eq!(scenario.world.status.phase, Some(Phase::Asleep));
}
