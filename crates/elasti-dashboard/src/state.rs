//! The state of the dashboard: services, their targets and their Events, from the watches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elasti_api::{ElastiService, ElastiServiceStatus, HistoryEntry};
use elasti_view::held::{Ask, HeldState};
use elasti_view::view::{Calendar, Facts, Lookup, View, Workload, view};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::history::History;
use super::masked;
use super::watch::{WatchError, WatchUpdate};

/// Per service; Kubernetes itself keeps Events for an hour.
const MAX_EVENTS: usize = 50;

/// A service, and so its ElastiService.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Name {
    fn from_metadata(object: &Value) -> Self {
        Self {
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One namespace, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope(pub(crate) Option<String>);

impl Scope {
    fn has(&self, name: &Name) -> bool {
        let Self(namespace) = self;
        namespace.as_ref().is_none_or(|one| *one == name.namespace)
    }
}

/// A kind of target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TargetKind {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// How the cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cluster {
    /// `loading`, `ok`, `forbidden`, `absent` or `unreachable`.
    pub(crate) state: &'static str,
    /// The API server's message.
    pub(crate) message: String,
}

/// Everything that the page shows.
pub(crate) struct FleetState {
    services: BTreeMap<Name, ServiceState>,
    targets: BTreeMap<TargetKind, Option<BTreeMap<Name, Workload>>>,
    events: BTreeMap<Name, VecDeque<Event>>,
    pub(crate) events_forbidden: bool,
    pub(crate) cluster: Cluster,
    held: HeldState,
    /// Services that may have changed since the last broadcast.
    touched: BTreeSet<Name>,
    /// Services that cannot be parsed, and why.
    broken: BTreeMap<Name, String>,
}

/// One service: the object without secrets, and its recent history.
pub(crate) struct ServiceState {
    pub(crate) object: Value,
    me: ElastiService,
    pub(crate) history: History,
}

/// One Event about a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    #[serde(skip)]
    uid: String,
    pub(crate) reason: String,
    pub(crate) note: String,
    pub(crate) at: Option<Timestamp>,
    pub(crate) count: i64,
    /// It is a warning.
    pub(crate) failed: bool,
}

impl Default for FleetState {
    fn default() -> Self {
        Self {
            services: BTreeMap::new(),
            targets: BTreeMap::new(),
            events: BTreeMap::new(),
            events_forbidden: false,
            cluster: Cluster {
                state: "loading",
                message: String::new(),
            },
            held: HeldState::default(),
            touched: BTreeSet::new(),
            broken: BTreeMap::new(),
        }
    }
}

impl FleetState {
    /// Applies an update of the ElastiServices of a namespace, or of all.
    pub(crate) fn services(&mut self, scope: &Scope, update: WatchUpdate, now: Timestamp) {
        match update {
            WatchUpdate::Replace(objects) => {
                let there: BTreeSet<Name> = objects.iter().map(Name::from_metadata).collect();
                let gone = self.services.keys().chain(self.broken.keys());
                let gone = gone.filter(|name| scope.has(name) && !there.contains(*name));
                let gone: Vec<Name> = gone.cloned().collect();
                gone.iter().for_each(|name| self.forget(name));
                objects.into_iter().for_each(|object| self.set(object, now));
                self.cluster = Cluster {
                    state: "ok",
                    message: String::new(),
                };
            }
            WatchUpdate::Set(object) => self.set(object, now),
            WatchUpdate::Removed(object) => self.forget(&Name::from_metadata(&object)),
            WatchUpdate::Recovered => {
                self.cluster = Cluster {
                    state: "ok",
                    message: String::new(),
                }
            }
            WatchUpdate::Failed(error) => self.watch_failed(scope, error),
        }
    }

    fn watch_failed(&mut self, scope: &Scope, error: WatchError) {
        let (state, message) = match error {
            WatchError::Forbidden(message) => ("forbidden", message),
            WatchError::Absent => ("absent", String::new()),
            WatchError::Unreachable(message) => ("unreachable", message),
        };
        // What the user may no longer read is hidden; what is only unreachable stays.
        if state != "unreachable" {
            let names = self.services.keys().filter(|name| scope.has(name));
            let names: Vec<Name> = names.cloned().collect();
            names.iter().for_each(|name| self.forget(name));
        }
        self.cluster = Cluster { state, message };
    }

