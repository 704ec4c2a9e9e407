//! Objects, one growing resourceVersion, and a bounded history per kind from which watches and old lists are served.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::object::Object as _;
use super::resources::GroupResource;

/// Namespace (empty for cluster-wide kinds) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn from_object(object: &Value) -> Self {
        Self::new(
            object.text("/metadata/namespace"),
            object.text("/metadata/name"),
        )
    }
}

/// One stored version of an object, without apiVersion and kind, serialised once however many read it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) value: Value,
    pub(crate) version: u64,
    json: OnceLock<Bytes>,
}

impl Stored {
    fn new(mut value: Value, version: u64) -> Arc<Self> {
        value.put("/metadata/resourceVersion", version.to_string());
        value.drop_at("/apiVersion");
        value.drop_at("/kind");
        Arc::new(Self {
            value,
            version,
            json: OnceLock::new(),
        })
    }

    /// An object that is only shown, never stored: the answer to a dry run.
    pub(crate) fn unversioned(mut value: Value) -> Arc<Self> {
        value.drop_at("/apiVersion");
        value.drop_at("/kind");
        Arc::new(Self {
            value,
            version: 0,
            json: OnceLock::new(),
        })
    }

    /// The object as it stands in a list of a built-in kind: without apiVersion and kind.
    pub(crate) fn json(&self) -> Bytes {
        self.json
            .get_or_init(|| Bytes::from(self.value.to_string()))
            .clone()
    }

    /// The object on its own, under the names of the version asked for.
    pub(crate) fn whole_json(&self, header: &TypeHeader) -> Vec<u8> {
        let json = self.json();
        let mut whole = Vec::with_capacity(json.len() + header.0.len() + 1);
        whole.push(b'{');
        whole.extend_from_slice(header.0.as_bytes());
        whole.extend_from_slice(json.get(1..).unwrap_or_default());
        whole
    }
}

/// `"apiVersion":"…","kind":"…",`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeHeader(Arc<str>);

impl TypeHeader {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        Self(
            format!(
                "\"apiVersion\":{},\"kind\":{},",
                Value::from(api_version),
                Value::from(kind)
            )
            .into(),
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of the history; `line` is the watch event as sent, shared by all watchers.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) at: Instant,
    pub(crate) change: Change,
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
    line: OnceLock<(TypeHeader, Bytes)>,
}

impl Event {
    pub(crate) fn version(&self) -> u64 {
        self.object.version
    }

    /// `{"type":…,"object":…}\n`, built once for the version that is asked for first.
    pub(crate) fn line(&self, header: &TypeHeader) -> Bytes {
        let build = || event_line(self.change.word(), &self.object.whole_json(header));
        let (cached_header, line) = self.line.get_or_init(|| (header.clone(), build()));
        if cached_header == header {
            line.clone()
        } else {
            build()
        }
    }
}

/// A watch event on the wire.
pub(crate) fn event_line(word: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 32);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(word.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// The objects of one kind and what happened to them lately.
#[derive(Debug)]
struct Kind {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Event>>,
    /// The newest version that fell out of the history.
    forgotten: u64,
    changes: watch::Sender<u64>,
}

/// History no longer reaches back to the version asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld;

#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    history_limit: usize,
    kinds: HashMap<GroupResource, Kind>,
    /// Notifies readers that follow several kinds.
    any_change: watch::Sender<u64>,
}

