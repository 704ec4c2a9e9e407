//! S2 and kubelet ticks: pods are drained in groups whose nodes' ticks leave a gap; where the last ones must go together and
//! there is none, the service stays awake and says why.

use crate::scenarios::script::{busy, with_autoscaler};
use crate::scenarios::world::{World, quiet};
use elasti_api::AutoscalerType;
use elasti_core::observed::{Author, Autoscaler, StopOrder};
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
fn pods_on_two_nodes_go_one_after_the_other_each_in_its_own_gap() {
    let scenario = busy(|world| nodes(world, &[1, 4]))
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

fn ordered_stateful_set(world: &mut World) {
    world.stops = StopOrder::HighestAlone;
    world.spec.scale_target_ref.kind = "StatefulSet".into();
}

/// Eight pods, two on each of four nodes whose ticks leave no gap for all.
fn eight_pods(world: &mut World) {
    nodes(world, &[0, 3, 5, 8]);
    world.scale(8, Author::Other("kubectl".into()));
}

#[test]
fn eight_pods_on_four_nodes_whose_ticks_leave_no_gap_sleep_group_by_group() {
    let scenario = busy(eight_pods).trigger_reads(quiet()).until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

/// Their endpoints go one group after the other, while the pod of the next wake becomes ready.
#[test]
fn pods_that_take_long_to_stop_keep_the_resolvers_in_the_path_for_the_settle_time_only() {
    let scenario = busy(|world| {
        eight_pods(world);
        world.stop_takes = SignedDuration::from_secs(20);
        world.spec.min_target_replicas = 3;
    })
    .trigger_reads(quiet())
    .at("08:15:58")
    .request()
    .until("08:17");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_request_after_the_first_group_brings_all_replicas_back() {
    let scenario = busy(eight_pods)
        .trigger_reads(quiet())
        .at("08:15:43")
        .request()
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_operator_that_starts_after_the_first_group_continues_from_the_recorded_replicas() {
    let scenario = busy(eight_pods)
        .trigger_reads(quiet())
        .at("08:15:43")
        .operator_restarts(3)
        .at("08:15:52")
        .request()
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn something_that_scales_up_during_the_drain_is_named_and_given_way_to() {
    let scenario = busy(eight_pods)
        .trigger_reads(quiet())
        .at("08:15:43")
        .scaled_by("kube-controller-manager", 8)
        .at("08:30:57")
        .scaled_by("kube-controller-manager", 8)
        .until("08:48");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_ordered_stateful_set_goes_one_pod_after_the_other_from_the_top() {
    let scenario = busy(|world| {
        nodes(world, &[0, 3, 5]);
        ordered_stateful_set(world);
    })
    .trigger_reads(quiet())
    .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_hpa_that_keeps_several_pods_of_an_ordered_stateful_set_keeps_it_awake() {
    let scenario = busy(|world| {
        nodes(world, &[1, 4]);
        ordered_stateful_set(world);
        with_autoscaler(
            world,
            AutoscalerType::Hpa,
            Autoscaler::Hpa { min_replicas: 2 },
        );
    })
    .trigger_reads(quiet())
    .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_hpas_minimum_of_pods_whose_ticks_leave_no_gap_keeps_the_service_awake_and_says_what_to_set() {
    let scenario = busy(|world| {
        nodes(world, &[0, 3, 5, 8]);
        with_autoscaler(
            world,
            AutoscalerType::Hpa,
            Autoscaler::Hpa { min_replicas: 4 },
        );
    })
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
