//! Which service to reconcile next: each once, one reconcile at a time, later if it asked for that, slower if it fails.
//! Namespaces take turns, and none gets all workers: reconciles that a slow webhook holds up delay no other namespace.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::name::Name;
use elasti_runtime::turns::Turns;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// 100 ms doubled nine times; a failing service costs two reconciles a minute from then on.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A reconcile that fails and asks for the next one at once gets it after this.
const FAILED_PAUSE_MIN: Duration = Duration::from_secs(1);
/// No part of a reconcile between two signs of progress takes longer: each call has a time-out of 30 s or less.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(300);

/// The queue of one operator. While it is closed nothing is added and nothing is handed out.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    open: bool,
    ready: Turns<Name>,
    /// The same as `ready`, as a set.
    queued: HashSet<Name>,
    /// Those in progress, and when each last made some.
    running: HashMap<Name, Instant>,
    /// Added while running.
    again: HashSet<Name>,
    timers: BTreeSet<(Instant, Name)>,
    timer_of: HashMap<Name, Instant>,
    failures: HashMap<Name, u32>,
    /// When a worker last took something or found nothing to take.
    last_taken: Option<Instant>,
}

impl Queue {
    /// A queue for so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                open: false,
                ready: Turns::new(workers),
                queued: HashSet::new(),
                running: HashMap::new(),
                again: HashSet::new(),
                timers: BTreeSet::new(),
                timer_of: HashMap::new(),
                failures: HashMap::new(),
                last_taken: None,
            }),
            changed: Notify::new(),
        }
    }

    /// This process leads: reconciles may begin.
    pub(crate) fn open(&self) {
        self.inner.lock().open = true;
        self.changed.notify_one();
    }

    /// This process does not lead any more: what runs may end, the rest is dropped. The next leader reconciles
    /// everything anyway.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.open = false;
        inner.ready.clear();
        inner.queued.clear();
        inner.again.clear();
        inner.timers.clear();
        inner.timer_of.clear();
        inner.failures.clear();
        inner.last_taken = None;
    }

    /// Reconcile it soon.
    pub(crate) fn add(&self, name: &Name) {
        self.inner.lock().add(name);
        self.changed.notify_one();
    }

    pub(crate) fn add_all(&self, names: &[Name]) {
        for name in names {
            self.add(name);
        }
    }

    /// The next one to reconcile; call `done` or `failed` afterwards.
    pub(crate) async fn next(&self) -> Name {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                let now = Instant::now();
                inner.last_taken = Some(now);
                inner.move_due(now);
                if let Some(name) = inner.take(now) {
                    if inner.ready.has_next() {
                        self.changed.notify_one();
                    }
                    return name;
                }
                let open = inner.open;
                inner.timers.first().map(|(at, _)| *at).filter(|_| open)
            };
            match due {
                Some(at) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// A reconcile goes on.
    pub(crate) fn progressed(&self, name: &Name) {
        if let Some(at) = self.inner.lock().running.get_mut(name) {
            *at = Instant::now();
        }
    }

    /// The reconcile succeeded; the next one is at the latest then.
    pub(crate) fn done(&self, name: &Name, requeue_at: Option<Instant>) {
        let mut inner = self.inner.lock();
        inner.failures.remove(name);
        if let Some(at) = requeue_at {
            inner.set_timer(name, at);
        }
        inner.end(name);
        drop(inner);
        self.changed.notify_one();
    }

    /// The reconcile failed: again after a pause that doubles each time, and by when it asked for.
    pub(crate) fn failed(&self, name: &Name, requeue_at: Option<Instant>) {
        let mut inner = self.inner.lock();
        let failures = inner.failures.entry(name.clone()).or_default();
        let pause = BACKOFF_MIN.saturating_mul(1 << (*failures).min(20));
        *failures = failures.saturating_add(1);
        // Half to whole, so that a thousand services do not all come back at once.
        let pause = pause.min(BACKOFF_MAX).mul_f64(rand::random_range(0.5..1.0));
        let now = Instant::now();
        inner.set_timer(name, now + pause);
        if let Some(at) = requeue_at {
            inner.set_timer(name, at.max(now + FAILED_PAUSE_MIN));
        }
        inner.end(name);
        drop(inner);
        self.changed.notify_one();
    }

    /// Nothing more to do for it.
    pub(crate) fn forget(&self, name: &Name) {
        let mut inner = self.inner.lock();
        inner.failures.remove(name);
        inner.clear_timer(name);
    }

    /// Something has been ready for long and no worker takes it, or a reconcile makes no progress.
    pub(crate) fn is_stuck(&self) -> bool {
        let inner = self.inner.lock();
        let now = Instant::now();
        let old = |at: &Instant| now.duration_since(*at) > PROGRESS_TIMEOUT;
        let stuck = inner.running.values().any(old);
        let untaken = inner.ready.has_next() && inner.last_taken.as_ref().is_some_and(old);
        stuck || untaken
    }

    /// A reconcile is in progress.
    pub(crate) fn is_working(&self) -> bool {
        !self.inner.lock().running.is_empty()
    }

    /// How many are ready now.
    #[cfg(test)]
    pub(crate) fn ready(&self) -> usize {
        self.inner.lock().queued.len()
    }
}

