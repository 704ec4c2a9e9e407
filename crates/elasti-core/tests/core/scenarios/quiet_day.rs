//! Shows L4 and S2: a service that goes quiet is redirected, drained and only then put to sleep; an active trigger wakes it.
//! It never shows a sleep before the whole cooldown has passed.

use crate::scenarios::script::day;
use crate::scenarios::world::{active, quiet};

#[test]
fn a_quiet_service_sleeps_after_its_cooldown_and_an_active_trigger_wakes_it() {
    let day = day()
        .at("08:10")
        .trigger_reads(quiet())
        .at("09:00")
        .trigger_reads(active())
        .at("09:10")
        .trigger_reads(quiet())
        .until("10:00");
    insta::assert_snapshot!(day.tell());
}
