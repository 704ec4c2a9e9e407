//! Every clause of every proof: from facts that prove a dangerous step, each single fact is broken in turn.

use elasti_api::{EnabledPeriod, Phase, Reason, RouteGeneration};
use elasti_core::observed::{
    Author, Autoscaler, Claim, Family, KedaPause, Leadership, Obstacle, ObstacleKind, Owned, Pod,
    PortsGiven, Reading, Report, Rival, ServiceKind, StopOrder, UserRequest,
};
use elasti_core::stable_since::SentScaleDown;
use elasti_core::step::{PodRef, Restored};
use elasti_core::{Observed, Plan, Step};
use jiff::SignedDuration;

use crate::plan_tables::facts::{
    Change, LONG, active, address, ago, asleep, drained, draining, endpoint, finalize, idle, mark,
    net, now, observed, planned, planned_for, pod, ports, quiet_now, redirected, redirecting,
    report, resolver, restoring, serving, spec, unknown,
};

/// Idle, and without a net so far: its resolvers have proven nothing yet.
fn new_and_idle() -> Observed {
    let mut o = idle();
    o.slice = Owned::Missing;
    o
}

fn sends_traffic(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::Redirect(_)))
}

fn marks(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::Mark { .. }))
}

fn scales_to_zero(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::ScaleToZero(_)))
}

fn removes_slice(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::RemoveSlice(_)))
}

fn steps_back(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::EnsureNet(_)))
}

fn cleans_up(plan: &Plan) -> bool {
    let last = |s: &Step| matches!(s, Step::DeletePrivateService(_) | Step::RemoveFinalizer(_));
    plan.steps.iter().any(last)
}

/// The step is planned for `facts`, and for none of the broken ones.
fn each_fact_counts(facts: fn() -> Observed, step: fn(&Plan) -> bool, broken: &[(&str, Change)]) {
    let whole = planned(&facts());
    assert!(step(&whole), "the facts must prove the step: {whole:?}");
    for (what, change) in broken {
        let mut o = facts();
        change(&mut o);
        let plan = planned(&o);
        assert!(!step(&plan), "planned although {what}: {plan:?}");
    }
}

/// What keeps an idle service from any step towards sleep, in every phase.
const NOT_IDLE: &[(&str, Change)] = &[
    ("a trigger is active", |o| o.readings = vec![active()]),
    ("a reading is unknown", |o| {
        o.readings = vec![unknown("no answer")];
    }),
    ("its source was not up for the whole cooldown", |o| {
        o.readings = vec![quiet_now()];
    }),
    ("a reading is missing", |o| o.readings.clear()),
    ("a request is held", |o| {
        report(o, |_, held, _, _| *held = 1)
    }),
    ("a stream is open", |o| report(o, |_, _, open, _| *open = 1)),
    ("a connection came within the cooldown", |o| {
        report(o, |_, _, _, last| *last = Some(ago(899)));
    }),
    ("it became quiet within the cooldown", |o| {
        o.me.remembered.quiet_since = Some(ago(899));
    }),
    ("its spec has changed", |o| o.me.generation = 2),
    ("it is younger than the cooldown", |o| {
        o.me.created = ago(899)
    }),
    ("it was woken within the cooldown", |o| {
        o.me.remembered.last_wake = Some(ago(899));
    }),
    ("our wake is recorded in the target only", |o| {
        o.target.as_mut().unwrap().replicas_at = Some(ago(899));
    }),
    ("it was at zero when last seen", |o| {
        o.me.remembered.last_sleep = Some(ago(60))
    }),
    ("a wake was requested", |o| {
        o.wake_requested_at = Some(ago(60))
    }),
    ("no operator watched for long", |o| {
        o.stable_since.watching_since = ago(60);
        o.stable_since.watched_before_until = Some(ago(600));
    }),
    ("a pod is starting", |o| {
        let mut starting = pod();
        (starting.name, starting.ready) = ("web-2".into(), false);
        o.pods.push(starting);
    }),
    ("a ready resolver does not respond", |o| {
        o.resolvers[1].report = Report::Unreachable;
    }),
    ("a ready resolver was not asked", |o| {
        o.resolvers[1].report = Report::NotAsked
    }),
    ("no resolver is ready", |o| {
        o.resolvers.iter_mut().for_each(|r| r.ready = false)
    }),
    ("the ports are used up", |o| o.ports = PortsGiven::Exhausted),
    ("the autoscaler is missing", |o| {
        o.autoscaler = Autoscaler::Missing
    }),
    ("an older ElastiService takes precedence", |o| {
        o.rival = Some(Rival {
            name: "older".into(),
            claim: Claim::Target,
        });
    }),
    ("the private Service is foreign", |o| {
        o.private_service = Owned::Foreign
    }),
    ("the slice is foreign", |o| o.slice = Owned::Foreign),
    ("the namespace is being deleted", |o| {
        o.namespace_terminating = true
    }),
    ("the Service is gone", |o| o.service = None),
    ("the Service is headless", |o| {
        o.service.as_mut().unwrap().kind = ServiceKind::Headless
    }),
    ("the target is gone", |o| o.target = None),
    ("the target is at zero already", |o| {
        o.target.as_mut().unwrap().replicas = 0
    }),
    ("another operator is the leader", |o| {
        o.leadership = Leadership::Follower
    }),
    ("it is being deleted", |o| {
        o.me.deleting_since = Some(ago(1))
    }),
];

