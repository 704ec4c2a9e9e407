//! The active window: outside it the target is awake, on time and by itself; inside it sleep is allowed again.

use crate::scenarios::script::{busy, scenario_with};
use crate::scenarios::world::quiet;
use elasti_api::EnabledPeriod;

fn window(schedule: &str, duration: &str) -> Option<EnabledPeriod> {
    Some(EnabledPeriod {
        schedule: schedule.into(),
        duration: duration.into(),
        time_zone: None,
    })
}

#[test]
fn the_window_ends_while_asleep_and_opens_again() {
    let scenario = scenario_with(|world| {
        world.trigger = quiet();
        world.spec.enabled_period = window("0 8,10 * * *", "1h10m5s");
    })
    .until("10:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_invalid_window_never_sleeps_and_says_what_to_write() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .at("08:05")
        .edits("the window is set to \"8 hours\"", |spec| {
            spec.enabled_period = window("0 8 * * *", "8 hours");
        })
        .until("08:30");
    insta::assert_snapshot!(scenario.transcript());
}
