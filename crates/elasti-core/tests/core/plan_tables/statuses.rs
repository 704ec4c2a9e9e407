//! What the status says, since when, and that it changes only when something else does.

use elasti_api::{Condition, ElastiServiceStatus, Mode, Phase, Reason, Time, WakeClient};
use elasti_core::observed::{
    Author, Owned, Reading, ReadingDetails, Remembered, Report, SeenClient, UserRequest,
};
use elasti_core::status::{Refusal, status, status_after, status_without_facts};
use elasti_core::{Observed, Plan};
use jiff::SignedDuration;

use crate::plan_tables::facts::{
    active, ago, asleep, draining, finalize, net, now, observed, planned, quiet, redirecting,
    report, restoring, serving, spec, unknown, waking,
};

/// The status for these facts after another; the facts then remember it, as the next reconcile would.
fn report_status(o: &mut Observed, previous: &ElastiServiceStatus) -> (Plan, ElastiServiceStatus) {
    let plan = planned(o);
    let next = status(&spec(), &observed(o), &plan, previous);
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
        finalize(),
    ] {
        let (_, first) = report_status(&mut o, &ElastiServiceStatus::default());
        let (plan, second) = report_status(&mut o, &first);
        let (again, third) = report_status(&mut o, &second);
        assert_eq!((plan, &second), (again, &third));
    }
}

#[test]
fn at_rest_nothing_is_written_however_much_time_passes() {
    let mut held = serving();
    held.readings = vec![active()];
    for mut o in [held, asleep()] {
        let (_, before) = report_status(&mut o, &ElastiServiceStatus::default());
        for _ in 0..5 {
            o.now += SignedDuration::from_millis(30_037);
            let (plan, after) = report_status(&mut o, &before);
            assert!(plan.steps.is_empty(), "{plan:?}");
            assert_eq!(after, before);
        }
    }
}

#[test]
fn whether_it_is_quiet_is_written_with_the_end_of_a_restore() {
    let mut o = restoring();
    o.me.wake_request = UserRequest::At(ago(4));
    o.readings = vec![quiet()];
    o.me.remembered.quiet_since = Some(ago(60));
    let (plan, before) = report_status(&mut o, &ElastiServiceStatus::default());
    assert!(plan.needs_fresh_facts(), "{:?}", plan.steps);
    assert!(before.quiet_since.is_some());
    // The resolvers are asked before they leave the path, and one has a request.
    report(&mut o, |_, _, open, _| *open = 1);
    let (_, same) = report_status(&mut o, &before);
    assert_eq!(same, before);
    o.slice = Owned::Ours(vec![net()]);
    let (_, after) = report_status(&mut o, &same);
    assert_eq!(after.phase, Some(Phase::Serving));
    assert_eq!(after.quiet_since, None);
    assert_eq!(after.last_active_time, Some(Time(now())));
}

#[test]
fn every_time_in_a_status_is_in_whole_seconds_as_the_api_server_stores_it() {
    let mut o = waking();
    o.now += SignedDuration::from_micros(123_456);
    o.wake_requested_at = Some(o.now);
    let (_, written) = report_status(&mut o, &ElastiServiceStatus::default());
    let times = [
        &written.quiet_since,
        &written.last_active_time,
        &written.last_scaled_up_time,
    ];
    let times = times
        .into_iter()
        .chain([&written.last_sleep_time, &written.last_reconciled_time]);
    for Time(at) in times.flatten() {
        assert_eq!(at.subsec_nanosecond(), 0, "{written:?}");
    }
}

#[test]
fn a_sleep_and_a_wake_within_one_second_are_both_seen() {
    let mut o = serving();
    let (_, awake) = report_status(&mut o, &ElastiServiceStatus::default());
    o.target.as_mut().unwrap().replicas = 0;
    o.now += SignedDuration::from_millis(100);
    let (_, down) = report_status(&mut o, &awake);
    assert_eq!(down.last_sleep_time, Some(Time(now())));
    o.target.as_mut().unwrap().replicas = 1;
    o.now += SignedDuration::from_millis(100);
    let (_, up) = report_status(&mut o, &down);
    assert_eq!(up.last_scaled_up_time, Some(Time(now())));
    let (_, again) = report_status(&mut o, &up);
    assert_eq!(again, up);
}

