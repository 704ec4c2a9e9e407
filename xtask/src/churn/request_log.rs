//! The log of every request of a churn and its outcome.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::destination;
use super::request::{Lost, Outcome, send};
use super::timeline::Drain;
use crate::kubernetes::nodes::Node;

/// One request and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The target and why the request was sent, such as `churn-0 at Marked`.
    pub(crate) of: String,
    pub(crate) id: String,
    /// Where its client was.
    pub(crate) node: Node,
    pub(crate) outcome: Outcome,
}

/// All requests of one churn; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct RequestLog {
    /// Its clients are on each of these in turn.
    nodes: Arc<[Node]>,
    /// Its requests go to each of these in turn.
    to: Arc<[SocketAddr]>,
    entries: Arc<Mutex<Vec<Entry>>>,
    in_flight: Arc<Mutex<Vec<JoinHandle<()>>>>,
    sent: Arc<Mutex<u64>>,
}

impl RequestLog {
    /// Clients on all of these nodes.
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        Self {
            nodes: nodes.into(),
            to: Arc::new([]),
            entries: Arc::default(),
            in_flight: Arc::default(),
            sent: Arc::default(),
        }
    }

    /// The same log, for requests to these addresses.
    pub(crate) fn to(&self, to: Vec<SocketAddr>) -> Self {
        Self {
            to: to.into(),
            ..self.clone()
        }
    }

    /// Sends one request on a thread of its own.
    pub(crate) fn send(&self, of: &str) {
        let mut sent = lock(&self.sent);
        *sent += 1;
        let id = format!("r-{sent}");
        let turn = usize::try_from(*sent).unwrap_or_default();
        drop(sent);
        // Each node's clients take the addresses in turn, too.
        let round = turn / self.nodes.len().max(1);
        let node = self.nodes.get(turn % self.nodes.len().max(1));
        let to = self.to.get(round % self.to.len().max(1));
        let (Some(&node), Some(&to)) = (node, to) else {
            return;
        };
        let (entries, of) = (self.entries.clone(), of.to_owned());
        let work = move || {
            let outcome = send_from(node, to, &id);
            if let Err(lost) = &outcome.result {
                let took = outcome.took.as_secs_f64();
                let destination = destination::describe(outcome.destination);
                println!(
                    "{} LOST {id} ({of}) from {} {took:.3} s after it was sent to {destination}: {lost}",
                    clock(),
                    node.name()
                );
            }
            lock(&entries).push(Entry {
                of,
                id,
                node,
                outcome,
            });
        };
        // Small stacks: hundreds of requests may wait at once.
        let spawned = thread::Builder::new().stack_size(256 << 10).spawn(work);
        match spawned {
            Ok(handle) => {
                let mut in_flight = lock(&self.in_flight);
                // A thread's stack stays mapped as long as its handle is there, and there may be 65,530 mappings.
                in_flight.retain(|handle| !handle.is_finished());
                in_flight.push(handle);
            }
            Err(error) => eprintln!("a request could not be sent: {error}"),
        }
    }

    /// So many requests a second, for so long.
    pub(crate) fn burst(&self, of: &str, per_second: u32, duration: Duration) {
        let start = Instant::now();
        let gap = Duration::from_secs(1) / per_second;
        let mut next = start;
        while start.elapsed() < duration {
            self.send(of);
            next += gap;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// One request from every node, and waits for every answer.
    pub(crate) fn send_from_every_node(&self, of: &str) {
        for _ in self.nodes.iter() {
            self.send(of);
        }
        self.close();
    }

    /// Waits for every answer, and gives all entries.
    pub(crate) fn close(&self) -> Vec<Entry> {
        loop {
            let handles = std::mem::take(&mut *lock(&self.in_flight));
            if handles.is_empty() {
                return lock(&self.entries).clone();
            }
            for handle in handles {
                let _ = handle.join();
            }
        }
    }

    /// How many were sent, answered and lost so far.
    pub(crate) fn counts(&self) -> (u64, usize, usize) {
        let entries = lock(&self.entries);
        let lost = entries.iter().filter(|e| e.outcome.result.is_err()).count();
        (*lock(&self.sent), entries.len() - lost, lost)
    }
}

/// Sends from a node, which this thread then stays on.
fn send_from(node: Node, to: SocketAddr, id: &str) -> Outcome {
    match node.enter() {
        Ok(()) => {
            let mut outcome = send(to, id);
            if outcome.result.is_err() {
                outcome.destination = destination::from_conntrack(node, outcome.local_port, to);
            }
            outcome
        }
        Err(error) => Outcome::unsent(Lost::Connect(format!("{}: {error}", node.name()))),
    }
}

/// Requests, losses and times by why they were sent.
pub(crate) fn by_kind(entries: &[Entry]) -> BTreeMap<&str, String> {
    let mut kinds: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        let kind = entry.of.split_once(' ').map_or("", |(_, kind)| kind);
        kinds.entry(kind).or_default().push(entry);
    }
    let about = |entries: Vec<&Entry>| {
        let lost = entries.iter().filter(|e| e.outcome.result.is_err());
        let mut took: Vec<Duration> = entries.iter().map(|e| e.outcome.took).collect();
        format!(
            "{:6} sent {:4} lost, {}",
            entries.len(),
            lost.count(),
            quantiles(&mut took)
        )
    };
    let kinds = kinds.into_iter();
    kinds.map(|(kind, all)| (kind, about(all))).collect()
}

