//! Everything that keeps a service awake, held against the wish that the plan follows.
//! It never lets the two disagree: what `why` tells is what the operator obeys.

use elasti_api::{EnabledPeriod, Reason};
use elasti_core::Observed;
use elasti_core::desire::{Desire, against_sleep, desire};
use elasti_core::observed::{Autoscaler, PortsGiven, Reading, Report};

use crate::plan_tables::facts::{
    Change, active, ago, asleep, draining, idle, looked, restoring, serving, spec, waking,
};

const CHANGES: &[(Change, Option<Reason>)] = &[
    (|_| (), None),
    (|o| o.readings = vec![active()], Some(Reason::TriggerActive)),
    (
        |o| o.readings = vec![Reading::Unknown { why: "down".into() }],
        Some(Reason::TriggerUnknown),
    ),
    (|o| o.readings.clear(), Some(Reason::TriggerUnknown)),
    (
        |o| o.me.remembered.quiet_since = Some(ago(5)),
        Some(Reason::CoolingDown),
    ),
    (holding, Some(Reason::Traffic)),
    (
        |o| o.wake_requested_at = Some(ago(5)),
        Some(Reason::WakeRequested),
    ),
    (
        |o| o.autoscaler = Autoscaler::Missing,
        Some(Reason::AutoscalerNotFound),
    ),
    (
        |o| o.ports = PortsGiven::Exhausted,
        Some(Reason::PortsExhausted),
    ),
    (|o| o.resolvers.clear(), Some(Reason::NoResolver)),
    (
        |o| o.resolvers[0].report = Report::Unreachable,
        Some(Reason::ResolverUnreachable),
    ),
];

/// A resolver said just now that it holds a request.
fn holding(o: &mut Observed) {
    let now = o.now;
    match &mut o.resolvers[0].report {
        Report::Seen { held, at, .. } => (*held, *at) = (1, now),
        other => panic!("the resolver said nothing: {other:?}"),
    }
}

fn agree(spec: &elasti_api::ElastiServiceSpec, o: &Observed) -> Vec<Reason> {
    let o = looked(o);
    let found = against_sleep(spec, &o);
    match desire(spec, &o) {
        Desire::Sleep(_) => assert_eq!(found, []),
        Desire::Stay(why) | Desire::Awake(why) => assert_eq!(found.first(), Some(&why)),
    }
    found.into_iter().map(|why| why.reason).collect()
}

#[test]
fn nothing_is_told_exactly_if_the_request_is_sleep_and_the_first_is_the_request_s_own() {
    for facts in [idle, serving, draining, asleep, waking, restoring] {
        for (change, _) in CHANGES {
            let mut o = facts();
            change(&mut o);
            agree(&spec(), &o);
            let mut paused = spec();
            paused.paused = Some(true);
            paused.enabled_period = Some(EnabledPeriod {
                schedule: "0 20 * * *".into(),
                duration: "1h".into(),
            });
            let reasons = agree(&paused, &o);
            assert!(reasons.contains(&Reason::Paused), "{reasons:?}");
            assert!(reasons.contains(&Reason::OutsideWindow), "{reasons:?}");
        }
    }
}

#[test]
fn each_obstacle_is_among_what_is_told() {
    for (change, reason) in CHANGES {
        let mut o = idle();
        change(&mut o);
        let told = agree(&spec(), &o);
        assert_eq!(told.first(), reason.as_ref(), "{told:?}");
    }
}

#[test]
fn a_held_request_wakes_a_sleeping_service_whoever_forgot_to_ask_for_it() {
    let mut o = asleep();
    holding(&mut o);
    match desire(&spec(), &looked(&o)) {
        Desire::Awake(why) => assert_eq!(why.reason, Reason::Traffic),
        other => panic!("{other:?}"),
    }
}
