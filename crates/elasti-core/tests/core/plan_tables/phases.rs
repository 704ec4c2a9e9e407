//! Every transition of the phase table is shown by two sets of facts, one after the other.

use elasti_api::Phase::{self, Asleep, Draining, Redirecting, Restoring, Serving, Waking};
use elasti_api::Reason;
use elasti_core::observed::{Autoscaler, KedaBefore, KedaPause, Obstacle, ObstacleKind, Owned};
use elasti_core::phase::{allowed, transitions};
use elasti_core::stable_since::ObservedZero;
use elasti_core::{Observed, Plan, Step};
use jiff::SignedDuration;

use crate::plan_tables::facts::{
    Change, LONG, active, ago, asleep, drained, draining, in_rotation, net, no_pods, now, planned,
    pod, quiet, redirect, redirected, redirecting, restoring, serving, waking,
};

const ALL: [Phase; 6] = [Serving, Redirecting, Draining, Asleep, Waking, Restoring];

fn facts_in(phase: Phase) -> Observed {
    match phase {
        Serving => serving(),
        Redirecting => redirecting(),
        Draining => draining(),
        Asleep => asleep(),
        Waking => waking(),
        Restoring => restoring(),
    }
}

fn use_it(o: &mut Observed) {
    o.readings = vec![active()];
}

fn zero(o: &mut Observed) {
    o.target.as_mut().unwrap().replicas = 0;
}

fn scale_up(o: &mut Observed) {
    o.target.as_mut().unwrap().replicas = 1;
}

fn idle_again(o: &mut Observed) {
    o.me.remembered.last_wake = Some(ago(2 * LONG));
    o.me.remembered.last_sleep = Some(ago(3 * LONG));
    o.target.as_mut().unwrap().replicas_at = Some(ago(2 * LONG));
}

fn stuck(o: &mut Observed) {
    o.pods[0].obstacle = Some(Obstacle {
        kind: ObstacleKind::ImagePull,
        message: "no such image".into(),
        failed: true,
    });
}

/// From the facts of the first phase, what changes until the second.
const SEEN: &[(Phase, Phase, Change)] = &[
    (Serving, Redirecting, |o| o.readings = vec![quiet()]),
    (Serving, Asleep, |o| {
        o.readings = vec![quiet()];
        zero(o);
    }),
    (Serving, Waking, zero),
    (Redirecting, Draining, |o| redirect(o, LONG)),
    (Redirecting, Restoring, use_it),
    (Redirecting, Serving, |o| {
        use_it(o);
        o.slice = Owned::Missing;
    }),
    (Redirecting, Waking, |o| {
        use_it(o);
        no_pods(o);
    }),
    (Redirecting, Asleep, zero),
    (Draining, Asleep, zero),
    (Draining, Restoring, use_it),
    (Draining, Waking, |o| {
        use_it(o);
        no_pods(o);
    }),
    (Draining, Redirecting, |o| o.resolvers[1].ready = false),
    (Asleep, Waking, use_it),
    (Asleep, Restoring, |o| {
        scale_up(o);
        in_rotation(o, 1);
    }),
    (Asleep, Serving, |o| {
        scale_up(o);
        o.slice = Owned::Missing;
    }),
    (Waking, Restoring, |o| o.pods = vec![pod()]),
    (Waking, Asleep, zero),
    (Waking, Serving, |o| {
        o.me.deleting_since = Some(ago(LONG));
        o.slice = Owned::Missing;
    }),
    (Waking, Redirecting, |o| {
        idle_again(o);
        stuck(o);
        redirect(o, 1);
    }),
    (Waking, Draining, |o| {
        idle_again(o);
        stuck(o);
    }),
    (Restoring, Serving, |o| o.slice = Owned::Missing),
    (Restoring, Waking, |o| {
        no_pods(o);
    }),
    (Restoring, Redirecting, |o| {
        idle_again(o);
        redirect(o, 1);
    }),
    (Restoring, Draining, idle_again),
    (Restoring, Asleep, zero),
];

#[test]
fn each_phase_has_facts_that_show_it() {
    for phase in ALL {
        assert_eq!(planned(&facts_in(phase)).phase, phase);
    }
}

