//! The kinds of objects that are cached, and what each of them updates.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use elasti_core::facts::{PodFacts, is_predecessor_resolver};
use k8s_openapi::api::core::v1::Pod;

use super::Cache;
use super::claims::{kinds_of, target_of};
use crate::name::Name;
use crate::slim::{Declared, FromObject, NodeView, PodView, ServiceView, SliceView};

/// Where an object comes from.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// A list at this version; without one it replaces everything.
    List(Option<u64>),
    /// A single object, which may be older than what is cached.
    Event,
}

impl Source {
    /// A list; `reached` is the version that the watch had reached, and from now on that of the list. If the list is
    /// behind it, etcd was restored from a backup, and its lower versions are the truth.
    pub(super) fn list(reached: &mut u64, version: &str) -> Self {
        let Ok(version) = version.parse::<u64>() else {
            return Self::List(None);
        };
        let is_restored = version < std::mem::replace(reached, version);
        Self::List((!is_restored).then_some(version))
    }

    pub(super) fn is_list(self) -> bool {
        matches!(self, Self::List(_))
    }
}

/// A kind of object that is cached.
pub(crate) trait CachedKind: FromObject {
    /// The plural name, as in logs, metrics and readiness.
    const RESOURCE: &'static str;
    /// It is an ElastiService: a change may change which other kinds are needed.
    const IS_ELASTI_SERVICE: bool = false;
    /// Which of them matter follows from the ElastiServices and Services, so those are listed first.
    const NEEDS_SERVICES_FIRST: bool = false;
    /// A change concerns every service, so the order matters in which they are reconciled.
    const CONCERNS_ALL: bool = false;
    /// Caching it would have an effect; of a list only such objects are kept.
    fn matters(&self, _: &Cache) -> bool {
        true
    }
    /// Caches it.
    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source);
    /// Removes it.
    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>);
    /// The operator is not allowed to read them.
    fn refused(_: &mut Cache, _: &mut BTreeSet<Name>) {}
    /// All that are cached.
    fn names(cache: &Cache) -> Vec<Name>;
}

pub(super) fn names_in<K: CachedKind>(cache: &Cache, scope: Option<&str>) -> HashSet<Name> {
    let mut all = K::names(cache);
    all.retain(|name| scope.is_none_or(|scope| *name.namespace == *scope));
    all.into_iter().collect()
}

/// Whether `new` may replace `old`: the API server's versions grow, wherever they can be compared. What is older in a list
/// that knows the newer version was restored; what is newer than the list itself was written while its pages were read.
pub(super) fn replaces(old: &str, new: &str, source: Source) -> bool {
    let (Ok(old), Ok(new)) = (old.parse::<u64>(), new.parse::<u64>()) else {
        return true;
    };
    let is_known_to_list = match source {
        Source::List(list) => list.is_none_or(|list| old <= list),
        Source::Event => false,
    };
    new >= old || is_known_to_list
}

impl CachedKind for Declared {
    const RESOURCE: &'static str = "elastiservices";
    const IS_ELASTI_SERVICE: bool = true;

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source) {
        let name = self.name.clone();
        let before = cache.declared.get(&name).cloned();
        if let Some(before) = &before {
            if before.uid == self.uid && !replaces(&before.version, &self.version, source) {
                return;
            }
            if before.version == self.version {
                return;
            }
            cache.unclaim(before, touched);
        }
        let before = before.as_deref();
        if before.is_none_or(|before| {
            before.status.services != self.status.services
                || before.service() != self.service()
                || target_of(before) != target_of(&self)
        }) {
            cache.others_changed.insert(name.namespace.clone());
        }
        cache.kinds_changed |= before.is_none_or(|before| {
            before.created != self.created || kinds_of(before) != kinds_of(&self)
        });
        cache.claim(&self, touched);
        cache.declared.insert(name.clone(), Arc::new(self));
        touched.insert(name);
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        if let Some(before) = cache.declared.remove(name) {
            cache.unclaim(&before, touched);
            cache.drop_unmanaged(&before.service());
            cache.kinds_changed = true;
            cache.others_changed.insert(name.namespace.clone());
        }
        touched.insert(name.clone());
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.declared.keys().cloned().collect()
    }
}

impl CachedKind for ServiceView {
    const RESOURCE: &'static str = "services";

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source) {
        let before = cache.services.get(&self.name);
        if before.is_some_and(|b| b.uid == self.uid && !replaces(&b.version, &self.version, source))
        {
            return;
        }
        if source.is_list() && before.is_some_and(|before| **before == self) {
            return;
        }
        let name = self.name.clone();
        if before.is_none_or(|before| before.facts != self.facts) {
            cache.others_changed.insert(name.namespace.clone());
        }
        cache.services.insert(name.clone(), Arc::new(self));
        cache.index_selector(&name);
        cache.touch_service(&name, touched);
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        if cache.services.remove(name).is_some() {
            cache.others_changed.insert(name.namespace.clone());
        }
        cache.index_selector(name);
        cache.touch_service(name, touched);
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.services.keys().cloned().collect()
    }
}

impl CachedKind for SliceView {
    const RESOURCE: &'static str = "endpointslices";
    const NEEDS_SERVICES_FIRST: bool = true;