#[test]
fn traffic_goes_only_to_ready_resolvers_that_reported_that_they_listen() {
    let broken: &[(&str, Change)] = &[
        ("the ports are not recorded", |o| {
            o.me.remembered.ports.clear()
        }),
        ("other ports are recorded", |o| {
            o.me.remembered.ports[0].listen_port = 20_001
        }),
        ("the ports are used up", |o| o.ports = PortsGiven::Exhausted),
        ("no resolver is ready", |o| {
            o.resolvers.iter_mut().for_each(|r| r.ready = false)
        }),
        ("every resolver terminates", |o| {
            o.resolvers.iter_mut().for_each(|r| r.terminating = true);
        }),
        ("no resolver was asked", |o| {
            o.resolvers
                .iter_mut()
                .for_each(|r| r.report = Report::NotAsked);
        }),
        ("every resolver listens on other ports", |o| {
            for r in &mut o.resolvers {
                let Report::Seen { route, .. } = &mut r.report else {
                    return;
                };
                *route = Some(RouteGeneration::from_ports(&[]));
            }
        }),
        ("no resolver has an address of the family", |o| {
            o.service.as_mut().unwrap().families = [Family::V6].into();
        }),
    ];
    each_fact_counts(new_and_idle, sends_traffic, broken);
}

#[test]
fn a_resolver_that_does_not_listen_is_left_out_of_the_slice() {
    let mut o = new_and_idle();
    o.resolvers[0].report = Report::NotAsked;
    let plan = planned(&o);
    let addresses = plan.steps.iter().find_map(|s| match s {
        Step::Redirect(routed) => Some(routed.slices()[0].endpoints.keys().copied().collect()),
        _ => None,
    });
    assert_eq!(addresses, Some(vec![address(2)]));
}

const NOT_REDIRECTED: &[(&str, Change)] = &[
    ("our slice is missing", |o| o.slice = Owned::Missing),
    ("our slice is younger than the settle time", |o| {
        o.stable_since.slice.as_mut().unwrap().1 = ago(1);
    }),
    ("this process has not seen our slice before", |o| {
        o.stable_since.slice = None
    }),
    ("our slice points elsewhere", |o| {
        let Owned::Ours(slices) = &mut o.slice else {
            return;
        };
        slices[0].endpoints = [(address(9), String::new())].into();
    }),
    (
        "a resolver has become ready that is not in the slice",
        |o| o.resolvers.push(resolver(3)),
    ),
    ("a resolver of the slice is no longer ready", |o| {
        o.resolvers[1].ready = false
    }),
    ("a report is stale", |o| {
        report(o, |at, _, _, _| *at = ago(2))
    }),
    ("a ready resolver listens on other ports", |o| {
        let Report::Seen { route, .. } = &mut o.resolvers[1].report else {
            return;
        };
        *route = None;
    }),
    ("the listen ports have changed", |o| {
        let mut changed = ports();
        changed[0].listen_port = 20_001;
        o.ports = PortsGiven::Given(changed);
    }),
];

#[test]
fn pods_leave_rotation_only_when_every_node_and_resolver_has_the_redirect() {
    each_fact_counts(redirected, marks, NOT_REDIRECTED);
    each_fact_counts(redirected, marks, NOT_IDLE);
}

#[test]
fn zero_needs_every_clause_of_s2() {
    let broken: &[(&str, Change)] = &[
        ("a pod is still ready", |o| {
            (o.pods[0].ready, o.pods[0].marked) = (true, false);
        }),
        (
            "the pods have been out for less than the settle time",
            |o| {
                o.stable_since.pods_out_since = Some(ago(1));
            },
        ),
        ("this process has not seen the pods out", |o| {
            o.stable_since.pods_out_since = None
        }),
        ("a pod changed since the last reconcile", |o| {
            o.pods[0].version = "2".into()
        }),
        ("an endpoint is still ready", |o| {
            o.endpoints = vec![endpoint(true)]
        }),
        (
            "the endpoints have been empty for less than the settle time",
            |o| {
                o.stable_since.no_rotation_since = Some(ago(1));
            },
        ),
        ("the endpoints changed since the last reconcile", |o| {
            o.endpoints_version = "2".into()
        }),
        ("the node's tick was never awaited", |o| {
            o.stable_since.ticks.clear()
        }),
        ("a tick is nearer than the margin", |o| {
            let tick = o.stable_since.ticks.get_mut("node-a").unwrap();
            (tick.after, tick.by) = (ago(10), ago(9));
        }),
        ("the lease ends within the margin", |o| {
            o.leadership = Leadership::Leader {
                until: now() + SignedDuration::from_secs(1),
            };
        }),
        ("the lease has ended", |o| {
            o.leadership = Leadership::Leader { until: ago(1) }
        }),
        ("KEDA is not held", |o| {
            o.autoscaler = Autoscaler::Keda(KedaPause::default())
        }),
        ("a connection came within the settle time", |o| {
            report(o, |_, _, _, last| *last = Some(ago(1)));
        }),
        ("a promise has not ended", |o| {
            o.promised_until = Some(now() + SignedDuration::from_millis(1));
        }),
        ("the resolvers were asked before a promise ended", |o| {
            o.promised_until = Some(now());
            report(o, |at, _, _, _| {
                *at = now() - SignedDuration::from_millis(1)
            });
        }),
    ];
    each_fact_counts(drained, scales_to_zero, broken);
    each_fact_counts(drained, scales_to_zero, NOT_REDIRECTED);
    each_fact_counts(drained, scales_to_zero, NOT_IDLE);
}

