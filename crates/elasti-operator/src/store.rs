//! Everything that the watches have told, indexed so that each event finds the services that care in one step.
//! Never asks the cluster for anything, and never lets an old version replace a newer one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use elasti_api::{AutoscalerType, names};
use elasti_core::observed::KedaPause;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::name::{KindName, Name, TargetName};
use crate::slim::{Declared, PodView, ServiceView, SliceView, Slim, TargetView};

/// What happened to one kind of object.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// These exist, and others that cannot be read; nothing else does.
    All {
        /// Those that could be read.
        good: Vec<K>,
        /// Those that could not: what was known of them still counts.
        broken: Vec<Name>,
    },
    /// This one exists and looks like this.
    Set(K),
    /// This one is gone.
    Gone(Name),
}

impl<K> Change<K> {
    /// The same change of something made from each object.
    pub(crate) fn map<L>(self, mut make: impl FnMut(K) -> L) -> Change<L> {
        match self {
            Self::All { good, broken } => Change::All {
                good: good.into_iter().map(make).collect(),
                broken,
            },
            Self::Set(object) => Change::Set(make(object)),
            Self::Gone(name) => Change::Gone(name),
        }
    }

    /// The metric's word.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::All { .. } => "list",
            Self::Set(_) => "set",
            Self::Gone(_) => "gone",
        }
    }
}

/// How far a kind that services refer to is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KindState {
    /// Nobody has looked yet.
    Pending,
    /// The cluster does not have it.
    Absent,
    /// Its objects are known.
    Listed,
}

/// What is remembered of a ScaledObject.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScaledView {
    pub(crate) version: String,
    pub(crate) pause: KedaPause,
}

/// Oldest first: by creation, then by name.
type Claims = BTreeSet<(Timestamp, Arc<str>)>;

/// The pair of a label that a selector is found by.
type LabelPair = (Arc<str>, String, String);

/// Everything known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) declared: HashMap<Name, Arc<Declared>>,
    /// Which ElastiServices claim a Service.
    by_service: HashMap<Name, Claims>,
    by_target: HashMap<TargetName, Claims>,
    by_autoscaler: HashMap<(KindName, Name), BTreeSet<Name>>,
    /// Which ElastiServices refer to a kind, and the version that the first of them asked for.
    by_kind: HashMap<KindName, (String, HashSet<Name>)>,
    /// Our private Services, by their name, and the public ones.
    public_of: HashMap<Name, Name>,
    services: HashMap<Name, Arc<ServiceView>>,
    slices: HashMap<Name, BTreeMap<Arc<str>, Arc<SliceView>>>,
    slice_homes: HashMap<Name, Name>,
    /// The names that our own slices have, and the Services that they would belong to: whoever has such a name
    /// stands in our way, whatever its labels say.
    our_slices: HashMap<Name, Name>,
    /// Pods by the managed Service that selects them.
    pods: HashMap<Name, BTreeMap<Arc<str>, Arc<PodView>>>,
    pod_homes: HashMap<Name, Vec<Name>>,
    /// Managed Services by one pair of their selector.
    selectors: HashMap<LabelPair, HashSet<Name>>,
    selector_of: HashMap<Name, (LabelPair, BTreeMap<String, String>)>,
    /// Managed Services whose pods and slices have not been read yet.
    unread: HashSet<Name>,
    targets: HashMap<TargetName, Arc<TargetView>>,
    pub(crate) hpas: HashMap<Name, u32>,
    pub(crate) scaled: HashMap<Name, ScaledView>,
    pub(crate) resolvers: BTreeMap<Name, Arc<PodView>>,
    kinds: HashMap<KindName, KindState>,
    kind_scopes: HashMap<KindName, HashSet<Option<String>>>,
    /// Objects that went away while somebody reads pods or slices beside the watch.
    gone_meanwhile: HashSet<Name>,
    readers: usize,
    /// Which lists have been told: what they list, and of which namespace.
    listed: HashSet<(&'static str, Option<String>)>,
    /// The namespaces that are watched, one by one; `None` is all of them.
    scopes: Vec<Option<String>>,
}

/// The store of one operator.
#[derive(Debug)]
pub(crate) struct Store {
    known: Mutex<Known>,
    /// The kinds that services refer to, with the version that was asked for.
    wanted_kinds: watch::Sender<BTreeMap<KindName, String>>,
}

impl Store {
    /// A store of what is in these namespaces; `None` is all of them.
    pub(crate) fn new(scopes: Vec<Option<String>>) -> Self {
        let known = Known {
            scopes,
            ..Known::default()
        };
        Self {
            known: Mutex::new(known),
            wanted_kinds: watch::Sender::default(),
        }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }

    /// The kinds that services refer to.
    pub(crate) fn wanted_kinds(&self) -> watch::Receiver<BTreeMap<KindName, String>> {
        self.wanted_kinds.subscribe()
    }

    /// Takes in a change of `K` within a namespace or everywhere; gives the ElastiServices that care.
    pub(crate) fn take_in<K: Kept>(&self, scope: Option<&str>, change: Change<K>) -> Vec<Name> {
        let mut known = self.known.lock();
        let mut touched = BTreeSet::new();
        match change {
            Change::All { good, broken } => {
                let mut left: HashSet<Name> = known_names::<K>(&known, scope);
                for name in &broken {
                    left.remove(name);
                }
                for object in good {
                    left.remove(object.name());
                    object.put(&mut known, &mut touched, Trust::Whole);
                }
                for name in left {
                    K::gone(&name, &mut known, &mut touched);
                }
                known.listed.insert((K::WHAT, scope.map(str::to_owned)));
                if K::NEEDS_TO_KNOW {
                    known.all_read(scope);
                }
            }
            Change::Set(object) => object.put(&mut known, &mut touched, Trust::Event),
            Change::Gone(name) => {
                if known.readers > 0 {
                    known.gone_meanwhile.insert(name.clone());
                }
                K::gone(&name, &mut known, &mut touched);
            }
        }
        let wanted = K::IS_MANAGED.then(|| known.wanted());
        drop(known);
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

    /// Takes in a change among the workloads of one kind.
    pub(crate) fn take_in_targets(
        &self,
        kind: &KindName,
        scope: Option<&str>,
        change: Change<TargetView>,
    ) -> Vec<Name> {
        let mut known = self.known.lock();
        let mut touched = BTreeSet::new();
        let full = |name: Name| TargetName {
            kind: kind.clone(),
            name,
        };
        match change {
            Change::All { good, broken } => {
                let in_scope = |name: &&TargetName| {
                    name.kind == *kind && scope.is_none_or(|s| *name.name.namespace == *s)
                };
                let all = known.targets.keys().filter(in_scope);
                let mut left: HashSet<Name> = all.map(|t| t.name.clone()).collect();
                for name in &broken {
                    left.remove(name);
                }
                for object in good {
                    left.remove(&object.name);
                    known.put_target(&full(object.name.clone()), object, &mut touched);
                }
                for name in left {
                    known.remove_target(&full(name), &mut touched);
                }
                known.list_kind(kind, scope, &mut touched);
            }
            Change::Set(object) => {
                known.put_target(&full(object.name.clone()), object, &mut touched);
            }
            Change::Gone(name) => known.remove_target(&full(name), &mut touched),
        }
        touched.into_iter().collect()
    }

    /// Something is known about a kind as a whole.
    pub(crate) fn set_kind(&self, kind: &KindName, state: KindState) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        self.known.lock().set_kind(kind, state, &mut touched);
        touched.into_iter().collect()
    }

    /// A kind has been listed in one namespace, or everywhere.
    pub(crate) fn list_kind(&self, kind: &KindName, scope: Option<&str>) -> Vec<Name> {
        let mut touched = BTreeSet::new();
        self.known.lock().list_kind(kind, scope, &mut touched);
        touched.into_iter().collect()
    }

    /// What is known of the pods and slices of a Service, before somebody reads them beside the watch.
    pub(crate) fn begin_reading(&self, service: &Name) -> Before {
        let mut known = self.known.lock();
        known.readers += 1;
        let pods = known.pods.get(service).into_iter().flatten();
        let slices = known.slices.get(service).into_iter().flatten();
        Before {
            pods: pods.map(|(n, p)| (n.clone(), p.version.clone())).collect(),
            slices: slices
                .map(|(n, s)| (n.clone(), s.version.clone()))
                .collect(),
        }
    }