impl Inner {
    fn add(&mut self, name: &Name) {
        if !self.open {
            return;
        }
        if self.running.contains_key(name) {
            self.again.insert(name.clone());
        } else if self.queued.insert(name.clone()) {
            self.ready.push(&name.namespace, name.clone());
        }
    }

    fn set_timer(&mut self, name: &Name, at: Instant) {
        if !self.open {
            return;
        }
        match self.timer_of.get(name) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                self.timers.remove(&(*later, name.clone()));
            }
            None => {}
        }
        self.timers.insert((at, name.clone()));
        self.timer_of.insert(name.clone(), at);
    }

    fn clear_timer(&mut self, name: &Name) {
        if let Some(at) = self.timer_of.remove(name) {
            self.timers.remove(&(at, name.clone()));
        }
    }

    /// Moves what is due to the ready ones.
    fn move_due(&mut self, now: Instant) {
        if !self.open {
            return;
        }
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, name)) = self.timers.pop_first() {
                self.timer_of.remove(&name);
                self.add(&name);
            }
        }
    }

    fn take(&mut self, now: Instant) -> Option<Name> {
        let (_, name) = self.ready.take_next()?;
        self.queued.remove(&name);
        // This reconcile is the one that the timer asked for.
        self.clear_timer(&name);
        self.running.insert(name.clone(), now);
        Some(name)
    }

    fn end(&mut self, name: &Name) {
        if self.running.remove(name).is_some() {
            self.ready.ended(&name.namespace);
        }
        if self.again.remove(name) {
            self.add(name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn open_queue() -> Queue {
        let queue = Queue::new(16);
        queue.open();
        queue
    }

    fn name(text: &str) -> Name {
        Name::new("default", text)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_twice_is_reconciled_once() {
        let queue = open_queue();
        queue.add(&name("a"));
        queue.add(&name("a"));
        queue.add(&name("b"));
        assert_eq!(queue.next().await, name("a"));
        assert_eq!(queue.next().await, name("b"));
        assert_eq!(queue.ready(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_during_its_reconcile_is_reconciled_again() {
        let queue = open_queue();
        queue.add(&name("a"));
        let a = queue.next().await;
        queue.add(&a);
        assert_eq!(queue.ready(), 0, "never two reconciles at once");
        queue.done(&a, None);
        assert_eq!(queue.next().await, a);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_counts_and_one_reconcile_clears_it() {
        let queue = open_queue();
        let start = Instant::now();
        queue.add(&name("a"));
        let a = queue.next().await;
        queue.done(&a, Some(start + Duration::from_secs(9)));
        queue.done(&a, Some(start + Duration::from_secs(3)));
        queue.done(&a, Some(start + Duration::from_secs(5)));
        let a = queue.next().await;
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done(&a, None);
        let more = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
        assert!(more.is_err(), "nothing asked for another reconcile");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_success_resets_them() {
        let queue = open_queue();
        queue.add(&name("a"));
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let a = queue.next().await;
            let failed_at = Instant::now();
            queue.failed(&a, None);
            let again = queue.next().await;
            pauses.push(failed_at.elapsed());
            queue.failed(&again, None);
        }
        assert!(pauses.first().unwrap() <= &BACKOFF_MIN);
        assert!(pauses.iter().all(|pause| *pause <= BACKOFF_MAX));
        assert!(pauses.last().unwrap() >= &(BACKOFF_MAX / 2));
        let a = queue.next().await;
        queue.done(&a, None);
        queue.add(&a);
        let a = queue.next().await;
        let failed_at = Instant::now();
        queue.failed(&a, None);
        queue.next().await;
        assert!(failed_at.elapsed() <= BACKOFF_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_reconciles_hang_leaves_workers_to_all_others() {
        let queue = open_queue();
        for n in 0..100 {
            queue.add(&Name::new("hostile", n.to_string()));
        }
        for _ in 0..8 {
            assert_eq!(&*queue.next().await.namespace, "hostile");
        }
        let more = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(more.is_err(), "it gets half of them");
        queue.add(&name("a"));
        assert_eq!(queue.next().await, name("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reconcile_that_goes_on_is_not_stuck() {
        let queue = open_queue();
        queue.add(&name("a"));
        let a = queue.next().await;
        for _ in 0..5 {
            tokio::time::advance(PROGRESS_TIMEOUT - Duration::from_secs(1)).await;
            queue.progressed(&a);
            assert!(!queue.is_stuck());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_never_ends_is_noticed() {
        let queue = open_queue();
        queue.add(&name("a"));
        let _never_done = queue.next().await;
        assert!(!queue.is_stuck());
        tokio::time::advance(PROGRESS_TIMEOUT + Duration::from_secs(1)).await;
        assert!(queue.is_stuck());
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_takes_nothing_and_hands_out_nothing() {
        let queue = open_queue();
        queue.add(&name("a"));
        let a = queue.next().await;
        queue.close();
        queue.add(&name("b"));
        queue.done(&a, Some(Instant::now()));
        let closed = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
        assert!(closed.is_err());
        queue.open();
        queue.add(&name("b"));
        assert_eq!(queue.next().await, name("b"));
    }
}