#[test]
fn zero_is_due_again_when_a_promise_has_ended_and_the_resolvers_were_asked_since() {
    let mut o = drained();
    o.promised_until = Some(now());
    assert!(scales_to_zero(&planned(&o)));
}

#[test]
fn a_paused_or_closed_or_unreadable_spec_never_scales_to_zero() {
    let window = |schedule: &str, duration: &str| {
        Some(EnabledPeriod {
            schedule: schedule.into(),
            duration: duration.into(),
            time_zone: None,
        })
    };
    let mut paused = spec();
    paused.paused = Some(true);
    let mut closed = spec();
    closed.enabled_period = window("0 20 * * *", "8h");
    let mut unreadable = spec();
    unreadable.enabled_period = window("0 0 * * *", "8 hours");
    let mut no_trigger = spec();
    no_trigger.triggers.clear();
    for spec in [paused, closed, unreadable, no_trigger] {
        let plan = planned_for(&spec, &drained());
        assert!(!scales_to_zero(&plan), "{plan:?}");
    }
}

#[test]
fn the_step_to_zero_names_the_version_it_speaks_of_and_expires_before_the_next_tick() {
    let plan = planned(&drained());
    let Some(Step::ScaleToZero(proof)) = plan.steps.last() else {
        panic!("{plan:?}");
    };
    assert_eq!(proof.version(), "7");
    let expires = plan.steps.last().unwrap().expires().unwrap();
    assert!(expires <= now() + SignedDuration::from_secs(1), "{expires}");
    assert!(plan.needs_fresh_facts());
}

#[test]
fn without_a_drain_zero_still_needs_the_redirect_and_quiet_resolvers() {
    let mut may_not_mark = redirected();
    may_not_mark.may_mark = false;
    assert!(scales_to_zero(&planned(&may_not_mark)));
    for (what, change) in NOT_REDIRECTED.iter().chain(NOT_IDLE) {
        let mut o = may_not_mark.clone();
        change(&mut o);
        let plan = planned(&o);
        assert!(
            !scales_to_zero(&plan) && !marks(&plan),
            "although {what}: {plan:?}"
        );
    }
}

#[test]
fn the_resolvers_step_back_as_soon_as_a_ready_pod_is_in_rotation() {
    let broken: &[(&str, Change)] = &[
        ("only the pod is ready, not the endpoint", |o| {
            o.endpoints = vec![endpoint(false)]
        }),
        ("there is no endpoint", |o| o.endpoints.clear()),
        ("the endpoint terminates", |o| {
            o.endpoints[0].terminating = true
        }),
        ("the pod behind it is not ready", |o| {
            o.pods[0].ready = false
        }),
        ("the pod behind it terminates", |o| {
            o.pods[0].terminating = true
        }),
        ("another pod terminates", |o| {
            let mut other = o.pods[0].clone();
            (other.name, other.terminating) = ("web-2".into(), true);
            o.pods.push(other);
        }),
        ("another pod has just terminated", |o| {
            o.stable_since.no_terminating_since = Some(ago(1));
        }),
        ("this process has just started", |o| {
            o.stable_since.no_terminating_since = None;
        }),
        ("the Service has a local traffic policy", |o| {
            o.service.as_mut().unwrap().internal_local = true;
        }),
        ("another operator is the leader", |o| {
            o.leadership = Leadership::Follower
        }),
    ];
    each_fact_counts(restoring, steps_back, broken);
}

/// With a local traffic policy the other pods' nodes would have nothing.
#[test]
fn a_service_with_a_local_policy_is_restored_when_every_pod_is_ready() {
    let mut o = restoring();
    crate::plan_tables::facts::in_rotation(&mut o, 3);
    o.service.as_mut().unwrap().internal_local = true;
    o.target.as_mut().unwrap().replicas = 2;
    assert!(Restored::observe(&o).is_err());
    let second = |since| ("web-2".to_owned(), since);
    o.stable_since.in_rotation_since.extend([second(ago(1))]);
    assert!(
        Restored::observe(&o).is_err(),
        "its node may not know it yet"
    );
    o.stable_since.in_rotation_since.extend([second(ago(3))]);
    assert!(Restored::observe(&o).is_ok());
}

/// By then every node knows the ready pod.
#[test]
fn a_pod_that_takes_long_to_terminate_does_not_keep_the_resolvers_in_the_path() {
    let mut o = restoring();
    let mut other = o.pods[0].clone();
    (other.name, other.terminating) = ("web-2".into(), true);
    o.pods.push(other);
    crate::plan_tables::facts::in_rotation(&mut o, 3);
    assert!(steps_back(&planned(&o)));
}

/// A ready pod beside one that terminates, and an endpoint that changed since the last reconcile.
fn restoring_while_endpoints_change(seconds: i64) -> Observed {
    let mut o = restoring();
    let mut other = o.pods[0].clone();
    (other.name, other.terminating) = ("web-2".into(), true);
    o.pods.push(other);
    crate::plan_tables::facts::in_rotation(&mut o, seconds);
    o.stable_since.came_back.clear();
    o.stable_since.no_terminating_since = None;
    o.endpoints_version = "2".into();
    o
}

