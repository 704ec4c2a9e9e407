//! Readings of every trigger: polled in rounds, kept with their age, announced when they change.
//! Never judges whether a service is idle, and never shows an old reading as a new one. A new trigger is one file
//! here and one arm in [`Sources::read`].

pub mod address;
pub mod prometheus;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use elasti_api::{Trigger, TriggerType};
use elasti_core::observed::Reading;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::metrics::Metrics;
use prometheus::Prometheus;

/// Changes that wait to be heard; those behind them wait too, each service once.
const ANNOUNCED: usize = 64;
/// New services are read after this, so that a start with a thousand of them is one round.
const GATHER: Duration = Duration::from_millis(50);
/// After so many rounds without a new reading the old one is no reading.
const STALE_ROUNDS: u32 = 3;

/// Every kind of source.
#[derive(Debug)]
pub struct Sources {
    /// Prometheus servers.
    pub prometheus: Prometheus,
    /// Where readings are counted.
    pub metrics: Arc<Metrics>,
}

impl Sources {
    fn read(&self, asks: Vec<Ask>) {
        let mut prometheus = Vec::new();
        for ask in asks {
            match ask.trigger.type_ {
                TriggerType::Prometheus => prometheus.push(ask),
            }
        }
        self.prometheus.read(prometheus);
    }
}

/// One trigger that wants to be read now. Dropped without an answer, nothing changes.
pub(crate) struct Ask {
    pub(crate) trigger: Trigger,
    pub(crate) cooldown: Duration,
    slot: Arc<Slot>,
    asked_at: Instant,
    reader: Reader,
}

/// Who asks.
enum Reader {
    /// A round.
    Round,
    /// Someone who waits until this is dropped.
    Waits(#[allow(dead_code, reason = "its end is the message")] mpsc::Sender<Infallible>),
}

impl Ask {
    /// An answer to an older question than the last one answered is not news but history. `cause` is a word from the
    /// closed list of what this kind of trigger can doubt; empty where there is no doubt.
    pub(crate) fn answer(self, reading: Reading, cause: &'static str) {
        let kind = match self.trigger.type_ {
            TriggerType::Prometheus => "prometheus",
        };
        self.slot.metrics.read(kind, &reading, cause);
        let mut told = self.slot.told.lock();
        if told
            .as_ref()
            .is_some_and(|told| told.asked_at > self.asked_at)
        {
            return;
        }
        let changed = told
            .as_ref()
            .is_none_or(|told| is_news(&told.reading, &reading));
        *told = Some(Told {
            reading,
            asked_at: self.asked_at,
        });
        drop(told);
        if changed {
            (self.slot.announce)();
        }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if matches!(self.reader, Reader::Round) {
            self.slot.in_round.store(false, Ordering::Release);
        }
    }
}

/// A value that moves on the same side of the threshold is no news.
fn is_news(before: &Reading, now: &Reading) -> bool {
    match (before, now) {
        (Reading::Active { threshold: a, .. }, Reading::Active { threshold: b, .. })
        | (Reading::Quiet { threshold: a, .. }, Reading::Quiet { threshold: b, .. }) => a != b,
        (Reading::Unknown { why: a }, Reading::Unknown { why: b }) => a != b,
        (Reading::Unread, Reading::Unread) => false,
        _ => true,
    }
}

type Announce = dyn Fn() + Send + Sync;

/// The place of one trigger's reading.
struct Slot {
    told: Mutex<Option<Told>>,
    /// A round has asked, and has no answer yet.
    in_round: AtomicBool,
    announce: Arc<Announce>,
    metrics: Arc<Metrics>,
}

/// A reading, and when it was asked for: what it says was true no earlier than then.
struct Told {
    reading: Reading,
    asked_at: Instant,
}

/// The triggers of one service, and their readings in the same order.
struct Wanted {
    triggers: Vec<Trigger>,
    cooldown: Duration,
    slots: Vec<Arc<Slot>>,
}

impl Wanted {
    fn ask(&self, trigger: &Trigger, slot: &Arc<Slot>, reader: Reader) -> Ask {
        Ask {
            trigger: trigger.clone(),
            cooldown: self.cooldown,
            slot: slot.clone(),
            asked_at: Instant::now(),
            reader,
        }
    }