    /// Takes in what was read beside the watch, without undoing what the watch has told meanwhile.
    pub(crate) fn end_reading(&self, service: &Name, before: &Before, read: Option<Read>) {
        let mut known = self.known.lock();
        let mut touched = BTreeSet::new();
        if let Some(Read {
            selector,
            pods,
            slices,
        }) = read
        {
            let seen: HashSet<Arc<str>> = pods.iter().map(|p| p.name.name.clone()).collect();
            for pod in pods {
                if !known.gone_meanwhile.contains(&pod.name) {
                    pod.put(&mut known, &mut touched, Trust::Event);
                }
            }
            for (name, version) in before.pods.iter().filter(|(n, _)| !seen.contains(n)) {
                let same = known.pods.get(service).and_then(|all| all.get(name));
                if same.is_some_and(|pod| pod.version == *version) {
                    PodView::gone(&service.sibling(name.clone()), &mut known, &mut touched);
                }
            }
            let seen: HashSet<Arc<str>> = slices.iter().map(|s| s.name.name.clone()).collect();
            for slice in slices {
                if !known.gone_meanwhile.contains(&slice.name) {
                    slice.put(&mut known, &mut touched, Trust::Event);
                }
            }
            for (name, version) in before.slices.iter().filter(|(n, _)| !seen.contains(n)) {
                let same = known.slices.get(service).and_then(|all| all.get(name));
                // Those without the Service's label are not in the list that was read.
                let listed = |slice: &Arc<SliceView>| slice.service.as_ref() == Some(service);
                if same.is_some_and(|slice| slice.version == *version && listed(slice)) {
                    SliceView::gone(&service.sibling(name.clone()), &mut known, &mut touched);
                }
            }
            // Pods that another selector selects have not been read.
            let now = known
                .services
                .get(service)
                .map(|view| &view.service.selector);
            if now.is_none_or(|now| *now == selector) {
                known.unread.remove(service);
            }
        }
        known.readers = known.readers.saturating_sub(1);
        if known.readers == 0 {
            known.gone_meanwhile.clear();
        }
    }
}

/// What was known before somebody began to read.
#[derive(Debug)]
pub(crate) struct Before {
    pods: Vec<(Arc<str>, String)>,
    slices: Vec<(Arc<str>, String)>,
}

/// What was read beside the watch: all pods and all slices of one Service.
#[derive(Debug)]
pub(crate) struct Read {
    /// What the pods were selected by.
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) pods: Vec<PodView>,
    pub(crate) slices: Vec<SliceView>,
}

/// How much an object's version says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It comes from a list that replaces everything.
    Whole,
    /// It may be older than what is known.
    Event,
}

/// A kind of object that the store keeps.
pub(crate) trait Kept: Slim {
    /// The word for logs, metrics and readiness.
    const WHAT: &'static str;
    /// It is an ElastiService: a change may change which other kinds are needed.
    const IS_MANAGED: bool = false;
    /// Which of them matter is known only once the ElastiServices and Services are.
    const NEEDS_TO_KNOW: bool = false;
    /// Takes it in.
    fn put(self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust);
    /// It is no more.
    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>);
    /// Those that are known.
    fn names(known: &Known) -> Vec<Name>;
}

fn known_names<K: Kept>(known: &Known, scope: Option<&str>) -> HashSet<Name> {
    let mut all = K::names(known);
    all.retain(|name| scope.is_none_or(|scope| *name.namespace == *scope));
    all.into_iter().collect()
}

/// Whether `new` may replace `old`: the API server's versions grow, wherever they can be compared.
fn replaces(old: &str, new: &str, trust: Trust) -> bool {
    if trust == Trust::Whole {
        return true;
    }
    match (old.parse::<u64>(), new.parse::<u64>()) {
        (Ok(old), Ok(new)) => new >= old,
        _ => true,
    }
}

impl Kept for Declared {
    const WHAT: &'static str = "elastiservices";
    const IS_MANAGED: bool = true;

    fn put(self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust) {
        let name = self.name.clone();
        let before = known.declared.get(&name).cloned();
        if let Some(before) = &before {
            if before.uid == self.uid && !replaces(&before.version, &self.version, trust) {
                return;
            }
            if before.version == self.version {
                return;
            }
            known.unclaim(before, touched);
        }
        known.claim(&self, touched);
        known.declared.insert(name.clone(), Arc::new(self));
        touched.insert(name);
    }

    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>) {
        if let Some(before) = known.declared.remove(name) {
            known.unclaim(&before, touched);
            known.drop_unmanaged(&before.service());
        }
        touched.insert(name.clone());
    }

    fn names(known: &Known) -> Vec<Name> {
        known.declared.keys().cloned().collect()
    }
}

impl Kept for ServiceView {
    const WHAT: &'static str = "services";

