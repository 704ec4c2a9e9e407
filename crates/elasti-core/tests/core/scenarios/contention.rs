//! Shows "never fight": whoever else moves the target across zero is named in Contended, and traffic follows what is there.
//! It never shows two writers that take turns without a pause.

use crate::scenarios::script::{busy_day, sleeping_day};

#[test]
fn a_person_scales_to_zero_and_up_again() {
    let day = sleeping_day(|_| {})
        .at("08:05")
        .scaled_by("kubectl", 2)
        .at("08:10")
        .scaled_by("kubectl", 0)
        .at("08:12")
        .scaled_by("kubectl", 1)
        .until("08:30");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_busy_service_that_a_person_scales_to_zero_wakes_again_because_its_trigger_is_active() {
    let mut day = busy_day(|_| {});
    day.may_lose = true;
    let day = day.at("08:05").scaled_by("kubectl", 0).until("08:06");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn someone_who_zeroes_right_after_a_wake_is_given_a_pause() {
    let day = sleeping_day(|_| {})
        .at("08:05")
        .request()
        .at("08:05:01")
        .scaled_by("argocd", 0)
        .until("08:06");
    insta::assert_snapshot!(day.tell());
}
