//! S4 and S1: activity while going to sleep cancels it, puts the pods back at once, and restarts the cooldown.

use crate::scenarios::script::busy;
use crate::scenarios::world::quiet;
use elasti_api::Phase;

#[test]
fn a_burst_during_the_drain_cancels_it_and_the_service_sleeps_later() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:36")
        .request()
        .request()
        .until("08:40");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_stream_during_the_redirect_cancels_it_and_keeps_the_service_awake_until_it_ends() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Redirecting)
        .at("08:15:31")
        .request()
        .stream_ends_after(1200)
        .until("09:00");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn without_permission_to_mark_pods_it_hands_over_by_redirect_and_says_so() {
    let scenario = busy(|world| world.may_mark = false)
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}
