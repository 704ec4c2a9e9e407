//! Shows S13 and L6: deleting wakes first, waits for a pod, cleans up, lets go; and it ends even if no pod ever starts.
//! It never shows a Service without an endpoint while there is a way to avoid it.

use crate::scenarios::script::{busy_day, sleeping_day};
use crate::scenarios::world::quiet;
use elasti_api::Phase;
use jiff::SignedDuration;

#[test]
fn a_deletion_at_zero_wakes_waits_for_a_pod_and_leaves_nothing_behind() {
    let day = sleeping_day(|_| {}).at("08:20").deleted().until("08:21");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_deletion_ends_by_patience_when_pods_never_start() {
    let day = sleeping_day(|_| {})
        .happens("pods will never start", |world| {
            world.start_takes = SignedDuration::from_hours(9);
        })
        .at("08:20")
        .deleted()
        .until("08:26");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_deletion_during_the_drain_puts_the_pods_back_first() {
    let day = busy_day(|_| {})
        .trigger_reads(quiet())
        .until_phase(Phase::Draining)
        .at("08:15:34")
        .deleted()
        .until("08:16");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_deletion_while_serving_is_over_in_a_moment() {
    let day = busy_day(|_| {}).at("08:20").deleted().until("08:21");
    insta::assert_snapshot!(day.tell());
}