    fn put(self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust) {
        let before = known.services.get(&self.name);
        if before.is_some_and(|b| b.uid == self.uid && !replaces(&b.version, &self.version, trust))
        {
            return;
        }
        let name = self.name.clone();
        known.services.insert(name.clone(), Arc::new(self));
        known.index_selector(&name);
        known.touch_service(&name, touched);
    }

    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>) {
        known.services.remove(name);
        known.index_selector(name);
        known.touch_service(name, touched);
    }

    fn names(known: &Known) -> Vec<Name> {
        known.services.keys().cloned().collect()
    }
}

impl Kept for SliceView {
    const WHAT: &'static str = "endpointslices";
    const NEEDS_TO_KNOW: bool = true;

    fn put(self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust) {
        let place = known.our_slices.get(&self.name).or(self.service.as_ref());
        let place = place.cloned();
        let home = known.slice_homes.get(&self.name).cloned();
        if let Some(home) = &home {
            let before = known.slices.get(home).and_then(|s| s.get(&self.name.name));
            if before
                .is_some_and(|b| b.uid == self.uid && !replaces(&b.version, &self.version, trust))
            {
                return;
            }
            if place.as_ref() != Some(home) {
                Self::gone(&self.name, known, touched);
            }
        }
        let Some(service) = place else { return };
        if !known.by_service.contains_key(&service) {
            return;
        }
        known.slice_homes.insert(self.name.clone(), service.clone());
        let slices = known.slices.entry(service.clone()).or_default();
        slices.insert(self.name.name.clone(), Arc::new(self));
        known.touch_service(&service, touched);
    }

    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>) {
        let Some(home) = known.slice_homes.remove(name) else {
            return;
        };
        if let Some(slices) = known.slices.get_mut(&home) {
            slices.remove(&name.name);
        }
        known.touch_service(&home, touched);
    }

    fn names(known: &Known) -> Vec<Name> {
        known.slice_homes.keys().cloned().collect()
    }
}

impl Kept for PodView {
    const WHAT: &'static str = "pods";
    const NEEDS_TO_KNOW: bool = true;

    fn put(mut self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust) {
        let homes = known.pod_homes.get(&self.name).cloned().unwrap_or_default();
        for home in &homes {
            let before = known.pods.get(home).and_then(|p| p.get(&self.name.name));
            if before
                .is_some_and(|b| b.uid == self.uid && !replaces(&b.version, &self.version, trust))
            {
                return;
            }
        }
        let selected = match self.ended {
            true => Vec::new(),
            false => known.services_that_select(&self),
        };
        if homes != selected {
            Self::gone(&self.name, known, touched);
        }
        if selected.is_empty() {
            return;
        }
        known.pod_homes.insert(self.name.clone(), selected.clone());
        self.labels = BTreeMap::new();
        let pod = Arc::new(self);
        for service in selected {
            let pods = known.pods.entry(service.clone()).or_default();
            pods.insert(pod.name.name.clone(), pod.clone());
            known.touch_service(&service, touched);
        }
    }

    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>) {
        for home in known.pod_homes.remove(name).into_iter().flatten() {
            if let Some(pods) = known.pods.get_mut(&home) {
                pods.remove(&name.name);
            }
            known.touch_service(&home, touched);
        }
    }

    fn names(known: &Known) -> Vec<Name> {
        known.pod_homes.keys().cloned().collect()
    }
}

/// A resolver's pod, told apart from the pods of services.
#[derive(Clone, Debug)]
pub(crate) struct ResolverPod(PodView);

impl Slim for ResolverPod {
    fn read(object: serde_json::Value) -> Result<Self, serde_json::Error> {
        PodView::read(object).map(Self)
    }

    fn name(&self) -> &Name {
        &self.0.name
    }
}

impl Kept for ResolverPod {
    const WHAT: &'static str = "resolvers";

    fn put(self, known: &mut Known, touched: &mut BTreeSet<Name>, trust: Trust) {
        let mut pod = self.0;
        let before = known.resolvers.get(&pod.name);
        if before.is_some_and(|b| b.uid == pod.uid && !replaces(&b.version, &pod.version, trust)) {
            return;
        }
        if pod.ended {
            return Self::gone(&pod.name, known, touched);
        }
        pod.labels = BTreeMap::new();
        let matters = |p: &PodView| (p.addresses.clone(), p.ready, p.terminating, p.uid.clone());
        let same = before.is_some_and(|b| matters(b) == matters(&pod));
        known.resolvers.insert(pod.name.clone(), Arc::new(pod));
        if !same {
            touched.extend(known.declared.keys().cloned());
        }
    }

    fn gone(name: &Name, known: &mut Known, touched: &mut BTreeSet<Name>) {
        if known.resolvers.remove(name).is_some() {
            touched.extend(known.declared.keys().cloned());
        }
    }

