//! The last day in the status: what is recorded, that it costs no write, and its bounds.

use elasti_api::{ElastiServiceStatus, HistoryEntry, HistoryState, Reason, Time};
use elasti_core::Observed;
use elasti_core::observed::{Claim, Obstacle, ObstacleKind, Remembered, Rival};
use elasti_core::status::{HISTORY_SPAN, MAX_HISTORY, status_without_facts};
use jiff::SignedDuration;

use crate::plan_tables::facts::{asleep, now, observed, planned, restoring, serving, spec, waking};
use HistoryState::{Asleep, Awake, Failed, Waking};

const HOUR: i64 = 3600;

/// A service over time, reconciled after each change.
#[derive(Default)]
struct Service(ElastiServiceStatus);

impl Service {
    /// So many seconds later these are the facts. They are of a fixed time: the past moves.
    fn after(&mut self, seconds: i64, mut o: Observed) -> &mut Self {
        let Self(status) = self;
        for entry in &mut status.history {
            entry.since.0 -= SignedDuration::from_secs(seconds);
        }
        o.me.remembered = Remembered::from(&*status);
        let o = observed(&o);
        *status = elasti_core::status::status(&spec(), &o, &planned(&o), status);
        self
    }

    /// States, and how many seconds ago each began.
    fn history(&self) -> Vec<(HistoryState, i64)> {
        let age = |at: &Time| now().duration_since(at.0).as_secs();
        let entries = self.0.history.iter();
        entries.map(|one| (one.state, age(&one.since))).collect()
    }
}

/// A pod that cannot start.
fn failing() -> Observed {
    let mut o = waking();
    o.pods[0].obstacle = Some(Obstacle {
        kind: ObstacleKind::ImagePull,
        message: "image web:9 cannot be pulled".into(),
        failed: true,
    });
    o
}

#[test]
fn a_sleep_and_a_wake_are_recorded_with_their_times() {
    let mut web = Service::default();
    web.after(0, serving()).after(10, asleep());
    web.after(60, waking()).after(5, restoring());
    web.after(2, serving());
    let expected = [(Awake, 77), (Asleep, 67), (Waking, 7), (Awake, 2)];
    assert_eq!(web.history(), expected);
}

#[test]
fn a_wake_that_fails_is_a_failure_and_not_a_wake_until_a_pod_is_ready() {
    let mut web = Service::default();
    web.after(0, asleep()).after(10, waking());
    web.after(10, failing());
    assert_eq!(web.history().last(), Some(&(Failed, 0)));
    web.after(100, asleep());
    assert_eq!(
        web.history().last(),
        Some(&(Failed, 100)),
        "it sleeps again"
    );
    web.after(10, waking());
    assert_eq!(web.history().last(), Some(&(Failed, 110)), "the next try");
    web.after(10, restoring());
    let expected = [(Asleep, 140), (Waking, 130), (Failed, 120), (Awake, 0)];
    assert_eq!(web.history(), expected);
}

#[test]
fn what_cannot_be_managed_has_failed() {
    let rival = Rival {
        name: "web-first".into(),
        claim: Claim::Target,
    };
    let mut conflict = serving();
    conflict.rival = Some(rival);
    let mut web = Service::default();
    web.after(0, serving()).after(10, conflict);
    web.after(10, serving());
    assert_eq!(web.history(), [(Awake, 20), (Failed, 10), (Awake, 0)]);
    let sentence = "The operator may not list deployments.apps.";
    let later = now() + SignedDuration::from_secs(5);
    let without = status_without_facts(&web.0, 7, later, Reason::TargetNotFound, sentence);
    let last = without.history.last().unwrap();
    assert_eq!((last.state, last.since.0), (Failed, later));
}

#[test]
fn a_deletion_is_recorded_like_any_other_change() {
    let mut deleted = waking();
    deleted.me.deleting_since = Some(deleted.now);
    let mut web = Service::default();
    web.after(0, asleep()).after(10, deleted);
    assert_eq!(web.history(), [(Asleep, 10), (Waking, 0)]);
}

#[test]
fn the_history_alone_is_no_reason_to_write() {
    for facts in [serving(), asleep()] {
        let mut web = Service::default();
        web.after(0, facts.clone());
        // As an operator that knew no history left it.
        web.0.history.clear();
        let before = web.0.clone();
        web.after(HOUR, facts.clone());
        assert_eq!(web.0, before, "an upgrade");
        let since = Time(now() - HISTORY_SPAN - HISTORY_SPAN);
        web.0.history = vec![HistoryEntry {
            state: Waking,
            since,
        }];
        let before = web.0.clone();
        web.after(0, facts);
        assert_eq!(web.0, before, "another state and an old one");
    }
}

#[test]
fn what_is_older_than_a_day_is_forgotten_except_what_covers_its_start() {
    let mut web = Service::default();
    web.after(0, serving()).after(HOUR, asleep());
    web.after(10 * HOUR, waking()).after(10, serving());
    web.after(20 * HOUR, asleep());
    let day = 20 * HOUR;
    let expected = [
        (Asleep, 30 * HOUR + 10),
        (Waking, day + 10),
        (Awake, day),
        (Asleep, 0),
    ];
    assert_eq!(web.history(), expected);
    web.after(23 * HOUR, waking());
    let expected = [(Awake, 43 * HOUR), (Asleep, 23 * HOUR), (Waking, 0)];
    assert_eq!(web.history(), expected);
}

#[test]
fn of_too_many_states_the_shortest_are_left_out_and_failures_last() {
    let mut web = Service::default();
    web.after(0, asleep());
    web.after(60, waking()).after(1, failing());
    web.after(1, serving()).after(60, asleep());
    for _ in 0..40 {
        web.after(600, waking()).after(5, serving());
        web.after(300, asleep());
        assert!(web.0.history.len() <= MAX_HISTORY);
    }
    let history = web.history();
    let oldest = 60 + 1 + 1 + 60 + 40 * 905;
    assert_eq!(history[0], (Asleep, oldest), "the whole time is covered");
    let failed = history.iter().filter(|(state, _)| *state == Failed);
    assert_eq!(failed.count(), 1, "{history:?}");
    assert!(history.windows(2).all(|two| two[0].0 != two[1].0));
    assert_eq!(history.last(), Some(&(Asleep, 0)));
}

#[test]
fn a_clock_that_was_set_back_leaves_no_time_to_come() {
    let mut web = Service::default();
    web.after(0, serving()).after(10, asleep());
    web.after(-HOUR, waking());
    assert!(web.history().iter().all(|(_, age)| *age >= 0));
}
