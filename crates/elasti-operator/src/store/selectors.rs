//! The index from a pod's labels to the managed Services that select it.

use std::collections::HashSet;

use super::{Cache, LabelPair};
use crate::name::Name;
use crate::slim::PodView;

impl Cache {
    /// Indexes a managed Service by its selector; removes it from the index if it has none, or is not managed.
    pub(super) fn index_selector(&mut self, service: &Name) {
        let managed = self.is_managed(service);
        let view = self.services.get(service).filter(|_| managed).cloned();
        let view = view.filter(|view| !view.facts.service.selector.is_empty());
        match (self.selector_of.get_mut(service), &view) {
            (None, None) => return,
            (Some((_, before)), Some(now))
                if before.facts.service.selector == now.facts.service.selector =>
            {
                *before = now.clone();
                return;
            }
            _ => {}
        }
        self.unindex_selector(service);
        for name in self.pods.remove(service).into_iter().flatten() {
            let pod = service.sibling(name.0);
            if let Some(services) = self.services_of_pod.get_mut(&pod) {
                services.retain(|other| other != service);
            }
        }
        let Some(view) = view else { return };
        // The pair with the fewest Services under it keeps the lookup short.
        let pairs = view
            .facts
            .service
            .selector
            .iter()
            .map(|(key, value)| (service.namespace.clone(), key.to_owned(), value.to_owned()));
        let size = |pair: &LabelPair| self.selectors.get(pair).map_or(0, HashSet::len);
        let Some(pair) = pairs.min_by_key(size) else {
            return;
        };
        let found = self.selectors.entry(pair.clone()).or_default();
        found.insert(service.clone());
        self.selector_of.insert(service.clone(), (pair, view));
        self.set_not_read(service);
    }

    pub(super) fn unindex_selector(&mut self, service: &Name) {
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

    pub(super) fn services_that_select(&self, pod: &PodView) -> Vec<Name> {
        let mut found = Vec::new();
        for (key, value) in &pod.labels {
            let pair = (pod.name.namespace.clone(), key.clone(), value.clone());
            for service in self.selectors.get(&pair).into_iter().flatten() {
                let selects = self.selector_of.get(service).is_some_and(|(_, view)| {
                    let mut selector = view.facts.service.selector.iter();
                    selector.all(|(k, v)| pod.labels.get(k).is_some_and(|value| value == v))
                });
                // Each is indexed by one pair only, so it is found once.
                if selects {
                    found.push(service.clone());
                }
            }
        }
        found.sort();
        found
    }
}
