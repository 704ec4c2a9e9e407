//! Shows S10: doubt is not idle. Unknown readings and a paused spec neither sleep nor wake anything; a request still wakes.
//! It never shows a sleep or a wake that a missing answer caused.

use crate::scenarios::script::{busy_day, sleeping_day};
use crate::scenarios::world::{quiet, unknown};

#[test]
fn an_unknown_reading_never_sleeps() {
    let day = busy_day(|_| {})
        .trigger_reads(unknown())
        .at("09:00")
        .trigger_reads(quiet())
        .until("09:20");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn an_unknown_reading_never_wakes() {
    let day = sleeping_day(|_| {})
        .trigger_reads(unknown())
        .at("09:00")
        .request()
        .until("09:30");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_paused_service_does_not_sleep_and_a_sleeping_one_still_wakes_with_a_request() {
    let day = sleeping_day(|_| {})
        .at("08:05")
        .edits("spec.paused is set", |spec| spec.paused = Some(true))
        .at("08:10")
        .request()
        .at("08:40")
        .edits("spec.paused is taken back", |spec| spec.paused = None)
        .until("09:00");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_spec_without_triggers_never_sleeps_by_itself() {
    let day = busy_day(|_| {})
        .edits("the triggers are removed", |spec| spec.triggers.clear())
        .until("08:30");
    insta::assert_snapshot!(day.tell());
}