#[test]
fn endpoints_that_come_and_go_do_not_delay_what_a_steady_pod_proves() {
    let broken: &[(&str, Change)] = &[
        (
            "it has been in rotation for less than the settle time",
            |o| {
                let seen = &mut o.stable_since.in_rotation_since;
                seen.insert("web-1".into(), ago(1));
            },
        ),
        ("it may have left rotation and come back", |o| {
            o.stable_since.came_back.insert("web-1".into());
        }),
        ("it has a mark", |o| o.pods[0].marked = true),
        ("it changed since the last reconcile", |o| {
            o.pods[0].version = "2".into()
        }),
        ("this process has just started", |o| {
            o.stable_since.endpoints_version = None;
        }),
    ];
    each_fact_counts(|| restoring_while_endpoints_change(3), steps_back, broken);
}

#[test]
fn a_pod_that_came_back_is_known_to_every_node_after_twice_the_settle_time() {
    let mut o = restoring_while_endpoints_change(5);
    o.stable_since.came_back.insert("web-1".into());
    assert!(steps_back(&planned(&o)));
    let mut o = restoring_while_endpoints_change(3);
    o.stable_since.came_back.insert("web-1".into());
    let plan = planned(&o);
    assert!(!steps_back(&plan));
    assert_eq!(plan.requeue_at, Some(now() + SignedDuration::from_secs(1)));
}

#[test]
fn without_a_resolver_that_listens_the_redirect_still_becomes_a_net() {
    let mut o = restoring();
    o.resolvers.clear();
    let plan = planned(&o);
    assert!(steps_back(&plan), "{:?}", plan.steps);
    assert!(plan.needs_fresh_facts());
}

#[test]
fn a_managed_service_always_has_a_net() {
    let mut o = serving();
    o.slice = Owned::Missing;
    let plan = planned(&o);
    assert!(
        steps_back(&plan) && !plan.needs_fresh_facts(),
        "{:?}",
        plan.steps
    );
    assert!(planned(&serving()).steps.is_empty());
}

#[test]
fn our_slice_goes_only_after_the_services_own_slices_have_shown_a_ready_pod_for_the_settle_time() {
    let facts = || {
        let mut o = restoring();
        o.service.as_mut().unwrap().external_local = true;
        crate::plan_tables::facts::in_rotation(&mut o, 3);
        o
    };
    let broken: &[(&str, Change)] = &[
        ("only the pod is ready, not the endpoint", |o| {
            o.endpoints = vec![endpoint(false)]
        }),
        ("there is no endpoint", |o| o.endpoints.clear()),
        ("the endpoint terminates", |o| {
            o.endpoints[0].terminating = true
        }),
        (
            "the endpoint has been ready for less than the settle time",
            |o| {
                let seen = &mut o.stable_since.in_rotation_since;
                seen.insert("web-1".into(), ago(1));
            },
        ),
        ("this process has not seen it", |o| {
            o.stable_since.in_rotation_since.clear()
        }),
        ("the endpoints changed since the last reconcile", |o| {
            o.endpoints_version = "2".into()
        }),
        ("the pod behind it is not ready", |o| {
            o.pods[0].ready = false
        }),
        ("the pod behind it terminates", |o| {
            o.pods[0].terminating = true
        }),
        ("the pod changed since the last reconcile", |o| {
            o.pods[0].version = "2".into()
        }),
        ("another operator is the leader", |o| {
            o.leadership = Leadership::Follower
        }),
    ];
    each_fact_counts(facts, removes_slice, broken);
}

#[test]
fn the_net_of_a_deleted_service_goes_without_a_ready_pod_if_that_is_not_our_doing() {
    let facts = || {
        let mut o = serving();
        o.me.deleting_since = Some(ago(5));
        o.me.remembered.last_wake = Some(ago(LONG));
        o.me.remembered.ready_after_wake = Some(ago(LONG));
        o.stable_since.slice = Some((vec![net()], ago(3)));
        o.pods[0].ready = false;
        o.pods[0].ready_since = None;
        o.endpoints.clear();
        o
    };
    let broken: &[(&str, Change)] = &[
        ("it has been a net for less than the settle time", |o| {
            o.stable_since.slice = Some((vec![net()], ago(1)));
        }),
        ("a pod has our mark", |o| mark(o, 3)),
        ("our wake is under way", |o| {
            o.me.remembered.ready_after_wake = None;
        }),
        ("a pod has just become ready", |o| o.pods[0].ready = true),
        ("a pod is in rotation, which nodes may not know yet", |o| {
            o.endpoints.push(endpoint(true));
        }),
    ];
    each_fact_counts(facts, removes_slice, broken);
}

/// Otherwise its slice would route to resolvers that are gone, and clients would hang instead of getting the reason.
#[test]
fn a_service_without_its_target_follows_the_resolvers_too() {
    let mut o = asleep();
    o.target = None;
    o.resolvers = vec![resolver(9)];
    o.resolvers[0].report = Report::NotAsked;
    let plan = planned(&o);
    assert!(
        plan.ask_resolvers,
        "nothing else reports that the new one listens"
    );
    assert!(!sends_traffic(&plan));
    o.resolvers = vec![resolver(9)];
    assert!(sends_traffic(&planned(&o)), "it listens");
}

