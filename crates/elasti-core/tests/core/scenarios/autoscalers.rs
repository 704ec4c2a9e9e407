//! S14 with KEDA and HPA: paused before the drain, pinned at zero, restored after the wake; awake at the HPA's minimum.

use crate::scenarios::script::{busy, sleeping, with_autoscaler};
use crate::scenarios::world::{keda, quiet};
use elasti_api::AutoscalerType;
use elasti_core::observed::Autoscaler;

#[test]
fn keda_is_held_before_the_drain_pinned_at_zero_and_released_after_the_wake() {
    let scenario = busy(|world| with_autoscaler(world, AutoscalerType::Keda, keda(None, None)))
        .trigger_reads(quiet())
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_pause_that_the_user_set_before_is_restored_after_the_wake() {
    let users = keda(Some("true"), Some("1"));
    let scenario = busy(|world| with_autoscaler(world, AutoscalerType::Keda, users))
        .trigger_reads(quiet())
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_cancelled_drain_releases_keda() {
    let scenario = busy(|world| with_autoscaler(world, AutoscalerType::Keda, keda(None, None)))
        .trigger_reads(quiet())
        .at("08:15:34")
        .request()
        .until("08:16");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_wake_scales_to_the_minimum_of_the_hpa() {
    let hpa = Autoscaler::Hpa { min_replicas: 3 };
    let scenario = sleeping(|world| with_autoscaler(world, AutoscalerType::Hpa, hpa))
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn an_autoscaler_that_does_not_exist_keeps_the_service_awake_and_is_reported() {
    let missing = Autoscaler::Missing;
    let scenario = busy(|world| with_autoscaler(world, AutoscalerType::Keda, missing))
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(scenario.transcript());
}