    fn matters(&self, cache: &Cache) -> bool {
        let owner = cache.our_slices.get(&self.name).or(self.service.as_ref());
        owner.is_some_and(|service| cache.is_managed(service))
    }

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source) {
        let owner = cache.our_slices.get(&self.name).or(self.service.as_ref());
        let service = owner.cloned();
        let previous = cache.service_of_slice.get(&self.name).cloned();
        if let Some(previous) = &previous {
            let before = cache
                .slices
                .get(previous)
                .and_then(|s| s.get(&self.name.name));
            if before
                .is_some_and(|b| b.uid == self.uid && !replaces(&b.version, &self.version, source))
            {
                return;
            }
            let same_owner = service.as_ref() == Some(previous);
            if source.is_list() && same_owner && before.is_some_and(|before| **before == self) {
                return;
            }
            if !same_owner {
                Self::gone(&self.name, cache, touched);
            }
        }
        let Some(service) = service else { return };
        if !cache.is_managed(&service) {
            return;
        }
        cache
            .service_of_slice
            .insert(self.name.clone(), service.clone());
        let slices = cache.slices.entry(service.clone()).or_default();
        slices.insert(self.name.name.clone(), Arc::new(self));
        cache.touch_service(&service, touched);
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        let Some(service) = cache.service_of_slice.remove(name) else {
            return;
        };
        if let Some(slices) = cache.slices.get_mut(&service) {
            slices.remove(&name.name);
        }
        cache.touch_service(&service, touched);
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.service_of_slice.keys().cloned().collect()
    }
}

impl CachedKind for PodView {
    const RESOURCE: &'static str = "pods";
    const NEEDS_SERVICES_FIRST: bool = true;

    fn matters(&self, cache: &Cache) -> bool {
        !self.facts.ended && !cache.services_that_select(self).is_empty()
    }

    fn put(mut self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source) {
        let selected_before = cache.services_of_pod.get(&self.name).cloned();
        let selected_before = selected_before.unwrap_or_default();
        let cached = |service: &Name| cache.pods.get(service)?.get(&self.name.name);
        let before: Vec<&Arc<PodView>> = selected_before.iter().filter_map(cached).collect();
        let is_newer =
            |b: &&Arc<PodView>| b.uid == self.uid && !replaces(&b.version, &self.version, source);
        if before.iter().any(is_newer) {
            return;
        }
        let is_same = |b: &&Arc<PodView>| b.uid == self.uid && b.version == self.version;
        let is_known = source.is_list() && before.iter().all(is_same);
        let selected = match self.facts.ended {
            true => Vec::new(),
            false => cache.services_that_select(&self),
        };
        if selected_before == selected && is_known {
            return;
        }
        if selected_before != selected {
            Self::gone(&self.name, cache, touched);
        }
        if selected.is_empty() {
            return;
        }
        cache
            .services_of_pod
            .insert(self.name.clone(), selected.clone());
        // Only of the others do the labels tell whose they are.
        if self.facts.names_its_workload() {
            self.labels = BTreeMap::new();
        }
        let pod = Arc::new(self);
        for service in selected {
            let pods = cache.pods.entry(service.clone()).or_default();
            pods.insert(pod.name.name.clone(), pod.clone());
            cache.touch_service(&service, touched);
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        for service in cache.services_of_pod.remove(name).into_iter().flatten() {
            if let Some(pods) = cache.pods.get_mut(&service) {
                pods.remove(&name.name);
            }
            cache.touch_service(&service, touched);
        }
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.services_of_pod.keys().cloned().collect()
    }
}

/// A resolver's pod, as opposed to the pods of services.
#[derive(Clone, Debug)]
pub(crate) struct ResolverPod {
    pod: PodView,
    by_predecessor: bool,
}

impl FromObject for ResolverPod {
    fn from_object(object: serde_json::Value) -> Result<Self, serde_json::Error> {
        let pod: Pod = serde_json::from_value(object)?;
        Ok(Self {
            by_predecessor: pod.spec.as_ref().is_some_and(is_predecessor_resolver),
            pod: PodView::from(pod),
        })
    }

    fn name(&self) -> &Name {
        &self.pod.name
    }
}

impl CachedKind for ResolverPod {
    const RESOURCE: &'static str = "resolvers";
    const CONCERNS_ALL: bool = true;

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, source: Source) {
        let Self {
            mut pod,
            by_predecessor,
        } = self;
        let before = cache.resolvers.get(&pod.name);
        if before.is_some_and(|b| b.uid == pod.uid && !replaces(&b.version, &pod.version, source)) {
            return;
        }
        if pod.facts.ended {
            return Self::gone(&pod.name, cache, touched);
        }
        pod.labels = BTreeMap::new();
        let matters = |p: &PodView| {
            let PodFacts {
                addresses,
                ready,
                terminating,
                ..
            } = &p.facts;
            (addresses.clone(), *ready, *terminating, p.uid.clone())
        };
        let same = before.is_some_and(|b| matters(b) == matters(&pod));
        match by_predecessor {
            true => cache.predecessor_resolvers.insert(pod.name.clone()),
            false => cache.predecessor_resolvers.remove(&pod.name),
        };
        cache.resolvers.insert(pod.name.clone(), Arc::new(pod));
        if !same {
            touched.extend(cache.declared.keys().cloned());
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        cache.predecessor_resolvers.remove(name);
        if cache.resolvers.remove(name).is_some() {
            touched.extend(cache.declared.keys().cloned());
        }
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.resolvers.keys().cloned().collect()
    }
}

impl CachedKind for NodeView {
    const RESOURCE: &'static str = "nodes";

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, _: Source) {
        let was_refused = std::mem::take(&mut cache.nodes_refused);
        if cache.nodes.insert(self.name) || was_refused {
            cache.touch_local(touched);
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        if cache.nodes.remove(name) {
            cache.touch_local(touched);
        }
    }

    fn refused(cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        if !std::mem::replace(&mut cache.nodes_refused, true) {
            cache.touch_local(touched);
        }
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.nodes.iter().cloned().collect()
    }
}
