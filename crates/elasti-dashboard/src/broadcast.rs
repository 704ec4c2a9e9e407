//! The event stream: every browser gets the whole state once, then changes.
//! Never waits for a browser: one that lags gets the whole state again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use elasti_view::held::HeldState;
use futures::Stream;
use futures::stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};

use super::price::Price;
use super::show::{self, Entry};
use super::state::{Cluster, FleetState, Name};

/// Messages that a browser may lag behind before it gets the whole state again.
const MAX_LAG: usize = 64;
/// Browsers at a time.
const MAX_BROWSERS: usize = 64;

/// What stays the same while the process lives.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Whether the token allows writes.
    pub(crate) writes: bool,
    /// Which cluster or part of it is shown.
    pub(crate) place: String,
    /// Price of an hour, where configured.
    pub(crate) price: Option<Price>,
    /// When this process started to watch.
    pub(crate) since: Timestamp,
}

/// The board that browsers read.
pub(crate) struct Broadcast {
    frame: Frame,
    sent: Mutex<Sent>,
    wire: broadcast::Sender<Bytes>,
    browsers: Arc<Semaphore>,
    came: Notify,
}

/// What every browser knows by now.
#[derive(Default)]
struct Sent {
    rows: BTreeMap<Name, String>,
    activity: Vec<Entry>,
    cluster: Cluster,
    held: Held,
}

/// Where the numbers of waiting requests come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Held {
    /// `unasked`, `live` or `told`.
    state: &'static str,
    /// Since when it has been so.
    since: Option<Timestamp>,
    /// Why there is no answer from the resolvers.
    message: String,
}

impl From<&HeldState> for Held {
    fn from(held: &HeldState) -> Self {
        let (state, since, message) = match held {
            HeldState::Unasked => ("unasked", None, String::new()),
            HeldState::Live { since, .. } => ("live", Some(*since), String::new()),
            HeldState::Told { since, why } => ("told", Some(*since), why.clone()),
        };
        Self {
            state,
            since,
            message,
        }
    }
}

impl Broadcast {
    pub(crate) fn new(frame: Frame) -> Self {
        let cluster = FleetState::default().cluster;
        Self {
            frame,
            sent: Mutex::new(Sent {
                cluster,
                held: Held::from(&HeldState::Unasked),
                ..Sent::default()
            }),
            wire: broadcast::channel(MAX_LAG).0,
            browsers: Arc::new(Semaphore::new(MAX_BROWSERS)),
            came: Notify::new(),
        }
    }

    /// How many browsers are connected.
    pub(crate) fn watching(&self) -> usize {
        MAX_BROWSERS - self.browsers.available_permits()
    }

    /// Waits for the first one.
    pub(crate) async fn until_watched(self: Arc<Self>) {
        while self.watching() == 0 {
            self.came.notified().await;
        }
    }

    /// Publishes what has changed, if anything has.
    pub(crate) fn publish(&self, state: &mut FleetState, now: Timestamp) {
        let mut sent = self.sent.lock();
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        let touched = state.take_touched();
        for name in &touched {
            match show::row(state, name, now).map(|row| row.to_string()) {
                Some(row) => {
                    if sent.rows.get(name) != Some(&row) {
                        rows.push(row.clone());
                        sent.rows.insert(name.clone(), row);
                    }
                }
                None => {
                    if sent.rows.remove(name).is_some() {
                        gone.push(name.to_string());
                    }
                }
            }
        }
        let activity = match touched.is_empty() {
            true => None,
            false => Some(show::activity(state, now)).filter(|all| *all != sent.activity),
        };
        let cluster = Some(&state.cluster)
            .filter(|one| **one != sent.cluster)
            .cloned();
        let held = Some(Held::from(state.held())).filter(|one| *one != sent.held);
        let same = activity.is_none() && cluster.is_none() && held.is_none();
        if rows.is_empty() && gone.is_empty() && same {
            return;
        }
        let mut rest = json!({"now": now, "gone": gone});
        if let (Some(activity), Some(rest)) = (&activity, rest.as_object_mut()) {
            rest.insert("activity".into(), json!(activity));
        }
        if let (Some(cluster), Some(rest)) = (&cluster, rest.as_object_mut()) {
            rest.insert("cluster".into(), json!(cluster));
        }
        if let (Some(held), Some(rest)) = (&held, rest.as_object_mut()) {
            rest.insert("held".into(), json!(held));
        }
        sent.activity = activity.unwrap_or(std::mem::take(&mut sent.activity));
        sent.cluster = cluster.unwrap_or(std::mem::take(&mut sent.cluster));
        sent.held = held.unwrap_or(std::mem::take(&mut sent.held));
        // Without a browser there is no receiver.
        let _ = self
            .wire
            .send(message("change", &with_rows(&rest, rows.iter())));
    }

    /// A sign of life while nothing changes.
    pub(crate) fn heartbeat(&self, now: Timestamp) {
        let _ = self
            .wire
            .send(message("beat", &json!({"now": now}).to_string()));
    }

    /// The whole state, as one response.
    pub(crate) fn fleet(&self, now: Timestamp) -> String {
        self.whole(&self.sent.lock(), now)
    }

    fn whole(&self, sent: &Sent, now: Timestamp) -> String {
        let Frame {
            writes,
            place,
            price,
            since,
        } = &self.frame;
        let rest = json!({
            "now": now, "since": since, "writes": writes, "place": place, "price": price,
            "cluster": sent.cluster, "held": sent.held, "activity": sent.activity,
        });
        with_rows(&rest, sent.rows.values())
    }

    /// A stream for one browser: the whole state, then every change. `None` if there are too many browsers.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Option<impl Stream<Item = Bytes> + Send + use<>> {
        let permit = self.browsers.clone().try_acquire_owned().ok()?;
        self.came.notify_one();
        let subscriber = Subscriber {
            broadcast: self.clone(),
            wire: self.wire.subscribe(),
            begun: false,
            _permit: permit,
        };
        Some(stream::unfold(subscriber, async |mut subscriber| {
            let next = subscriber.next().await?;
            Some((next, subscriber))
        }))
    }
}

/// One browser's stream.
struct Subscriber {
    broadcast: Arc<Broadcast>,
    wire: broadcast::Receiver<Bytes>,
    begun: bool,
    _permit: OwnedSemaphorePermit,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Bytes> {
        if !self.begun {
            self.begun = true;
            return Some(self.whole());
        }
        match self.wire.recv().await {
            Ok(message) => Some(message),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(self.whole()),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// Under one lock, so that no change is lost between the whole state and the subscription.
    fn whole(&mut self) -> Bytes {
        let sent = self.broadcast.sent.lock();
        self.wire = self.broadcast.wire.subscribe();
        message("fleet", &self.broadcast.whole(&sent, Timestamp::now()))
    }
}

/// An object with rows that are text already.
fn with_rows<'a>(rest: &Value, rows: impl Iterator<Item = &'a String>) -> String {
    let mut text = rest.to_string();
    // The closing brace comes again behind the rows.
    text.pop();
    text.push_str(",\"services\":[");
    for (number, row) in rows.enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{row}");
    }
    text.push_str("]}");
    text
}

/// JSON has no line break of its own, so it is one line of the stream.
fn message(event: &str, json: &str) -> Bytes {
    format!("event: {event}\ndata: {json}\n\n").into()
}