#[test]
fn a_condition_keeps_its_transition_time_until_its_status_changes() {
    let mut o = serving();
    let (_, first) = report_status(&mut o, &ElastiServiceStatus::default());
    o.now += SignedDuration::from_secs(60);
    o.wake_requested_at = Some(o.now);
    o.readings = vec![crate::plan_tables::facts::quiet()];
    let (_, second) = report_status(&mut o, &first);
    let (before, after) = (condition(&first, "Ready"), condition(&second, "Ready"));
    assert_ne!(before.reason, after.reason, "another reason");
    assert_eq!(before.last_transition_time, after.last_transition_time);
    o.now += SignedDuration::from_secs(60);
    o.target = None;
    let (_, third) = report_status(&mut o, &second);
    let changed = condition(&third, "Ready");
    assert_eq!(
        (changed.status.as_str(), &changed.last_transition_time),
        ("False", &Time(o.now))
    );
}

#[test]
fn each_condition_has_the_generation_that_was_observed() {
    let mut o = serving();
    o.me.generation = 4;
    let (_, written) = report_status(&mut o, &ElastiServiceStatus::default());
    assert!(
        written
            .conditions
            .iter()
            .all(|c| c.observed_generation == Some(4))
    );
    assert_eq!(written.observed_generation, Some(4));
}

#[test]
fn contended_names_who_scaled_from_or_to_zero_until_elasti_does() {
    let mut o = serving();
    let (_, awake) = report_status(&mut o, &ElastiServiceStatus::default());
    assert_eq!(condition(&awake, "Contended").status, "False");
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.replicas_by) = (0, Author::Other("kubectl".into()));
    let (_, zeroed) = report_status(&mut o, &awake);
    assert_eq!(
        condition(&zeroed, "Contended").message,
        "kubectl set replicas to 0."
    );
    let contended = |o: &mut Observed, seconds: i64, previous: &ElastiServiceStatus| {
        o.now += SignedDuration::from_secs(seconds);
        let (_, status) = report_status(o, previous);
        (condition(&status, "Contended").status.clone(), status)
    };
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.replicas_by) = (1, Author::Elasti);
    let (stands, _) = contended(&mut o.clone(), 60, &zeroed);
    assert_eq!(
        stands, "False",
        "a wake long after the zero is another matter"
    );
    let (again, woken) = contended(&mut o, 5, &zeroed);
    assert_eq!(again, "True", "the zero may come again");
    let (again, woken) = contended(&mut o, 9, &woken);
    assert_eq!(again, "True", "it goes on");
    let (stands, _) = contended(&mut o, 1, &woken);
    assert_eq!(stands, "False", "the wake stands");
}

#[test]
fn a_raise_of_an_awake_target_does_not_prolong_contended_and_one_from_zero_does() {
    let by = |writer: &str| Author::Other(writer.into());
    let set = |o: &mut Observed, replicas: u32, writer: Author| {
        let target = o.target.as_mut().unwrap();
        (target.replicas, target.replicas_by) = (replicas, writer);
    };
    for (woken_by, status_after) in [(Author::Elasti, "False"), (by("kubectl"), "True")] {
        let mut o = serving();
        let (_, written) = report_status(&mut o, &ElastiServiceStatus::default());
        set(&mut o, 0, by("kubectl"));
        let (_, written) = report_status(&mut o, &written);
        set(&mut o, 1, woken_by);
        o.now += SignedDuration::from_secs(5);
        let (_, written) = report_status(&mut o, &written);
        assert_eq!(condition(&written, "Contended").status, "True");
        set(&mut o, 3, by("hpa"));
        o.now += SignedDuration::from_secs(60);
        let (_, written) = report_status(&mut o, &written);
        assert_eq!(condition(&written, "Contended").status, status_after);
    }
}

#[test]
fn a_held_count_alone_is_no_reason_to_write() {
    let mut o = asleep();
    let (_, before) = report_status(&mut o, &ElastiServiceStatus::default());
    crate::plan_tables::facts::report(&mut o, |at, _, _, last| {
        *at = ago(0);
        *last = None;
    });
    let (_, after) = report_status(&mut o, &before);
    assert_eq!(after, before);
}