    /// Those that no earlier round still waits for: a source that is silent is not asked ever more.
    fn for_round(&self) -> impl Iterator<Item = Ask> {
        let idle = |slot: &&Arc<Slot>| !slot.in_round.swap(true, Ordering::AcqRel);
        let pairs = self.triggers.iter().zip(&self.slots);
        pairs
            .filter(move |(_, slot)| idle(slot))
            .map(|(trigger, slot)| self.ask(trigger, slot, Reader::Round))
    }
}

/// The readings of every service; `K` names a service.
pub struct Readings<K> {
    events: Arc<EventQueue<K>>,
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

/// What is wanted, what is new, and what has changed.
struct EventQueue<K> {
    sources: Sources,
    every: Duration,
    wanted: Mutex<HashMap<K, Arc<Wanted>>>,
    fresh: Mutex<BTreeSet<K>>,
    fresh_came: Notify,
    changed: Mutex<BTreeSet<K>>,
    change_came: Notify,
}

impl<K: Clone + Eq + Ord + Hash + Send + Sync + 'static> Readings<K> {
    /// Starts reading, a round every `every`; the receiver hears which services have news.
    #[must_use]
    pub fn start(sources: Sources, every: Duration) -> (Self, mpsc::Receiver<K>) {
        let events = Arc::new(EventQueue {
            sources,
            every,
            wanted: Mutex::default(),
            fresh: Mutex::default(),
            fresh_came: Notify::new(),
            changed: Mutex::default(),
            change_came: Notify::new(),
        });
        let (send, receive) = mpsc::channel(ANNOUNCED);
        let tasks = [
            tokio::spawn(rounds(events.clone())),
            tokio::spawn(announcements(events.clone(), send)),
        ];
        (Self { events, tasks }, receive)
    }

    /// From now on these triggers are read; the same ones again change nothing, others start unread.
    pub fn want(&self, key: &K, triggers: &[Trigger], cooldown: Duration) {
        let mut wanted = self.events.wanted.lock();
        if let Some(have) = wanted.get(key)
            && have.triggers == triggers
            && have.cooldown == cooldown
        {
            return;
        }
        let announce = announces(&self.events, key);
        let slot = |_| {
            Arc::new(Slot {
                told: Mutex::default(),
                in_round: AtomicBool::new(false),
                announce: announce.clone(),
                metrics: self.events.sources.metrics.clone(),
            })
        };
        let new = Wanted {
            triggers: triggers.to_vec(),
            cooldown,
            slots: triggers.iter().map(slot).collect(),
        };
        wanted.insert(key.clone(), Arc::new(new));
        drop(wanted);
        self.events.fresh.lock().insert(key.clone());
        self.events.fresh_came.notify_one();
    }

    /// The readings in the order of the triggers; unread as long as there is none, unknown once it is old.
    #[must_use]
    pub fn of(&self, key: &K) -> Vec<Reading> {
        let wanted = self.events.wanted.lock().get(key).cloned();
        let stale_after = self.events.every.saturating_mul(STALE_ROUNDS);
        let shown = |slot: &Arc<Slot>| match &*slot.told.lock() {
            None => Reading::Unread,
            Some(told) if told.asked_at.elapsed() > stale_after => Reading::Unknown {
                why: "its last reading is too old".into(),
            },
            Some(told) => told.reading.clone(),
        };
        wanted.map_or_else(Vec::new, |wanted| wanted.slots.iter().map(shown).collect())
    }

    /// Reads a service's triggers now, whatever was read before; ends when each has answered or given up.
    pub async fn read_now(&self, key: &K) {
        let Some(wanted) = self.events.wanted.lock().get(key).cloned() else {
            return;
        };
        let (waits, mut answered) = mpsc::channel(1);
        let pairs = wanted.triggers.iter().zip(&wanted.slots);
        let asks =
            pairs.map(|(trigger, slot)| wanted.ask(trigger, slot, Reader::Waits(waits.clone())));
        self.events.sources.read(asks.collect());
        drop(waits);
        // Nothing is ever sent: it ends when the last question is dropped.
        while answered.recv().await.is_some() {}
    }

