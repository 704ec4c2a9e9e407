//! Which service to reconcile next: each once, one reconcile at a time, later if it asked for that, slower if it fails.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::name::Name;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// 100 ms doubled nine times; a failing service costs two reconciles a minute from then on.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A reconcile makes a dozen API calls at most, each with a time-out of 20 s or less.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(300);

/// The queue of one operator. While it is closed nothing is added and nothing is handed out.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    open: bool,
    ready: VecDeque<Name>,
    /// The same as `ready`, as a set.
    queued: HashSet<Name>,
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
    /// This process leads: reconciles may begin.
    pub(crate) fn open(&self) {
        self.inner.lock().open = true;
        self.changed.notify_one();
    }

    /// This process does not lead any more: what runs may end, the rest is dropped. The next leader reconciles
    /// everything anyway.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        let running = std::mem::take(&mut inner.running);
        *inner = Inner {
            running,
            ..Inner::default()
        };
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
                    if !inner.ready.is_empty() {
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

    /// The reconcile failed: again after a pause that doubles each time.
    pub(crate) fn failed(&self, name: &Name) {
        let mut inner = self.inner.lock();
        let failures = inner.failures.entry(name.clone()).or_default();
        let pause = BACKOFF_MIN.saturating_mul(1 << (*failures).min(20));
        *failures = failures.saturating_add(1);
        // Half to whole, so that a thousand services do not all come back at once.
        let pause = pause.min(BACKOFF_MAX).mul_f64(rand::random_range(0.5..1.0));
        inner.set_timer(name, Instant::now() + pause);
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

    /// Something has been ready for long and no worker takes it, or a reconcile does not end.
    pub(crate) fn is_stuck(&self) -> bool {
        let inner = self.inner.lock();
        let now = Instant::now();
        let old = |at: &Instant| now.duration_since(*at) > RECONCILE_TIMEOUT;
        let stuck = inner.running.values().any(old);
        let untaken = !inner.ready.is_empty() && inner.last_taken.as_ref().is_some_and(old);
        stuck || untaken
    }

    /// A reconcile is in progress.
    pub(crate) fn is_working(&self) -> bool {
        !self.inner.lock().running.is_empty()
    }

    /// How many are ready now.
    #[cfg(test)]
    pub(crate) fn ready(&self) -> usize {
        self.inner.lock().ready.len()
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
            self.ready.push_back(name.clone());
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
        let name = self.ready.pop_front()?;
        self.queued.remove(&name);
        // This reconcile is the one that the timer asked for.
        self.clear_timer(&name);
        self.running.insert(name.clone(), now);
        Some(name)
    }

    fn end(&mut self, name: &Name) {
        self.running.remove(name);
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
        let queue = Queue::default();
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
            queue.failed(&a);
            let again = queue.next().await;
            pauses.push(failed_at.elapsed());
            queue.failed(&again);
        }
        assert!(pauses.first().unwrap() <= &BACKOFF_MIN);
        assert!(pauses.iter().all(|pause| *pause <= BACKOFF_MAX));
        assert!(pauses.last().unwrap() >= &(BACKOFF_MAX / 2));
        let a = queue.next().await;
        queue.done(&a, None);
        queue.add(&a);
        let a = queue.next().await;
        let failed_at = Instant::now();
        queue.failed(&a);
        queue.next().await;
        assert!(failed_at.elapsed() <= BACKOFF_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_that_never_ends_is_noticed() {
        let queue = open_queue();
        queue.add(&name("a"));
        let _never_done = queue.next().await;
        assert!(!queue.is_stuck());
        tokio::time::advance(RECONCILE_TIMEOUT + Duration::from_secs(1)).await;
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
