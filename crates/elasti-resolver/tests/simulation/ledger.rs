//! What every client sent, what every pod received, what every client got; and whether that is allowed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use elasti_simulated_network::Delivery;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How a request ended for its client.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The whole answer of this pod.
    Whole(String),
    /// The client disconnected first; for a whole connection, with when the other side could know.
    Disconnected(Option<Delivery>),
    /// An answer of the resolver's own.
    Refused {
        status: u16,
        reason: String,
        retry_after: bool,
    },
    /// Without a response: what a client that speaks no HTTP gets.
    Closed,
    /// A head, and then less than the whole body.
    Cut,
    /// The connection was never made.
    NotAccepted,
    /// HTTP/2's GOAWAY said that it was not processed; a client retries on another connection.
    GoAway,
    /// A kept connection ended in order before any byte of the request reached it.
    Crossed,
    /// The same on a connection, made at this time, that no byte ever reached.
    Undelivered(Instant),
    /// The connection was known to have ended before a byte was sent; a client retries on another one.
    Unsent,
    /// A reset or an end without an answer, although the request was accepted.
    Lost(String),
}

/// How far a pod came with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Open,
    /// The pod broke the connection or died before the client had everything.
    Broken,
}

#[derive(Clone, Debug)]
pub struct Receipt {
    pub pod: String,
    pub service: String,
    pub at: Instant,
    pub progress: Progress,
}

#[derive(Clone, Debug)]
struct Entry {
    service: String,
    began: Instant,
    ended: Option<(Instant, Outcome)>,
    receipts: Vec<Receipt>,
    /// Its protocol has no refusal but the end of the connection.
    raw_tcp: bool,
}

#[derive(Debug, Default)]
struct LedgerState {
    entries: BTreeMap<String, Entry>,
    /// When pods of a service closed connections by themselves.
    broken: HashMap<String, Vec<Instant>>,
    /// Since when a service has had a pod that is ready, reachable and serves well, and until when.
    good: HashMap<String, Vec<(Instant, Option<Instant>)>>,
    /// Reasons that a service's clients may be refused with.
    excuses: HashMap<String, Vec<&'static str>>,
    counts: BTreeMap<&'static str, u64>,
    other_violations: Vec<String>,
    /// Slots that connections may take, and those that were freed lately.
    slots: usize,
    freed: Vec<(Instant, usize)>,
    /// Services whose pods cannot start for a while.
    stuck: BTreeSet<String>,
    /// How long requests of a service may wait.
    timeouts: HashMap<String, Duration>,
    /// The longest delay of a message whose link is not stalled.
    longest_delay: Duration,
    /// A resolver is draining, so it closes its ports.
    drained: bool,
    /// Between these, links were stalled or the cluster's API was away.
    dark: Vec<(Instant, Instant)>,
}

/// The ledger of one seed.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<LedgerState>);

/// How long a resolver may take to use a pod that serves well: connects to silent pods take 3 s each, two rounds of two.
const POD_USED_WITHIN: Duration = Duration::from_secs(14);
/// The longest stall that `world.rs` makes, and a moment.
const STALL_MAX: Duration = Duration::from_secs(5);
/// A slot is free 100 ms after the resolver can know; late links take up to 200 ms.
const FREED_WITHIN: Duration = Duration::from_millis(400);
/// How long after a client's disconnect arrived its request may still be sent to a pod.
const DISCONNECT_WITHIN: Duration = Duration::from_millis(100);

impl Ledger {
    pub fn begin(&self, id: &str, service: &str, raw_tcp: bool) {
        self.began(id, service, raw_tcp, Instant::now());
    }

    /// A request that began a while ago, with its connection.
    pub fn began(&self, id: &str, service: &str, raw_tcp: bool, began: Instant) {
        let entry = Entry {
            service: service.to_owned(),
            began,
            ended: None,
            receipts: Vec::new(),
            raw_tcp,
        };
        let before = self.0.lock().entries.insert(id.to_owned(), entry);
        assert!(before.is_none(), "{id} twice");
    }