/// What a request that meets a drain should take at most.
const DRAIN_MAX: Duration = Duration::from_millis(100);

/// The requests that were sent during a drain which was cancelled, and waited all the same: at most one for each drain.
pub(crate) fn slow_in_drains<'a>(entries: &'a [Entry], drains: &[Drain]) -> Vec<&'a Entry> {
    let slow = |drain: &Drain| {
        entries.iter().find(|entry| {
            let outcome = &entry.outcome;
            !drain.slept
                && entry.of.split(' ').next() == Some(drain.target.as_str())
                && (drain.from..drain.to).contains(&outcome.sent_at)
                && outcome.took > DRAIN_MAX
        })
    };
    drains.iter().filter_map(slow).collect()
}

/// Requests that were sent while pods were being drained: all, and the first of each drain.
/// One that is answered after the zero is a cold start and is only counted.
pub(crate) fn during_drains(entries: &[Entry], drains: &[Drain]) -> String {
    let mut all = Vec::new();
    let mut first = Vec::new();
    let (mut lost, mut cold) = (0, 0);
    for drain in drains {
        let mut met: Vec<&Outcome> = entries
            .iter()
            .filter(|entry| entry.of.split(' ').next() == Some(drain.target.as_str()))
            .map(|entry| &entry.outcome)
            .filter(|outcome| (drain.from..drain.to).contains(&outcome.sent_at))
            .collect();
        met.sort_by_key(|outcome| outcome.sent_at);
        lost += met.iter().filter(|outcome| outcome.result.is_err()).count();
        let before = met.len();
        met.retain(|outcome| !drain.slept || outcome.sent_at + outcome.took < drain.to);
        cold += before - met.len();
        first.extend(met.first().map(|outcome| outcome.took));
        all.extend(met.iter().map(|outcome| outcome.took));
    }
    format!(
        "during drains: {} sent {lost} lost, {}; the first of each: {} sent, {}; {cold} more outlasted the zero",
        all.len(),
        quantiles(&mut all),
        first.len(),
        quantiles(&mut first),
    )
}

/// The median and the 99th percentile, in words.
pub(crate) fn quantiles(spans: &mut [Duration]) -> String {
    spans.sort_unstable();
    let at = |percent: usize| {
        let index = (spans.len() * percent / 100).min(spans.len().saturating_sub(1));
        let span = spans.get(index).copied().unwrap_or_default();
        span.as_secs_f64() * 1000.0
    };
    format!("p50 {:.0} ms, p99 {:.0} ms", at(50), at(99))
}

/// The time of day, as logs have it.
pub(crate) fn clock() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = now.map_or(0, |since| since.as_millis());
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{millis:03}", seconds % 60)
}

/// A thread that died holding it left whole entries behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
