//! The counters of savings over changes of the leader, of requests and of the status.

use elasti_runtime::metrics::Registry;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Savings;
use crate::slim::{Declared, FromObject as _, TargetView};
use crate::store::{Cache, Change, Store, target_of};

fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// Asleep for 100 s, and for 1000 s before.
fn asleep() -> Value {
    json!({
        "phase": "Asleep", "reason": "Idle", "replicas": 0, "lastSleepTime": ago(100), "asleepSeconds": 1000,
        "saved": {
            "podSeconds": 2000, "cpuMillicoreSeconds": 1_000_000, "memoryMebibyteSeconds": 1_024_000,
            "resourceSeconds": {"nvidia.com/gpu": 500},
        },
        "currentSleep": {
            "since": ago(100), "pods": 2, "cpuMillicores": 500, "memoryBytes": 1_u64 << 30,
            "resources": {"nvidia.com/gpu": 1},
        },
    })
}

fn store(status: &Value, replicas: u32, cpu: &str) -> Store {
    let store = Store::new(vec![None]);
    let me = Declared::from_object(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "service": "web", "minTargetReplicas": 2,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
        "status": status,
    }))
    .unwrap();
    let container = json!({"resources": {"requests": {"cpu": cpu}}});
    let mut target = TargetView::from_object(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "t", "resourceVersion": "1"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }))
    .unwrap();
    target.facts = target.facts.for_kind("apps", "Deployment");
    let name = target_of(&me);
    store.apply_change(None, Change::Set(me));
    store.put_target(&name, target);
    store
}

/// An operator that begins to lead, or goes on to.
#[derive(Default)]
struct Leader {
    registry: Registry,
    savings: Option<Savings>,
}

impl Leader {
    /// Seconds asleep, and saved seconds of pods, CPU, memory and GPUs, at a scrape so many seconds later.
    fn scraped(&mut self, cache: &Cache, later: i64) -> [i64; 5] {
        let registry = &self.registry;
        let savings = self.savings.get_or_insert_with(|| Savings::new(registry));
        savings.count(cache, now() + SignedDuration::from_secs(later));
        let text = registry.encode();
        [
            "asleep",
            "saved_pod",
            "saved_cpu",
            "saved_memory_gib",
            "saved_resource",
        ]
        .map(|family| {
            let start = format!("elasti_operator_{family}_seconds{{crd_name=\"shop/web\"");
            let line = text.lines().find(|line| line.starts_with(&start));
            let value = line.and_then(|line| line.rsplit_once(' '));
            value.map_or(0, |(_, value)| value.parse().unwrap())
        })
    }
}

#[test]
fn a_new_leader_counts_what_the_one_before_counted() {
    let store = store(&asleep(), 0, "500m");
    let expected = [1100, 2200, 1100, 1200, 700];
    let mut first = Leader::default();
    assert_eq!(first.scraped(&store.cache(), 0), expected);
    let mut second = Leader::default();
    assert_eq!(second.scraped(&store.cache(), 0), expected);
    if let Some(savings) = &first.savings {
        savings.forget_all();
    }
    assert!(
        !first.registry.encode().contains("shop/web"),
        "counted twice"
    );
}

#[test]
fn a_change_of_requests_and_then_of_the_leader_changes_nothing_that_was_saved() {
    let before = Leader::default().scraped(&store(&asleep(), 0, "500m").cache(), 0);
    let changed = store(&asleep(), 0, "64");
    assert_eq!(Leader::default().scraped(&changed.cache(), 0), before);
}

#[test]
fn the_current_sleep_counts_with_the_requests_of_its_start() {
    let store = store(&asleep(), 0, "64");
    let mut leader = Leader::default();
    leader.scraped(&store.cache(), 0);
    let later = leader.scraped(&store.cache(), 10);
    assert_eq!(later, [1110, 2220, 1110, 1220, 720]);
}

#[test]
fn no_counter_goes_back_between_a_wake_and_the_status_that_records_it() {
    let mut leader = Leader::default();
    let before = leader.scraped(&store(&asleep(), 0, "500m").cache(), 0);
    let woken = store(&asleep(), 2, "500m");
    assert_eq!(leader.scraped(&woken.cache(), 1), before);
}

#[test]
fn a_conflicting_duplicate_saves_nothing() {
    let mut status = asleep();
    status["reason"] = json!("Conflict");
    for ended in ["saved", "asleepSeconds"] {
        status.as_object_mut().unwrap().remove(ended);
    }
    let store = store(&status, 0, "500m");
    assert_eq!(Leader::default().scraped(&store.cache(), 0), [0; 5]);
}
