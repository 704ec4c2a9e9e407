//! What the status says, since when, and that it changes only when something else does.
//! It never looks at an intention.

use elasti_api::{Condition, ElastiServiceStatus, Time};
use elasti_core::observed::{Author, Remembered};
use elasti_core::status::status;
use elasti_core::{Observed, Plan};
use jiff::SignedDuration;

use crate::facts::{
    active, ago, asleep, draining, let_go, looked, now, planned, redirecting, restoring, serving,
    spec, waking,
};

/// The status of these facts after another, and what it makes the next look remember.
fn tell(o: &mut Observed, previous: &ElastiServiceStatus) -> (Plan, ElastiServiceStatus) {
    let plan = planned(o);
    let next = status(&spec(), &looked(o), &plan, previous);
    o.me.remembered = Remembered::from(&next);
    (plan, next)
}

fn condition<'a>(status: &'a ElastiServiceStatus, type_: &str) -> &'a Condition {
    status.conditions.iter().find(|c| c.type_ == type_).unwrap()
}

#[test]
fn planning_twice_gives_the_same_plan_and_the_same_status_in_every_phase() {
    for mut o in [
        serving(),
        redirecting(),
        draining(),
        asleep(),
        waking(),
        restoring(),
        let_go(),
    ] {
        let (_, first) = tell(&mut o, &ElastiServiceStatus::default());
        let (plan, second) = tell(&mut o, &first);
        let (again, third) = tell(&mut o, &second);
        assert_eq!((plan, &second), (again, &third));
    }
}

#[test]
fn at_rest_nothing_is_written_however_much_time_passes() {
    let mut held = serving();
    held.readings = vec![active()];
    for mut o in [held, asleep()] {
        let (_, before) = tell(&mut o, &ElastiServiceStatus::default());
        for _ in 0..5 {
            o.now += SignedDuration::from_millis(30_037);
            let (plan, after) = tell(&mut o, &before);
            assert!(plan.steps.is_empty(), "{plan:?}");
            assert_eq!(after, before);
        }
    }
}

#[test]
fn every_moment_in_a_status_is_whole_seconds_as_the_api_server_keeps_it() {
    let mut o = waking();
    o.now += SignedDuration::from_micros(123_456);
    o.wake_requested_at = Some(o.now);
    let (_, told) = tell(&mut o, &ElastiServiceStatus::default());
    let stamps = [
        &told.quiet_since,
        &told.last_active_time,
        &told.last_scaled_up_time,
    ];
    let stamps = stamps
        .into_iter()
        .chain([&told.last_sleep_time, &told.last_reconciled_time]);
    for Time(at) in stamps.flatten() {
        assert_eq!(at.subsec_nanosecond(), 0, "{told:?}");
    }
}

#[test]
fn a_sleep_and_a_wake_within_one_second_are_both_seen() {
    let mut o = serving();
    let (_, awake) = tell(&mut o, &ElastiServiceStatus::default());
    o.target.as_mut().unwrap().replicas = 0;
    o.now += SignedDuration::from_millis(100);
    let (_, down) = tell(&mut o, &awake);
    assert_eq!(down.last_sleep_time, Some(Time(now())));
    o.target.as_mut().unwrap().replicas = 1;
    o.now += SignedDuration::from_millis(100);
    let (_, up) = tell(&mut o, &down);
    assert_eq!(up.last_scaled_up_time, Some(Time(now())));
    let (_, again) = tell(&mut o, &up);
    assert_eq!(again, up);
}

#[test]
fn a_condition_keeps_its_transition_time_until_its_status_turns() {
    let mut o = serving();
    let (_, first) = tell(&mut o, &ElastiServiceStatus::default());
    o.now += SignedDuration::from_secs(60);
    o.wake_requested_at = Some(o.now);
    o.readings = vec![crate::facts::quiet()];
    let (_, second) = tell(&mut o, &first);
    let (before, after) = (condition(&first, "Ready"), condition(&second, "Ready"));
    assert_ne!(before.reason, after.reason, "another reason");
    assert_eq!(before.last_transition_time, after.last_transition_time);
    o.now += SignedDuration::from_secs(60);
    o.target = None;
    let (_, third) = tell(&mut o, &second);
    let turned = condition(&third, "Ready");
    assert_eq!(
        (turned.status.as_str(), &turned.last_transition_time),
        ("False", &Time(o.now))
    );
}

#[test]
fn each_condition_carries_the_generation_that_it_speaks_of() {
    let mut o = serving();
    o.me.generation = 4;
    let (_, told) = tell(&mut o, &ElastiServiceStatus::default());
    assert!(
        told.conditions
            .iter()
            .all(|c| c.observed_generation == Some(4))
    );
    assert_eq!(told.observed_generation, Some(4));
}

#[test]
fn contended_names_who_moved_the_target_across_zero_until_we_do() {
    let mut o = serving();
    let (_, awake) = tell(&mut o, &ElastiServiceStatus::default());
    assert_eq!(condition(&awake, "Contended").status, "False");
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.replicas_by) = (0, Author::Other("kubectl".into()));
    let (_, zeroed) = tell(&mut o, &awake);
    assert_eq!(
        condition(&zeroed, "Contended").message,
        "kubectl set replicas to 0."
    );
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.replicas_by) = (1, Author::Elasti);
    let (_, woken) = tell(&mut o, &zeroed);
    assert_eq!(condition(&woken, "Contended").status, "False");
}

#[test]
fn a_held_count_alone_is_no_reason_to_write() {
    let mut o = asleep();
    let (_, before) = tell(&mut o, &ElastiServiceStatus::default());
    crate::facts::report(&mut o, |at, _, _, last| {
        *at = ago(0);
        *last = None;
    });
    let (_, after) = tell(&mut o, &before);
    assert_eq!(after, before);
}
