//! Readings of every trigger: polled in rounds, kept with their age, announced when they change. Namespaces share a
//! source fairly, and what a decision waits for does not wait for rounds. A new trigger is one file here and one arm in
//! [`Sources::read_triggers`].

pub mod address;
pub mod prometheus;
mod series;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elasti_api::{ElastiServiceSpec, Trigger, TriggerType};
use elasti_core::observed::Reading;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::metrics::Metrics;
use prometheus::Prometheus;
use series::SeriesCheck;

/// Changed services that wait to be received; those behind them wait too, each service once.
const CHANGED_CAPACITY: usize = 64;
/// New services are read after this, so that a start with a thousand of them is one round.
const BATCH_DELAY: Duration = Duration::from_millis(50);
/// After so many rounds without a new reading the old one does not count.
const STALE_AFTER_ROUNDS: u32 = 3;
/// Of the interval between two rounds, how long a round can wait: 1 s of 30.
const SLACK_PART: u32 = 30;
/// A trigger that has no answer by then is unknown: after that a decision goes on without it.
const READ_NOW_TIMEOUT: Duration = Duration::from_secs(10);
/// The same in a round: by default the next one comes 27 s later at the earliest, and asks first for what got no turn.
const ROUND_TIMEOUT: Duration = Duration::from_secs(26);

/// Every kind of source.
#[derive(Debug)]
pub struct Sources {
    /// Prometheus servers.
    pub prometheus: Prometheus,
    /// Counts the readings.
    pub metrics: Arc<Metrics>,
}

impl Sources {
    fn read_triggers(&self, requests: Vec<ReadRequest>) {
        let mut prometheus = Vec::new();
        for request in requests {
            match request.trigger().map(|one| one.type_) {
                Some(TriggerType::Prometheus) => prometheus.push(request),
                None => {}
            }
        }
        self.prometheus.read_triggers(prometheus);
    }
}

/// A trigger to be read now. Dropped without an answer, nothing changes.
pub(crate) struct ReadRequest {
    spec: Arc<ElastiServiceSpec>,
    /// Which of its triggers.
    index: usize,
    pub(crate) cooldown: Duration,
    /// The service's namespace.
    pub(crate) namespace: Arc<str>,
    /// The reading must not be older.
    pub(crate) requested_at: Instant,
    pub(crate) slot: Arc<Slot>,
    requester: Requester,
}

/// Where a request comes from.
enum Requester {
    /// A round, which can wait so long for an answer that several share.
    Round(Duration),
    /// A caller that waits until this is dropped, and is told if it was not read.
    Caller(mpsc::Sender<NotRead>),
}

/// A trigger was not read: its source was not asked.
struct NotRead;

impl ReadRequest {
    /// The trigger to read.
    pub(crate) fn trigger(&self) -> Option<&Trigger> {
        self.spec.triggers.get(self.index)
    }

