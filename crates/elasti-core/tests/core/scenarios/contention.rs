//! Never fight: another writer of replicas is named in Contended, and traffic follows what exists.

use elasti_api::EnabledPeriod;
use elasti_core::observed::Author;

use crate::scenarios::script::{Scenario, busy, sleeping};
use crate::scenarios::world::quiet;

#[test]
fn a_user_scales_to_zero_and_up_again() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .scaled_by("kubectl", 2)
        .at("08:10")
        .scaled_by("kubectl", 0)
        .at("08:12")
        .scaled_by("kubectl", 1)
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_busy_service_that_a_user_scales_to_zero_wakes_again_because_its_trigger_is_active() {
    let mut scenario = busy(|_| {});
    scenario.may_lose = true;
    let scenario = scenario.at("08:05").scaled_by("kubectl", 0).until("08:06");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn after_a_scale_to_zero_right_after_a_wake_the_next_wake_waits() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .request()
        .at("08:05:01")
        .scaled_by("argocd", 0)
        .until("08:06");
    insta::assert_snapshot!(scenario.transcript());
}

/// `kubectl scale`: the API server's record does not say who wrote the zero.
fn scaled_to_zero_by_hand(scenario: Scenario) -> Scenario {
    scenario.happens("a user scales to 0", |world| {
        world.scale(0, Author::Unknown)
    })
}

#[test]
fn a_zero_by_hand_within_the_cooldown_stands_until_the_next_request() {
    let woken = sleeping(|_| {}).at("08:05").request().at("08:06");
    let scenario = scaled_to_zero_by_hand(woken)
        .at("08:10")
        .request()
        .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_request_that_is_still_held_at_a_zero_by_hand_wakes_it_again() {
    let starting = sleeping(|world| world.start_takes = jiff::SignedDuration::from_secs(30))
        .at("08:05")
        .request()
        .at("08:05:12");
    insta::assert_snapshot!(scaled_to_zero_by_hand(starting).until("08:06").transcript());
}

#[test]
fn a_user_request_after_a_zero_by_hand_wakes_and_the_one_before_does_not() {
    let woken = sleeping(|_| {}).at("08:05").wake_requested().at("08:06");
    let scenario = scaled_to_zero_by_hand(woken).until("08:09");
    assert_eq!(scenario.world.replicas(), Some(0));
    let scenario = scenario.wake_requested().until("08:10");
    assert_eq!(scenario.world.replicas(), Some(1));
}

#[test]
fn outside_the_window_the_spec_wins_over_a_zero_by_hand() {
    let outside = busy(|world| {
        world.trigger = quiet();
        world.spec.enabled_period = Some(EnabledPeriod {
            schedule: "0 22 * * *".into(),
            duration: "1h".into(),
            time_zone: None,
        });
    });
    let mut scenario = scaled_to_zero_by_hand(outside.at("08:05"));
    scenario.may_lose = true;
    assert_eq!(scenario.until("08:06").world.replicas(), Some(1));
}

#[test]
fn while_something_scales_to_zero_again_and_again_the_pauses_grow_and_contended_lasts() {
    let mut scenario = sleeping(|_| {}).at("08:05").request();
    for zero in ["08:05:01", "08:05:11", "08:05:21", "08:05:41", "08:06:22"] {
        scenario = scenario.at(zero).scaled_by("argocd", 0);
    }
    insta::assert_snapshot!(scenario.until("08:10").transcript());
}
