//! How wake requests are decided, and with how many replicas.

use elasti_api::{ElastiServiceSpec, Reason};
use elasti_core::observed::{Author, Autoscaler, Claim, Leadership, Owned, Rival, ServiceKind};
use elasti_core::replicas::on_wake;
use elasti_core::{Observed, Promise, Step, WakeDecision, wake};
use jiff::SignedDuration;

use crate::plan_tables::facts::{Change, active, ago, asleep, draining, planned, serving, spec};

fn answer(change: Change) -> WakeDecision {
    let mut o = asleep();
    change(&mut o);
    wake(&spec(), &o)
}

#[test]
fn a_wake_scales_from_zero_on_every_replica_and_in_any_state_of_the_resolvers() {
    let fine: &[(&str, Change)] = &[
        ("asleep", |_| {}),
        ("on a follower", |o| o.leadership = Leadership::Follower),
        ("no resolver ready", |o| o.resolvers.clear()),
        ("before the redirect existed", |o| o.slice = Owned::Missing),
        ("a Service that became headless", |o| {
            o.service.as_mut().unwrap().kind = ServiceKind::Headless;
        }),
        ("someone zeroed it long after the last wake", |o| {
            o.target.as_mut().unwrap().replicas_by = Author::Other("kubectl".into());
        }),
    ];
    for (what, change) in fine {
        assert_eq!(answer(*change), WakeDecision::Scale(1), "{what}");
    }
}

#[test]
fn a_wake_is_refused_with_the_reason_where_this_elasti_service_may_not_scale() {
    let refused: &[(Change, Reason)] = &[
        (
            |o| {
                o.rival = Some(Rival {
                    name: "older".into(),
                    claim: Claim::Service,
                })
            },
            Reason::Conflict,
        ),
        (|o| o.slice = Owned::Foreign, Reason::Conflict),
        (|o| o.private_service = Owned::Foreign, Reason::Conflict),
        (|o| o.namespace_terminating = true, Reason::Deleting),
        (|o| o.service = None, Reason::ServiceNotFound),
        (|o| o.target = None, Reason::TargetNotFound),
        (
            |o| {
                o.target.as_mut().unwrap().replicas_by = Author::Other("argocd".into());
                o.me.remembered.last_wake = Some(ago(3));
            },
            Reason::Contended,
        ),
    ];
    for (change, reason) in refused {
        match answer(*change) {
            WakeDecision::Refused(why) => assert_eq!(why.reason, *reason),
            other => panic!("{reason}: {other:?}"),
        }
    }
}

#[test]
fn a_wake_never_writes_a_target_that_has_replicas() {
    for replicas in [1, 5] {
        let mut o = serving();
        o.target.as_mut().unwrap().replicas = replicas;
        let decision = wake(&spec(), &o);
        assert!(matches!(decision, WakeDecision::AlreadyAwake(_)));
    }
}

/// What is promised for a service whose only pod is marked, after `change`.
fn promise(change: Change) -> Option<Promise> {
    let mut o = draining();
    change(&mut o);
    match wake(&spec(), &o) {
        WakeDecision::AlreadyAwake(promise) => promise,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_leader_promises_a_marked_pod_until_its_lease_ends_at_the_latest() {
    let o = draining();
    let promised = promise(|_| {}).unwrap();
    assert_eq!(promised.until, o.now + o.settings.promise);
    let names: Vec<(&str, &str)> = promised
        .pods
        .iter()
        .map(|pod| (pod.name.as_str(), pod.uid.as_str()))
        .collect();
    assert_eq!(names, [("web-1", "uid-1")]);
    assert_eq!(promised.left(o.now), o.settings.promise);

    let lease_end = o.now + SignedDuration::from_secs(1);
    let short = promise(|o| {
        let until = o.now + SignedDuration::from_secs(1);
        o.leadership = Leadership::Leader { until };
    });
    assert_eq!(short.unwrap().until, lease_end);
}

#[test]
fn nothing_is_promised_that_may_not_be_kept() {
    let cases: &[(&str, Change)] = &[
        ("a follower", |o| o.leadership = Leadership::Follower),
        ("at the end of the lease", |o| {
            o.leadership = Leadership::Leader { until: o.now };
        }),
        ("a zero may just have been sent", |o| {
            o.stable_since.zeroed_at = Some(ago(1));
        }),
        ("replicas were just written", |o| {
            o.target.as_mut().unwrap().replicas_at = Some(ago(2));
        }),
        ("the leader before may have sent a zero", |o| {
            o.stable_since.watching_since = ago(1);
        }),
        ("the pod terminates", |o| o.pods[0].terminating = true),
        ("its containers are not ready", |o| {
            o.pods[0].containers_ready = false;
        }),
        ("it is not ready, and not because of us", |o| {
            o.pods[0].marked = false;
        }),
        ("there is no pod", |o| o.pods.clear()),
    ];
    for (what, change) in cases {
        assert_eq!(promise(*change), None, "{what}");
    }
}

#[test]
fn r18_an_omitted_min_target_replicas_wakes_to_one() {
    let mut omitted = spec();
    omitted.min_target_replicas = 0;
    let cases: &[(u32, Autoscaler, u32)] = &[
        (0, Autoscaler::None, 1),
        (1, Autoscaler::None, 1),
        (3, Autoscaler::None, 3),
        (1, Autoscaler::Hpa { min_replicas: 4 }, 4),
        (5, Autoscaler::Hpa { min_replicas: 4 }, 5),
        (0, Autoscaler::Hpa { min_replicas: 0 }, 1),
        (2, Autoscaler::Missing, 2),
    ];
    for (written, autoscaler, woken) in cases {
        let spec = ElastiServiceSpec {
            min_target_replicas: *written,
            ..omitted.clone()
        };
        assert_eq!(
            on_wake(&spec, autoscaler),
            *woken,
            "{written} {autoscaler:?}"
        );
    }
}

#[test]
fn a_wake_comes_before_everything_else_in_its_plan() {
    let mut o: Observed = asleep();
    o.readings = vec![active()];
    o.me.finalizer = false;
    o.private_service = Owned::Missing;
    o.resolvers[1].ready = false;
    assert_eq!(planned(&o).steps.first(), Some(&Step::Wake(1)));
}
