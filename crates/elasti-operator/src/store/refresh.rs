//! Lists that are read beside the watches, and how they are merged without undoing what the watches delivered.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use elasti_core::labels::Labels;

use super::{Cache, CachedKind, Change, Source, Store};
use crate::name::Name;
use crate::slim::{PodView, SliceView};

impl Store {
    /// A watch is about to deliver a change that has brought it to this version.
    pub(crate) fn set_watch_version<K: CachedKind>(
        &self,
        scope: Option<&str>,
        change: &Change<K>,
        version: &str,
    ) {
        let Ok(version) = version.parse::<u64>() else {
            return;
        };
        let mut cache = self.cache.lock();
        let key = (K::RESOURCE, scope.map(str::to_owned));
        let reached = cache.watch_versions.entry(key).or_default();
        match change {
            // A list is compared with what was reached before it.
            Change::All { .. } => {}
            Change::Set(_) | Change::Gone(_) | Change::Refused => *reached = version.max(*reached),
        }
    }

    /// A list of `K` begins: a Service that is managed only from now on is not covered by its first pages.
    pub(crate) fn begin_list<K: CachedKind>(&self, scope: Option<&str>) {
        let mut cache = self.cache.lock();
        let began = cache.last_not_read;
        let key = (K::RESOURCE, scope.map(str::to_owned));
        cache.list_began.insert(key, began);
    }

    /// What is cached of a Service's pods and slices before they are listed beside the watch.
    pub(crate) fn begin_refresh(&self, service: &Name) -> Baseline {
        let mut cache = self.cache.lock();
        cache.refreshes += 1;
        let pods = cache.pods.get(service).into_iter().flatten();
        let slices = cache.slices.get(service).into_iter().flatten();
        Baseline {
            pods_version: cache.watch_version::<PodView>(service),
            slices_version: cache.watch_version::<SliceView>(service),
            pods: pods.map(|(n, p)| (n.clone(), p.version.clone())).collect(),
            slices: slices
                .map(|(n, s)| (n.clone(), s.version.clone()))
                .collect(),
        }
    }

    /// Merges the lists, without undoing what the watch delivered meanwhile. Tells whether they were accepted: lists
    /// that are older than the watch would bring back what is gone, and no event would correct that.
    pub(crate) fn end_refresh(
        &self,
        service: &Name,
        baseline: &Baseline,
        lists: Option<Lists>,
    ) -> bool {
        let mut cache = self.cache();
        let lists = lists.filter(|lists| !baseline.is_newer_than(lists));
        let accepted = lists.is_some();
        if let Some(lists) = lists {
            let Lists {
                selector,
                pods,
                slices,
                ..
            } = lists;
            cache.merge_pods(service, baseline, pods);
            cache.merge_slices(service, baseline, slices);
            // Pods of a newer selector have not been listed.
            let view = cache.services.get(service);
            if view.is_none_or(|view| view.facts.service.selector == selector) {
                cache.not_read.remove(service);
            }
        }
        cache.refreshes = cache.refreshes.saturating_sub(1);
        if cache.refreshes == 0 {
            cache.gone_meanwhile.clear();
        }
        accepted
    }
}

/// What was cached before a refresh began.
#[derive(Debug)]
pub(crate) struct Baseline {
    pods_version: u64,
    slices_version: u64,
    pods: Vec<(Arc<str>, String)>,
    slices: Vec<(Arc<str>, String)>,
}

impl Baseline {
    /// The watches had delivered more than a list shows that was requested after it: it comes from a server that lags.
    fn is_newer_than(&self, lists: &Lists) -> bool {
        let lags = |list: &str, watch: u64| list.parse().is_ok_and(|list: u64| list < watch);
        let pods = lists.pods_version.as_deref();
        pods.is_some_and(|list| lags(list, self.pods_version))
            || lags(&lists.slices_version, self.slices_version)
    }
}