    /// A decision waits for it.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self.requester, Requester::Caller(_))
    }

    /// How long it can wait for an answer that several share.
    pub(crate) fn slack(&self) -> Duration {
        match self.requester {
            Requester::Round(slack) => slack,
            Requester::Caller(_) => Duration::ZERO,
        }
    }

    /// An answer after that comes too late.
    pub(crate) fn deadline(&self) -> Instant {
        self.requested_at
            + match self.requester {
                Requester::Round(_) => ROUND_TIMEOUT,
                Requester::Caller(_) => READ_NOW_TIMEOUT,
            }
    }

    /// Its source was not asked, so that nothing new is known: a good reading stays, for as long as it is not old.
    pub(crate) fn not_read(self, why: String, cause: &'static str) {
        if let Requester::Caller(caller) = &self.requester {
            // Another one in it says the same.
            let _ = caller.try_send(NotRead);
        }
        let is_good = |last: &TimedReading| {
            matches!(last.reading, Reading::Active { .. } | Reading::Quiet { .. })
        };
        let keeps = self.slot.last.lock().as_ref().is_some_and(is_good);
        let reading = Reading::unknown(why);
        match keeps {
            true => {
                self.count(&reading, cause);
                self.slot.announce_if_stale();
            }
            false => self.keep(reading, cause),
        }
    }

    fn count(&self, reading: &Reading, cause: &'static str) {
        if let Some(trigger) = self.trigger() {
            let kind = match trigger.type_ {
                TriggerType::Prometheus => "prometheus",
            };
            self.slot.metrics.trigger_read(kind, reading, cause);
        }
    }

    /// Keeps the reading, unless a later request was answered already. `cause` is from the closed list of this kind's
    /// errors; empty where there is none.
    pub(crate) fn answer(self, reading: Reading, cause: &'static str) {
        let mut answered = self.slot.answered.lock();
        *answered = (*answered).max(Some(self.requested_at));
        drop(answered);
        self.keep(reading, cause);
    }

    fn keep(self, reading: Reading, cause: &'static str) {
        self.count(&reading, cause);
        let mut last = self.slot.last.lock();
        let previous = last.as_ref();
        if previous.is_some_and(|previous| previous.requested_at > self.requested_at) {
            return;
        }
        // One that is too old counts as unknown, and what was decided by that is to be decided anew.
        let stale = |previous: &TimedReading| previous.is_older_than(self.slot.stale_after);
        let changed =
            previous.is_none_or(|previous| stale(previous) || differs(&previous.reading, &reading));
        *last = Some(TimedReading {
            reading,
            requested_at: self.requested_at,
            is_told_stale: false,
        });
        drop(last);
        if changed {
            (self.slot.announce)();
        }
    }
}

impl Drop for ReadRequest {
    fn drop(&mut self) {
        if matches!(self.requester, Requester::Round(_)) {
            self.slot.in_round.store(false, Ordering::Release);
        }
    }
}

/// A value that moves on the same side of the threshold is no change.
fn differs(before: &Reading, now: &Reading) -> bool {
    match (before, now) {
        (Reading::Active { threshold: a, .. }, Reading::Active { threshold: b, .. })
        | (Reading::Quiet { threshold: a, .. }, Reading::Quiet { threshold: b, .. }) => a != b,
        (Reading::Unknown { .. }, Reading::Unknown { .. }) => before != now,
        (Reading::Unread, Reading::Unread) => false,
        _ => true,
    }
}

type Announce = dyn Fn() + Send + Sync;

/// The place of one trigger's reading.
pub(crate) struct Slot {
    last: Mutex<Option<TimedReading>>,
    /// Metrics of the trigger that have no series.
    pub(crate) series: SeriesCheck,
    /// When the last request was made to which the source itself gave the answer: those that wait for longest go first.
    answered: Mutex<Option<Instant>>,
    /// A round has requested it, and has no answer yet.
    in_round: AtomicBool,
    stale_after: Duration,
    announce: Arc<Announce>,
    metrics: Arc<Metrics>,
}

impl Slot {
    /// A good reading that was kept counts as unknown once it is old, which is a change, too.
    fn announce_if_stale(&self) {
        let mut last = self.last.lock();
        let Some(last) = last.as_mut().filter(|last| !last.is_told_stale) else {
            return;
        };
        if last.is_older_than(self.stale_after) {
            last.is_told_stale = true;
            (self.announce)();
        }
    }

    /// Keeps what a check of the metrics has found.
    pub(crate) fn set_without_series(&self, metrics: Vec<String>) {
        if self.series.set_without_series(metrics) {
            (self.announce)();
        }
    }
}

/// The last reading of a trigger, with what is told beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct LastReading {
    /// The reading; unread if there is none, unknown once it is old.
    pub reading: Reading,
    /// How long ago it was requested: it was true no earlier.
    pub age: Option<Duration>,
    /// Metrics of the query that have had no series for a week, while it falls back on a value that is always there;
    /// `None` if that is not known.
    pub without_series: Option<Vec<String>>,
}

/// A reading, and when it was requested: it was true no earlier than then.
struct TimedReading {
    reading: Reading,
    requested_at: Instant,
    /// It has been announced that it is old by now.
    is_told_stale: bool,
}

impl TimedReading {
    fn is_older_than(&self, age: Duration) -> bool {
        self.requested_at.elapsed() > age
    }
}

/// The triggers of one service, and their readings in the same order.
struct TrackedTriggers {
    /// Shared with the cache of ElastiServices, because queries may be long.
    spec: Arc<ElastiServiceSpec>,
    cooldown: Duration,
    namespace: Arc<str>,
    slots: Vec<Arc<Slot>>,
}

