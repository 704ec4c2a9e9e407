//! Watches: the history from a version on, then changes as they come. A watcher that falls behind the history gets 410.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::object::Object as _;
use super::read;
use super::render;
use super::request::{ApiRequest, Output};
use super::resources::Resource;
use super::selector::Selector;
use super::session::{State, header, shows_stored_bytes};
use super::status::ApiError;
use super::store::{Change, Event, Stored, TypeHeader, event_line};
use crate::clock::Clock;
use crate::faults::{Call, Faults, WatchFault};

/// Events taken from the history in one go.
const BATCH: usize = 256;
/// How often a client that allows bookmarks gets one.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Without `timeoutSeconds` a watch lasts as long as Kubernetes' shortest.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// One open watch.
pub(crate) struct Watcher {
    state: Arc<Mutex<State>>,
    resource: Arc<Resource>,
    namespace: String,
    selector: Selector,
    output: Output,
    header: TypeHeader,
    clock: Clock,
    changes: watch::Receiver<u64>,
    /// Everything up to here was sent.
    cursor: u64,
    ready: VecDeque<Bytes>,
    deadline: Instant,
    bookmarks: bool,
    next_bookmark: Instant,
    faults: Vec<WatchFault>,
    injector: Arc<Faults>,
    call: Arc<Call>,
    silent: bool,
    ended: bool,
}

impl Watcher {
    /// Opens a watch; the initial events are ready when it returns.
    pub(crate) fn open(
        state: &Arc<Mutex<State>>,
        request: &ApiRequest,
        clock: Clock,
        faults: Vec<WatchFault>,
        (injector, call): (Arc<Faults>, Arc<Call>),
    ) -> Result<Self, ApiError> {
        read::check_versions(request)?;
        let selector = read::selector(request)?;
        let query = &request.query;
        let wanted = read::version(query.get("resourceVersion"))
            .map_err(ApiError::Internal)?
            .filter(|version| *version > 0);
        let timeout = query
            .number("timeoutSeconds")?
            .and_then(|seconds| u64::try_from(seconds).ok());
        let initial = query.flag("sendInitialEvents");
        let mut watcher = Self {
            state: state.clone(),
            resource: request.resource.clone(),
            namespace: request.namespace.clone(),
            selector,
            output: request.output,
            header: header(&request.resource),
            clock,
            changes: state.lock().store.changes(&request.resource.group_resource),
            cursor: wanted.unwrap_or(0),
            ready: VecDeque::new(),
            deadline: Instant::now() + timeout.map_or(DEFAULT_TIMEOUT, Duration::from_secs),
            bookmarks: query.flag("allowWatchBookmarks"),
            next_bookmark: Instant::now() + BOOKMARK_PERIOD,
            faults,
            injector,
            call,
            silent: false,
            ended: false,
        };
        if wanted.is_none() || initial {
            watcher.send_present(initial);
        }
        Ok(watcher)
    }

    /// The objects as they are now, as ADDED events; then, if asked for, the bookmark that ends them.
    fn send_present(&mut self, mark_end: bool) {
        let namespace =
            Some(self.namespace.as_str()).filter(|one| self.resource.namespaced && !one.is_empty());
        let (objects, version) = {
            let state = self.state.lock();
            (
                state.store.list(&self.resource.group_resource, namespace),
                state.store.version(),
            )
        };
        for object in objects
            .into_iter()
            .filter(|object| self.selector.matches(&object.value))
        {
            let line = self.line("ADDED", &object);
            self.ready.push_back(line);
        }
        self.cursor = version;
        if mark_end && self.bookmarks {
            let line = self.bookmark(true);
            self.ready.push_back(line);
        }
    }

    fn line(&self, word: &str, object: &Arc<Stored>) -> Bytes {
        let body = match self.output {
            Output::Table => Bytes::from(
                render::table(
                    &self.resource,
                    std::slice::from_ref(object),
                    &json!({"resourceVersion": object.version.to_string()}),
                    self.clock,
                )
                .to_string(),
            ),
            _ => render::one(&self.resource, object, self.output),
        };
        event_line(word, &body)
    }

