//! How wake requests are decided, and with how many replicas.

use elasti_api::{ElastiServiceSpec, ElastiServiceStatus, Phase, Reason};
use elasti_core::observed::UserRequest;
use elasti_core::observed::{
    Author, Autoscaler, Claim, KedaPause, Leadership, Owned, Remembered, Rival, ServiceKind,
};
use elasti_core::replicas::on_wake;
use elasti_core::stable_since::{ObservedZero, SentScaleDown};
use elasti_core::status::status;
use elasti_core::{Observed, Promise, Step, WakeDecision, wake};
use jiff::SignedDuration;

use crate::plan_tables::facts::{
    Change, active, ago, asleep, drained, draining, idle, now, planned, serving, spec, unknown,
};

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
fn the_pause_before_the_next_wake_grows_while_something_else_scales_to_zero_again_and_again() {
    // How long it has been contended, how long ago the last wake was, and whether the next one waits.
    let cases = [
        (1, 3, true),
        (1, 10, false),
        (25, 12, true),
        (25, 13, false),
        (2_000, 639, true),
        (2_000, 640, false),
    ];
    for (contended, woken, waits) in cases {
        let mut o = asleep();
        o.me.remembered.contended_since = Some(ago(contended));
        o.me.remembered.last_wake = Some(ago(woken));
        let refused = matches!(wake(&spec(), &o), WakeDecision::Refused(why) if why.reason == Reason::Contended);
        assert_eq!(refused, waits, "{contended} s, {woken} s");
    }
}

#[test]
fn a_zero_by_others_answers_the_requests_before_it_and_no_later_one() {
    let wakes = |change: Change| {
        let mut o = asleep();
        o.stable_since.replicas = Some(1);
        o.wake_requested_at = Some(ago(5));
        change(&mut o);
        planned(&o).steps.first() == Some(&Step::Wake(1))
    };
    assert!(!wakes(|_| {}), "requested before the zero");
    assert!(!wakes(|o| o.woken_at = Some(ago(4))), "and carried out");
    let ours: Change = |o| {
        let generation = o
            .target
            .as_ref()
            .and_then(|t| t.generation.map(|now| now - 1));
        o.stable_since.sent = Some(SentScaleDown { to: 0, generation });
    };
    assert!(wakes(ours), "requested while our own zero was sent");
    let after_ours: Change = |o| {
        let generation = o
            .target
            .as_ref()
            .and_then(|t| t.generation.map(|now| now - 3));
        o.stable_since.sent = Some(SentScaleDown { to: 0, generation });
    };
    assert!(!wakes(after_ours), "our own zero was not the last change");
    let later: Change = |o| {
        o.stable_since.zero = Some(ObservedZero {
            since: ago(7),
            by_other: true,
        });
    };
    assert!(wakes(later), "requested after it");
    let user: Change = |o| {
        o.wake_requested_at = None;
        o.me.wake_request = UserRequest::At(ago(5));
    };
    assert!(
        wakes(user),
        "whether a user's request came before it is not known"
    );
    let served: Change = |o| {
        o.wake_requested_at = None;
        o.me.wake_request = UserRequest::At(ago(5));
        o.stable_since.served_wake = Some(ago(5));
    };
    assert!(!wakes(served), "it was up since the user's request");
    assert!(
        wakes(|o| o.readings = vec![active()]),
        "a trigger is active"
    );
}

#[test]
fn a_wake_against_a_zero_of_others_needs_facts_that_are_newer() {
    let plan = |by_other| {
        let mut o = asleep();
        o.readings = vec![active()];
        o.stable_since.zero = Some(ObservedZero {
            since: ago(7),
            by_other,
        });
        planned(&o)
    };
    assert!(plan(true).needs_fresh_facts());
    assert!(!plan(false).needs_fresh_facts());
    assert!(
        plan(true).needs_fresh_readings(),
        "the reading may be from before the zero"
    );
    assert!(!plan(false).needs_fresh_readings());
}

