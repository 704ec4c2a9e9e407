//! The objects that the watches delivered, indexed so that each event finds the services that it concerns in one step.
//! An old version never replaces a newer one, wherever it comes from.

mod by_name;
mod cached_kind;
mod claims;
mod followed;
mod others;
mod predecessor;
mod refresh;
mod selectors;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use elasti_api::names;
use elasti_core::facts::PredecessorFacts;
use elasti_core::observed::KedaPause;
use elasti_core::status::need;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::name::{KindName, Name, TargetName, Workload};
use crate::slim::{Declared, NodeView, PodView, ServiceView, SliceView, TargetView};
use by_name::ByName;
pub(crate) use cached_kind::{CachedKind, ResolverPod, Source};
use cached_kind::{names_in, replaces};
pub(crate) use claims::{autoscaler_kind, first_slices, target_of};
use followed::NamedKinds;
pub(crate) use others::Others;
pub(crate) use predecessor::PredecessorPod;
pub(crate) use refresh::Lists;

/// What happened to one kind of object.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// A whole list: these exist, and others that cannot be read; nothing else does.
    All {
        /// The version of the list itself; empty if there is none.
        version: String,
        /// Those that could be read.
        good: Vec<K>,
        /// Those that could not: what was cached of them still counts.
        broken: Vec<Name>,
    },
    /// This one exists, in this state.
    Set(K),
    /// This one is gone.
    Gone(Name),
    /// The operator is not allowed to read them.
    Refused,
}

impl<K> Change<K> {
    /// The same change of something made from each object.
    pub(crate) fn map<L>(self, mut make: impl FnMut(K) -> L) -> Change<L> {
        match self {
            Self::All {
                version,
                good,
                broken,
            } => Change::All {
                version,
                good: good.into_iter().map(make).collect(),
                broken,
            },
            Self::Set(object) => Change::Set(make(object)),
            Self::Gone(name) => Change::Gone(name),
            Self::Refused => Change::Refused,
        }
    }

    /// The `action` label in metrics.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::All { .. } => "list",
            Self::Set(_) => "set",
            Self::Gone(_) => "gone",
            Self::Refused => "refused",
        }
    }
}

/// Whether the objects of a kind that services refer to are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindState {
    /// Discovery or the first list is not complete.
    Pending,
    /// The cluster does not have it.
    Absent,
    /// The operator is not allowed to list it.
    Refused,
    /// Its objects are cached.
    Listed,
}

/// What is remembered of a ScaledObject.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScaledView {
    pub(crate) version: String,
    pub(crate) pause: KedaPause,
}

/// Oldest first: by creation, then by name. Nearly always one, for which a tree would be ten times too large.
type Claims = Vec<(Timestamp, Arc<str>)>;

/// The pair of a label that a selector is found by.
type LabelPair = (Arc<str>, String, String);