#[test]
fn a_trigger_is_written_when_its_reading_changes_and_its_value_along_with_other_changes() {
    let mut o = serving();
    let (_, first) = report_status(&mut o, &ElastiServiceStatus::default());
    let entry = |status: &ElastiServiceStatus| {
        let written = status.triggers.first().unwrap();
        let value = written.value.clone();
        (written.reading.clone(), value, written.since.0)
    };
    assert_eq!(entry(&first), ("active".into(), Some("12".into()), now()));
    o.now += SignedDuration::from_secs(30);
    o.readings = vec![Reading::Active {
        value: 40.0,
        threshold: 5.0,
    }];
    let (_, same) = report_status(&mut o, &first);
    assert_eq!(same, first, "another value is no reason to write");
    o.me.generation += 1;
    let (_, news) = report_status(&mut o, &same);
    assert_eq!(entry(&news), ("active".into(), Some("40".into()), now()));
    o.readings = vec![unknown("no answer")];
    let (_, doubt) = report_status(&mut o, &news);
    assert_eq!(entry(&doubt), ("unknown".into(), None, o.now));
    let message = doubt.triggers.first().unwrap().message.as_deref();
    assert_eq!(message, Some("no answer."));
}

#[test]
fn when_a_value_was_read_is_written_with_it_and_is_no_reason_to_write() {
    let read = |o: &mut Observed, seconds: i64| {
        let read_at = Some(ago(seconds));
        o.reading_details = vec![ReadingDetails {
            read_at,
            without_series: Some(Vec::new()),
        }];
    };
    let read_at = |status: &ElastiServiceStatus| {
        let written = status.triggers.first().unwrap();
        written.read_at.as_ref().map(|at| at.0)
    };
    let mut o = serving();
    read(&mut o, 12);
    let (_, first) = report_status(&mut o, &ElastiServiceStatus::default());
    assert_eq!(read_at(&first), Some(ago(12)));
    read(&mut o, 0);
    let (_, same) = report_status(&mut o, &first);
    assert_eq!(same, first, "a later reading is no reason to write");
    // It is told also of a reading that is stale by now, once.
    read(&mut o, 100);
    o.readings = vec![Reading::unknown(
        "its last reading is stale, more than 90 s old",
    )];
    let (_, stale) = report_status(&mut o, &same);
    assert_eq!(read_at(&stale), Some(ago(100)));
    let (_, rest) = report_status(&mut o, &stale);
    assert_eq!(rest, stale);
}

#[test]
fn metrics_without_series_are_a_condition_that_no_restart_and_no_sleep_ends() {
    let named = |o: &mut Observed, metrics: Option<&[&str]>| {
        let own = |names: &[&str]| names.iter().map(|one| (*one).to_owned()).collect();
        o.reading_details = vec![ReadingDetails {
            read_at: None,
            without_series: metrics.map(own),
        }];
    };
    let message = |status: &ElastiServiceStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|c| c.type_ == "MetricsMissing");
        found.map(|c| c.message.clone())
    };
    let mut o = serving();
    named(&mut o, Some(&[]));
    let (_, right) = report_status(&mut o, &ElastiServiceStatus::default());
    assert_eq!(message(&right), None);
    named(&mut o, Some(&["reqests_total", "load"]));
    let (_, wrong) = report_status(&mut o, &right);
    let said = message(&wrong).unwrap();
    assert!(
        said.starts_with("Trigger 0 reads only what its query falls back on")
            && said.contains("reqests_total, load"),
        "{said}"
    );
    let ready = wrong.conditions.iter().find(|c| c.type_ == "Ready");
    assert_eq!(ready.unwrap().status, "True", "it is a warning");
    let (_, rest) = report_status(&mut o, &wrong);
    assert_eq!(rest, wrong);
    // Not known again yet, after a restart.
    named(&mut o, None);
    let (_, restarted) = report_status(&mut o, &wrong);
    assert_eq!(restarted, wrong);
    o.reading_details.clear();
    let (_, begun) = report_status(&mut o, &wrong);
    assert_eq!(begun, wrong, "no trigger is read yet");
    named(&mut o, None);
    let mut changed = o.clone();
    changed.me.generation += 1;
    assert_eq!(message(&report_status(&mut changed, &wrong).1), None);
    named(&mut o, Some(&[]));
    assert_eq!(message(&report_status(&mut o, &wrong).1), None, "mended");
    // At zero the service's own pods report nothing.
    let mut o = asleep();
    named(&mut o, Some(&["load"]));
    let (_, asleep) = report_status(&mut o, &ElastiServiceStatus::default());
    assert_eq!(message(&asleep), None);
}