    fn set(&mut self, mut object: Value, now: Timestamp) {
        let name = Name::from_metadata(&object);
        masked::clean(&mut object);
        match serde_json::from_value::<ElastiService>(object.clone()) {
            Ok(me) => {
                self.broken.remove(&name);
                let old = self.services.remove(&name);
                let history = old.map(|one| one.history).unwrap_or_default();
                self.services.insert(
                    name.clone(),
                    ServiceState {
                        object,
                        me,
                        history,
                    },
                );
                self.record(&name, now);
            }
            // The others are not affected.
            Err(error) => {
                self.broken.insert(name.clone(), error.to_string());
            }
        }
        self.touched.insert(name);
    }

    fn record(&mut self, name: &Name, now: Timestamp) {
        let seen = self.view(name, now);
        if let (Some(seen), Some(one)) = (seen, self.services.get_mut(name)) {
            one.history.record(&seen, now);
        }
    }

    fn forget(&mut self, name: &Name) {
        self.services.remove(name);
        self.broken.remove(name);
        self.events.remove(name);
        self.touched.insert(name.clone());
    }

    /// The kinds of target to watch.
    pub(crate) fn target_kinds(&self) -> BTreeSet<TargetKind> {
        self.services
            .values()
            .map(|one| one.target_kind())
            .collect()
    }

    /// Applies an update of a kind of target.
    pub(crate) fn targets(&mut self, kind: &TargetKind, scope: &Scope, update: WatchUpdate) {
        let kept = self.targets.entry(kind.clone()).or_default();
        let mut changed = BTreeSet::new();
        match update {
            WatchUpdate::Replace(objects) => {
                let read = objects
                    .iter()
                    .map(|object| (Name::from_metadata(object), Workload::from_object(object)));
                let all = kept.get_or_insert_default();
                all.retain(|name, _| !scope.has(name));
                all.extend(read);
                self.touched.extend(self.services.keys().cloned());
                return;
            }
            WatchUpdate::Set(object) => {
                let name = Name::from_metadata(&object);
                kept.get_or_insert_default()
                    .insert(name.clone(), Workload::from_object(&object));
                changed.insert(name);
            }
            WatchUpdate::Removed(object) => {
                let name = Name::from_metadata(&object);
                kept.get_or_insert_default().remove(&name);
                changed.insert(name);
            }
            WatchUpdate::Failed(WatchError::Forbidden(_) | WatchError::Absent) => *kept = None,
            WatchUpdate::Failed(WatchError::Unreachable(_)) | WatchUpdate::Recovered => {}
        }
        let affected = self.services.iter().filter(|(name, one)| {
            let target = Name {
                namespace: name.namespace.clone(),
                name: one.me.spec.scale_target_ref.name.clone(),
            };
            one.target_kind() == *kind && changed.contains(&target)
        });
        self.touched.extend(affected.map(|(name, _)| name.clone()));
    }

    /// Applies an update of the Events.
    pub(crate) fn events(&mut self, scope: &Scope, update: WatchUpdate) {
        match update {
            WatchUpdate::Replace(objects) => {
                self.touched.extend(self.events.keys().cloned());
                self.events.retain(|name, _| !scope.has(name));
                self.events_forbidden = false;
                objects.iter().for_each(|object| self.event(object));
            }
            WatchUpdate::Set(object) => self.event(&object),
            WatchUpdate::Removed(object) => {
                let uid = text(&object, "/metadata/uid");
                if let Some(kept) = self.events.get_mut(&about(&object)) {
                    kept.retain(|one| one.uid != uid);
                }
            }
            WatchUpdate::Failed(WatchError::Forbidden(_) | WatchError::Absent) => {
                self.events_forbidden = true
            }
            WatchUpdate::Failed(WatchError::Unreachable(_)) | WatchUpdate::Recovered => {}
        }
    }

    fn event(&mut self, object: &Value) {
        let event = Event::parse(object);
        let name = about(object);
        self.touched.insert(name.clone());
        let kept = self.events.entry(name).or_default();
        kept.retain(|one| one.uid != event.uid);
        kept.push_front(event);
        kept.make_contiguous()
            .sort_by_key(|one| std::cmp::Reverse(one.at));
        kept.truncate(MAX_EVENTS);
    }

    /// Whether the resolvers need to be asked, with this many browsers connected.
    pub(crate) fn ask(&self, browsers: usize) -> Ask {
        Ask::about(browsers, self.services.values().map(|one| &one.me))
    }