    fn names(known: &Known) -> Vec<Name> {
        known.resolvers.keys().cloned().collect()
    }
}

impl Known {
    /// The watches that every decision needs have told their lists.
    pub(crate) fn is_listed(&self) -> bool {
        let pods_and_slices = [SliceView::WHAT, PodView::WHAT];
        let resolvers = |(what, _): &(&str, Option<String>)| *what == ResolverPod::WHAT;
        self.knows_what_matters()
            && pods_and_slices.iter().all(|what| self.everywhere(what))
            && self.listed.iter().any(resolvers)
    }

    /// The ElastiServices and Services are known, so it can be told which pods and slices matter.
    pub(crate) fn knows_what_matters(&self) -> bool {
        self.everywhere(Declared::WHAT) && self.everywhere(ServiceView::WHAT)
    }

    /// A kind has been listed in every namespace that is watched.
    fn everywhere(&self, what: &'static str) -> bool {
        let listed = |scope: &Option<String>| self.listed.contains(&(what, scope.clone()));
        self.scopes.iter().all(listed)
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

    /// Whether pods and slices of a managed Service have been read.
    pub(crate) fn is_read(&self, service: &Name) -> bool {
        !self.unread.contains(service)
    }

    pub(crate) fn kind(&self, kind: &KindName) -> KindState {
        self.kinds.get(kind).copied().unwrap_or(KindState::Pending)
    }

    /// The oldest ElastiService that claims a Service.
    pub(crate) fn steward(&self, service: &Name) -> Option<Name> {
        let (_, name) = self.by_service.get(service)?.first()?;
        Some(service.sibling(name.clone()))
    }

    /// An older ElastiService with the same Service.
    pub(crate) fn older_for_service(&self, me: &Declared) -> Option<Arc<str>> {
        older(self.by_service.get(&me.service())?, me)
    }

    /// An older ElastiService with the same target.
    pub(crate) fn older_for_target(&self, me: &Declared) -> Option<Arc<str>> {
        older(self.by_target.get(&target_of(me))?, me)
    }

    /// Puts a fresher scale in place of what the watch said last.
    pub(crate) fn put_target(
        &mut self,
        name: &TargetName,
        object: TargetView,
        touched: &mut BTreeSet<Name>,
    ) {
        let before = self.targets.get(name);
        if before.is_some_and(|b| {
            b.uid == object.uid && !replaces(&b.version, &object.version, Trust::Event)
        }) {
            return;
        }
        self.targets.insert(name.clone(), Arc::new(object));
        self.touch_target(name, touched);
    }

    pub(crate) fn remove_target(&mut self, name: &TargetName, touched: &mut BTreeSet<Name>) {
        if self.targets.remove(name).is_some() {
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

    /// Only once it is listed in every namespace can it be told that something does not exist.
    fn list_kind(&mut self, kind: &KindName, scope: Option<&str>, touched: &mut BTreeSet<Name>) {
        let scopes = self.kind_scopes.entry(kind.clone()).or_default();
        scopes.insert(scope.map(str::to_owned));
        if scopes.len() >= self.scopes.len() {
            self.set_kind(kind, KindState::Listed, touched);
        }
    }

    fn set_kind(&mut self, kind: &KindName, state: KindState, touched: &mut BTreeSet<Name>) {
        let before = self.kinds.insert(kind.clone(), state);
        if before != Some(state) {
            let users = self.by_kind.get(kind).map(|(_, users)| users);
            touched.extend(users.into_iter().flatten().cloned());
        }
    }

    fn touch_target(&self, name: &TargetName, touched: &mut BTreeSet<Name>) {
        let claims = self.by_target.get(name).into_iter().flatten();
        touched.extend(claims.map(|(_, one)| name.name.sibling(one.clone())));
    }

    fn touch_service(&self, name: &Name, touched: &mut BTreeSet<Name>) {
        let public = self.public_of.get(name).unwrap_or(name);
        let claims = self.by_service.get(public).into_iter().flatten();
        touched.extend(claims.map(|(_, one)| name.sibling(one.clone())));
    }

    fn claim(&mut self, me: &Declared, touched: &mut BTreeSet<Name>) {
        let mine = (me.created, me.name.name.clone());
        let service = me.service();
        let is_new = !self.by_service.contains_key(&service);
        let claims = self.by_service.entry(service.clone()).or_default();
        claims.insert(mine.clone());
        let private = service.sibling(names::private_service(&service.name));
        self.public_of.insert(private, service.clone());
        for slice in first_slices(&service) {
            self.our_slices.insert(slice, service.clone());
        }
        self.by_target
            .entry(target_of(me))
            .or_default()
            .insert(mine);
        for (kind, version) in kinds_of(me) {
            let users = self.by_kind.entry(kind);
            let (_, users) = users.or_insert_with(|| (version, HashSet::new()));
            users.insert(me.name.clone());
        }
        if let Some(autoscaler) = autoscaler_of(me) {
            let users = self.by_autoscaler.entry(autoscaler).or_default();
            users.insert(me.name.clone());
        }
        if is_new {
            self.index_selector(&service);
            self.unread.insert(service.clone());
        }
        self.touch_service(&service, touched);
        self.touch_target(&target_of(me), touched);
    }

    fn unclaim(&mut self, me: &Declared, touched: &mut BTreeSet<Name>) {
        let mine = (me.created, me.name.name.clone());
        let service = me.service();
        self.touch_service(&service, touched);
        self.touch_target(&target_of(me), touched);
        if let Some(claims) = self.by_target.get_mut(&target_of(me)) {
            claims.remove(&mine);
            if claims.is_empty() {
                self.by_target.remove(&target_of(me));
            }
        }
        for (kind, _) in kinds_of(me) {
            if let Some((_, users)) = self.by_kind.get_mut(&kind) {
                users.remove(&me.name);
                if users.is_empty() {
                    self.by_kind.remove(&kind);
                }
            }
        }
        if let Some(autoscaler) = autoscaler_of(me)
            && let Some(users) = self.by_autoscaler.get_mut(&autoscaler)
        {
            users.remove(&me.name);
            if users.is_empty() {
                self.by_autoscaler.remove(&autoscaler);
            }
        }
        // The Service's claim goes last: while an ElastiService is only being replaced by a newer
        // version of itself, its pods and slices stay known.
        if let Some(claims) = self.by_service.get_mut(&service) {
            claims.remove(&mine);
        }
    }

    /// Forgets the pods and slices of a Service that nobody claims any more.
    fn drop_unmanaged(&mut self, service: &Name) {
        if self.by_service.get(service).is_some_and(|c| !c.is_empty()) {
            return;
        }
        self.by_service.remove(service);
        self.public_of
            .remove(&service.sibling(names::private_service(&service.name)));
        for slice in first_slices(service) {
            self.our_slices.remove(&slice);
        }
        self.unindex_selector(service);
        self.unread.remove(service);
        for name in self.slices.remove(service).into_iter().flatten() {
            self.slice_homes.remove(&service.sibling(name.0));
        }
        for name in self.pods.remove(service).into_iter().flatten() {
            let pod = service.sibling(name.0);
            if let Some(homes) = self.pod_homes.get_mut(&pod) {
                homes.retain(|home| home != service);
                if homes.is_empty() {
                    self.pod_homes.remove(&pod);
                }
            }
        }
    }

    /// Keeps the way from a pod's labels to a managed Service as the Service's selector says.
    fn index_selector(&mut self, service: &Name) {
        let managed = self.by_service.contains_key(service);
        let selector = self
            .services
            .get(service)
            .filter(|_| managed)
            .map(|view| view.service.selector.clone())
            .filter(|selector| !selector.is_empty());
        if self.selector_of.get(service).map(|(_, s)| s) == selector.as_ref() {
            return;
        }
        self.unindex_selector(service);
        for name in self.pods.remove(service).into_iter().flatten() {
            let pod = service.sibling(name.0);
            if let Some(homes) = self.pod_homes.get_mut(&pod) {
                homes.retain(|home| home != service);
            }
        }
        let Some(selector) = selector else { return };
        // The pair with the fewest Services under it keeps the look-up short.
        let pairs = selector
            .iter()
            .map(|(key, value)| (service.namespace.clone(), key.clone(), value.clone()));
        let crowd = |pair: &LabelPair| self.selectors.get(pair).map_or(0, HashSet::len);
        let Some(pair) = pairs.min_by_key(crowd) else {
            return;
        };
        let found = self.selectors.entry(pair.clone()).or_default();
        found.insert(service.clone());
        self.selector_of.insert(service.clone(), (pair, selector));
        self.unread.insert(service.clone());
    }

    fn unindex_selector(&mut self, service: &Name) {
        let Some((pair, _)) = self.selector_of.remove(service) else {
            return;
        };
        if let Some(found) = self.selectors.get_mut(&pair) {
            found.remove(service);
            if found.is_empty() {
                self.selectors.remove(&pair);
            }
        }
    }

    fn services_that_select(&self, pod: &PodView) -> Vec<Name> {
        let mut found = Vec::new();
        for (key, value) in &pod.labels {
            let pair = (pod.name.namespace.clone(), key.clone(), value.clone());
            for service in self.selectors.get(&pair).into_iter().flatten() {
                let selects = self.selector_of.get(service).is_some_and(|(_, selector)| {
                    selector.iter().all(|(k, v)| pod.labels.get(k) == Some(v))
                });
                if selects && !found.contains(service) {
                    found.push(service.clone());
                }
            }
        }
        found.sort();
        found
    }

    /// Whole lists of pods and of slices say everything about every Service there that is indexed by now.
    fn all_read(&mut self, scope: Option<&str>) {
        let listed = |what| self.listed.contains(&(what, scope.map(str::to_owned)));
        if listed(PodView::WHAT) && listed(SliceView::WHAT) {
            self.unread
                .retain(|service| scope.is_some_and(|scope| *service.namespace != *scope));
        }
    }

    fn wanted(&self) -> BTreeMap<KindName, String> {
        let kinds = self.by_kind.iter().take(MOST_KINDS);
        kinds
            .map(|(kind, (version, _))| (kind.clone(), version.clone()))
            .collect()
    }
}

/// Kinds that services may refer to at a time; each costs one watch.
const MOST_KINDS: usize = 64;

/// The names of our first slice of each family.
pub(crate) fn first_slices(service: &Name) -> [Name; 2] {
    [names::IpFamily::V4, names::IpFamily::V6]
        .map(|family| service.sibling(names::resolver_slice(&service.name, family, 0)))
}

fn older(claims: &Claims, me: &Declared) -> Option<Arc<str>> {
    let (created, name) = claims.first()?;
    let mine = (me.created, me.name.name.clone());
    ((*created, name.clone()) < mine).then(|| name.clone())
}

/// The workload that an ElastiService scales.
pub(crate) fn target_of(me: &Declared) -> TargetName {
    let reference = &me.spec.scale_target_ref;
    TargetName {
        kind: KindName::new(reference.group(), reference.canonical_kind()),
        name: me.name.sibling(reference.name.as_str()),
    }
}

/// The kinds that an ElastiService refers to, with their versions.
fn kinds_of(me: &Declared) -> Vec<(KindName, String)> {
    let reference = &me.spec.scale_target_ref;
    let mut kinds = vec![(target_of(me).kind, reference.version().to_owned())];
    if let Some(autoscaler) = &me.spec.autoscaler {
        kinds.push(autoscaler_kind(autoscaler.type_));
    }
    kinds
}

/// The kind behind each type of autoscaler.
pub(crate) fn autoscaler_kind(type_: AutoscalerType) -> (KindName, String) {
    match type_ {
        AutoscalerType::Hpa => (
            KindName::new("autoscaling", "HorizontalPodAutoscaler"),
            "v2".into(),
        ),
        AutoscalerType::Keda => (KindName::new("keda.sh", "ScaledObject"), "v1alpha1".into()),
    }
}

fn autoscaler_of(me: &Declared) -> Option<(KindName, Name)> {
    let autoscaler = me.spec.autoscaler.as_ref()?;
    let (kind, _) = autoscaler_kind(autoscaler.type_);
    Some((kind, me.name.sibling(autoscaler.name.as_str())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn declared(name: &str, version: u32) -> Declared {
        Declared::read(json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
            "spec": {"service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
        }))
        .unwrap()
    }

    fn service(name: &str, selector: serde_json::Value) -> ServiceView {
        let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "1"});
        ServiceView::read(json!({"metadata": metadata, "spec": {"selector": selector}})).unwrap()
    }

    fn pod(name: &str, version: u32, labels: serde_json::Value) -> PodView {
        let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(), "labels": labels});
        PodView::read(json!({"metadata": metadata})).unwrap()
    }