/// All cached objects and their indexes.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) declared: HashMap<Name, Arc<Declared>>,
    /// Which ElastiServices claim a Service.
    by_service: HashMap<Name, Claims>,
    by_target: HashMap<Workload, Claims>,
    /// The other Services of each ElastiService, where it has any.
    others: HashMap<Name, Others>,
    /// Which ElastiServices have a Service among their others; the one that manages it first.
    users: HashMap<Name, Vec<Name>>,
    /// The namespaces in which the other Services must be found anew.
    others_changed: HashSet<Arc<str>>,
    by_autoscaler: HashMap<(KindName, Name), BTreeSet<Name>>,
    /// Which ElastiServices refer to a kind.
    by_kind: HashMap<KindName, HashSet<Name>>,
    named_kinds: HashMap<Arc<str>, NamedKinds>,
    /// The kinds to follow must be chosen anew.
    kinds_changed: bool,
    followed_kinds: BTreeSet<KindName>,
    /// Our private Services, by their name, and the public ones.
    public_of: HashMap<Name, Name>,
    services: HashMap<Name, Arc<ServiceView>>,
    slices: HashMap<Name, ByName<SliceView>>,
    service_of_slice: HashMap<Name, Name>,
    /// The names that our own slices have, and the Services that they would belong to: an object with such a name
    /// is in our way, whatever its labels say.
    our_slices: HashMap<Name, Name>,
    /// Pods by the managed Service that selects them.
    pods: HashMap<Name, ByName<PodView>>,
    services_of_pod: HashMap<Name, Vec<Name>>,
    /// Managed Services by one pair of their selector.
    selectors: HashMap<LabelPair, HashSet<Name>>,
    selector_of: HashMap<Name, (LabelPair, Arc<ServiceView>)>,
    /// Managed Services whose pods and slices have not been read yet, each with a number: a list covers those whose number
    /// is not above the one at which it began.
    not_read: HashMap<Name, u64>,
    /// The number of the latest of them.
    last_not_read: u64,
    /// At which number the list of a resource in a namespace that is being read began.
    list_began: HashMap<(&'static str, Option<String>), u64>,
    /// The same of the last one that is complete.
    list_covers: HashMap<(&'static str, Option<String>), u64>,
    targets: HashMap<TargetName, Arc<TargetView>>,
    pub(crate) hpas: HashMap<Name, u32>,
    pub(crate) scaled: HashMap<Name, ScaledView>,
    pub(crate) resolvers: BTreeMap<Name, Arc<PodView>>,
    /// Living pods of KubeElasti's operator.
    predecessors: BTreeMap<Name, PredecessorFacts>,
    /// Those of the resolvers that are KubeElasti's.
    predecessor_resolvers: BTreeSet<Name>,
    nodes: BTreeSet<Name>,
    nodes_refused: bool,
    kinds: HashMap<KindName, KindState>,
    kind_scopes: HashMap<KindName, HashSet<Option<String>>>,
    /// Where the operator is not allowed to list a kind.
    refused_kinds: HashMap<KindName, HashSet<Option<String>>>,
    /// Objects that were deleted during a refresh.
    gone_meanwhile: HashSet<Name>,
    refreshes: usize,
    /// Which lists are complete: of which resource, in which namespace.
    listed: HashSet<(&'static str, Option<String>)>,
    /// The namespaces that are watched, one by one; `None` is all of them.
    scopes: Vec<Option<String>>,
    /// Which version each watch has reached.
    watch_versions: HashMap<(&'static str, Option<String>), u64>,
    /// The same of the watches of targets.
    target_versions: HashMap<(KindName, Option<String>), u64>,
}

impl Cache {
    /// Those first whose clients depend on the resolvers.
    pub(crate) fn sort_by_need(&self, names: &mut [Name]) {
        names.sort_by_cached_key(|name| self.declared.get(name).map(|me| need(&me.status)));
    }
}

/// The store of one operator.
#[derive(Debug)]
pub(crate) struct Store {
    cache: Mutex<Cache>,
    /// The kinds to follow.
    wanted_kinds: watch::Sender<BTreeSet<KindName>>,
}

impl Store {
    /// A store of what is in these namespaces; `None` is all of them.
    pub(crate) fn new(scopes: Vec<Option<String>>) -> Self {
        let cache = Cache {
            scopes,
            ..Cache::default()
        };
        Self {
            cache: Mutex::new(cache),
            wanted_kinds: watch::Sender::default(),
        }
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    /// The namespaces that are watched, one by one; `None` is all of them.
    pub(crate) fn scopes(&self) -> Vec<Option<String>> {
        self.cache().scopes.clone()
    }

    pub(crate) fn elasti_services(&self) -> Vec<Name> {
        self.cache().declared.keys().cloned().collect()
    }

    /// The kinds to follow.
    pub(crate) fn wanted_kinds(&self) -> watch::Receiver<BTreeSet<KindName>> {
        self.wanted_kinds.subscribe()
    }

    /// Applies a change of `K` within a namespace or everywhere; gives the ElastiServices that it concerns.
    pub(crate) fn apply_change<K: CachedKind>(
        &self,
        scope: Option<&str>,
        change: Change<K>,
    ) -> Vec<Name> {
        let mut cache = self.cache.lock();
        let mut touched = BTreeSet::new();
        match change {
            Change::All {
                version,
                good,
                broken,
            } => {
                let key = (K::RESOURCE, scope.map(str::to_owned));
                let reached = cache.watch_versions.entry(key.clone()).or_default();
                let source = Source::list(reached, &version);
                let mut left: HashSet<Name> = names_in::<K>(&cache, scope);
                for name in &broken {
                    left.remove(name);
                }
                for object in good {
                    left.remove(object.name());
                    object.put(&mut cache, &mut touched, source);
                }
                for name in left {
                    K::gone(&name, &mut cache, &mut touched);
                }
                cache.set_listed(key, &mut touched);
                if K::NEEDS_SERVICES_FIRST {
                    cache.set_all_read::<K>(scope);
                }
            }
            Change::Set(object) => object.put(&mut cache, &mut touched, Source::Event),
            Change::Gone(name) => {
                if cache.refreshes > 0 {
                    cache.gone_meanwhile.insert(name.clone());
                }
                K::gone(&name, &mut cache, &mut touched);
            }
            Change::Refused => K::refused(&mut cache, &mut touched),
        }
        cache.refresh_others(&mut touched);
        let wanted = std::mem::take(&mut cache.kinds_changed);
        let wanted = wanted.then(|| cache.choose_kinds(&mut touched));
        drop(cache);
        if let Some(wanted) = wanted {
            self.wanted_kinds.send_if_modified(|before| {
                let differs = *before != wanted;
                if differs {
                    *before = wanted;
                }
                differs
            });
        }
        touched.into_iter().collect()
    }

    /// Applies a change among the workloads of one kind.
    pub(crate) fn apply_target_change(
        &self,
        kind: &KindName,
        scope: Option<&str>,
        change: Change<TargetView>,
    ) -> Vec<Name> {
        let mut cache = self.cache.lock();
        let mut touched = BTreeSet::new();
        let full = |name: Name| TargetName {
            kind: kind.clone(),
            name,
        };
        match change {
            Change::All {
                version,
                good,
                broken,
            } => {
                let source = Source::list(cache.target_version(kind, scope), &version);
                let in_scope = |name: &&TargetName| {
                    name.kind == *kind && scope.is_none_or(|s| *name.name.namespace == *s)
                };
                let all = cache.targets.keys().filter(in_scope);
                let mut left: HashSet<Name> = all.map(|t| t.name.clone()).collect();
                for name in &broken {
                    left.remove(name);
                }
                for object in good {
                    left.remove(&object.name);
                    let name = full(object.name.clone());
                    cache.put_target(&name, object, &mut touched, source);
                }
                for name in left {
                    cache.remove_target(&full(name), &mut touched);
                }
                cache.set_kind_listed(kind, scope, &mut touched);
            }
            Change::Set(object) => {
                let name = full(object.name.clone());
                let reached = cache.target_version(kind, scope);
                *reached = object.version.parse::<u64>().unwrap_or(0).max(*reached);
                cache.put_target(&name, object, &mut touched, Source::Event);
            }
            Change::Gone(name) => cache.remove_target(&full(name), &mut touched),
            Change::Refused => cache.set_kind_refused(kind, scope, &mut touched),
        }
        cache.refresh_others(&mut touched);
        touched.into_iter().collect()
    }

    /// Our finalizer was removed, and with it the ElastiService, unless another one holds it. Until the watch tells that
    /// it is gone nothing more is done for it: its target belongs to others now. What the write returned is not cached,
    /// because it would bring back what the watch may already have removed.
    pub(crate) fn set_finalized(&self, me: &Declared) {
        let mut cache = self.cache();
        let cached = cache.declared.get_mut(&me.name);
        if let Some(cached) = cached.filter(|cached| cached.uid == me.uid) {
            let finalizers = &mut Arc::make_mut(cached).finalizers;
            finalizers.retain(|one| one != names::FINALIZER);
        }
    }

    /// A target as it was read or written beside the watch.
    pub(crate) fn put_target(&self, name: &TargetName, target: TargetView) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        let mut cache = self.cache();
        cache.put_target(name, target, &mut touched, Source::Event);
        cache.refresh_others(&mut touched);
        touched.into_iter().collect()
    }

    /// Discovery found out something about a kind as a whole.
    pub(crate) fn set_kind(&self, kind: &KindName, state: KindState) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        self.cache.lock().set_kind(kind, state, &mut touched);
        touched.into_iter().collect()
    }

    /// A kind is not followed any more: nothing is known of its objects.
    pub(crate) fn forget_kind(&self, kind: &KindName) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        let mut cache = self.cache();
        let all = cache.targets.keys().filter(|name| name.kind == *kind);
        for name in all.cloned().collect::<Vec<TargetName>>() {
            cache.remove_target(&name, &mut touched);
        }
        cache.target_versions.retain(|(one, _), _| one != kind);
        cache.kind_scopes.remove(kind);
        cache.refused_kinds.remove(kind);
        cache.kinds.remove(kind);
        cache.refresh_others(&mut touched);
        touched.into_iter().collect()
    }

    /// A kind was listed everywhere, and is not refused anywhere.
    pub(crate) fn is_kind_listed(&self, kind: &KindName) -> bool {
        let cache = self.cache();
        cache.kinds.get(kind) == Some(&KindState::Listed) && !cache.refused_kinds.contains_key(kind)
    }

    /// The operator is not allowed to list a kind in one namespace, or anywhere.
    pub(crate) fn set_kind_refused(&self, kind: &KindName, scope: Option<&str>) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        self.cache
            .lock()
            .set_kind_refused(kind, scope, &mut touched);
        touched.into_iter().collect()
    }

    /// A kind has been listed in one namespace, or everywhere.
    pub(crate) fn set_kind_listed(&self, kind: &KindName, scope: Option<&str>) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        self.cache.lock().set_kind_listed(kind, scope, &mut touched);
        touched.into_iter().collect()
    }
}

