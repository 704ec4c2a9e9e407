//! L4 and S2: a service that becomes quiet is redirected, drained and only then scaled to zero; an active trigger wakes it.

use crate::scenarios::script::scenario;
use crate::scenarios::world::{active, quiet};

#[test]
fn a_quiet_service_sleeps_after_its_cooldown_and_an_active_trigger_wakes_it() {
    let scenario = scenario()
        .at("08:10")
        .trigger_reads(quiet())
        .at("09:00")
        .trigger_reads(active())
        .at("09:10")
        .trigger_reads(quiet())
        .until("10:00");
    insta::assert_snapshot!(scenario.transcript());
}
