//! What sleep saves, as the status adds it up at the end of each sleep.

use elasti_api::{CurrentSleep, ElastiServiceSpec, ElastiServiceStatus, SavedSeconds};
use elasti_core::facts::Requests;
use elasti_core::observed::{Claim, Observed, Remembered, Rival};
use elasti_core::savings::{asleep_seconds, saved_seconds};
use elasti_core::status::status;
use jiff::SignedDuration;
use serde_json::json;

use crate::plan_tables::facts::{asleep, observed, planned_for, serving, spec};

/// A service over time, reconciled after each change.
struct Service {
    spec: ElastiServiceSpec,
    facts: Observed,
    status: ElastiServiceStatus,
}

impl Service {
    fn awake(requests: Requests) -> Self {
        let facts = serving();
        let mut me = Self {
            spec: spec(),
            facts,
            status: ElastiServiceStatus::default(),
        };
        me.facts.me.remembered = Remembered::default();
        me.after(0, |o| request(o, requests));
        me
    }

    /// So many seconds later something changes, and is seen.
    fn after(&mut self, seconds: i64, change: impl FnOnce(&mut Observed)) {
        self.facts.now += SignedDuration::from_secs(seconds);
        change(&mut self.facts);
        let o = observed(&self.facts);
        let plan = planned_for(&self.spec, &o);
        self.status = status(&self.spec, &o, &plan, &self.status);
        self.facts.me.remembered = Remembered::from(&self.status);
    }

    fn sleeps_for(&mut self, seconds: i64) {
        self.after(10, |o| replicas(o, 0));
        self.after(seconds, |o| replicas(o, 1));
    }

    fn saved_now(&self) -> SavedSeconds {
        saved_seconds(&self.status, self.facts.replicas(), self.facts.now)
    }
}

fn request(o: &mut Observed, requests: Requests) {
    o.target.as_mut().unwrap().requests = requests;
}

fn replicas(o: &mut Observed, replicas: u32) {
    o.target.as_mut().unwrap().replicas = replicas;
}