#[test]
fn triggers_that_are_not_read_yet_change_nothing_in_the_status() {
    let mut quiet = serving();
    quiet.readings = vec![crate::plan_tables::facts::quiet()];
    quiet.me.remembered.quiet_since = Some(ago(60));
    for mut o in [serving(), quiet, asleep()] {
        let (_, before) = report_status(&mut o, &ElastiServiceStatus::default());
        for unread in [Vec::new(), vec![Reading::Unread]] {
            o.readings = unread;
            let (plan, after) = report_status(&mut o, &before);
            assert_eq!(after, before);
            assert!(!plan.needs_fresh_facts(), "{plan:?}");
        }
    }
}

/// Asleep for half an hour, and then woken.
fn woken(change: impl FnOnce(&mut Observed)) -> ElastiServiceStatus {
    let mut o = asleep();
    let (_, down) = report_status(&mut o, &ElastiServiceStatus::default());
    o.stable_since = observed(&o).stable_since;
    o.now += SignedDuration::from_millis(1_234);
    let target = o.target.as_mut().unwrap();
    (target.replicas, target.replicas_at) = (1, Some(o.now));
    change(&mut o);
    report_status(&mut o, &down).1
}

#[test]
fn the_last_wake_says_what_woke_it() {
    let by = |change: fn(&mut Observed)| woken(change).last_wake.unwrap().by;
    assert_eq!(by(|o| o.wake_requested_at = Some(o.now)), "Traffic");
    assert_eq!(
        by(|_| {}),
        "Traffic",
        "another replica got the wake request"
    );
    assert_eq!(by(|o| o.readings = vec![active()]), "TriggerActive");
    assert_eq!(
        by(|o| o.me.wake_request = UserRequest::At(o.now)),
        "WakeRequested"
    );
    assert_eq!(by(|o| o.me.deleting_since = Some(o.now)), "Deleting");
    let other = |o: &mut Observed| {
        o.target.as_mut().unwrap().replicas_by = Author::Other("kubectl".into());
    };
    assert_eq!(by(other), "Manual");
    assert_eq!(
        by(|o| o.stable_since.no_resolver_since = {
            o.resolvers.clear();
            Some(ago(60))
        }),
        "NoResolver"
    );
}

/// As after every zero through `/scale`: the record names no writer of the replicas.
fn unrecorded(o: &mut Observed) {
    let target = o.target.as_mut().unwrap();
    (target.replicas_by, target.replicas_at) = (Author::Unknown, None);
}

#[test]
fn without_a_record_the_last_wake_still_says_what_woke_it() {
    let by = |change: fn(&mut Observed)| {
        let woken = woken(|o| {
            unrecorded(o);
            change(o);
        });
        woken.last_wake.unwrap().by
    };
    assert_eq!(by(|o| o.wake_requested_at = Some(o.now)), "Traffic");
    assert_eq!(by(|o| o.readings = vec![active()]), "TriggerActive");
    assert_eq!(
        by(|o| o.me.wake_request = UserRequest::At(o.now)),
        "WakeRequested"
    );
    assert_eq!(by(|o| o.me.deleting_since = Some(o.now)), "Deleting");
    assert_eq!(by(|o| o.woken_at = Some(o.now)), "Traffic");
    assert_eq!(by(|_| {}), "Manual");
    let held = |o: &mut Observed| {
        let now = o.now;
        if let Report::Seen { at, held, .. } = &mut o.resolvers[0].report {
            (*at, *held) = (now, 1);
        }
    };
    assert_eq!(by(held), "Traffic", "another replica got the wake request");
}

#[test]
fn only_a_report_from_after_the_zero_tells_what_woke_it() {
    let asks = |millis_after_zero: i64| {
        let mut o = asleep();
        report_status(&mut o, &ElastiServiceStatus::default());
        o.stable_since = observed(&o).stable_since;
        let zero = o.now;
        o.now += SignedDuration::from_millis(300);
        o.target.as_mut().unwrap().replicas = 1;
        unrecorded(&mut o);
        for resolver in &mut o.resolvers {
            if let Report::Seen { at, .. } = &mut resolver.report {
                *at = zero + SignedDuration::from_millis(millis_after_zero);
            }
        }
        planned(&o).ask_resolvers
    };
    assert!(asks(-100), "within the second of the sleep, but before it");
    assert!(!asks(100));
}

fn seen(at: jiff::Timestamp) -> Option<SeenClient> {
    let client = WakeClient::http("GET", "/cart", None, "10.1.2.3");
    Some(SeenClient { at, client })
}