impl Store {
    /// An empty store that keeps `history_limit` events a kind.
    pub(crate) fn new(history_limit: usize) -> Self {
        Self {
            version: 1,
            history_limit: history_limit.max(1),
            kinds: HashMap::new(),
            any_change: watch::Sender::new(0),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn kind(&mut self, group_resource: &GroupResource) -> &mut Kind {
        let forgotten = self.version;
        self.kinds
            .entry(group_resource.clone())
            .or_insert_with(|| Kind {
                objects: BTreeMap::new(),
                history: VecDeque::new(),
                // Nothing happened to this kind before it was first asked for.
                forgotten: forgotten.min(1),
                changes: watch::Sender::new(0),
            })
    }

    pub(crate) fn get(&self, group_resource: &GroupResource, key: &Key) -> Option<Arc<Stored>> {
        self.kinds.get(group_resource)?.objects.get(key).cloned()
    }

    /// All objects, of one namespace if one is named, in key order.
    pub(crate) fn list(
        &self,
        group_resource: &GroupResource,
        namespace: Option<&str>,
    ) -> Vec<Arc<Stored>> {
        let Some(kind) = self.kinds.get(group_resource) else {
            return Vec::new();
        };
        in_namespace(&kind.objects, namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// All objects as they were at `version`: the present with the history undone.
    pub(crate) fn list_at(
        &self,
        group_resource: &GroupResource,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<Vec<Arc<Stored>>, TooOld> {
        let Some(kind) = self.kinds.get(group_resource) else {
            return Ok(Vec::new());
        };
        if version < kind.forgotten {
            return Err(TooOld);
        }
        let mut objects = kind.objects.clone();
        for event in kind
            .history
            .iter()
            .rev()
            .take_while(|event| event.version() > version)
        {
            let key = Key::from_object(&event.object.value);
            match &event.previous {
                Some(previous) => objects.insert(key, previous.clone()),
                None => objects.remove(&key),
            };
        }
        Ok(in_namespace(&objects, namespace)
            .map(|(_, object)| object.clone())
            .collect())
    }

    /// The next version, to be written into an object before `put`.
    fn advance(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Writes an object and notifies the watchers.
    pub(crate) fn put(&mut self, group_resource: &GroupResource, value: Value) -> Arc<Stored> {
        let version = self.advance();
        let object = Stored::new(value, version);
        let previous = self
            .kind(group_resource)
            .objects
            .insert(Key::from_object(&object.value), object.clone());
        let change = if previous.is_some() {
            Change::Modified
        } else {
            Change::Added
        };
        self.record(group_resource, change, object.clone(), previous);
        object
    }

    /// Removes an object; the event carries its last state under a version of its own.
    pub(crate) fn remove(
        &mut self,
        group_resource: &GroupResource,
        key: &Key,
        last: Option<Value>,
    ) -> Option<Arc<Stored>> {
        let previous = self.kind(group_resource).objects.remove(key)?;
        let version = self.advance();
        let value = last.unwrap_or_else(|| previous.value.clone());
        let object = Stored::new(value, version);
        self.record(
            group_resource,
            Change::Deleted,
            object.clone(),
            Some(previous),
        );
        Some(object)
    }

    fn record(
        &mut self,
        group_resource: &GroupResource,
        change: Change,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
    ) {
        let limit = self.history_limit;
        let version = object.version;
        let kind = self.kind(group_resource);
        kind.history.push_back(Arc::new(Event {
            at: Instant::now(),
            change,
            object,
            previous,
            line: OnceLock::new(),
        }));
        while kind.history.len() > limit {
            kind.forgotten = kind
                .history
                .pop_front()
                .map_or(kind.forgotten, |event| event.version());
        }
        kind.changes.send_replace(version);
        self.any_change.send_replace(version);
    }

    /// Notifies readers that follow this kind.
    pub(crate) fn changes(&mut self, group_resource: &GroupResource) -> watch::Receiver<u64> {
        self.kind(group_resource).changes.subscribe()
    }

    /// Up to `limit` events after `version`.
    pub(crate) fn events_after(
        &self,
        group_resource: &GroupResource,
        version: u64,
        limit: usize,
    ) -> Result<Vec<Arc<Event>>, TooOld> {
        let Some(kind) = self.kinds.get(group_resource) else {
            return Ok(Vec::new());
        };
        if version < kind.forgotten {
            return Err(TooOld);
        }
        let start = kind
            .history
            .partition_point(|event| event.version() <= version);
        Ok(kind.history.range(start..).take(limit).cloned().collect())
    }

    /// Makes the history forget everything, so that every older watch and list is too old.
    pub(crate) fn compact(&mut self) {
        let version = self.version;
        for kind in self.kinds.values_mut() {
            kind.history.clear();
            kind.forgotten = version;
        }
    }

    /// Every group_resource that was ever written to.
    pub(crate) fn group_resources(&self) -> Vec<GroupResource> {
        let mut all: Vec<GroupResource> = self.kinds.keys().cloned().collect();
        all.sort();
        all
    }

    /// Wakes at every write.
    pub(crate) fn any_change(&self) -> watch::Receiver<u64> {
        self.any_change.subscribe()
    }
}

fn in_namespace<'a>(
    objects: &'a BTreeMap<Key, Arc<Stored>>,
    namespace: Option<&'a str>,
) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
    let from = match namespace {
        Some(namespace) => Bound::Included(Key::new(namespace, "")),
        None => Bound::Unbounded,
    };
    objects
        .range((from, Bound::Unbounded))
        .take_while(move |(key, _)| namespace.is_none_or(|one| key.namespace == one))
}