/// Scaled to zero and woken within milliseconds: the replica controller still stops the pod for the zero that it saw.
#[test]
fn a_pod_that_the_last_zero_may_still_stop_is_not_put_back_into_rotation() {
    let unmarks = |o: &Observed| {
        let is_unmark = |step: &Step| matches!(step, Step::Unmark(_));
        planned(o).steps.iter().any(is_unmark)
    };
    let mut o = drained();
    o.readings = vec![active()];
    let settled = SignedDuration::from_secs(1) + o.settings.settle;
    let written = |o: &mut Observed, at| o.target.as_mut().unwrap().replicas_at = Some(at);
    let now = o.now;
    written(&mut o, now);
    assert!(!unmarks(&o), "written now");
    assert!(planned(&o).requeue_at <= Some(now + settled));
    written(&mut o, now - settled + SignedDuration::from_millis(1));
    assert!(!unmarks(&o), "controllers may not have followed yet");
    written(&mut o, now - settled);
    assert!(
        unmarks(&o),
        "controllers have followed, and the pod is still there"
    );
    o.stable_since.zeroed_at = Some(now);
    assert!(
        !unmarks(&o),
        "we have scaled to zero now, whatever the record says"
    );
    o.stable_since.zeroed_at = Some(now - o.settings.settle);
    assert!(unmarks(&o));
}

/// A wake may undo our scale to zero before the next reconcile, so it is recorded when it is sent.
#[test]
fn a_scale_to_zero_is_recorded_even_if_no_reconcile_observes_it() {
    let mut o = drained();
    let plan = planned(&o);
    let sent = |step: &&Step| matches!(step, Step::ScaleToZero(_));
    let expires = plan.steps.iter().find(sent).unwrap().expires();
    o.stable_since = o.after(&plan.steps);
    assert_eq!(o.stable_since.zeroed_at, expires);
    o.now += SignedDuration::from_millis(30);
    o.readings = vec![active()];
    let o = observed(&o);
    assert_eq!(
        o.stable_since.zeroed_at,
        Some(o.now),
        "it was sent before now"
    );
    let is_unmark = |step: &Step| matches!(step, Step::Unmark(_));
    assert!(!planned(&o).steps.iter().any(is_unmark));
}

#[test]
fn only_pods_that_would_be_ready_by_themselves_are_unmarked() {
    let mut o = drained();
    o.readings = vec![active()];
    let unmarks = |o: &Observed| {
        let is_web = |pods: &[PodRef]| pods.len() == 1 && pods[0].name == "web-1";
        let unmarks = |step: &Step| matches!(step, Step::Unmark(pods) if is_web(pods));
        planned(o).steps.iter().any(unmarks)
    };
    assert!(unmarks(&o));
    let broken: &[(&str, Change)] = &[
        ("its containers are not ready", |o| {
            o.pods[0].containers_ready = false
        }),
        ("the mark is not ours", |o| o.pods[0].marked = false),
        ("it terminates", |o| o.pods[0].terminating = true),
    ];
    for (what, change) in broken {
        let mut o = o.clone();
        change(&mut o);
        assert!(!unmarks(&o), "unmarked although {what}");
    }
}

#[test]
fn the_ports_are_released_only_after_our_slice_has_been_gone_for_the_settle_time() {
    let broken: &[(&str, Change)] = &[
        ("our slice still exists", |o| {
            crate::plan_tables::facts::redirect(o, 5)
        }),
        (
            "our slice has been gone for less than the settle time",
            |o| {
                o.stable_since.slice_gone_since = Some(ago(1));
            },
        ),
        ("this process has not seen it gone", |o| {
            o.stable_since.slice_gone_since = None
        }),
        ("the target is at zero", |o| {
            o.target.as_mut().unwrap().replicas = 0
        }),
        ("the finalizer is not ours to remove", |o| {
            o.me.finalizer = false
        }),
        ("it is not being deleted", |o| o.me.deleting_since = None),
        ("another operator is the leader", |o| {
            o.leadership = Leadership::Follower
        }),
    ];
    each_fact_counts(finalize, cleans_up, broken);
}

#[test]
fn pods_that_cannot_start_do_not_count_as_starting() {
    let mut o = crate::plan_tables::facts::waking();
    o.me.remembered.last_wake = Some(ago(2 * 3600));
    o.me.remembered.last_sleep = Some(ago(3 * 3600));
    o.target.as_mut().unwrap().replicas_at = Some(ago(2 * 3600));
    o.pods[0].obstacle = Some(Obstacle {
        kind: ObstacleKind::CrashLoop,
        message: "it dies".into(),
        failed: true,
    });
    o.stable_since.pod_versions = [("web-1".to_owned(), "1".to_owned())].into();
    assert!(scales_to_zero(&planned(&o)));
}

