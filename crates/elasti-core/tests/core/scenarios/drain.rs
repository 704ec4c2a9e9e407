//! Shows S4 and S1: activity on the way down cancels the sleep, puts the pods back at once, and the cooldown starts anew.
//! It never shows a pod that is stopped while someone waits.

use crate::scenarios::script::busy_day;
use crate::scenarios::world::quiet;
use elasti_api::Phase;

#[test]
fn a_burst_during_the_drain_cancels_it_and_the_service_sleeps_later() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:36")
        .request()
        .request()
        .until("08:40");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_stream_during_the_redirect_cancels_it_and_keeps_the_service_awake_until_it_ends() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Redirecting)
        .at("08:15:31")
        .request()
        .stream_ends_after(1200)
        .until("09:00");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn without_the_right_to_mark_pods_it_hands_over_by_redirect_and_says_so() {
    let day = busy_day(|world| world.may_mark = false)
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(day.tell());
}