#[test]
fn the_last_wake_says_whom_it_was_for_if_a_resolver_told_it_since_the_sleep() {
    let client = |change: fn(&mut Observed)| woken(change).last_wake.unwrap().client;
    let told = client(|o| {
        o.wake_requested_at = Some(o.now);
        o.wake_client = seen(o.now);
    });
    assert_eq!(told, seen(now()).map(|seen| seen.client));
    let before = client(|o| {
        o.wake_requested_at = Some(o.now);
        o.wake_client = seen(ago(7200));
    });
    assert_eq!(before, None, "of an earlier wake");
    let trigger = client(|o| {
        o.readings = vec![active()];
        o.wake_client = seen(o.now);
    });
    assert_eq!(trigger, None, "a trigger woke it");
}

#[test]
fn whom_a_wake_was_for_may_be_told_late_and_only_of_that_wake() {
    let mut o = asleep();
    let (_, down) = report_status(&mut o, &ElastiServiceStatus::default());
    o.stable_since = observed(&o).stable_since;
    o.now += SignedDuration::from_millis(10);
    o.target.as_mut().unwrap().replicas = 1;
    let (_, up) = report_status(&mut o, &down);
    o.stable_since = observed(&o).stable_since;
    assert_eq!(up.last_wake.as_ref().unwrap().client, None);
    o.wake_client = seen(o.now);
    let (_, told) = report_status(&mut o, &up);
    assert_eq!(
        told.last_wake.as_ref().unwrap().client,
        o.wake_client.as_ref().map(|seen| seen.client.clone())
    );
    o.wake_client = Some(SeenClient {
        at: o.now,
        client: WakeClient::at("tls", "10.9.9.9"),
    });
    let (_, same) = report_status(&mut o, &told);
    assert_eq!(same, told, "the first one woke it");
}

/// The replica that got the wake passes it on after it has scaled up, so the leader may see the replicas first.
#[test]
fn a_wake_that_is_passed_on_a_moment_later_did_not_happen_by_hand() {
    let by = |asked_after: i64| {
        let mut o = asleep();
        let (_, down) = report_status(&mut o, &ElastiServiceStatus::default());
        o.stable_since = observed(&o).stable_since;
        o.now += SignedDuration::from_secs(2);
        o.target.as_mut().unwrap().replicas = 1;
        unrecorded(&mut o);
        let (_, up) = report_status(&mut o, &down);
        o.stable_since = observed(&o).stable_since;
        assert_eq!(up.last_wake.as_ref().unwrap().by, "Manual");
        o.now += SignedDuration::from_millis(asked_after);
        o.wake_requested_at = Some(o.now);
        let told = report_status(&mut o, &up).1;
        told.last_wake.unwrap().by
    };
    assert_eq!(by(20), "Traffic");
    assert_eq!(by(1_001), "Manual", "that one came to a target that was up");
}

#[test]
fn a_wake_takes_few_writes_and_adds_to_the_time_asleep() {
    let mut o = asleep();
    let (_, down) = report_status(&mut o, &ElastiServiceStatus::default());
    o.stable_since = observed(&o).stable_since;
    o.wake_requested_at = Some(o.now + SignedDuration::from_millis(5));
    let later = |o: &mut Observed, millis| o.now += SignedDuration::from_millis(millis);
    later(&mut o, 10);
    let scaled = o.now;
    o.target.as_mut().unwrap().replicas = 1;
    let (_, up) = report_status(&mut o, &down);
    o.stable_since = observed(&o).stable_since;
    let written = up.last_wake.clone().unwrap();
    assert_eq!(written.asked_at.0, now() + SignedDuration::from_millis(5));
    assert_eq!(written.scaled_at.as_ref().map(|at| at.0), Some(scaled));
    assert_eq!((&written.scheduled_at, &written.ready_at), (&None, &None));
    assert_eq!(up.asleep_seconds, Some(1800));

    later(&mut o, 200);
    let scheduled = o.now;
    let pod = waking().pods.remove(0);
    o.pods = vec![pod];
    let (_, same) = report_status(&mut o, &up);
    o.stable_since = observed(&o).stable_since;
    assert_eq!(same, up, "a scheduled pod is no reason to write");

    later(&mut o, 300);
    let ready = o.now;
    o.pods = vec![crate::plan_tables::facts::pod()];
    let (_, done) = report_status(&mut o, &same);
    o.stable_since = observed(&o).stable_since;
    let written = done.last_wake.clone().unwrap();
    let at = |moment: &Option<elasti_api::MicroTime>| moment.as_ref().map(|at| at.0);
    assert_eq!(at(&written.scheduled_at), Some(scheduled));
    assert_eq!(
        (at(&written.started_at), at(&written.ready_at)),
        (Some(ready), Some(ready))
    );
    assert_eq!(written.answered_at, None);
    assert_eq!(done.asleep_seconds, Some(1800), "a wake is counted once");
}

