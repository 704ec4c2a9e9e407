//! What every request asked, what every pod received, what every client heard; and whether that is allowed.
//! Never looks into the resolver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use elasti_simulated_network::Delivery;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How a request ended, as its client saw it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The whole answer of this pod.
    Whole(String),
    /// The client left first; where it gave up a whole connection, this tells since when the other side could know.
    Left(Option<Delivery>),
    /// An answer of the resolver's own.
    Refused {
        status: u16,
        reason: String,
        retry_after: bool,
    },
    /// Without a word: what a client that speaks no HTTP hears.
    Closed,
    /// A head, and then less than the whole body.
    Cut,
    /// The connection was never made.
    NotAccepted,
    /// HTTP/2's GOAWAY said that nobody has looked at it; a client asks again on another connection.
    SentAway,
    /// A kept connection ended in order before any byte of the request reached it.
    Crossed,
    /// The same on a connection, made at this time, that no byte ever reached.
    Undelivered(Instant),
    /// The connection was known to have ended before a byte was sent; a client asks again on another one.
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
    /// The end of the connection is how its protocol says "no".
    wordless: bool,
}

#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<String, Entry>,
    /// When pods of a service closed connections by themselves.
    broken: HashMap<String, Vec<Instant>>,
    /// Since when a service has had a pod that is ready, reachable and serves well, and until when.
    good: HashMap<String, Vec<(Instant, Option<Instant>)>>,
    /// Reasons that a service's clients may be refused with.
    excuses: HashMap<String, Vec<&'static str>>,
    counts: BTreeMap<&'static str, u64>,
    complaints: Vec<String>,
    /// Places that connections may take, and those that they gave up a while ago.
    guests: usize,
    gone: Vec<(Instant, usize)>,
    /// Services whose pods cannot start for a while.
    stuck: BTreeSet<String>,
    /// How long requests of a service may wait.
    timeouts: HashMap<String, Duration>,
    /// How long a message is on its way at most, if its link is not stalled.
    longest_delay: Duration,
    /// A resolver was told to end, so its doors close.
    drained: bool,
    /// Between these, links were stalled or the cluster's API was away.
    dark: Vec<(Instant, Instant)>,
}

/// The book of one seed.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Book>);

/// How long a resolver may take to use a pod that serves well: connects to silent pods take 3 s each, two rounds of two.
const USED_WITHIN: Duration = Duration::from_secs(14);
/// The longest stall that `world.rs` makes, and a moment.
const STALLED_AT_MOST: Duration = Duration::from_secs(5);
/// A place is free 100 ms after the resolver can know; late links take up to 200 ms.
const FREED_WITHIN: Duration = Duration::from_millis(400);
/// How long after a client's end was heard its request may still be sent to a pod.
const LEAVES_WITHIN: Duration = Duration::from_millis(100);

impl Ledger {
    pub fn begin(&self, id: &str, service: &str, wordless: bool) {
        self.began(id, service, wordless, Instant::now());
    }

    /// A request that began a while ago, with its connection.
    pub fn began(&self, id: &str, service: &str, wordless: bool, began: Instant) {
        let entry = Entry {
            service: service.to_owned(),
            began,
            ended: None,
            receipts: Vec::new(),
            wordless,
        };
        let before = self.0.lock().entries.insert(id.to_owned(), entry);
        assert!(before.is_none(), "{id} twice");
    }

    pub fn end(&self, id: &str, outcome: Outcome) {
        let mut book = self.0.lock();
        if matches!(outcome, Outcome::Unsent) {
            book.entries.remove(id);
            return;
        }
        let entry = book.entries.get_mut(id).unwrap();
        assert!(entry.ended.is_none(), "{id} ends twice");
        entry.ended = Some((Instant::now(), outcome));
    }

    pub fn received(&self, id: &str, pod: &str, service: &str) {
        let mut book = self.0.lock();
        let receipt = Receipt {
            pod: pod.to_owned(),
            service: service.to_owned(),
            at: Instant::now(),
            progress: Progress::Open,
        };
        match book.entries.get_mut(id) {
            Some(entry) => entry.receipts.push(receipt),
            None => book
                .complaints
                .push(format!("{pod} received {id:?}, which nobody sent")),
        }
    }