    pub fn end(&self, id: &str, outcome: Outcome) {
        let mut state = self.0.lock();
        if matches!(outcome, Outcome::Unsent) {
            state.entries.remove(id);
            return;
        }
        let entry = state.entries.get_mut(id).unwrap();
        assert!(entry.ended.is_none(), "{id} ends twice");
        entry.ended = Some((Instant::now(), outcome));
    }

    pub fn received(&self, id: &str, pod: &str, service: &str) {
        let mut state = self.0.lock();
        let receipt = Receipt {
            pod: pod.to_owned(),
            service: service.to_owned(),
            at: Instant::now(),
            progress: Progress::Open,
        };
        match state.entries.get_mut(id) {
            Some(entry) => entry.receipts.push(receipt),
            None => state
                .other_violations
                .push(format!("{pod} received {id:?}, which no client sent")),
        }
    }

    /// A pod breaks the connection on which it received these, or dies with all that it received.
    pub fn breaks(&self, pod: &str, ids: Option<&[String]>) {
        let mut state = self.0.lock();
        for (id, entry) in &mut state.entries {
            let meant = ids.is_none_or(|ids| ids.contains(id)) && entry.ended.is_none();
            for receipt in entry
                .receipts
                .iter_mut()
                .filter(|receipt| meant && receipt.pod == pod)
            {
                receipt.progress = Progress::Broken;
            }
        }
    }

    pub fn broke_a_connection(&self, service: &str) {
        let mut state = self.0.lock();
        state
            .broken
            .entry(service.to_owned())
            .or_default()
            .push(Instant::now());
    }

    /// Whether a service has a pod that every request could go to.
    pub fn good(&self, service: &str, is: bool) {
        let mut state = self.0.lock();
        let spans = state.good.entry(service.to_owned()).or_default();
        match spans.last_mut() {
            Some((_, until)) if until.is_none() && !is => *until = Some(Instant::now()),
            Some((_, until)) if until.is_none() => {}
            _ if is => spans.push((Instant::now(), None)),
            _ => {}
        }
    }

    pub fn excuse(&self, service: &str, reason: &'static str) {
        self.0
            .lock()
            .excuses
            .entry(service.to_owned())
            .or_default()
            .push(reason);
    }

    pub fn timeout(&self, service: &str, timeout: Duration) {
        self.0.lock().timeouts.insert(service.to_owned(), timeout);
    }

    /// How late the links of this world are.
    pub fn links(&self, longest_delay: Duration) {
        self.0.lock().longest_delay = longest_delay;
    }

    /// A connection was made that may hold so many slots.
    pub fn take_slots(&self, slots: usize) {
        self.0.lock().slots += slots;
    }

    /// It was closed.
    pub fn free_slots(&self, slots: usize) {
        let mut state = self.0.lock();
        state.slots -= slots;
        state.freed.push((Instant::now(), slots));
    }

    /// More slots cannot be taken now, if every disconnect frees its own.
    pub fn most_held(&self) -> usize {
        let state = self.0.lock();
        let now = Instant::now();
        if was_dark(&state, now.checked_sub(STALL_MAX).unwrap_or(now), now) {
            return usize::MAX;
        }
        let leaving = state
            .freed
            .iter()
            .filter(|(since, _)| *since + FREED_WITHIN > now);
        state.slots + leaving.map(|(_, slots)| slots).sum::<usize>()
    }

    pub fn stuck(&self, service: &str) {
        self.0.lock().stuck.insert(service.to_owned());
    }

    pub fn drained(&self) {
        self.0.lock().drained = true;
    }

    pub fn dark(&self, until: Instant) {
        self.0.lock().dark.push((Instant::now(), until));
    }

    /// A violation that belongs to no request.
    pub fn report_violation(&self, what: String) {
        self.0.lock().other_violations.push(what);
    }