impl TrackedTriggers {
    fn request(&self, index: usize, slot: &Arc<Slot>, requester: Requester) -> ReadRequest {
        ReadRequest {
            spec: self.spec.clone(),
            index,
            cooldown: self.cooldown,
            namespace: self.namespace.clone(),
            slot: slot.clone(),
            requested_at: Instant::now(),
            requester,
        }
    }

    /// Those that no earlier round still waits for, so that requests to a silent source do not pile up.
    fn requests_of_round(&self, slack: Duration) -> impl Iterator<Item = ReadRequest> {
        let idle = |slot: &&Arc<Slot>| !slot.in_round.swap(true, Ordering::AcqRel);
        let slots = self.slots.iter().enumerate();
        slots
            .filter(move |(_, slot)| idle(slot))
            .map(move |(index, slot)| self.request(index, slot, Requester::Round(slack)))
    }
}

/// The readings of every service; `K` names a service.
pub struct Readings<K> {
    shared: Arc<Shared<K>>,
    tasks: [JoinHandle<()>; 2],
}

impl<K> fmt::Debug for Readings<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readings").finish_non_exhaustive()
    }
}

impl<K> Drop for Readings<K> {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The triggers to read, those that are new, and the services whose readings changed.
struct Shared<K> {
    sources: Sources,
    interval: Duration,
    tracked: Mutex<HashMap<K, Arc<TrackedTriggers>>>,
    added: Mutex<BTreeSet<K>>,
    added_signal: Notify,
    changed: Mutex<BTreeSet<K>>,
    changed_signal: Notify,
}

impl<K: Clone + Eq + Ord + Hash + Send + Sync + 'static> Readings<K> {
    /// Starts to read, a round every `interval`; the receiver gets the services whose readings change.
    #[must_use]
    pub fn start(sources: Sources, interval: Duration) -> (Self, mpsc::Receiver<K>) {
        let shared = Arc::new(Shared {
            sources,
            interval,
            tracked: Mutex::default(),
            added: Mutex::default(),
            added_signal: Notify::new(),
            changed: Mutex::default(),
            changed_signal: Notify::new(),
        });
        let (send, receive) = mpsc::channel(CHANGED_CAPACITY);
        let tasks = [
            tokio::spawn(run_rounds(shared.clone())),
            tokio::spawn(send_changes(shared.clone(), send)),
        ];
        (Self { shared, tasks }, receive)
    }

    /// From now on the triggers of this spec are read; the same ones again change nothing, others start unread.
    pub fn track(
        &self,
        key: &K,
        namespace: &str,
        spec: &Arc<ElastiServiceSpec>,
        cooldown: Duration,
    ) {
        let mut tracked = self.shared.tracked.lock();
        if let Some(have) = tracked.get_mut(key)
            && have.cooldown == cooldown
            && (Arc::ptr_eq(&have.spec, spec) || have.spec.triggers == spec.triggers)
        {
            if !Arc::ptr_eq(&have.spec, spec) {
                // The one of before need not stay in memory.
                *have = Arc::new(TrackedTriggers {
                    spec: spec.clone(),
                    cooldown,
                    namespace: have.namespace.clone(),
                    slots: have.slots.clone(),
                });
            }
            return;
        }
        let announce = announcer(&self.shared, key);
        let stale_after = self.shared.stale_after();
        let slot = |_| {
            Arc::new(Slot {
                last: Mutex::default(),
                series: SeriesCheck::default(),
                answered: Mutex::default(),
                in_round: AtomicBool::new(false),
                stale_after,
                announce: announce.clone(),
                metrics: self.shared.sources.metrics.clone(),
            })
        };
        let new = TrackedTriggers {
            spec: spec.clone(),
            cooldown,
            namespace: namespace.into(),
            slots: spec.triggers.iter().map(slot).collect(),
        };
        tracked.insert(key.clone(), Arc::new(new));
        drop(tracked);
        self.shared.added.lock().insert(key.clone());
        self.shared.added_signal.notify_one();
    }

