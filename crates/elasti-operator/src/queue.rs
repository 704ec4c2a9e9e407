//! What to look at next: each service once, one look at a time, later if it asked for that, slower if it fails.
//! Never loses a service that was added while it was being looked at.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::name::Name;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// 100 ms doubled nine times; a failing service costs two looks a minute from then on.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A look makes a dozen API calls at most, each with a time-out of 20 s or less.
const LONGEST_LOOK: Duration = Duration::from_secs(300);

/// The queue of one operator.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Name>,
    /// The same as `ready`, for asking.
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
    /// Look at it soon.
    pub(crate) fn add(&self, name: &Name) {
        self.inner.lock().add(name);
        self.news.notify_one();
    }

    /// The next one to look at; tell `done` afterwards.
    pub(crate) async fn next(&self) -> Name {
        loop {
            let due = {
                let mut inner = self.inner.lock();
                let now = Instant::now();
                inner.last_taken = Some(now);
                inner.ring(now);
                if let Some(name) = inner.take(now) {
                    if !inner.ready.is_empty() {
                        self.news.notify_one();
                    }
                    return name;
                }
                inner.timers.first().map(|(at, _)| *at)
            };
            match due {
                Some(at) => tokio::select! {
                    () = self.news.notified() => {}
                    () = sleep_until(at) => {}
                },
                None => self.news.notified().await,
            }
        }
    }

    /// The look is over and went well; look again at the latest then.
    pub(crate) fn done(&self, name: &Name, requeue_at: Option<Instant>) {
        let mut inner = self.inner.lock();
        inner.failures.remove(name);
        if let Some(at) = requeue_at {
            inner.set_timer(name, at);
        }
        inner.end(name);
        drop(inner);
        self.news.notify_one();
    }

    /// The look failed: again after a pause that doubles each time.
    pub(crate) fn failed(&self, name: &Name) {
        let mut inner = self.inner.lock();
        let failures = inner.failures.entry(name.clone()).or_default();
        let pause = BACKOFF_MIN.saturating_mul(1 << (*failures).min(20));
        *failures = failures.saturating_add(1);
        // Half to whole, so that a thousand services do not come back in one blow.
        let pause = pause.min(BACKOFF_MAX).mul_f64(rand::random_range(0.5..1.0));
        inner.set_timer(name, Instant::now() + pause);
        inner.end(name);
        drop(inner);
        self.news.notify_one();
    }

    /// Nothing more to do for it.
    pub(crate) fn forget(&self, name: &Name) {
        let mut inner = self.inner.lock();
        inner.failures.remove(name);
        inner.clear_timer(name);
    }

    /// Something has been ready for long and nobody takes it, or a look does not end.
    pub(crate) fn is_wedged(&self) -> bool {
        let inner = self.inner.lock();
        let now = Instant::now();
        let old = |at: &Instant| now.duration_since(*at) > LONGEST_LOOK;
        let stuck = inner.running.values().any(old);
        let untaken = !inner.ready.is_empty() && inner.last_taken.as_ref().is_some_and(old);
        stuck || untaken
    }

    /// A look is under way.
    pub(crate) fn is_working(&self) -> bool {
        !self.inner.lock().running.is_empty()
    }

    /// Nobody looks at anything any more.
    pub(crate) fn clear(&self) {
        let mut inner = self.inner.lock();
        let running = std::mem::take(&mut inner.running);
        *inner = Inner {
            running,
            ..Inner::default()
        };
    }

    /// How many wait to be looked at now.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().ready.len()
    }
}

impl Inner {
    fn add(&mut self, name: &Name) {
        if self.running.contains_key(name) {
            self.again.insert(name.clone());
        } else if self.queued.insert(name.clone()) {
            self.ready.push_back(name.clone());
        }
    }

    fn set_timer(&mut self, name: &Name, at: Instant) {
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
    fn ring(&mut self, now: Instant) {
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
        // What it asked for earlier is answered by this look.
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

    fn name(text: &str) -> Name {
        Name::new("default", text)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_twice_is_looked_at_once() {
        let queue = Queue::default();
        queue.add(&name("a"));
        queue.add(&name("a"));
        queue.add(&name("b"));
        assert_eq!(queue.next().await, name("a"));
        assert_eq!(queue.next().await, name("b"));
        assert_eq!(queue.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_while_it_is_looked_at_is_looked_at_again_afterwards() {
        let queue = Queue::default();
        queue.add(&name("a"));
        let a = queue.next().await;
        queue.add(&a);
        assert_eq!(queue.waiting(), 0, "never two looks at once");
        queue.done(&a, None);
        assert_eq!(queue.next().await, a);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_counts_and_a_look_answers_it() {
        let queue = Queue::default();
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
        assert!(more.is_err(), "nobody asked for another look");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_ever_later_and_a_success_forgives_them() {
        let queue = Queue::default();
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
    async fn a_look_that_never_ends_is_noticed() {
        let queue = Queue::default();
        queue.add(&name("a"));
        let _never_done = queue.next().await;
        assert!(!queue.is_wedged());
        tokio::time::advance(LONGEST_LOOK + Duration::from_secs(1)).await;
        assert!(queue.is_wedged());
    }
}
