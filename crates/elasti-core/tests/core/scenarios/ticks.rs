//! S2 and kubelet ticks: the scale to zero waits for a gap without ticks; where there is none the service stays awake and says why.

use crate::scenarios::script::busy;
use crate::scenarios::world::{World, quiet};
use elasti_core::observed::Author;
use jiff::SignedDuration;

fn nodes(world: &mut World, ticks_at: &[i64]) {
    let names = ["node-a", "node-b", "node-c", "node-d"];
    world.nodes = names
        .iter()
        .zip(ticks_at)
        .map(|(name, at)| ((*name).into(), SignedDuration::from_secs(*at)))
        .collect();
    world.scale(
        u32::try_from(ticks_at.len()).unwrap(),
        Author::Other("kubectl".into()),
    );
}

#[test]
fn pods_on_two_nodes_sleep_in_the_widest_gap_between_ticks() {
    let scenario = busy(|world| nodes(world, &[1, 4]))
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn ticks_too_dense_for_a_drain_keep_the_service_awake_and_say_what_to_set() {
    let scenario = busy(|world| nodes(world, &[0, 3, 5, 8]))
        .trigger_reads(quiet())
        .at("08:30")
        .edits("handover is set to redirect", |spec| {
            spec.handover = Some(elasti_api::Handover::Redirect);
        })
        .until("09:00");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_tick_just_before_the_end_of_its_period_is_waited_for() {
    let scenario = busy(|world| nodes(world, &[2]))
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}
