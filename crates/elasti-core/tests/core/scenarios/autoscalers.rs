//! Shows S14 and the contract with KEDA and HPA: held before the drain, pinned at zero, given back as it was; awake at the HPA's minimum.
//! It never shows KEDA paused by us while replicas are asked for at rest.

use crate::scenarios::script::{busy_day, sleeping_day, with_autoscaler};
use crate::scenarios::world::{keda, quiet};
use elasti_api::AutoscalerType;
use elasti_core::observed::Autoscaler;

#[test]
fn keda_is_held_before_the_drain_pinned_at_zero_and_released_after_the_wake() {
    let day = busy_day(|world| with_autoscaler(world, AutoscalerType::Keda, keda(None, None)))
        .trigger_reads(quiet())
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_pause_that_the_user_set_before_comes_back_after_the_wake() {
    let users = keda(Some("true"), Some("1"));
    let day = busy_day(|world| with_autoscaler(world, AutoscalerType::Keda, users))
        .trigger_reads(quiet())
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_drain_that_is_cancelled_gives_keda_back() {
    let day = busy_day(|world| with_autoscaler(world, AutoscalerType::Keda, keda(None, None)))
        .trigger_reads(quiet())
        .at("08:15:34")
        .request()
        .until("08:16");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn a_wake_asks_for_the_minimum_of_the_hpa() {
    let hpa = Autoscaler::Hpa { min_replicas: 3 };
    let day = sleeping_day(|world| with_autoscaler(world, AutoscalerType::Hpa, hpa))
        .at("08:20")
        .request()
        .until("08:21");
    insta::assert_snapshot!(day.tell());
}

#[test]
fn an_autoscaler_that_does_not_exist_keeps_the_service_awake_and_is_said() {
    let missing = Autoscaler::Missing;
    let day = busy_day(|world| with_autoscaler(world, AutoscalerType::Keda, missing))
        .trigger_reads(quiet())
        .until("08:20");
    insta::assert_snapshot!(day.tell());
}