    /// Takes in the answer of the resolvers.
    pub(crate) fn set_held(&mut self, next: HeldState) {
        let changed = self.services.iter().filter(|(_, one)| {
            let reported = one.me.status.as_ref().and_then(|status| status.held);
            let held = |state: &HeldState| state.held(&one.me).or(reported).unwrap_or(0);
            held(&next) != held(&self.held)
        });
        self.touched.extend(changed.map(|(name, _)| name.clone()));
        self.held = next;
    }

    pub(crate) fn held(&self) -> &HeldState {
        &self.held
    }

    /// Services that may have changed since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.touched)
    }

    /// Marks all as changed, because time has passed.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.services.keys().cloned());
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.services.keys()
    }

    pub(crate) fn one(&self, name: &Name) -> Option<&ServiceState> {
        self.services.get(name)
    }

    /// Why a service that exists cannot be shown.
    pub(crate) fn broken(&self, name: &Name) -> Option<&str> {
        self.broken.get(name).map(String::as_str)
    }

    pub(crate) fn events_of(&self, name: &Name) -> impl Iterator<Item = &Event> {
        self.events.get(name).into_iter().flatten()
    }

    /// A service as the read model shows it.
    pub(crate) fn view(&self, name: &Name, now: Timestamp) -> Option<View> {
        let one = self.services.get(name)?;
        let target = self.target(name, one);
        Some(view(Facts {
            me: &one.me,
            target: &target,
            held: self.held.held(&one.me),
            now,
        }))
    }

    fn target(&self, name: &Name, one: &ServiceState) -> Lookup<Workload> {
        let Some(Some(kept)) = self.targets.get(&one.target_kind()) else {
            return Lookup::Unknown;
        };
        let target = Name {
            namespace: name.namespace.clone(),
            name: one.me.spec.scale_target_ref.name.clone(),
        };
        match kept.get(&target) {
            Some(workload) => Lookup::Found(*workload),
            None => Lookup::Missing,
        }
    }
}

impl ServiceState {
    fn target_kind(&self) -> TargetKind {
        let target = self.me.spec.scale_target_ref.canonical();
        TargetKind {
            api_version: target.api_version,
            kind: target.kind,
        }
    }

    /// Its conditions, as the status has them.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &elasti_api::Condition> {
        self.me.status.iter().flat_map(|status| &status.conditions)
    }

    /// The last day, by its status and by what this process observed.
    pub(crate) fn day(&self, now: Timestamp) -> Vec<HistoryEntry> {
        let status = self.me.status.as_ref();
        let recorded = status.map_or(&[][..], |status| status.history.as_slice());
        self.history.day(recorded, now)
    }

    /// What it saved by month and day until then.
    pub(crate) fn calendar(&self, replicas: Option<u32>, until: Timestamp) -> Option<Calendar> {
        let nothing = ElastiServiceStatus::default();
        let status = self.me.status.as_ref().unwrap_or(&nothing);
        Calendar::from_status(status, replicas, until)
    }

    /// Its labels, without those that may be secret.
    pub(crate) fn labels(&self) -> Option<&Value> {
        self.object.pointer("/metadata/labels")
    }

    /// When it was last put to sleep.
    pub(crate) fn slept_at(&self) -> Option<Timestamp> {
        let status = self.me.status.as_ref()?;
        status.last_sleep_time.as_ref().map(|time| time.0)
    }
}

impl Event {
    fn parse(object: &Value) -> Self {
        let moment = |path: &str| text(object, path).parse().ok();
        let count = |path: &str| object.pointer(path).and_then(Value::as_i64);
        Self {
            uid: text(object, "/metadata/uid"),
            reason: text(object, "/reason"),
            note: text(object, "/note"),
            at: moment("/series/lastObservedTime")
                .or_else(|| moment("/deprecatedLastTimestamp"))
                .or_else(|| moment("/eventTime"))
                .or_else(|| moment("/metadata/creationTimestamp")),
            count: count("/series/count")
                .or_else(|| count("/deprecatedCount"))
                .unwrap_or(1),
            failed: text(object, "/type") == "Warning",
        }
    }
}

/// Which service an Event is about.
fn about(event: &Value) -> Name {
    Name {
        namespace: text(event, "/regarding/namespace"),
        name: text(event, "/regarding/name"),
    }
}

fn text(object: &Value, path: &str) -> String {
    object
        .pointer(path)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