#[test]
fn a_wake_whose_pods_may_still_start_outlasts_the_cooldown_for_as_long_as_a_request_is_held() {
    let sleeps = |woken_ago: i64, failed: bool| {
        let mut o = crate::plan_tables::facts::waking();
        o.me.remembered.last_wake = Some(ago(woken_ago));
        o.me.remembered.last_sleep = Some(ago(woken_ago + 3600));
        o.target.as_mut().unwrap().replicas_at = Some(ago(woken_ago));
        o.pods[0].obstacle = Some(Obstacle {
            kind: ObstacleKind::Unschedulable,
            message: "no node fits".into(),
            failed,
        });
        o.stable_since.pod_versions = [("web-1".to_owned(), "1".to_owned())].into();
        let mut spec = spec();
        spec.cooldown_period = 30;
        spec.hold.get_or_insert_default().timeout_seconds = Some(300);
        scales_to_zero(&planned_for(&spec, &o))
    };
    assert!(!sleeps(299, false), "a node may still be added");
    assert!(sleeps(300, false), "no request would be held for longer");
    assert!(sleeps(299, true), "what has failed is not waited for");
}

#[test]
fn a_wake_that_neither_the_status_nor_a_record_tells_of_still_counts() {
    let sleeps = |replicas_before: u32| {
        let mut o = drained();
        let target = o.target.as_mut().unwrap();
        (target.replicas_by, target.replicas_at) = (Author::Unknown, None);
        o.stable_since.replicas = Some(replicas_before);
        o.stable_since.replicas_at = Some(ago(LONG));
        scales_to_zero(&planned(&o))
    };
    assert!(sleeps(1));
    assert!(
        !sleeps(0),
        "the answer to our write was lost, and with it the status"
    );
}

#[test]
fn a_resolver_whose_report_is_too_old_is_asked_again() {
    for mut o in [redirecting(), redirected(), draining(), drained()] {
        for resolver in &mut o.resolvers {
            if let Report::Seen { at, .. } = &mut resolver.report {
                *at = ago(2);
            }
        }
        let plan = planned(&o);
        assert!(plan.ask_resolvers, "{plan:?}");
        // No other event may ever arrive for this service.
        assert!(plan.requeue_at.is_some(), "{plan:?}");
    }
}

/// What a user who requests sleep need not wait for.
const WAITING_TIMES: &[&str] = &[
    "its source was not up for the whole cooldown",
    "a connection came within the cooldown",
    "it became quiet within the cooldown",
    "it is younger than the cooldown",
    "it was woken within the cooldown",
    "our wake is recorded in the target only",
    "a wake was requested",
    "no operator watched for long",
];

#[test]
fn a_request_for_sleep_waives_waiting_times_and_nothing_else() {
    for (what, change) in NOT_IDLE {
        let mut o = drained();
        change(&mut o);
        o.me.sleep_request = UserRequest::At(ago(30));
        let plan = planned(&o);
        let waived = WAITING_TIMES.contains(what);
        assert_eq!(scales_to_zero(&plan), waived, "{what}: {plan:?}");
    }
}

#[test]
fn a_request_for_sleep_has_no_effect_on_what_came_after_it() {
    for (what, change) in NOT_IDLE {
        let mut o = drained();
        change(&mut o);
        o.me.sleep_request = UserRequest::At(ago(900));
        assert!(!scales_to_zero(&planned(&o)), "{what}");
    }
    let mut paused = spec();
    paused.paused = Some(true);
    let mut o = drained();
    o.me.sleep_request = UserRequest::At(ago(30));
    assert!(!scales_to_zero(&planned_for(&paused, &o)));
    paused.paused = None;
    paused.enabled_period = Some(EnabledPeriod {
        schedule: "0 20 * * *".into(),
        duration: "1h".into(),
        time_zone: None,
    });
    assert!(!scales_to_zero(&planned_for(&paused, &o)));
}

fn shrinks(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::Shrink(_)))
}

/// The pod of `drained` and a second one that stays: the scale-down to one is due.
fn group_drained() -> Observed {
    let mut o = drained();
    let mut stays = pod();
    (stays.name, stays.uid, stays.node) = ("web-2".into(), "uid-2".into(), "node-2".into());
    o.stable_since
        .pod_versions
        .insert(stays.name.clone(), stays.version.clone());
    o.pods.push(stays);
    let mut ready = endpoint(true);
    ready.pod = "web-2".into();
    o.endpoints.push(ready);
    o.stable_since.out_since.insert("web-1".into(), ago(3));
    o.me.remembered.replicas_before_drain = Some(2);
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.stops) = (2, StopOrder::UnreadyFirst);
    o
}

#[test]
fn a_group_is_scaled_down_only_if_each_of_its_pods_is_out_and_the_replicas_are_recorded() {
    let broken: &[(&str, Change)] = &[
        ("the replicas are not recorded", |o| {
            o.me.remembered.replicas_before_drain = None;
        }),
        ("the pod has changed", |o| o.pods[0].version = "9".into()),
        ("the pod is ready again", |o| o.pods[0].ready = true),
        ("the slices show it as ready", |o| {
            o.endpoints[0].ready = true;
        }),
        ("the slices have changed", |o| {
            o.endpoints_version = "9".into()
        }),
        ("it has only just left", |o| {
            o.stable_since.out_since.insert("web-1".into(), ago(1));
        }),
        ("its node's tick is not known", |o| {
            o.stable_since.ticks.clear()
        }),
        ("its node ticks now", |o| {
            let ticks = o.stable_since.ticks.values_mut();
            ticks.for_each(|tick| (tick.after, tick.by) = (ago(10), ago(9)));
        }),
        ("the controller has not stopped the last group", |o| {
            o.target.as_mut().unwrap().replicas = 1;
            o.target.as_mut().unwrap().replicas_at = Some(ago(1));
        }),
        ("the controller has not seen the last change", |o| {
            o.target.as_mut().unwrap().stops = StopOrder::Unsettled;
        }),
        ("the pods are of several templates", |o| {
            o.target.as_mut().unwrap().stops = StopOrder::Unknown;
        }),
        ("an HPA keeps two pods", |o| {
            o.autoscaler = Autoscaler::Hpa { min_replicas: 2 };
        }),
    ];
    each_fact_counts(group_drained, shrinks, broken);
    each_fact_counts(group_drained, shrinks, NOT_REDIRECTED);
    each_fact_counts(group_drained, shrinks, NOT_IDLE);
}