    fn bookmark(&self, initial_end: bool) -> Bytes {
        let (api_version, kind) = match self.output {
            Output::Object => (self.resource.api_version(), self.resource.kind.as_str()),
            Output::PartialMetadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
            Output::Table => ("meta.k8s.io/v1".to_owned(), "Table"),
        };
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": self.cursor.to_string()}});
        if initial_end {
            object.put(
                "/metadata/annotations",
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        event_line("BOOKMARK", object.to_string().as_bytes())
    }

    fn error(&self, error: &ApiError) -> Bytes {
        event_line("ERROR", error.status().to_string().as_bytes())
    }

    /// What this watcher sees of an event, by its namespace and selector before and after.
    fn translate(&self, event: &Event) -> Option<Bytes> {
        let inside = |object: &Value| {
            self.namespace.is_empty() || object.text("/metadata/namespace") == self.namespace
        };
        if !inside(&event.object.value) {
            return None;
        }
        let matches = |object: Option<&Arc<Stored>>| {
            object.is_some_and(|object| self.selector.matches(&object.value))
        };
        let now = event.change != Change::Deleted && matches(Some(&event.object));
        let before = matches(event.previous.as_ref());
        let word = match (before, now) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if word == event.change.word() && shows_stored_bytes(self.output, &self.resource) {
            return Some(event.line(&self.header));
        }
        Some(self.line(word, &self.shown_on(event, word)))
    }

    /// An object that left the selection is shown as it last matched, under the new version.
    fn shown_on(&self, event: &Event, word: &str) -> Arc<Stored> {
        match &event.previous {
            Some(previous) if word == "DELETED" && event.change != Change::Deleted => {
                let mut value = previous.value.clone();
                value.put("/metadata/resourceVersion", event.version().to_string());
                Stored::unversioned(value)
            }
            _ => event.object.clone(),
        }
    }

    /// Takes what the history has beyond the cursor.
    fn refill(&mut self) {
        self.changes.mark_unchanged();
        let events = {
            let state = self.state.lock();
            state
                .store
                .events_after(&self.resource.group_resource, self.cursor, BATCH)
                .map_err(|_| state.store.version())
        };
        match events {
            Ok(events) => {
                for event in events {
                    self.cursor = event.version();
                    if let Some(line) = self.translate(&event) {
                        self.deliver(line);
                    }
                }
            }
            Err(current) => {
                let why = format!("too old resource version: {} ({current})", self.cursor);
                let line = self.error(&ApiError::Expired(why));
                self.ready.push_back(line);
                self.ended = true;
            }
        }
    }

    /// Queues one event, unless a fault wants it dropped, doubled or the watch broken.
    fn deliver(&mut self, line: Bytes) {
        if self.silent {
            return;
        }
        let struck = self.injector.strikes_event(&self.call);
        self.faults.extend(struck);
        match self.faults.first().copied() {
            None => self.ready.push_back(line),
            Some(fault) => {
                self.faults.remove(0);
                match fault {
                    WatchFault::DropEvent => {}
                    WatchFault::RepeatEvent => self.ready.extend([line.clone(), line]),
                    WatchFault::Expire => {
                        let gone = self.error(&ApiError::Expired(format!(
                            "too old resource version: {} ({})",
                            self.cursor, self.cursor
                        )));
                        self.ready.push_back(gone);
                        self.ended = true;
                    }
                    WatchFault::GoSilent => self.silent = true,
                }
            }
        }
    }

    /// The next bytes for the client; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.silent {
                // A half-open connection: nothing more ever comes, not even the end.
                std::future::pending::<()>().await;
            }
            if self.ended {
                return None;
            }
            self.refill();
            if !self.ready.is_empty() || self.ended || self.silent {
                continue;
            }
            let bookmark_at = if self.bookmarks {
                self.next_bookmark
            } else {
                self.deadline
            };
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return None },
                () = sleep_until(self.deadline) => return None,
                () = sleep_until(bookmark_at), if self.bookmarks => {
                    self.next_bookmark += BOOKMARK_PERIOD;
                    self.cursor = self.cursor.max(self.quiet_version());
                    return Some(self.bookmark(false));
                }
            }
        }
    }

    /// With nothing pending for this kind, the watch has seen everything up to now.
    fn quiet_version(&self) -> u64 {
        let state = self.state.lock();
        let pending = state
            .store
            .events_after(&self.resource.group_resource, self.cursor, 1);
        if pending.is_ok_and(|events| events.is_empty()) {
            state.store.version()
        } else {
            self.cursor
        }
    }

    /// The watch as a stream of body chunks.
    pub(crate) fn stream(self) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(self, |mut watcher| async move {
            watcher.next().await.map(|line| (line, watcher))
        })
    }
}