    /// The readings in the order of the triggers; unread as long as there is none, unknown once it is old.
    #[must_use]
    pub fn get(&self, key: &K) -> Vec<Reading> {
        { self.last(key).into_iter() }
            .map(|last| last.reading)
            .collect()
    }

    /// The same, with what is told beside each.
    #[must_use]
    pub fn last(&self, key: &K) -> Vec<LastReading> {
        let tracked = self.shared.tracked.lock().get(key).cloned();
        let stale_after = self.shared.stale_after();
        let current = |slot: &Arc<Slot>| {
            let last = slot.last.lock();
            let age = last.as_ref().map(|last| last.requested_at.elapsed());
            let reading = match &*last {
                None => Reading::Unread,
                Some(last) if last.is_older_than(stale_after) => {
                    Reading::unknown(stale(stale_after))
                }
                Some(last) => last.reading.clone(),
            };
            LastReading {
                reading,
                age,
                without_series: slot.series.without_series(),
            }
        };
        tracked.map_or_else(Vec::new, |all| all.slots.iter().map(current).collect())
    }

    /// Reads a service's triggers now, whatever was read before; ends when each was answered or given up, within 10 s. Not
    /// all were read if it gives `false`: then a reading may be one from before.
    pub async fn read_now(&self, key: &K) -> bool {
        let Some(tracked) = self.shared.tracked.lock().get(key).cloned() else {
            return true;
        };
        let (caller, mut answered) = mpsc::channel(1);
        let slots = tracked.slots.iter().enumerate();
        let requests = slots
            .map(|(index, slot)| tracked.request(index, slot, Requester::Caller(caller.clone())));
        self.shared.sources.read_triggers(requests.collect());
        drop(caller);
        // It ends when the last request is dropped.
        let mut all_read = true;
        while let Some(NotRead) = answered.recv().await {
            all_read = false;
        }
        all_read
    }

    /// The service is gone.
    pub fn forget(&self, key: &K) {
        self.shared.tracked.lock().remove(key);
        self.shared.changed.lock().remove(key);
    }
}

/// The same words for as long as it is old, or the status would be written again and again.
fn stale(after: Duration) -> String {
    let seconds = after.as_secs();
    format!("its last reading is stale, more than {seconds} s old")
}

/// Notes a change. The reference is weak, because what it refers to holds this.
fn announcer<K>(shared: &Arc<Shared<K>>, key: &K) -> Arc<Announce>
where
    K: Clone + Ord + Send + Sync + 'static,
{
    let (shared, key): (Weak<Shared<K>>, K) = (Arc::downgrade(shared), key.clone());
    Arc::new(move || {
        if let Some(shared) = shared.upgrade() {
            shared.changed.lock().insert(key.clone());
            shared.changed_signal.notify_one();
        }
    })
}

/// Sends the changed services on, each once; a slow receiver makes them wait, not grow.
async fn send_changes<K: Ord>(shared: Arc<Shared<K>>, send: mpsc::Sender<K>) {
    loop {
        let Ok(permit) = send.reserve().await else {
            return;
        };
        loop {
            let next = shared.changed.lock().pop_first();
            match next {
                Some(key) => {
                    permit.send(key);
                    break;
                }
                None => shared.changed_signal.notified().await,
            }
        }
    }
}

/// Everything in each round, and new triggers soon after they were added.
async fn run_rounds<K: Eq + Ord + Hash>(shared: Arc<Shared<K>>) {
    // A tenth up or down, so that operators do not ask in step.
    let later = || Instant::now() + shared.interval.mul_f64(rand::random_range(0.9..1.1));
    let mut next = later();
    loop {
        tokio::select! {
            () = sleep_until(next) => {
                next = later();
                shared.added.lock().clear();
                let all: Vec<Arc<TrackedTriggers>> = shared.tracked.lock().values().cloned().collect();
                shared.read_tracked(&all);
            }
            () = shared.added_signal.notified() => {
                sleep(BATCH_DELAY).await;
                let added = std::mem::take(&mut *shared.added.lock());
                let tracked = shared.tracked.lock();
                let new: Vec<Arc<TrackedTriggers>> = added.iter().filter_map(|key| tracked.get(key).cloned()).collect();
                drop(tracked);
                shared.read_tracked(&new);
            }
        }
    }
}