impl Cache {
    /// Everything that a decision needs has been listed.
    pub(crate) fn is_listed(&self) -> bool {
        let pods_and_slices = [SliceView::RESOURCE, PodView::RESOURCE];
        let somewhere = |kind: &str| self.listed.iter().any(|(what, _)| *what == kind);
        self.services_listed()
            && pods_and_slices
                .iter()
                .all(|what| self.listed_everywhere(what))
            && somewhere(ResolverPod::RESOURCE)
            && somewhere(PredecessorPod::RESOURCE)
    }

    /// The ElastiServices and Services are listed; they decide which pods and slices matter.
    pub(crate) fn services_listed(&self) -> bool {
        self.listed_everywhere(Declared::RESOURCE) && self.listed_everywhere(ServiceView::RESOURCE)
    }

    /// A kind has been listed in every namespace that is watched.
    fn listed_everywhere(&self, what: &'static str) -> bool {
        let listed = |scope: &Option<String>| self.listed.contains(&(what, scope.clone()));
        self.scopes.iter().all(listed)
    }

    /// The names of all nodes; `None` if they cannot be read: only an operator of all namespaces may be allowed to.
    pub(crate) fn nodes(&self) -> Option<BTreeSet<String>> {
        let listed = self.listed.contains(&(NodeView::RESOURCE, None)) && !self.nodes_refused;
        let names = self.nodes.iter().map(|node| node.name.to_string());
        listed.then(|| names.collect())
    }