    /// The service is gone.
    pub fn forget(&self, key: &K) {
        self.events.wanted.lock().remove(key);
        self.events.changed.lock().remove(key);
    }
}

/// Notes a change. It holds the board weakly, because the board holds it.
fn announces<K>(events: &Arc<EventQueue<K>>, key: &K) -> Arc<Announce>
where
    K: Clone + Ord + Send + Sync + 'static,
{
    let (events, key): (Weak<EventQueue<K>>, K) = (Arc::downgrade(events), key.clone());
    Arc::new(move || {
        if let Some(events) = events.upgrade() {
            events.changed.lock().insert(key.clone());
            events.change_came.notify_one();
        }
    })
}

/// Hands the changes on, each service once; a slow listener makes them wait, not grow.
async fn announcements<K: Ord>(events: Arc<EventQueue<K>>, send: mpsc::Sender<K>) {
    loop {
        let Ok(place) = send.reserve().await else {
            return;
        };
        loop {
            let next = events.changed.lock().pop_first();
            match next {
                Some(key) => {
                    place.send(key);
                    break;
                }
                None => events.change_came.notified().await,
            }
        }
    }
}

/// Everything in each round, and what is new soon after it came.
async fn rounds<K: Eq + Ord + Hash>(events: Arc<EventQueue<K>>) {
    // A tenth up or down, so that operators do not ask in step.
    let later = || Instant::now() + events.every.mul_f64(rand::random_range(0.9..1.1));
    let mut next = later();
    loop {
        tokio::select! {
            () = sleep_until(next) => {
                next = later();
                events.fresh.lock().clear();
                let all: Vec<Arc<Wanted>> = events.wanted.lock().values().cloned().collect();
                events.read(&all);
            }
            () = events.fresh_came.notified() => {
                sleep(GATHER).await;
                let fresh = std::mem::take(&mut *events.fresh.lock());
                let wanted = events.wanted.lock();
                let new: Vec<Arc<Wanted>> = fresh.iter().filter_map(|key| wanted.get(key).cloned()).collect();
                drop(wanted);
                events.read(&new);
            }
        }
    }
}

impl<K> EventQueue<K> {
    fn read(&self, wanted: &[Arc<Wanted>]) {
        let asks = wanted.iter().flat_map(|one| one.for_round());
        self.sources.read(asks.collect());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use prometheus::PrometheusSettings;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_nothing_renews_becomes_unknown_and_a_late_answer_is_history() {
        let prometheus = Prometheus::new(PrometheusSettings::default()).unwrap();
        let (readings, _news) = Readings::start(
            Sources {
                prometheus,
                metrics: Arc::default(),
            },
            Duration::from_secs(30),
        );
        // Nobody reads any more.
        readings.tasks[0].abort();
        let trigger = json!({"type": "prometheus", "metadata": {"query": "x", "threshold": "1"}});
        readings.want(
            &"a",
            &[serde_json::from_value(trigger).unwrap()],
            Duration::ZERO,
        );
        let wanted = readings.events.wanted.lock().get("a").cloned().unwrap();
        let ask = || wanted.ask(&wanted.triggers[0], &wanted.slots[0], Reader::Round);
        let quiet = |value| Reading::Quiet {
            value,
            threshold: 1.0,
        };

        let early = ask();
        sleep(Duration::from_secs(1)).await;
        ask().answer(quiet(0.2), "");
        early.answer(quiet(0.1), "");
        assert_eq!(readings.of(&"a"), [quiet(0.2)]);

        sleep(Duration::from_secs(90)).await;
        assert_eq!(readings.of(&"a"), [quiet(0.2)]);
        sleep(Duration::from_secs(1)).await;
        let why = "its last reading is too old".to_owned();
        assert_eq!(readings.of(&"a"), [Reading::Unknown { why }]);
    }
}