    /// A pod breaks the connection on which it received these, or dies with all that it received.
    pub fn breaks(&self, pod: &str, ids: Option<&[String]>) {
        let mut book = self.0.lock();
        for (id, entry) in &mut book.entries {
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
        let mut book = self.0.lock();
        book.broken
            .entry(service.to_owned())
            .or_default()
            .push(Instant::now());
    }

    /// Whether a service has a pod that every request could go to.
    pub fn good(&self, service: &str, is: bool) {
        let mut book = self.0.lock();
        let spans = book.good.entry(service.to_owned()).or_default();
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

    /// A connection was made that may hold so many places.
    pub fn comes(&self, places: usize) {
        self.0.lock().guests += places;
    }

    /// It was given up.
    pub fn goes(&self, places: usize) {
        let mut book = self.0.lock();
        book.guests -= places;
        book.gone.push((Instant::now(), places));
    }

    /// More places cannot be taken now, if whoever leaves frees its own.
    pub fn most_held(&self) -> usize {
        let book = self.0.lock();
        let now = Instant::now();
        if was_dark(&book, now.checked_sub(STALLED_AT_MOST).unwrap_or(now), now) {
            return usize::MAX;
        }
        let leaving = book
            .gone
            .iter()
            .filter(|(since, _)| *since + FREED_WITHIN > now);
        book.guests + leaving.map(|(_, places)| places).sum::<usize>()
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

    /// Something that no request's entry can tell.
    pub fn complain(&self, what: String) {
        self.0.lock().complaints.push(what);
    }

    pub fn count(&self, what: &'static str) {
        *self.0.lock().counts.entry(what).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let book = self.0.lock();
        let mut counts = book.counts.clone();
        for entry in book.entries.values() {
            let word = match &entry.ended {
                Some((_, Outcome::Whole(_))) => "whole answers",
                Some((_, Outcome::Left(_))) => "clients left",
                Some((_, Outcome::Refused { status: 503, .. })) => "refusals (503)",
                Some((_, Outcome::Refused { .. })) => "pod broke it (502)",
                Some((_, Outcome::Cut)) => "pod broke its answer",
                Some((_, Outcome::Closed)) => "closed without a word",
                Some((_, Outcome::NotAccepted | Outcome::Unsent)) => "not accepted",
                Some((_, Outcome::SentAway)) => "sent away (GOAWAY)",
                Some((_, Outcome::Crossed)) => "crossed a drain's end",
                Some((_, Outcome::Undelivered(_))) => "ended unheard",
                Some((_, Outcome::Lost(_)))
                    if entry
                        .receipts
                        .iter()
                        .any(|one| one.progress == Progress::Broken) =>
                {
                    "pod broke it (unheard 502)"
                }
                Some((_, Outcome::Lost(_))) | None => "LOST",
            };
            *counts.entry(word).or_default() += 1;
        }
        *counts.entry("requests").or_default() += book.entries.len() as u64;
        counts
    }

    /// Nothing of this service is under way, and nothing began for this long.
    pub fn quiet(&self, service: &str, span: Duration) -> bool {
        let book = self.0.lock();
        book.entries
            .values()
            .filter(|entry| entry.service == service)
            .all(|entry| {
                let last = entry.ended.as_ref().map(|(at, _)| *at);
                last.is_some_and(|last| last + span < Instant::now())
            })
    }

    /// Requests of a service that began at or after a time.
    pub fn began_since(&self, service: &str, since: Instant) -> bool {
        let book = self.0.lock();
        book.entries
            .values()
            .any(|entry| entry.service == service && entry.began >= since)
    }

    /// Every way in which this run broke the guarantee; none is what we want.
    pub fn violations(&self) -> Vec<String> {
        let book = self.0.lock();
        let entries = book.entries.iter();
        let of_entries = entries.flat_map(|(id, entry)| {
            let faults = faults(&book, entry);
            faults
                .into_iter()
                .map(move |fault| format!("{id} to {}: {fault}; {entry:?}", entry.service))
        });
        of_entries.chain(book.complaints.iter().cloned()).collect()
    }
}

fn faults(book: &Book, entry: &Entry) -> Vec<String> {
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
    // News of a closed connection may be on its way for as long as a link is stalled.
    let near = |at: &Instant| *at + STALLED_AT_MOST >= entry.began && *at <= *ended;
    let pod_broke = broken
        || receipt.is_none()
            && book
                .broken
                .get(&entry.service)
                .is_some_and(|all| all.iter().any(near));
    match outcome {
        Outcome::Whole(pod) => {
            if receipt.is_none_or(|receipt| receipt.pod != *pod) {
                faults.push(format!("answered by {pod}, received elsewhere"));
            }
        }
        Outcome::Left(heard) => {
            let heard = heard.as_ref().and_then(Delivery::end_delivered_at);
            // Bytes for a pod may be under way already, and with late links that takes longer.
            let late = receipt.zip(heard).filter(|(receipt, heard)| {
                receipt.at > *heard + LEAVES_WITHIN + book.longest_delay
            });
            // Without words nobody can tell a client that left from one that has said all and listens.
            if late.is_some() && !entry.wordless && !was_dark(book, entry.began, *ended) {
                faults.push("forwarded after its client had left".into());
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
            faults.extend(unexcused(book, entry, *ended, reason));
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
        Outcome::Closed if entry.wordless => {
            // It could be any of the reasons that its service has.
            let any_reason = book.excuses.contains_key(&entry.service);
            if !pod_broke && !any_reason {
                faults.extend(unexcused(book, entry, *ended, "HoldDeadline"));
            }
        }
        Outcome::Cut if pod_broke => {}
        Outcome::Closed | Outcome::Cut => faults.push("not the whole answer".into()),
        Outcome::NotAccepted => {
            if receipt.is_some() {
                faults.push("delivered, but never accepted".into());
            }
            // Nodes follow within the settle time, and so long a resolver that ends must accept.
            if !was_dark(book, entry.began, *ended) {
                faults.push("not accepted".into());
            }
        }
        Outcome::Crossed => {
            if !book.drained || receipt.is_some() {
                faults.push("its connection ended although nobody did".into());
            }
        }
        Outcome::Undelivered(since) => {
            // Nobody could know that it was to carry a request: a client that says nothing may wait for its server to
            // speak first, so it is connected to a pod, and hears that pod's end as it would without us. A refusal
            // needs its words as well, to be told in HTTP's. They have a second to come, from the refusal or the pod's
            // end on, so only a stalled link keeps them away for that long.
            let has_cause = pod_broke || book.excuses.contains_key(&entry.service);
            let too_late = has_cause && was_dark(book, *since, *ended);
            if receipt.is_some() || !(book.drained || too_late) {
                faults.push("its connection ended although nobody did".into());
            }
        }
        Outcome::SentAway if receipt.is_some() => {
            faults.push("delivered, and its client heard that it was not".into());
        }
        Outcome::Unsent | Outcome::SentAway => {}
        // The 502 was written, but the rest of an upload lay unread, and the reset for that overtook it.
        Outcome::Lost(_) if broken => {}
        Outcome::Lost(why) => faults.push(format!("lost: {why}")),
    }
    faults
}

fn was_dark(book: &Book, from: Instant, to: Instant) -> bool {
    book.dark
        .iter()
        .any(|(since, until)| *since <= to && *until >= from)
}

/// A refusal is allowed for a reason that this service has, and not while a pod could have taken it.
fn unexcused(book: &Book, entry: &Entry, ended: Instant, reason: &str) -> Option<String> {
    if was_dark(book, entry.began, ended) {
        return None;
    }
    let is_deadline = reason == "HoldDeadline";
    let spans = book.good.get(&entry.service).into_iter().flatten();
    let had_a_pod = spans.into_iter().any(|(since, until)| {
        let since = if is_deadline {
            (*since).max(entry.began)
        } else {
            *since
        };
        since + USED_WITHIN < ended && until.is_none_or(|until| until >= ended)
    });
    if had_a_pod {
        return Some(format!("{reason} while a pod was ready"));
    }
    if is_deadline {
        let timeout = book
            .timeouts
            .get(&entry.service)
            .copied()
            .unwrap_or_default();
        let early = entry.began + timeout > ended + Duration::from_secs(1);
        if early {
            return Some("refused before its deadline".into());
        }
        let starts = !book.stuck.contains(&entry.service);
        return starts.then(|| "L3: its pods can start, and nobody started them in time".into());
    }
    let excuses = book.excuses.get(&entry.service);
    let excused = excuses.is_some_and(|all| all.contains(&reason));
    (!excused).then(|| format!("{reason} without a cause"))
}