#[test]
fn a_cancelled_drain_restores_what_it_took_away_unless_something_else_has_written_the_replicas() {
    let restores = |o: &Observed| planned(o).steps.first() == Some(&Step::RestoreReplicas(5));
    let mut cancelled = group_drained();
    cancelled.me.remembered.replicas_before_drain = Some(5);
    assert!(!restores(&cancelled), "the drain goes on");
    cancelled.readings = vec![active()];
    assert!(restores(&cancelled));
    let mut by_other = cancelled.clone();
    by_other.target.as_mut().unwrap().replicas_by = Author::Other("hpa".into());
    assert!(!restores(&by_other));
    let mut unread = cancelled;
    unread.readings = vec![Reading::Unread];
    assert!(!restores(&unread), "the next reading decides");
}

/// The API server's record names no writer of replicas after the first sleep.
#[test]
fn a_cancelled_drain_leaves_what_something_else_has_lowered_meanwhile() {
    let restores = |replicas: u32, generation: i64| {
        let mut o = group_drained();
        o.me.remembered.replicas_before_drain = Some(5);
        o.readings = vec![active()];
        let target = o.target.as_mut().unwrap();
        (target.replicas, target.generation) = (replicas, Some(generation));
        (target.replicas_by, target.replicas_at) = (Author::Unknown, None);
        o.stable_since.replicas = Some(5);
        o.stable_since.sent = Some(SentScaleDown {
            to: 4,
            generation: Some(1),
        });
        planned(&o).steps.first() == Some(&Step::RestoreReplicas(5))
    };
    assert!(restores(4, 2), "it is as we left it");
    assert!(!restores(2, 3), "a user scaled down to 2");
    assert!(!restores(2, 2), "our scale-down was refused for that");
}

/// A StatefulSet of three that is idle and redirected.
fn stateful_set(stops: StopOrder) -> Observed {
    let mut o = redirected();
    o.pods = (0..3)
        .map(|n| {
            let mut pod = pod();
            (pod.name, pod.uid) = (format!("web-{n}"), format!("uid-{n}"));
            pod
        })
        .collect();
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.stops) = (3, stops);
    o
}

/// The same; the pod of this number keeps crashing.
fn crashing(number: usize, stops: StopOrder) -> Observed {
    let mut o = stateful_set(stops);
    let crashing = &mut o.pods[number];
    (crashing.ready, crashing.containers_ready) = (false, false);
    crashing.obstacle = Some(Obstacle {
        kind: ObstacleKind::CrashLoop,
        message: "container web keeps crashing".into(),
        failed: true,
    });
    o
}

fn marked(plan: &Plan) -> Option<Vec<&str>> {
    plan.steps.iter().find_map(|step| match step {
        Step::Mark { pods, .. } => Some(pods.iter().map(|p| p.name.as_str()).collect()),
        _ => None,
    })
}

/// Its controller would stop neither, until the kubelets' ticks have put both back into rotation.
#[test]
fn the_last_pod_of_an_ordered_stateful_set_leaves_only_when_the_others_are_gone() {
    let mut o = stateful_set(StopOrder::HighestAlone);
    o.target.as_mut().unwrap().replicas = 1;
    o.pods.truncate(2);
    assert_eq!(marked(&planned(&o)), None, "something else scaled it to 1");
    o.pods[1].terminating = true;
    assert_eq!(marked(&planned(&o)), Some(vec!["web-0"]));

    let drained = |change: Change| {
        let mut o = drained();
        o.target.as_mut().unwrap().stops = StopOrder::HighestAlone;
        let mut other = Pod {
            name: "web-2".into(),
            ..o.pods[0].clone()
        };
        other.uid = "uid-2".into();
        o.pods.push(other);
        change(&mut o);
        o.stable_since.pod_versions = { o.pods.iter() }
            .filter(|pod| !pod.terminating)
            .map(|pod| (pod.name.clone(), pod.version.clone()))
            .collect();
        scales_to_zero(&planned(&o))
    };
    assert!(!drained(|_| {}), "both are out of rotation");
    assert!(!drained(|o| o.pods[1].terminating = true));
    assert!(drained(|o| o.pods.truncate(1)));
    let other_kind: Change = |o| o.target.as_mut().unwrap().stops = StopOrder::Unknown;
    assert!(drained(other_kind), "its controller stops both at once");
}

#[test]
fn a_lower_pod_that_crashes_keeps_no_parallel_stateful_set_from_its_drain() {
    let plan = planned(&crashing(1, StopOrder::HighestFirst));
    assert_eq!(marked(&plan), Some(vec!["web-2"]), "{plan:?}");
}