    fn name(name: &str) -> Name {
        Name::new("shop", name)
    }

    fn pods(store: &Store, service: &str) -> Vec<String> {
        let known = store.known();
        let service = name(service);
        let pods = known.pods(&service);
        pods.map(|p| format!("{}@{}", p.name.name, p.version))
            .collect()
    }

    /// Two services that share a label, and differ in another.
    fn store() -> Store {
        let store = Store::new(vec![None]);
        for one in ["a", "b"] {
            store.take_in(None, Change::Set(declared(one, 1)));
            let selector = json!({"part-of": "shop", "app": one});
            store.take_in(None, Change::Set(service(one, selector)));
        }
        store
    }

    #[test]
    fn an_event_touches_only_the_services_that_care() {
        let store = store();
        let labels = json!({"part-of": "shop", "app": "a"});
        let touched = store.take_in(None, Change::Set(pod("p", 5, labels)));
        assert_eq!(touched, [name("a")]);
        let stranger = pod("q", 5, json!({"part-of": "shop"}));
        assert!(store.take_in(None, Change::Set(stranger)).is_empty());
        assert_eq!(pods(&store, "a"), ["p@5"]);
        assert!(pods(&store, "b").is_empty());
    }

    #[test]
    fn an_older_version_never_replaces_a_newer_one() {
        let store = store();
        let labels = json!({"part-of": "shop", "app": "a"});
        store.take_in(None, Change::Set(pod("p", 9, labels.clone())));
        let touched = store.take_in(None, Change::Set(pod("p", 5, labels)));
        assert!(touched.is_empty());
        assert_eq!(pods(&store, "a"), ["p@9"]);
    }