#[test]
fn a_wake_for_a_request_that_is_held_at_a_zero_of_others_does_not_wait_for_readings() {
    let mut o = asleep();
    o.stable_since.zero = Some(ObservedZero {
        since: ago(7),
        by_other: true,
    });
    crate::plan_tables::facts::report(&mut o, |_, held, _, _| *held = 1);
    let plan = planned(&o);
    assert_eq!(plan.why.reason, Reason::Traffic);
    assert!(plan.needs_fresh_facts() && !plan.needs_fresh_readings());
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

/// The zero may be applied although its answer got lost, and the cache may still show the replicas before it.
#[test]
fn nothing_is_promised_after_a_scale_down_was_sent_that_no_reconcile_has_observed() {
    let mut o = drained();
    o.target.as_mut().unwrap().generation = Some(4);
    o.stable_since.steady = Some(4);
    let promised = |o: &Observed| match wake(&spec(), o) {
        WakeDecision::AlreadyAwake(promise) => promise,
        other => panic!("{other:?}"),
    };
    assert!(promised(&o).is_some(), "nothing was sent");
    let plan = planned(&o);
    assert!(plan.steps.iter().any(|s| matches!(s, Step::ScaleToZero(_))));
    o.stable_since = o.after(&plan.steps);
    o.stable_since = o.stable_since.clone().observe(&o);
    assert_eq!(promised(&o), None);
}

/// Which pods a scale-down of ours stops is known once they have begun to terminate, long before the controllers' time
/// is over; and a scale-up of ours after it stops none.
#[test]
fn what_our_scale_down_has_left_is_promised_once_the_others_terminate() {
    let promised = |change: Change| {
        let mut o = draining();
        let mut other = o.pods[0].clone();
        (other.name, other.terminating) = ("web-2".into(), true);
        o.pods.push(other);
        let target = o.target.as_mut().unwrap();
        (target.generation, target.replicas_at) = (Some(5), Some(ago(1)));
        let generation = Some(4);
        o.stable_since.sent = Some(SentScaleDown { to: 1, generation });
        change(&mut o);
        o.stable_since = o.stable_since.clone().observe(&o);
        match wake(&spec(), &o) {
            WakeDecision::AlreadyAwake(promise) => promise.map(|promise| promise.pods.len()),
            other => panic!("{other:?}"),
        }
    };
    let raised: Change = |o| {
        (o.stable_since.sent, o.stable_since.steady) = (None, Some(4));
        o.stable_since.raising = Some(2);
        o.target.as_mut().unwrap().replicas = 2;
    };
    assert_eq!(promised(|_| {}), Some(1), "the one that stays");
    assert_eq!(
        promised(raised),
        Some(1),
        "and is not the only one for long"
    );
    let broken: &[(&str, Change)] = &[
        ("one of the two may be stopped", |o| {
            o.pods[1].terminating = false
        }),
        ("something else has changed the target since", |o| {
            o.target.as_mut().unwrap().generation = Some(6);
        }),
        ("something else has scaled it up", |o| {
            (o.stable_since.sent, o.stable_since.steady) = (None, Some(4));
            o.target.as_mut().unwrap().replicas = 2;
        }),
    ];
    for (what, change) in broken {
        assert_eq!(promised(*change), None, "{what}");
    }
}

#[test]
fn a_scale_down_is_forgotten_when_anything_has_changed_the_target_since() {
    let observed = |change: Change| {
        let mut o = draining();
        o.target.as_mut().unwrap().generation = Some(5);
        o.stable_since.sent = Some(SentScaleDown {
            to: o.replicas().unwrap(),
            generation: Some(4),
        });
        change(&mut o);
        o.stable_since.clone().observe(&o).shrunk.is_some()
    };
    assert!(observed(|_| {}));
    assert!(!observed(
        |o| o.target.as_mut().unwrap().generation = Some(6)
    ));
    assert!(!observed(|o| o.target.as_mut().unwrap().generation = None));
    assert!(!observed(|o| o.target.as_mut().unwrap().replicas = 7));
}

/// The replicas change from the first number to the second, in the target's generation 5 or another, after this process
/// has sent a scale-down or a restore in generation 4: whether something else wrote them.
fn by_other(
    (before, now): (u32, u32),
    generation: i64,
    sent: Option<u32>,
    raising: Option<u32>,
) -> bool {
    let mut o = draining();
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.generation) = (now, Some(generation));
    (target.replicas_by, target.replicas_at) = (Author::Unknown, None);
    o.stable_since.replicas = Some(before);
    o.stable_since.raising = raising;
    o.stable_since.sent = sent.map(|to| SentScaleDown {
        to,
        generation: Some(4),
    });
    o.stable_since.clone().observe(&o).by_other
}