    pub fn count(&self, what: &'static str) {
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let state = self.0.lock();
        let mut counts = state.counts.clone();
        for entry in state.entries.values() {
            let label = match &entry.ended {
                Some((_, Outcome::Whole(_))) => "whole answers",
                Some((_, Outcome::Disconnected(_))) => "clients disconnected",
                Some((_, Outcome::Refused { status: 503, .. })) => "refusals (503)",
                Some((_, Outcome::Refused { .. })) => "pod broke it (502)",
                Some((_, Outcome::Cut)) => "pod broke its answer",
                Some((_, Outcome::Closed)) => "closed without a response",
                Some((_, Outcome::NotAccepted | Outcome::Unsent)) => "not accepted",
                Some((_, Outcome::GoAway)) => "GOAWAY",
                Some((_, Outcome::Crossed)) => "crossed a drain's end",
                Some((_, Outcome::Undelivered(_))) => "ended undelivered",
                Some((_, Outcome::Lost(_)))
                    if entry
                        .receipts
                        .iter()
                        .any(|one| one.progress == Progress::Broken) =>
                {
                    "pod broke it (502 not delivered)"
                }
                Some((_, Outcome::Lost(_))) | None => "LOST",
            };
            *counts.entry(label).or_default() += 1;
        }
        *counts.entry("requests").or_default() += state.entries.len() as u64;
        counts
    }

    /// Nothing of this service is in flight, and nothing began for this long.
    pub fn quiet(&self, service: &str, span: Duration) -> bool {
        let state = self.0.lock();
        state
            .entries
            .values()
            .filter(|entry| entry.service == service)
            .all(|entry| {
                let last = entry.ended.as_ref().map(|(at, _)| *at);
                last.is_some_and(|last| last + span < Instant::now())
            })
    }

    /// Requests of a service that began at or after a time.
    pub fn began_since(&self, service: &str, since: Instant) -> bool {
        let state = self.0.lock();
        state
            .entries
            .values()
            .any(|entry| entry.service == service && entry.began >= since)
    }

    /// Every way in which this run broke the guarantee; none is what we want.
    pub fn violations(&self) -> Vec<String> {
        let state = self.0.lock();
        let entries = state.entries.iter();
        let entry_violations = entries.flat_map(|(id, entry)| {
            let faults = faults(&state, entry);
            faults
                .into_iter()
                .map(move |fault| format!("{id} to {}: {fault}; {entry:?}", entry.service))
        });
        entry_violations
            .chain(state.other_violations.iter().cloned())
            .collect()
    }
}