    /// The nodes will be listed or refused soon.
    pub(crate) fn nodes_are_pending(&self) -> bool {
        let watched = self.scopes.contains(&None);
        watched && !self.nodes_refused && !self.listed.contains(&(NodeView::RESOURCE, None))
    }

    /// Those whose Service sends within a node only.
    fn touch_local(&self, touched: &mut BTreeSet<Name>) {
        let sends_locally = |service: &Name| {
            let service = self.service(service);
            service.is_some_and(|s| s.facts.service.internal_local)
        };
        let is_local = |me: &&Arc<Declared>| self.services_of(me).iter().any(sends_locally);
        let local = self.declared.values().filter(is_local);
        touched.extend(local.map(|me| me.name.clone()));
    }

    pub(crate) fn service(&self, name: &Name) -> Option<&Arc<ServiceView>> {
        self.services.get(name)
    }

    pub(crate) fn target(&self, name: &TargetName) -> Option<&Arc<TargetView>> {
        self.targets.get(name)
    }

    pub(crate) fn pods(&self, service: &Name) -> impl Iterator<Item = &Arc<PodView>> {
        self.pods.get(service).into_iter().flatten().map(|(_, p)| p)
    }

    pub(crate) fn slices(&self, service: &Name) -> impl Iterator<Item = &Arc<SliceView>> {
        let slices = self.slices.get(service).into_iter().flatten();
        slices.map(|(_, slice)| slice)
    }

