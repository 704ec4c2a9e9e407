//! Known bugs of KubeElasti that the planner prevents, one test each.

use elasti_api::{ElastiServiceStatus, Mode};
use elasti_core::observed::{Leadership, Owned};
use elasti_core::status::status;
use elasti_core::{Observed, Step, WakeDecision, wake};

use crate::plan_tables::facts::{
    ago, asleep, drained, idle, now, observed, planned, redirecting, serving, spec, waking,
};

fn position(steps: &[Step], which: fn(&Step) -> bool) -> Option<usize> {
    steps.iter().position(which)
}

fn written(o: &Observed) -> ElastiServiceStatus {
    status(
        &spec(),
        &observed(o),
        &planned(o),
        &ElastiServiceStatus::default(),
    )
}

#[test]
fn r1_a_request_just_before_sleep_is_not_lost_because_the_redirect_comes_before_zero() {
    let plan = planned(&idle());
    assert!(position(&plan.steps, |s| matches!(s, Step::Redirect(_))).is_some());
    assert!(position(&plan.steps, |s| matches!(s, Step::ScaleToZero(_))).is_none());
    let plan = planned(&redirecting());
    assert!(
        plan.steps.is_empty(),
        "a redirect must settle first: {plan:?}"
    );
    assert!(plan.requeue_at.is_some());
}

#[test]
fn r2_a_wake_right_after_a_sleep_is_not_skipped_while_old_pods_still_run() {
    let mut o = asleep();
    o.pods = drained().pods;
    o.endpoints = drained().endpoints;
    assert_eq!(wake(&spec(), &o), WakeDecision::Scale(1));
}

#[test]
fn r3_the_status_says_serve_as_long_as_the_switch_has_not_happened() {
    let o = idle();
    assert!(!planned(&o).steps.is_empty(), "the switch is planned");
    assert_eq!(written(&o).mode, Some(Mode::Serve));
    assert_eq!(written(&redirecting()).mode, Some(Mode::Proxy));
    let mut failed = asleep();
    failed.slice = Owned::Missing;
    assert_eq!(written(&failed).mode, Some(Mode::Serve));
}

#[test]
fn r14_services_do_not_stay_dead_when_every_resolver_is_deleted() {
    let mut o = asleep();
    o.resolvers.clear();
    o.stable_since.no_resolver_since = Some(ago(29));
    let plan = planned(&o);
    assert!(plan.steps.is_empty(), "within the grace: {plan:?}");
    assert_eq!(
        plan.requeue_at,
        Some(now() + jiff::SignedDuration::from_secs(1))
    );
    o.stable_since.no_resolver_since = Some(ago(30));
    assert_eq!(planned(&o).steps, [Step::Wake(1)]);
}

#[test]
fn r17_a_second_operator_neither_scales_nor_writes_anything_but_wakes() {
    for mut o in [idle(), drained(), waking(), serving(), asleep()] {
        o.leadership = Leadership::Follower;
        o.me.finalizer = false;
        assert!(planned(&o).steps.is_empty());
    }
    let mut o = asleep();
    o.leadership = Leadership::Follower;
    assert_eq!(wake(&spec(), &o), WakeDecision::Scale(1));
}

#[test]
fn r19_deleting_the_elasti_service_at_zero_does_not_leave_a_dead_service() {
    let mut o = asleep();
    o.me.deleting_since = Some(ago(1));
    let plan = planned(&o);
    assert_eq!(plan.steps, [Step::Wake(1)]);
    assert!(
        plan.requeue_at.is_some(),
        "the deletion times out some time"
    );
}

#[test]
fn r20_a_target_already_at_zero_when_the_operator_starts_is_redirected_at_once() {
    let mut o = asleep();
    o.slice = Owned::Missing;
    o.stable_since.slice = None;
    o.me.remembered.last_sleep = None;
    let plan = planned(&o);
    assert!(
        position(&plan.steps, |s| matches!(s, Step::Redirect(_))).is_some(),
        "{plan:?}"
    );
    o.resolvers
        .iter_mut()
        .for_each(|r| r.report = elasti_core::observed::Report::NotAsked);
    let plan = planned(&o);
    assert!(plan.ask_resolvers && plan.requeue_at.is_some(), "{plan:?}");
}