#[test]
fn an_ordered_stateful_set_with_a_lower_pod_that_crashes_stays_awake_and_says_why() {
    let plan = planned(&crashing(1, StopOrder::HighestAlone));
    assert_eq!(plan.why.reason, Reason::CrashLoop, "{plan:?}");
    assert!(plan.why.sentence.contains("web-1"), "{plan:?}");
    assert!(!plan.steps.iter().any(|s| matches!(s, Step::Mark { .. })));
    let plan = planned(&crashing(2, StopOrder::HighestAlone));
    assert_eq!(plan.phase, Phase::Draining, "the top one is stopped next");
}

/// An ordered StatefulSet whose lowest pod was evicted and is ready again, after `change`.
fn renewed(ready_seconds: i64, change: Change) -> Plan {
    let mut o = stateful_set(StopOrder::HighestAlone);
    o.target.as_mut().unwrap().min_ready_seconds = 30;
    o.pods[0].ready_since = Some(ago(ready_seconds));
    o.me.remembered.ready_after_wake = Some(ago(LONG));
    change(&mut o);
    planned(&o)
}

/// Its controller stops a pod only when every lower one is available, and by then a tick may have undone the mark.
#[test]
fn an_ordered_stateful_set_is_drained_when_every_lower_pod_has_been_ready_for_long_enough() {
    for ready_seconds in [0, 5, 30] {
        let plan = renewed(ready_seconds, |_| {});
        assert_eq!(marked(&plan), None, "{ready_seconds} s");
        assert_eq!(plan.why.reason, Reason::Starting, "{plan:?}");
        assert!(plan.why.sentence.contains("web-0"), "{plan:?}");
        let available = ago(ready_seconds) + SignedDuration::from_secs(31);
        assert_eq!(plan.why.until, Some(available), "{plan:?}");
    }
    let unknown = renewed(5, |o| o.pods[0].ready_since = None);
    assert_eq!(marked(&unknown), None, "Kubernetes never counts it");
    let fine: &[(&str, i64, Change)] = &[
        ("long enough", 31, |_| {}),
        ("no such setting", 0, |o| {
            o.target.as_mut().unwrap().min_ready_seconds = 0;
        }),
        ("only the highest is new", 60, |o| {
            o.pods[2].ready_since = Some(now());
        }),
        ("its controller stops pods at once", 0, |o| {
            o.target.as_mut().unwrap().stops = StopOrder::HighestFirst;
        }),
    ];
    for (what, ready_seconds, change) in fine {
        let plan = renewed(*ready_seconds, *change);
        assert!(
            marked(&plan).is_some_and(|pods| pods.contains(&"web-2")),
            "{what}: {plan:?}"
        );
    }
}

#[test]
fn a_pod_of_an_ordered_stateful_set_that_was_unmarked_must_be_available_before_a_higher_one_goes() {
    let plan = renewed(60, |o| o.pods[1].ready_since = Some(ago(2)));
    assert_eq!(marked(&plan), None, "removing a mark made it ready anew");
    assert!(plan.why.sentence.contains("web-1"), "{plan:?}");
    let missing = renewed(5, |o| o.pods.truncate(1));
    assert_eq!(missing.why.reason, Reason::Starting, "{missing:?}");
    let last = renewed(5, |o| {
        o.pods.truncate(1);
        o.target.as_mut().unwrap().replicas = 1;
    });
    assert_eq!(marked(&last), Some(vec!["web-0"]), "nothing is below it");
}

/// The highest of two pods of an ordered StatefulSet is marked: the scale-down to one is due.
fn highest_drained() -> Observed {
    let mut o = group_drained();
    let target = o.target.as_mut().unwrap();
    (target.stops, target.min_ready_seconds) = (StopOrder::HighestAlone, 30);
    for name in [&mut o.pods[1].name, &mut o.endpoints[1].pod] {
        "web-0".clone_into(name);
    }
    o.stable_since.pod_versions.remove("web-2");
    o.stable_since
        .pod_versions
        .insert("web-0".into(), o.pods[1].version.clone());
    o
}

#[test]
fn the_highest_pod_of_an_ordered_stateful_set_goes_only_if_its_controller_stops_it_at_once() {
    let broken: &[(&str, Change)] = &[
        ("a lower pod is not ready", |o| o.pods[1].ready = false),
        ("a lower pod is not available yet", |o| {
            o.pods[1].ready_since = Some(ago(30));
        }),
        ("another pod terminates", |o| {
            let mut other = o.pods[1].clone();
            (other.name, other.terminating) = ("web-2".into(), true);
            o.pods.push(other);
        }),
    ];
    each_fact_counts(highest_drained, shrinks, broken);
}

#[test]
fn an_ordered_stateful_set_of_which_services_select_some_pods_only_stays_awake_and_says_why() {
    let mut o = crashing(2, StopOrder::HighestAlone);
    o.pods.truncate(1);
    let plan = planned(&o);
    assert_eq!(plan.why.reason, Reason::Unsupported, "{plan:?}");
    assert!(plan.why.sentence.contains("1 of the 3 pods"), "{plan:?}");
    assert_ne!(plan.phase, Phase::Draining);
    o.target.as_mut().unwrap().replicas = 1;
    assert_eq!(planned(&o).phase, Phase::Draining);
}