/// All pods and all slices of one Service.
#[derive(Debug)]
pub(crate) struct Lists {
    /// What the pods were selected by.
    pub(crate) selector: Labels,
    /// The version of the list of pods; `None` if there was nothing to list.
    pub(crate) pods_version: Option<String>,
    pub(crate) slices_version: String,
    pub(crate) pods: Vec<PodView>,
    pub(crate) slices: Vec<SliceView>,
}

impl Cache {
    /// All pods that the Service selects. One that is missing here is removed, unless the watch has changed it since.
    fn merge_pods(&mut self, service: &Name, baseline: &Baseline, pods: Vec<PodView>) {
        let mut touched = BTreeSet::new();
        let listed: HashSet<Arc<str>> = pods.iter().map(|p| p.name.name.clone()).collect();
        for pod in pods {
            if !self.gone_meanwhile.contains(&pod.name) {
                pod.put(self, &mut touched, Source::Event);
            }
        }
        for (name, version) in baseline.pods.iter().filter(|(n, _)| !listed.contains(n)) {
            let cached = self.pods.get(service).and_then(|all| all.get(name));
            if cached.is_some_and(|pod| pod.version == *version) {
                PodView::gone(&service.sibling(name.clone()), self, &mut touched);
            }
        }
    }

    /// The same for its slices.
    fn merge_slices(&mut self, service: &Name, baseline: &Baseline, slices: Vec<SliceView>) {
        let mut touched = BTreeSet::new();
        let listed: HashSet<Arc<str>> = slices.iter().map(|s| s.name.name.clone()).collect();
        for slice in slices {
            if !self.gone_meanwhile.contains(&slice.name) {
                slice.put(self, &mut touched, Source::Event);
            }
        }
        for (name, version) in baseline.slices.iter().filter(|(n, _)| !listed.contains(n)) {
            let cached = self.slices.get(service).and_then(|all| all.get(name));
            // Those without the Service's label cannot be in the list.
            let has_label = |slice: &SliceView| slice.service.as_ref() == Some(service);
            if cached.is_some_and(|slice| slice.version == *version && has_label(slice)) {
                SliceView::gone(&service.sibling(name.clone()), self, &mut touched);
            }
        }
    }

    /// Which version the watch of this service's namespace has reached.
    pub(super) fn watch_version<K: CachedKind>(&self, service: &Name) -> u64 {
        let scope = self.scopes.iter().find(|scope| {
            let scope = scope.as_deref();
            scope.is_none_or(|scope| *service.namespace == *scope)
        });
        let key = scope.map(|scope| (K::RESOURCE, scope.clone()));
        let version = key.and_then(|key| self.watch_versions.get(&key));
        version.copied().unwrap_or_default()
    }

    /// Whether pods and slices of a managed Service have been read.
    pub(crate) fn is_read(&self, service: &Name) -> bool {
        !self.not_read.contains_key(service)
    }

    /// The pods and slices of a managed Service must be read.
    pub(super) fn set_not_read(&mut self, service: &Name) {
        self.last_not_read += 1;
        self.not_read.insert(service.clone(), self.last_not_read);
    }

    /// A list of `K` is complete. Whole lists of pods and of slices cover every Service there that was indexed before both of
    /// them began; one that is still being read covers nothing.
    pub(super) fn set_all_read<K: CachedKind>(&mut self, scope: Option<&str>) {
        let key = |what| (what, scope.map(str::to_owned));
        let began = self.list_began.remove(&key(K::RESOURCE));
        let covers = began.unwrap_or(self.last_not_read);
        self.list_covers.insert(key(K::RESOURCE), covers);
        let kinds = [PodView::RESOURCE, SliceView::RESOURCE].map(key);
        let [Some(pods), Some(slices)] = kinds.map(|kind| self.list_covers.get(&kind).copied())
        else {
            return;
        };
        let covered = pods.min(slices);
        let elsewhere = |service: &Name| scope.is_some_and(|scope| *service.namespace != *scope);
        self.not_read
            .retain(|service, number| *number > covered || elsewhere(service));
    }
}
