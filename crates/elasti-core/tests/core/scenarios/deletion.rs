//! S13 and L6: a deletion wakes first, waits for a pod, cleans up and ends, even if no pod ever starts.

use crate::scenarios::script::{busy, sleeping};
use crate::scenarios::world::quiet;
use elasti_api::Phase;
use jiff::SignedDuration;

#[test]
fn a_deletion_at_zero_wakes_waits_for_a_pod_and_leaves_nothing_behind() {
    let scenario = sleeping(|_| {}).at("08:20").deleted().until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_deletion_times_out_when_pods_never_start() {
    let scenario = sleeping(|_| {})
        .happens("pods will never start", |world| {
            world.start_takes = SignedDuration::from_hours(9);
        })
        .at("08:20")
        .deleted()
        .until("08:26");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_deletion_during_the_drain_puts_the_pods_back_first() {
    let scenario = busy(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:34")
        .deleted()
        .until("08:16");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_deletion_while_serving_takes_a_moment() {
    let scenario = busy(|_| {}).at("08:20").deleted().until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}