fn requests(cpu: &str, memory: &str, gpus: u32) -> Requests {
    let amounts = json!({"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus.to_string()});
    Requests::from_pod_spec(&json!({"containers": [{"resources": {"requests": amounts}}]}))
}

fn sums(pods: i64, cpu: i64, memory: i64, gpus: i64) -> SavedSeconds {
    let gpus = Some(("nvidia.com/gpu".to_owned(), gpus)).filter(|(_, gpus)| *gpus > 0);
    SavedSeconds {
        pod_seconds: pods,
        cpu_millicore_seconds: cpu,
        memory_mebibyte_seconds: memory,
        resource_seconds: gpus.into_iter().collect(),
    }
}

fn rival() -> Option<Rival> {
    Some(Rival {
        name: "web-first".into(),
        claim: Claim::Target,
    })
}

#[test]
fn a_sleep_is_added_up_at_its_end_with_the_requests_and_replicas_of_its_start() {
    let mut web = Service::awake(requests("500m", "1Gi", 0));
    web.spec.min_target_replicas = 3;
    web.after(10, |o| replicas(o, 0));
    assert_eq!(web.status.saved, None, "it has not ended");
    web.after(50, |o| request(o, requests("64", "1Ti", 8)));
    web.spec.min_target_replicas = 100;
    let expected = sums(300, 150_000, 307_200, 0);
    web.after(50, |_| {});
    assert_eq!(web.saved_now(), expected, "while it goes on");
    web.after(0, |o| replicas(o, 1));
    assert_eq!(web.status.saved, Some(expected.clone()));
    assert_eq!(web.status.current_sleep, None);
    assert_eq!(web.status.asleep_seconds, Some(100));
    web.after(1000, |o| request(o, requests("2", "2Gi", 1)));
    assert_eq!(web.saved_now(), expected, "a change afterwards");
}

#[test]
fn months_and_days_are_written_at_the_end_of_a_sleep_and_never_on_their_own() {
    let mut web = Service::awake(requests("500m", "1Gi", 0));
    web.after(10, |o| replicas(o, 0));
    let before = web.status.clone();
    // Over the end of a month.
    web.after(40 * 24 * 3600, |_| {});
    assert_eq!(web.status.savings_calendar, before.savings_calendar);
    web.after(0, |o| replicas(o, 1));
    let calendar = web.status.savings_calendar.clone().unwrap();
    let months = calendar.months.iter().map(|one| one.asleep_seconds);
    assert_eq!(Some(months.sum::<i64>()), web.status.asleep_seconds);
    assert!(calendar.months.len() >= 2, "{calendar:?}");
    assert_eq!(calendar.since, None);
}

#[test]
fn several_sleeps_each_count_with_their_own_requests() {
    let mut web = Service::awake(requests("500m", "1Gi", 0));
    web.sleeps_for(100);
    web.after(10, |o| request(o, requests("2", "512Mi", 1)));
    web.sleeps_for(10);
    web.after(10, |o| request(o, requests("0", "0", 0)));
    web.sleeps_for(1);
    let expected = sums(111, 50_000 + 20_000, 102_400 + 5120, 10);
    assert_eq!(web.status.saved, Some(expected));
    assert_eq!(web.status.asleep_seconds, Some(111));
}

#[test]
fn a_service_that_something_else_takes_precedence_over_saves_nothing() {
    let mut web = Service::awake(requests("1", "1Gi", 1));
    web.after(0, |o| o.rival = rival());
    web.sleeps_for(3600);
    assert_eq!(
        (&web.status.saved, web.status.asleep_seconds),
        (&None, None)
    );
    web.after(10, |o| replicas(o, 0));
    web.after(3600, |_| {});
    assert_eq!(web.status.current_sleep, None);
    assert_eq!(web.saved_now(), SavedSeconds::default());
    let shown = asleep_seconds(&web.status, Some(0), web.facts.now);
    assert_eq!(shown, 0, "another ElastiService put it to sleep");
}

#[test]
fn a_sleep_counts_from_when_it_is_taken_over_and_until_something_else_takes_precedence() {
    let mut web = Service::awake(requests("1", "1Gi", 0));
    web.after(0, |o| o.rival = rival());
    web.after(10, |o| replicas(o, 0));
    web.after(3600, |o| o.rival = None);
    web.after(100, |o| o.rival = rival());
    let expected = sums(100, 100_000, 102_400, 0);
    assert_eq!(web.status.saved, Some(expected.clone()));
    assert_eq!(web.status.asleep_seconds, Some(100));
    web.after(3600, |o| replicas(o, 1));
    web.after(10, |o| o.rival = None);
    assert_eq!(web.status.saved, Some(expected));
    assert_eq!(web.status.asleep_seconds, Some(100));
}

#[test]
fn a_sleep_that_began_before_it_was_recorded_saves_from_when_it_is_first_seen() {
    let mut web = Service::awake(requests("1", "1Gi", 0));
    let mut sleeping = asleep();
    sleeping.me.remembered.replicas = Some(0);
    request(&mut sleeping, requests("1", "1Gi", 0));
    web.facts = sleeping;
    web.status = ElastiServiceStatus {
        asleep_seconds: Some(1_000_000),
        replicas: Some(0),
        last_sleep_time: web.facts.me.remembered.last_sleep.map(elasti_api::Time),
        ..ElastiServiceStatus::default()
    };
    web.after(0, |_| {});
    assert_eq!(web.saved_now(), SavedSeconds::default());
    web.after(60, |o| replicas(o, 1));
    assert_eq!(web.status.saved, Some(sums(60, 60_000, 61_440, 0)));
    assert_eq!(web.status.asleep_seconds, Some(1_000_000 + 1800 + 60));
}

#[test]
fn a_record_that_an_older_operator_left_behind_counts_no_time_awake() {
    let mut web = Service::awake(requests("1", "1Gi", 0));
    web.after(10, |o| replicas(o, 0));
    let left: Option<CurrentSleep> = web.status.current_sleep.clone();
    web.after(100, |o| replicas(o, 1));
    web.after(10_000, |o| replicas(o, 0));
    // The older one knew neither field.
    (web.status.current_sleep, web.status.saved) = (left, None);
    web.after(5, |_| {});
    web.after(60, |o| replicas(o, 1));
    assert_eq!(web.status.saved, Some(sums(60, 60_000, 61_440, 0)));
}

#[test]
fn extended_resources_are_counted_up_to_eight() {
    let many = |first: usize| {
        let names = (first..first + 10).map(|at| (format!("example.com/gpu-{at:02}"), json!("2")));
        let amounts: serde_json::Map<_, _> = names.collect();
        let container = json!({"resources": {"requests": {}, "limits": amounts}});
        Requests::from_pod_spec(&json!({"containers": [container]}))
    };
    let mut web = Service::awake(many(0));
    web.sleeps_for(100);
    web.after(0, |o| request(o, many(5)));
    web.sleeps_for(10);
    let saved = web.status.saved.unwrap();
    let counted: Vec<(&str, i64)> = { saved.resource_seconds.iter() }
        .map(|(name, seconds)| (name.as_str(), *seconds))
        .collect();
    assert_eq!(counted.len(), 8);
    assert_eq!(counted[0], ("example.com/gpu-00", 200));
    assert_eq!(counted[7], ("example.com/gpu-07", 220));
}

#[test]
fn sums_stop_at_the_largest_number_that_every_program_keeps() {
    let huge = Requests {
        cpu_millicores: i64::MAX,
        memory_bytes: i64::MAX,
        resources: [("example.com/gpu".to_owned(), i64::MAX)].into(),
    };
    let mut web = Service::awake(huge);
    web.spec.min_target_replicas = u32::MAX;
    for _ in 0..2 {
        web.sleeps_for(1_000_000);
    }
    let saved = web.status.saved.unwrap();
    let largest = (1_i64 << 53) - 1;
    assert_eq!(saved.cpu_millicore_seconds, largest);
    assert_eq!(saved.memory_mebibyte_seconds, largest);
    assert_eq!(saved.resource_seconds["example.com/gpu"], largest);
}
