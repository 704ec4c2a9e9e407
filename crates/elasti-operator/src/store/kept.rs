//! The kinds of objects that the store keeps, and where each of them goes.
//! Never lets an old version replace a newer one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use elasti_core::facts::PodFacts;

use super::Known;
use crate::name::Name;
use crate::slim::{Declared, PodView, ServiceView, SliceView, Slim};

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

pub(super) fn known_names<K: Kept>(known: &Known, scope: Option<&str>) -> HashSet<Name> {
    let mut all = K::names(known);
    all.retain(|name| scope.is_none_or(|scope| *name.namespace == *scope));
    all.into_iter().collect()
}

/// Whether `new` may replace `old`: the API server's versions grow, wherever they can be compared.
pub(super) fn replaces(old: &str, new: &str, trust: Trust) -> bool {
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
        let selected = match self.facts.ended {
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
        if pod.facts.ended {
            return Self::gone(&pod.name, known, touched);
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
