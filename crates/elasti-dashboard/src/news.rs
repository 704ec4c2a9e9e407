//! What browsers are told: the whole once, then what changed, to any number of them for the price of one.
//! Never waits for a browser: one that cannot keep up is told the whole again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use elasti_core::held::HeldState;
use futures::Stream;
use futures::stream;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};

use super::known::{Cluster, Known, Name};
use super::price::Price;
use super::show::{self, Entry};

/// Messages that a slow browser may be behind before it is told the whole again.
const MOST_BEHIND: usize = 64;
/// Browsers at a time.
const MOST_BROWSERS: usize = 64;

/// What stays the same while the process lives.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Whether the buttons work for whoever has the token.
    pub(crate) writes: bool,
    /// Which cluster or part of it is shown.
    pub(crate) place: String,
    /// What an hour costs, where somebody said so.
    pub(crate) price: Option<Price>,
    /// Since when this process has been looking.
    pub(crate) since: Timestamp,
}

/// The board that browsers read.
pub(crate) struct News {
    frame: Frame,
    told: Mutex<ToldSoFar>,
    wire: broadcast::Sender<Bytes>,
    browsers: Arc<Semaphore>,
    came: Notify,
}

/// What every browser knows by now.
#[derive(Default)]
struct ToldSoFar {
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
    /// Why the resolvers do not tell.
    message: String,
}

impl From<&HeldState> for Held {
    fn from(hearing: &HeldState) -> Self {
        let (state, since, message) = match hearing {
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

impl News {
    pub(crate) fn new(frame: Frame) -> Self {
        let cluster = Known::default().cluster;
        Self {
            frame,
            told: Mutex::new(ToldSoFar {
                cluster,
                held: Held::from(&HeldState::Unasked),
                ..ToldSoFar::default()
            }),
            wire: broadcast::channel(MOST_BEHIND).0,
            browsers: Arc::new(Semaphore::new(MOST_BROWSERS)),
            came: Notify::new(),
        }
    }

    /// How many browsers look.
    pub(crate) fn lookers(&self) -> usize {
        MOST_BROWSERS - self.browsers.available_permits()
    }

    /// Waits until one does.
    pub(crate) async fn somebody_looks(self: Arc<Self>) {
        while self.lookers() == 0 {
            self.came.notified().await;
        }
    }

    /// Tells what has changed, if anything has.
    pub(crate) fn tell(&self, known: &mut Known, now: Timestamp) {
        let mut told = self.told.lock();
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        let touched = known.take_touched();
        for name in &touched {
            match show::row(known, name, now).map(|row| row.to_string()) {
                Some(row) => {
                    if told.rows.get(name) != Some(&row) {
                        rows.push(row.clone());
                        told.rows.insert(name.clone(), row);
                    }
                }
                None => {
                    if told.rows.remove(name).is_some() {
                        gone.push(name.to_string());
                    }
                }
            }
        }
        let activity = match touched.is_empty() {
            true => None,
            false => Some(show::activity(known, now)).filter(|all| *all != told.activity),
        };
        let cluster = Some(&known.cluster)
            .filter(|one| **one != told.cluster)
            .cloned();
        let held = Some(Held::from(known.hearing())).filter(|one| *one != told.held);
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
        told.activity = activity.unwrap_or(std::mem::take(&mut told.activity));
        told.cluster = cluster.unwrap_or(std::mem::take(&mut told.cluster));
        told.held = held.unwrap_or(std::mem::take(&mut told.held));
        // Nobody may be listening, and that is fine.
        let _ = self
            .wire
            .send(message("change", &with_rows(&rest, rows.iter())));
    }

    /// Says that nothing is wrong although nothing happens.
    pub(crate) fn beat(&self, now: Timestamp) {
        let _ = self
            .wire
            .send(message("beat", &json!({"now": now}).to_string()));
    }

    /// Everything, as one answer.
    pub(crate) fn fleet(&self, now: Timestamp) -> String {
        self.whole(&self.told.lock(), now)
    }

    fn whole(&self, told: &ToldSoFar, now: Timestamp) -> String {
        let Frame {
            writes,
            place,
            price,
            since,
        } = &self.frame;
        let rest = json!({
            "now": now, "since": since, "writes": writes, "place": place, "price": price,
            "cluster": told.cluster, "held": told.held, "activity": told.activity,
        });
        with_rows(&rest, told.rows.values())
    }

    /// A stream for one browser: the whole, then every change. `None` if there are too many.
    pub(crate) fn listen(self: &Arc<Self>) -> Option<impl Stream<Item = Bytes> + Send + use<>> {
        let place = self.browsers.clone().try_acquire_owned().ok()?;
        self.came.notify_one();
        let ear = Ear {
            news: self.clone(),
            wire: self.wire.subscribe(),
            begun: false,
            _place: place,
        };
        Some(stream::unfold(ear, async |mut ear| {
            let next = ear.next().await?;
            Some((next, ear))
        }))
    }
}

/// One browser's place at the board.
struct Ear {
    news: Arc<News>,
    wire: broadcast::Receiver<Bytes>,
    begun: bool,
    _place: OwnedSemaphorePermit,
}

impl Ear {
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

    /// Nothing is told between the whole and what follows it: both are taken under one lock.
    fn whole(&mut self) -> Bytes {
        let told = self.news.told.lock();
        self.wire = self.news.wire.subscribe();
        message("fleet", &self.news.whole(&told, Timestamp::now()))
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
