//! S10: doubt is not idle. Unknown readings and a paused spec neither sleep nor wake anything; a request still wakes.

use crate::scenarios::script::{busy, sleeping};
use crate::scenarios::world::{quiet, unknown};

#[test]
fn an_unknown_reading_never_sleeps() {
    let scenario = busy(|_| {})
        .trigger_reads(unknown())
        .at("09:00")
        .trigger_reads(quiet())
        .until("09:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_unknown_reading_never_wakes() {
    let scenario = sleeping(|_| {})
        .trigger_reads(unknown())
        .at("09:00")
        .request()
        .until("09:30");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_paused_service_does_not_sleep_and_a_sleeping_one_still_wakes_with_a_request() {
    let scenario = sleeping(|_| {})
        .at("08:05")
        .edits("spec.paused is set", |spec| spec.paused = Some(true))
        .at("08:10")
        .request()
        .at("08:40")
        .edits("spec.paused is taken back", |spec| spec.paused = None)
        .until("09:00");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_spec_without_triggers_never_sleeps_by_itself() {
    let scenario = busy(|_| {})
        .edits("the triggers are removed", |spec| spec.triggers.clear())
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}