    #[test]
    fn a_pod_that_changes_its_labels_moves_house() {
        let store = store();
        store.take_in(
            None,
            Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
        );
        let touched = store.take_in(
            None,
            Change::Set(pod("p", 2, json!({"part-of": "shop", "app": "b"}))),
        );
        assert_eq!(touched, [name("a"), name("b")]);
        assert!(pods(&store, "a").is_empty());
        assert_eq!(pods(&store, "b"), ["p@2"]);
    }

    #[test]
    fn what_is_read_beside_the_watch_neither_brings_back_the_dead_nor_kills_the_newborn() {
        let store = store();
        let labels = || json!({"part-of": "shop", "app": "a"});
        store.take_in(None, Change::Set(pod("stays", 1, labels())));
        store.take_in(None, Change::Set(pod("missed", 1, labels())));
        let before = store.begin_reading(&name("a"));
        // Meanwhile the watch tells of one that died and one that was born.
        store.take_in::<PodView>(None, Change::Gone(name("died")));
        store.take_in(None, Change::Set(pod("born", 3, labels())));
        let read = Read {
            selector: [("part-of", "shop"), ("app", "a")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            pods: vec![pod("stays", 1, labels()), pod("died", 2, labels())],
            slices: vec![],
        };
        store.end_reading(&name("a"), &before, Some(read));
        assert_eq!(
            pods(&store, "a"),
            ["born@3", "stays@1"],
            "`missed` was missed by the watch"
        );
        assert!(store.known().is_read(&name("a")));
    }

    #[test]
    fn a_new_selector_must_be_read_before_it_is_trusted() {
        let store = store();
        store.known().unread.clear();
        store.take_in(
            None,
            Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
        );
        let mut changed = service("a", json!({"app": "new"}));
        changed.version = "2".into();
        store.take_in(None, Change::Set(changed));
        assert!(!store.known().is_read(&name("a")));
        assert!(pods(&store, "a").is_empty());
    }

    #[test]
    fn the_oldest_claim_wins_and_the_next_one_follows_it() {
        let store = Store::new(vec![None]);
        let mut old = declared("old", 1);
        let mut young = declared("young", 2);
        young.created = old.created + jiff::SignedDuration::from_secs(1);
        for one in [&mut old, &mut young] {
            one.spec = declared("cart", 1).spec;
            store.take_in(None, Change::Set(one.clone()));
        }
        assert_eq!(store.known().steward(&name("cart")), Some(name("old")));
        assert_eq!(
            store.known().older_for_service(&young).as_deref(),
            Some("old")
        );
        assert_eq!(store.known().older_for_service(&old), None);
        store.take_in::<Declared>(None, Change::Gone(name("old")));
        assert_eq!(store.known().steward(&name("cart")), Some(name("young")));
    }

    #[test]
    fn nothing_is_left_of_a_service_that_nobody_manages_any_more() {
        let store = store();
        store.take_in(
            None,
            Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
        );
        store.take_in::<Declared>(None, Change::Gone(name("a")));
        store.take_in::<Declared>(None, Change::Gone(name("b")));
        let known = store.known();
        assert!(known.by_service.is_empty() && known.by_target.is_empty());
        assert!(known.by_kind.is_empty() && known.public_of.is_empty());
        assert!(known.pods.is_empty() && known.pod_homes.is_empty());
        assert!(known.selectors.is_empty() && known.selector_of.is_empty());
        assert!(known.unread.is_empty() && known.our_slices.is_empty());
    }
}