#[test]
fn replicas_without_a_recorded_writer_are_ours_only_if_this_process_has_just_written_them() {
    for (what, replicas, generation, sent, raising) in [
        ("a scale-down", (5, 4), 5, Some(4), None),
        ("a zero", (5, 0), 5, Some(0), None),
        (
            "a wake after a zero that was not observed",
            (5, 1),
            6,
            Some(0),
            None,
        ),
        ("a restore", (4, 5), 5, None, Some(5)),
        ("a wake", (0, 1), 5, None, None),
        ("nothing", (5, 5), 4, Some(4), None),
    ] {
        assert!(!by_other(replicas, generation, sent, raising), "{what}");
    }
    for (what, replicas, generation, sent, raising) in [
        ("a user scales up", (2, 5), 5, None, None),
        ("a user scales down", (5, 2), 5, None, None),
        ("after our scale-down", (5, 2), 6, Some(4), None),
        ("to the same number after it", (5, 4), 6, Some(4), None),
        ("so that our zero was refused", (5, 2), 5, Some(0), None),
        ("so that our restore was refused", (4, 2), 5, None, Some(5)),
        ("after our restore", (4, 2), 6, None, Some(5)),
    ] {
        assert!(by_other(replicas, generation, sent, raising), "{what}");
    }
}

/// The answer was lost, and the cache showed the change only after another reconcile.
#[test]
fn a_scale_down_is_ours_also_if_it_is_observed_late() {
    for (replicas, by_other) in [(4, false), (0, true)] {
        let mut o = draining();
        let target = o.target.as_mut().unwrap();
        (target.replicas, target.generation) = (5, Some(4));
        (target.replicas_by, target.replicas_at) = (Author::Unknown, None);
        o.stable_since.replicas = Some(5);
        o.stable_since.sent = Some(SentScaleDown {
            to: 4,
            generation: Some(4),
        });
        o.stable_since = o.stable_since.clone().observe(&o);
        let target = o.target.as_mut().unwrap();
        (target.replicas, target.generation) = (replicas, Some(5));
        let seen = o.stable_since.clone().observe(&o);
        assert_eq!(seen.by_other, by_other, "{replicas}");
    }
}

#[test]
fn only_a_wake_for_lack_of_resolvers_can_be_put_off() {
    let mut o = asleep();
    o.resolvers.clear();
    o.stable_since.no_resolver_since = Some(ago(60));
    let plan = planned(&o);
    assert!(plan.wakes_for_lack_of_resolvers(), "{plan:?}");
    let later = now() + SignedDuration::from_secs(5);
    let put_off = plan.without_wake_until(later);
    assert!(
        !put_off
            .steps
            .iter()
            .any(|step| matches!(step, Step::Wake(_)))
    );
    assert_eq!(
        (put_off.phase, put_off.requeue_at),
        (Phase::Asleep, Some(later))
    );
    o.readings = vec![active()];
    let plan = planned(&o);
    assert!(plan.steps.iter().any(|step| matches!(step, Step::Wake(_))));
    assert!(!plan.wakes_for_lack_of_resolvers(), "a trigger wakes it");
}

#[test]
fn the_end_of_the_grace_for_resolvers_is_met_whatever_else_keeps_it_asleep() {
    let mut o = asleep();
    o.resolvers.clear();
    o.stable_since.no_resolver_since = Some(ago(10));
    o.readings = vec![unknown("down")];
    let ends = now() + SignedDuration::from_secs(20);
    let plan = planned(&o);
    assert!(plan.requeue_at.is_some_and(|at| at <= ends), "{plan:?}");
}