impl<K> Shared<K> {
    /// A reading older than this counts as unknown.
    fn stale_after(&self) -> Duration {
        self.interval.saturating_mul(STALE_AFTER_ROUNDS)
    }

    /// Not all may get their turn within a round, so the oldest reading comes first; a new trigger has none.
    fn read_tracked(&self, triggers: &[Arc<TrackedTriggers>]) {
        let slack = self.interval / SLACK_PART;
        let requests = triggers.iter().flat_map(|all| all.requests_of_round(slack));
        let mut requests: Vec<ReadRequest> = requests.collect();
        requests.sort_by_cached_key(|request| *request.slot.answered.lock());
        self.sources.read_triggers(requests);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use prometheus::PrometheusSettings;
    use serde_json::json;

    use super::*;

    /// One trigger of which no round reads anything.
    struct Env {
        readings: Readings<&'static str>,
        changed: mpsc::Receiver<&'static str>,
        tracked: Arc<TrackedTriggers>,
    }

    impl Env {
        fn start() -> Self {
            let prometheus = Prometheus::new(PrometheusSettings::default()).unwrap();
            let sources = Sources {
                prometheus,
                metrics: Arc::new(Metrics::new("elasti")),
            };
            let (readings, changed) = Readings::start(sources, Duration::from_secs(30));
            readings.tasks[0].abort();
            let trigger =
                json!({"type": "prometheus", "metadata": {"query": "x", "threshold": "1"}});
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
            let spec = json!({"service": "a", "scaleTargetRef": target, "triggers": [trigger]});
            let spec = Arc::new(serde_json::from_value(spec).unwrap());
            readings.track(&"a", "shop", &spec, Duration::ZERO);
            let tracked = readings.shared.tracked.lock().get("a").cloned().unwrap();
            Self {
                readings,
                changed,
                tracked,
            }
        }

        fn request(&self) -> ReadRequest {
            let round = Requester::Round(Duration::ZERO);
            self.tracked.request(0, &self.tracked.slots[0], round)
        }

        /// Whether a change has been announced since the last time.
        async fn is_announced(&mut self) -> bool {
            let next = tokio::time::timeout(Duration::from_millis(10), self.changed.recv());
            next.await.is_ok()
        }
    }

    fn quiet(value: f64) -> Reading {
        Reading::Quiet {
            value,
            threshold: 1.0,
        }
    }

    fn stale_reading() -> Reading {
        Reading::unknown("its last reading is stale, more than 90 s old")
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_reading_becomes_unknown_and_a_late_answer_is_ignored() {
        let env = Env::start();
        let early = env.request();
        sleep(Duration::from_secs(1)).await;
        env.request().answer(quiet(0.2), "");
        early.answer(quiet(0.1), "");
        assert_eq!(env.readings.get(&"a"), [quiet(0.2)]);

        sleep(Duration::from_secs(90)).await;
        assert_eq!(env.readings.get(&"a"), [quiet(0.2)]);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(env.readings.get(&"a"), [stale_reading()]);
        let last = env.readings.last(&"a").remove(0);
        assert_eq!(last.age, Some(Duration::from_secs(91)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_is_announced_when_it_is_found_stale_and_when_the_same_comes_after_that() {
        let mut env = Env::start();
        let no_turn = || "no turn".to_owned();
        env.request().answer(quiet(0.0), "");
        assert!(env.is_announced().await, "the first one");
        sleep(Duration::from_secs(60)).await;
        env.request().not_read(no_turn(), "no-turn");
        assert!(!env.is_announced().await, "it is not old yet");
        sleep(Duration::from_secs(31)).await;
        env.request().not_read(no_turn(), "no-turn");
        assert!(env.is_announced().await, "it counts as unknown by now");
        assert_eq!(env.readings.get(&"a"), [stale_reading()]);
        env.request().not_read(no_turn(), "no-turn");
        assert!(!env.is_announced().await, "once is enough");
        env.request().answer(quiet(0.0), "");
        assert!(env.is_announced().await, "it counts again");
        assert_eq!(env.readings.get(&"a"), [quiet(0.0)]);
        env.request().answer(quiet(0.0), "");
        assert!(!env.is_announced().await, "nothing has changed");
    }
}