    /// A list is complete. A service that could not be decided on before the first one may be now.
    fn set_listed(&mut self, key: (&'static str, Option<String>), touched: &mut BTreeSet<Name>) {
        if self.listed.insert(key) {
            touched.extend(self.declared.keys().cloned());
        }
    }

    /// Which version the watch of a target's kind has reached.
    fn target_version(&mut self, kind: &KindName, scope: Option<&str>) -> &mut u64 {
        let key = (kind.clone(), scope.map(str::to_owned));
        self.target_versions.entry(key).or_default()
    }

    /// Replaces a target, unless it is newer than that.
    pub(crate) fn put_target(
        &mut self,
        name: &TargetName,
        object: TargetView,
        touched: &mut BTreeSet<Name>,
        source: Source,
    ) {
        let before = self.targets.get(name);
        if before
            .is_some_and(|b| b.uid == object.uid && !replaces(&b.version, &object.version, source))
        {
            return;
        }
        if source.is_list() && before.is_some_and(|before| **before == object) {
            return;
        }
        let labels = before.map(|before| &before.facts.pod_labels);
        if labels != Some(&object.facts.pod_labels) {
            self.target_labels_changed(name);
        }
        self.targets.insert(name.clone(), Arc::new(object));
        self.touch_target(name, touched);
    }

    fn target_labels_changed(&mut self, name: &TargetName) {
        if self.by_target.contains_key(&name.workload()) {
            self.others_changed.insert(name.name.namespace.clone());
        }
    }

    pub(crate) fn remove_target(&mut self, name: &TargetName, touched: &mut BTreeSet<Name>) {
        if self.targets.remove(name).is_some() {
            self.target_labels_changed(name);
            self.touch_target(name, touched);
        }
    }

    /// Those that name this autoscaler.
    pub(crate) fn touch_autoscaler(
        &self,
        kind: &KindName,
        name: &Name,
        touched: &mut BTreeSet<Name>,
    ) {
        let users = self.by_autoscaler.get(&(kind.clone(), name.clone()));
        touched.extend(users.into_iter().flatten().cloned());
    }

    /// Only once a kind is listed in every namespace is it certain that an object does not exist.
    fn set_kind_listed(
        &mut self,
        kind: &KindName,
        scope: Option<&str>,
        touched: &mut BTreeSet<Name>,
    ) {
        let scope = scope.map(str::to_owned);
        if let Some(refused) = self.refused_kinds.get_mut(kind)
            && refused.remove(&scope)
        {
            if refused.is_empty() {
                self.refused_kinds.remove(kind);
            }
            self.touch_kind(kind, touched);
        }
        let scopes = self.kind_scopes.entry(kind.clone()).or_default();
        let is_first = scopes.insert(scope);
        let everywhere = scopes.len() >= self.scopes.len();
        // Services of this namespace may have been decided by what was refused in another one before.
        if is_first {
            self.touch_kind(kind, touched);
        }
        if everywhere {
            self.set_kind(kind, KindState::Listed, touched);
        }
    }

    fn set_kind(&mut self, kind: &KindName, state: KindState, touched: &mut BTreeSet<Name>) {
        let before = self.kinds.insert(kind.clone(), state);
        if before != Some(state) {
            self.touch_kind(kind, touched);
        }
    }

    /// What was cached of it before still counts.
    fn set_kind_refused(
        &mut self,
        kind: &KindName,
        scope: Option<&str>,
        touched: &mut BTreeSet<Name>,
    ) {
        let refused = self.refused_kinds.entry(kind.clone()).or_default();
        if refused.insert(scope.map(str::to_owned)) {
            self.touch_kind(kind, touched);
        }
    }

    fn touch_kind(&self, kind: &KindName, touched: &mut BTreeSet<Name>) {
        let users = self.by_kind.get(kind).into_iter().flatten();
        touched.extend(users.cloned());
    }

    fn touch_target(&self, name: &TargetName, touched: &mut BTreeSet<Name>) {
        let claims = self.by_target.get(&name.workload()).into_iter().flatten();
        touched.extend(claims.map(|(_, one)| name.name.sibling(one.clone())));
    }

    fn touch_service(&self, name: &Name, touched: &mut BTreeSet<Name>) {
        let public = self.public_of.get(name).unwrap_or(name);
        let claims = self.by_service.get(public).into_iter().flatten();
        touched.extend(claims.map(|(_, one)| name.sibling(one.clone())));
        let users = self.users.get(public).into_iter().flatten();
        touched.extend(users.cloned());
    }
}