#[test]
fn a_wake_during_a_restart_keeps_what_was_written_of_it() {
    let mut written = woken(|o| o.wake_requested_at = Some(o.now));
    written.last_wake.as_mut().unwrap().ready_at = None;
    let mut o = restoring();
    o.me.remembered = Remembered::from(&written);
    let (_, after) = report_status(&mut o, &written);
    assert_eq!(
        after.last_wake, written.last_wake,
        "the rest was not observed"
    );
}

#[test]
fn what_is_refused_is_a_condition_until_it_is_not() {
    let mut o = asleep();
    let (plan, before) = report_status(&mut o, &ElastiServiceStatus::default());
    let after = |previous: &ElastiServiceStatus, refusal: &Refusal| {
        status_after(&spec(), &o, &plan, previous, refusal)
    };
    let shown = |status: &ElastiServiceStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|c| c.type_ == "StepFailed");
        found.map(|c| (c.reason.clone(), c.message.clone()))
    };
    assert_eq!(after(&before, &Refusal::None), before, "nothing to write");
    let refusal = Refusal::Step {
        step: "EnsurePrivateService",
        why: "not allowed: exceeded quota".into(),
    };
    let refused = after(&before, &refusal);
    let message =
        "EnsurePrivateService is not possible: not allowed: exceeded quota. It is tried again.";
    let expected = ("EnsurePrivateService".to_owned(), message.to_owned());
    assert_eq!(shown(&refused), Some(expected));
    assert_eq!(after(&refused, &refusal), refused, "written once");
    assert_eq!(
        after(&refused, &Refusal::Unknown),
        refused,
        "it may still be refused"
    );
    assert_eq!(shown(&after(&refused, &Refusal::None)), None);
}

#[test]
fn what_sleeps_comes_first_and_of_that_what_was_used_last() {
    let one = |mode: Mode, used: Option<i64>| ElastiServiceStatus {
        mode: Some(mode),
        last_active_time: used.map(|seconds| Time(ago(seconds))),
        ..ElastiServiceStatus::default()
    };
    let wanted = [
        one(Mode::Proxy, Some(10)),
        one(Mode::Proxy, Some(500)),
        one(Mode::Proxy, None),
        one(Mode::Serve, Some(1)),
        one(Mode::Serve, None),
    ];
    let mut sorted: Vec<&ElastiServiceStatus> = wanted.iter().rev().collect();
    sorted.sort_by_key(|status| elasti_core::status::need(status));
    assert_eq!(sorted, wanted.iter().collect::<Vec<_>>());
}

#[test]
fn where_the_facts_cannot_be_read_the_status_says_so_once_and_keeps_the_rest() {
    let mut o = asleep();
    let (_, before) = report_status(&mut o, &ElastiServiceStatus::default());
    let later = now() + SignedDuration::from_secs(60);
    let sentence = "The operator may not list replicasets.apps.";
    let without = |before: &ElastiServiceStatus, at| {
        status_without_facts(before, 7, at, Reason::TargetNotFound, sentence)
    };
    let told = without(&before, later);
    for type_ in ["Ready", "TargetFound"] {
        let condition = condition(&told, type_);
        assert_eq!(
            (&*condition.status, &*condition.message),
            ("False", sentence)
        );
        assert_eq!(condition.last_transition_time, Time(later));
    }
    assert_eq!(told.reason.as_deref(), Some("TargetNotFound"));
    assert_eq!((told.phase, &told.ports), (before.phase, &before.ports));
    assert_eq!(told.conditions.len(), before.conditions.len());
    let again = without(&told, later + SignedDuration::from_secs(60));
    assert_eq!(again, told, "nothing to write");
    let new = without(&ElastiServiceStatus::default(), later);
    assert_eq!(new.conditions.len(), 2);
}