#[test]
fn an_owners_pause_at_zero_of_a_running_target_is_left_alone_and_one_from_before_the_wake_is_released()
 {
    let paused = |mut o: Observed, recorded: Option<u32>| {
        o.me.remembered.replicas = recorded;
        o.autoscaler = Autoscaler::Keda(KedaPause {
            paused: Some("true".into()),
            paused_replicas: Some("0".into()),
            before: None,
        });
        let released = |step: &Step| matches!(step, Step::ReleaseAutoscaler(_));
        planned(&o).steps.iter().any(released)
    };
    assert!(!paused(serving(), Some(1)), "its owner has just paused it");
    assert!(paused(serving(), Some(0)), "KEDA would undo this wake");
    assert!(paused(serving(), None), "KubeElasti left it so");
    let mut awake = asleep();
    awake.readings = vec![active()];
    assert!(paused(awake, Some(0)), "it is released with the wake");
}

#[test]
fn a_pause_that_was_left_is_released_until_that_succeeds_also_after_the_other_operators_end() {
    let releases = |o: &Observed| {
        let released = |step: &Step| matches!(step, Step::ReleaseAutoscaler(_));
        planned(o).steps.iter().any(released)
    };
    let pause = |paused: &str| {
        Autoscaler::Keda(KedaPause {
            paused: Some(paused.into()),
            paused_replicas: Some("0".into()),
            before: None,
        })
    };
    for (predecessor, recorded) in [
        (None, Some(0)),
        (None, None),
        (Some("elasti/manager-0".to_owned()), Some(0)),
        (Some("elasti/manager-0".to_owned()), None),
    ] {
        let mut o = serving();
        o.predecessor.clone_from(&predecessor);
        o.me.remembered.replicas = recorded;
        o.autoscaler = pause("true");
        assert_eq!(releases(&o), predecessor.is_none());
        // The release was refused or had to wait, and the status says that the target is awake.
        let mut written = ElastiServiceStatus::default();
        for _ in 0..2 {
            written = status(&spec(), &o, &planned(&o), &written);
            assert_eq!(written.replicas, Some(1));
            o.me.remembered = Remembered::from(&written);
        }
        o.predecessor = None;
        assert!(releases(&o), "{predecessor:?}, {recorded:?}");
        o.autoscaler = pause("false");
        let done = status(&spec(), &o, &planned(&o), &written);
        assert_eq!((releases(&o), done.pause_left), (false, None));
    }
}

#[test]
fn a_pause_that_was_left_is_not_kept_as_its_owners_by_the_next_sleep() {
    let pause = KedaPause {
        paused: Some("true".into()),
        paused_replicas: Some("0".into()),
        before: None,
    };
    let restored_after = |recorded: Option<u32>, pause_left: bool| {
        let mut o = idle();
        o.me.remembered.replicas = recorded;
        o.me.remembered.pause_left = pause_left;
        o.autoscaler = Autoscaler::Keda(pause.clone());
        // It was woken, and is idle again before the release has succeeded.
        let steps = planned(&o).steps;
        let held = steps.into_iter().find_map(|step| match step {
            Step::HoldAutoscaler(held) => Some(held),
            _ => None,
        });
        o.autoscaler = Autoscaler::Keda(held.unwrap());
        o.readings = vec![active()];
        let released = |step| match step {
            Step::ReleaseAutoscaler(released) => Some(released),
            _ => None,
        };
        planned(&o).steps.into_iter().find_map(released).unwrap()
    };
    let none = KedaPause {
        paused: Some("false".into()),
        ..KedaPause::default()
    };
    assert_eq!(restored_after(None, false), none, "KubeElasti wrote it");
    assert_eq!(restored_after(Some(1), true), none, "its release failed");
    assert_eq!(restored_after(Some(1), false), pause, "it is its owner's");
}