#[allow(clippy::too_many_lines, reason = "one law after the other")]
fn faults(state: &LedgerState, entry: &Entry) -> Vec<String> {
    let mut faults = Vec::new();
    if entry.receipts.len() > 1 {
        faults.push(format!("S7: delivered {} times", entry.receipts.len()));
    }
    if let Some(wrong) = entry
        .receipts
        .iter()
        .find(|receipt| receipt.service != entry.service)
    {
        faults.push(format!("S8: delivered to {}", wrong.pod));
    }
    let Some((ended, outcome)) = &entry.ended else {
        faults.push("L2: never ended".into());
        return faults;
    };
    let receipt = entry.receipts.first();
    let broken = receipt.is_some_and(|receipt| receipt.progress == Progress::Broken);
    // The end of a connection may be delayed for as long as a link is stalled.
    let near = |at: &Instant| *at + STALL_MAX >= entry.began && *at <= *ended;
    let pod_broke = broken
        || receipt.is_none()
            && state
                .broken
                .get(&entry.service)
                .is_some_and(|all| all.iter().any(near));
    match outcome {
        Outcome::Whole(pod) => {
            if receipt.is_none_or(|receipt| receipt.pod != *pod) {
                faults.push(format!("answered by {pod}, received elsewhere"));
            }
        }
        Outcome::Disconnected(delivered) => {
            let delivered = delivered.as_ref().and_then(Delivery::end_delivered_at);
            // Bytes for a pod may be in flight already, and with late links that takes longer.
            let late = receipt.zip(delivered).filter(|(receipt, delivered)| {
                receipt.at > *delivered + DISCONNECT_WITHIN + state.longest_delay
            });
            // With raw TCP a client that disconnected looks like one that has sent everything and reads.
            if late.is_some() && !entry.raw_tcp && !was_dark(state, entry.began, *ended) {
                faults.push("forwarded after its client had disconnected".into());
            }
        }
        Outcome::Refused {
            status: 503,
            reason,
            retry_after,
        } => {
            if !retry_after || reason.is_empty() {
                faults.push("a refusal without Retry-After or reason".into());
            }
            if receipt.is_some() {
                faults.push("refused after a pod received it".into());
            }
            faults.extend(unexcused(state, entry, *ended, reason));
        }
        Outcome::Refused {
            status: 502,
            reason,
            retry_after,
        } => {
            if !pod_broke || reason != "PodClosed" || *retry_after {
                faults.push("502 although no pod broke the connection".into());
            }
        }
        Outcome::Refused { status, .. } => faults.push(format!("an answer of {status}")),
        Outcome::Closed if entry.raw_tcp => {
            // It could be any of the reasons that its service has.
            let any_reason = state.excuses.contains_key(&entry.service);
            if !pod_broke && !any_reason {
                faults.extend(unexcused(state, entry, *ended, "HoldDeadline"));
            }
        }
        Outcome::Cut if pod_broke => {}
        Outcome::Closed | Outcome::Cut => faults.push("not the whole answer".into()),
        Outcome::NotAccepted => {
            if receipt.is_some() {
                faults.push("delivered, but never accepted".into());
            }
            // Nodes follow within the settle time, and so long a resolver that ends must accept.
            if !was_dark(state, entry.began, *ended) {
                faults.push("not accepted".into());
            }
        }
        Outcome::Crossed => {
            if !state.drained || receipt.is_some() {
                faults.push("its connection ended without a cause".into());
            }
        }
        Outcome::Undelivered(since) => {
            // The resolver could not know that a request was to come: a silent client may wait for its server to speak
            // first, so it is connected to a pod, and gets that pod's end as it would without us. A refusal too needs
            // the first bytes, to be an HTTP response. They have a second to come, from the refusal or the pod's end on,
            // so only a stalled link keeps them away for that long.
            let has_cause = pod_broke || state.excuses.contains_key(&entry.service);
            let too_late = has_cause && was_dark(state, *since, *ended);
            if receipt.is_some() || !(state.drained || too_late) {
                faults.push("its connection ended without a cause".into());
            }
        }
        Outcome::GoAway if receipt.is_some() => {
            faults.push("delivered, and GOAWAY said that it was not".into());
        }
        Outcome::Unsent | Outcome::GoAway => {}
        // The 502 was written, but the rest of an upload lay unread, and the reset for that overtook it.
        Outcome::Lost(_) if broken => {}
        Outcome::Lost(why) => faults.push(format!("lost: {why}")),
    }
    faults
}

fn was_dark(state: &LedgerState, from: Instant, to: Instant) -> bool {
    state
        .dark
        .iter()
        .any(|(since, until)| *since <= to && *until >= from)
}

/// A refusal is allowed for a reason that this service has, and not while a pod could have taken it.
fn unexcused(state: &LedgerState, entry: &Entry, ended: Instant, reason: &str) -> Option<String> {
    if was_dark(state, entry.began, ended) {
        return None;
    }
    let is_deadline = reason == "HoldDeadline";
    let spans = state.good.get(&entry.service).into_iter().flatten();
    let had_a_pod = spans.into_iter().any(|(since, until)| {
        let since = if is_deadline {
            (*since).max(entry.began)
        } else {
            *since
        };
        since + POD_USED_WITHIN < ended && until.is_none_or(|until| until >= ended)
    });
    if had_a_pod {
        return Some(format!("{reason} while a pod was ready"));
    }
    if is_deadline {
        let timeout = state
            .timeouts
            .get(&entry.service)
            .copied()
            .unwrap_or_default();
        let early = entry.began + timeout > ended + Duration::from_secs(1);
        if early {
            return Some("refused before its deadline".into());
        }
        let starts = !state.stuck.contains(&entry.service);
        return starts.then(|| "L3: its pods can start, and were not started in time".into());
    }
    let excuses = state.excuses.get(&entry.service);
    let excused = excuses.is_some_and(|all| all.contains(&reason));
    (!excused).then(|| format!("{reason} without a cause"))
}