#[test]
fn every_transition_of_the_table_is_shown_by_a_pair_of_plans() {
    for (from, to, change) in SEEN {
        let mut o = facts_in(*from);
        change(&mut o);
        let plan = planned(&o);
        assert_eq!(plan.phase, *to, "from {from:?}: {plan:?}");
        assert!(allowed(*from, *to), "the table lacks {from:?} to {to:?}");
    }
    for from in ALL {
        for (to, why) in transitions(from) {
            let shown = SEEN.iter().any(|(f, t, _)| (*f, t) == (from, to));
            assert!(shown, "nothing shows {from:?} to {to:?} ({why})");
        }
    }
}

#[test]
fn serving_never_skips_the_redirect_and_a_sleeping_service_is_not_put_to_sleep() {
    for (from, to) in [
        (Serving, Draining),
        (Serving, Restoring),
        (Asleep, Draining),
        (Asleep, Redirecting),
    ] {
        assert!(!allowed(from, to), "{from:?} to {to:?}");
    }
}

#[test]
fn a_plan_takes_pods_down_exactly_if_it_marks_shrinks_or_scales_to_zero() {
    let takes_down = |o: &Observed| {
        let plan = planned(o);
        let is_down = |step: &Step| ["Mark", "Shrink", "ScaleToZero"].contains(&step.name());
        let expected = plan.steps.iter().any(is_down);
        assert_eq!(plan.takes_down(), expected, "{:?}", plan.phase);
        assert_eq!(plan.needs_fresh_readings(), expected, "{:?}", plan.phase);
        expected
    };
    assert!(takes_down(&redirected()), "it marks");
    assert!(takes_down(&drained()), "it scales to zero");
    for phase in ALL {
        assert!(!takes_down(&facts_in(phase)), "{phase:?}");
    }
}

#[test]
fn where_triggers_cannot_be_read_anew_only_what_stands_on_their_readings_waits() {
    let names = |plan: &Plan| -> Vec<&'static str> {
        let names = plan.steps.iter().map(Step::name);
        names.collect()
    };
    // Idle and redirected: the mark waits, and nothing else does.
    let mut o = redirected();
    o.me.finalizer = false;
    o.autoscaler = Autoscaler::Keda(KedaPause::default());
    let plan = planned(&o);
    assert_eq!(names(&plan), ["AddFinalizer", "HoldAutoscaler", "Mark"]);
    let waits = plan.without_fresh_readings(now());
    assert_eq!(names(&waits), ["AddFinalizer", "HoldAutoscaler"]);
    assert_eq!(waits.phase, Phase::Draining);
    assert_eq!(waits.why.reason, Reason::TriggerUnknown);
    let again = waits.requeue_at.unwrap();
    assert!(again > now() && again <= now() + SignedDuration::from_secs(10));
    assert_eq!(drained_without_readings(), Vec::<&str>::new());
    // At a zero that something else wrote, for a reading that may be older: the slice goes to the resolvers.
    let mut o = asleep();
    o.readings = vec![active()];
    o.slice = Owned::Ours(vec![net()]);
    o.autoscaler = Autoscaler::Keda(KedaPause {
        paused: Some("true".into()),
        paused_replicas: None,
        before: Some(KedaBefore::default()),
    });
    o.stable_since.zero = Some(ObservedZero {
        since: ago(7),
        by_other: true,
    });
    let plan = planned(&o);
    assert_eq!(names(&plan), ["Wake", "Redirect", "ReleaseAutoscaler"]);
    assert_eq!(names(&plan.ahead_of_readings()), ["Redirect"]);
    let waits = plan.without_fresh_readings(now());
    assert_eq!(
        (names(&waits), waits.phase),
        (vec!["Redirect"], Phase::Asleep)
    );
    // What needs no readings is the same with and without them.
    for phase in ALL {
        let plan = planned(&facts_in(phase));
        assert_eq!(
            plan.clone().without_fresh_readings(now()),
            plan,
            "{phase:?}"
        );
    }
}

fn drained_without_readings() -> Vec<&'static str> {
    let plan = planned(&drained()).without_fresh_readings(now());
    plan.steps.iter().map(Step::name).collect()
}
