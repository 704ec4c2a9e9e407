//! Never fight: another writer of replicas is named in Contended, and traffic follows what exists.

use crate::scenarios::script::{busy, sleeping};

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
