//! What is read beside the watches, and how it is taken in without undoing what they have told.
//! Never lets a list that is behind the watch say anything.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::{Change, Kept, Known, Store, Trust};
use crate::name::Name;
use crate::slim::{PodView, SliceView};

impl Store {
    /// A watch is about to tell a change that has brought it to this version.
    pub(crate) fn reached<K: Kept>(&self, scope: Option<&str>, change: &Change<K>, version: &str) {
        let Ok(version) = version.parse::<u64>() else {
            return;
        };
        let mut known = self.known.lock();
        let place = (K::WHAT, scope.map(str::to_owned));
        let reached = known.reached.entry(place).or_default();
        *reached = match change {
            // After a restore from a backup the versions begin anew.
            Change::All { .. } => version,
            Change::Set(_) | Change::Gone(_) => version.max(*reached),
        };
    }

    /// What is known of the pods and slices of a Service, before somebody reads them beside the watch.
    pub(crate) fn begin_reading(&self, service: &Name) -> Before {
        let mut known = self.known.lock();
        known.readers += 1;
        let pods = known.pods.get(service).into_iter().flatten();
        let slices = known.slices.get(service).into_iter().flatten();
        Before {
            pods_reached: known.reached_for::<PodView>(service),
            slices_reached: known.reached_for::<SliceView>(service),
            pods: pods.map(|(n, p)| (n.clone(), p.version.clone())).collect(),
            slices: slices
                .map(|(n, s)| (n.clone(), s.version.clone()))
                .collect(),
        }
    }

    /// Takes in what was read beside the watch, without undoing what the watch has told meanwhile. Tells whether it
    /// was taken in: a list that is behind the watch would bring back what is gone, and nothing would tell again.
    pub(crate) fn end_reading(&self, service: &Name, before: &Before, read: Option<Read>) -> bool {
        let mut known = self.known.lock();
        let mut touched = BTreeSet::new();
        let read = read.filter(|read| !before.is_ahead_of(read));
        let taken_in = read.is_some();
        if let Some(Read {
            selector,
            pods,
            slices,
            ..
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
                .map(|view| &view.facts.service.selector);
            if now.is_none_or(|now| *now == selector) {
                known.unread.remove(service);
            }
        }
        known.readers = known.readers.saturating_sub(1);
        if known.readers == 0 {
            known.gone_meanwhile.clear();
        }
        taken_in
    }
}

/// What was known before somebody began to read.
#[derive(Debug)]
pub(crate) struct Before {
    pods_reached: u64,
    slices_reached: u64,
    pods: Vec<(Arc<str>, String)>,
    slices: Vec<(Arc<str>, String)>,
}

impl Before {
    /// The watches had told more than a list that was asked for after them shows: it comes from a server that lags.
    fn is_ahead_of(&self, read: &Read) -> bool {
        let lags = |list: &str, reached: u64| list.parse().is_ok_and(|list: u64| list < reached);
        let pods = read.pods_version.as_deref();
        pods.is_some_and(|list| lags(list, self.pods_reached))
            || lags(&read.slices_version, self.slices_reached)
    }
}

/// What was read beside the watch: all pods and all slices of one Service.
#[derive(Debug)]
pub(crate) struct Read {
    /// What the pods were selected by.
    pub(crate) selector: BTreeMap<String, String>,
    /// The version of the list of pods; `None` if there was nothing to list.
    pub(crate) pods_version: Option<String>,
    pub(crate) slices_version: String,
    pub(crate) pods: Vec<PodView>,
    pub(crate) slices: Vec<SliceView>,
}

impl Known {
    /// Up to which version the watch has told that tells of this service's namespace.
    pub(super) fn reached_for<K: Kept>(&self, service: &Name) -> u64 {
        let scope = self.scopes.iter().find(|scope| {
            let scope = scope.as_deref();
            scope.is_none_or(|scope| *service.namespace == *scope)
        });
        let place = scope.map(|scope| (K::WHAT, scope.clone()));
        let reached = place.and_then(|place| self.reached.get(&place));
        reached.copied().unwrap_or_default()
    }

    /// Whether pods and slices of a managed Service have been read.
    pub(crate) fn is_read(&self, service: &Name) -> bool {
        !self.unread.contains(service)
    }

    /// Whole lists of pods and of slices say everything about every Service there that is indexed by now.
    pub(super) fn all_read(&mut self, scope: Option<&str>) {
        let listed = |what| self.listed.contains(&(what, scope.map(str::to_owned)));
        if listed(PodView::WHAT) && listed(SliceView::WHAT) {
            self.unread
                .retain(|service| scope.is_some_and(|scope| *service.namespace != *scope));
        }
    }
}
