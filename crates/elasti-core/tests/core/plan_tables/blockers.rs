//! The blockers that `why` shows agree with the desire that the planner follows.

use elasti_api::{EnabledPeriod, Reason};
use elasti_core::Observed;
use elasti_core::desire::{Desire, blockers, desire};
use elasti_core::observed::{Autoscaler, PortsGiven, Report, UserRequest};

use crate::plan_tables::facts::{
    Change, active, ago, asleep, draining, idle, observed, restoring, serving, spec, unknown,
    waking,
};

const CHANGES: &[(Change, Option<Reason>)] = &[
    (|_| (), None),
    (|o| o.readings = vec![active()], Some(Reason::TriggerActive)),
    (
        |o| o.readings = vec![unknown("down")],
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
        Some(Reason::WokenByRequest),
    ),
    (
        |o| o.me.wake_request = UserRequest::At(ago(5)),
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
    (
        |o| within_nodes(o, None),
        Some(Reason::NodesWithoutResolver),
    ),
    (
        |o| within_nodes(o, Some(&["node-1", "node-2", "node-3"])),
        Some(Reason::NodesWithoutResolver),
    ),
    (|o| within_nodes(o, Some(&["node-1", "node-2"])), None),
];

/// The Service sends only to endpoints of a client's own node; these are the nodes, if they can be read.
fn within_nodes(o: &mut Observed, nodes: Option<&[&str]>) {
    o.service.as_mut().unwrap().internal_local = true;
    o.nodes = nodes.map(|nodes| nodes.iter().map(|name| (*name).to_owned()).collect());
}

/// A resolver has just reported that it holds a request.
fn holding(o: &mut Observed) {
    let now = o.now;
    match &mut o.resolvers[0].report {
        Report::Seen { held, at, .. } => (*held, *at) = (1, now),
        other => panic!("the resolver has not reported: {other:?}"),
    }
}

fn agree(spec: &elasti_api::ElastiServiceSpec, o: &Observed) -> Vec<Reason> {
    let o = observed(o);
    let found = blockers(spec, &o);
    match desire(spec, &o) {
        Desire::Sleep(_) => assert_eq!(found, []),
        Desire::Stay(why) | Desire::Awake(why) => assert_eq!(found.first(), Some(&why)),
    }
    found.into_iter().map(|why| why.reason).collect()
}

#[test]
fn there_are_no_blockers_exactly_if_it_may_sleep_and_the_first_is_the_reason_of_the_desire() {
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
                time_zone: None,
            });
            let reasons = agree(&paused, &o);
            assert!(reasons.contains(&Reason::Paused), "{reasons:?}");
            assert!(reasons.contains(&Reason::OutsideWindow), "{reasons:?}");
        }
    }
}

#[test]
fn each_obstacle_is_the_first_blocker() {
    for (change, reason) in CHANGES {
        let mut o = idle();
        change(&mut o);
        let found = agree(&spec(), &o);
        assert_eq!(found.first(), reason.as_ref(), "{found:?}");
    }
}

#[test]
fn a_held_request_wakes_a_sleeping_service_even_without_a_wake_request() {
    let mut o = asleep();
    holding(&mut o);
    match desire(&spec(), &observed(&o)) {
        Desire::Awake(why) => assert_eq!(why.reason, Reason::Traffic),
        other => panic!("{other:?}"),
    }
}
