//! Which other Services select the pods of each target, beside the one that its ElastiService names: known from the
//! labels of the target's pod template, and those by which a StatefulSet tells its pods apart, so also while it has no pods. A kind that keeps its template elsewhere has the
//! labels that the named Service selects: what selects fewer of them selects those pods, too.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use elasti_api::names;
use elasti_core::facts::tells_pods_apart;
use elasti_core::labels::Labels;
use elasti_core::observed::ServiceKind;
use elasti_core::services::{MOST_SERVICES, can_be_held};

use super::{Cache, first_slices, target_of};
use crate::name::Name;
use crate::slim::{Declared, ServiceView};

/// How many Services that cannot be managed are named.
const MOST_NAMED: usize = 16;

/// The other Services of one ElastiService.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Those that it manages, in the order of their names.
    pub(crate) managed: Vec<Name>,
    /// Those that its status still records, and that are not its own any more.
    pub(crate) left: Vec<Name>,
    /// Those whose requests cannot be held.
    pub(crate) unmanaged: Vec<Name>,
    /// There are more than can be managed.
    pub(crate) too_many: bool,
}

impl Others {
    /// Those of which something of ours exists, or should.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Name> {
        self.managed.iter().chain(&self.left)
    }

    /// Keeps as many as can be managed, those that the status records first: one of them may be redirected while the
    /// target sleeps, and none would answer for it.
    fn bound(&mut self, recorded: &[Name]) {
        let is_new = |service: &Name| !recorded.contains(service);
        self.managed
            .sort_by_cached_key(|one| (is_new(one), one.clone()));
        self.too_many = self.managed.len() >= MOST_SERVICES;
        self.managed.truncate(MOST_SERVICES - 1);
        self.managed.sort();
        let left = recorded.iter().filter(|one| !self.managed.contains(one));
        self.left = left.cloned().collect();
    }
}

/// The other Services that the status of an ElastiService records.
fn recorded(me: &Declared) -> Vec<Name> {
    let services = me.status.services.iter();
    services
        .map(|one| me.name.sibling(one.name.as_str()))
        .collect()
}

impl Cache {
    /// The other Services of an ElastiService.
    pub(crate) fn others(&self, me: &Name) -> Option<&Others> {
        self.others.get(me)
    }

    /// Every Service of an ElastiService, the one that it names first.
    pub(crate) fn services_of(&self, me: &Declared) -> Vec<Name> {
        let others = self.others(&me.name).into_iter().flat_map(Others::all);
        std::iter::once(me.service())
            .chain(others.cloned())
            .collect()
    }

    /// A Service is managed, by name or because of its pods.
    pub(super) fn is_managed(&self, service: &Name) -> bool {
        self.by_service.contains_key(service) || self.users.contains_key(service)
    }

    /// Finds the other Services anew wherever a change may have changed them.
    pub(super) fn refresh_others(&mut self, touched: &mut BTreeSet<Name>) {
        let namespaces = std::mem::take(&mut self.others_changed);
        if namespaces.is_empty() {
            return;
        }
        let within = |name: &Name| namespaces.contains(&name.namespace);
        let mut next = self.find_others(&namespaces);
        let known: Vec<Name> = self.others.keys().filter(|n| within(n)).cloned().collect();
        for me in known {
            next.entry(me).or_default();
        }
        for (me, others) in next {
            let before = match others == Others::default() {
                true => self.others.remove(&me),
                false => self.others.insert(me.clone(), others.clone()),
            };
            if before.unwrap_or_default() != others {
                touched.insert(me);
            }
        }
        self.follow_users(&namespaces);
    }

    fn find_others(&self, namespaces: &HashSet<Arc<str>>) -> BTreeMap<Name, Others> {
        let mut services: HashMap<&str, BySelector<'_>> = HashMap::new();
        let unclaimed = self.services.values().filter(|view| {
            let facts = &view.facts;
            namespaces.contains(&view.name.namespace)
                && facts.owner.is_none()
                && facts.service.kind != ServiceKind::ExternalName
                && !facts.service.selector.is_empty()
                && self.manager_by_name(&view.name).is_none()
        });
        for view in unclaimed {
            let there = services.entry(&view.name.namespace).or_default();
            there.insert(view);
        }
        let mut declared: Vec<&Arc<Declared>> = { self.declared.values() }
            .filter(|me| namespaces.contains(&me.name.namespace))
            .collect();
        declared.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let mut found = BTreeMap::new();
        for me in declared {
            let mut others = Others::default();
            if let Some(there) = services.get_mut(&*me.name.namespace) {
                for group in self.selecting(me, there) {
                    there.give(group, &mut others);
                }
            }
            others.unmanaged.sort();
            others.unmanaged.truncate(MOST_NAMED);
            others.bound(&recorded(me));
            found.insert(me.name.clone(), others);
        }
        found
    }

    /// Which groups of these Services select the pods of an ElastiService's target, if it takes precedence there.
    fn selecting(&self, me: &Declared, services: &BySelector<'_>) -> Vec<usize> {
        let oldest = [self.oldest_for_service(me), self.oldest_for_target(me)];
        if { oldest.into_iter().flatten() }.any(|(_, name)| *name != me.name.name) {
            return Vec::new();
        }
        let target = self.target(&target_of(me));
        let template = target.and_then(|target| target.facts.pod_labels.as_ref());
        let named = self.service(&me.service());
        let Some(labels) = template.or(named.map(|view| &view.facts.service.selector)) else {
            return Vec::new();
        };
        services.matching(labels, |selector| {
            selector.iter().all(|(key, value)| {
                let of_one_pod =
                    || target.is_some_and(|t| t.facts.labels_one_pod(&t.name.name, key, value));
                labels.get(key) == Some(value) || of_one_pod()
            })
        })
    }

    /// Caches the pods and slices of Services that are managed now, and forgets those of others.
    fn follow_users(&mut self, namespaces: &HashSet<Arc<str>>) {
        let within = |name: &Name| namespaces.contains(&name.namespace);
        let mut users: HashMap<Name, Vec<Name>> = HashMap::new();
        for (me, others) in self.others.iter().filter(|(me, _)| within(me)) {
            for service in &others.managed {
                let all = users.entry(service.clone()).or_default();
                all.insert(0, me.clone());
            }
            for service in &others.left {
                users.entry(service.clone()).or_default().push(me.clone());
            }
        }
        let before: Vec<Name> = self.users.keys().filter(|n| within(n)).cloned().collect();
        for service in before {
            if !users.contains_key(&service) {
                self.users.remove(&service);
                self.drop_unmanaged(&service);
            }
        }
        for (service, all) in users {
            let is_new = !self.is_managed(&service);
            self.users.insert(service.clone(), all);
            if is_new {
                self.watch_objects_of(&service);
            }
        }
    }

    /// A Service is managed from now on.
    pub(super) fn watch_objects_of(&mut self, service: &Name) {
        let private = service.sibling(names::private_service(&service.name));
        self.public_of.insert(private, service.clone());
        for slice in first_slices(service) {
            self.our_slices.insert(slice, service.clone());
        }
        self.index_selector(service);
        self.set_not_read(service);
    }
}

/// The Services of a namespace in groups with the same selector, and each group by one pair of it: with thousands of Services
/// and as many ElastiServices not each one can be compared with each other.
#[derive(Debug, Default)]
pub(super) struct BySelector<'a> {
    groups: Vec<Group<'a>>,
    by_selector: HashMap<&'a Labels, usize>,
    by_pair: HashMap<(&'a str, &'a str), Vec<usize>>,
    /// Those that select by nothing but what tells the pods of one target apart.
    of_one_pod: Vec<usize>,
}

/// Services with the same selector: what selects one of them selects all.
#[derive(Debug)]
struct Group<'a> {
    selector: &'a Labels,
    /// Those that no ElastiService has yet: the oldest that selects a Service's pods has it.
    free: Vec<&'a Name>,
    /// The first of those that cannot be managed.
    unmanaged: BTreeSet<&'a Name>,
}

impl<'a> BySelector<'a> {
    pub(super) fn insert(&mut self, view: &'a ServiceView) {
        let selector = &view.facts.service.selector;
        let index = match self.by_selector.get(selector) {
            Some(index) => *index,
            None => self.add_group(selector),
        };
        let Some(group) = self.groups.get_mut(index) else {
            return;
        };
        if can_be_held(&view.facts.service) {
            group.free.push(&view.name);
        } else {
            group.unmanaged.insert(&view.name);
            if group.unmanaged.len() > MOST_NAMED {
                group.unmanaged.pop_last();
            }
        }
    }

    /// The pair with the fewest groups under it keeps the lookup short.
    fn add_group(&mut self, selector: &'a Labels) -> usize {
        let index = self.groups.len();
        self.groups.push(Group {
            selector,
            free: Vec::new(),
            unmanaged: BTreeSet::new(),
        });
        self.by_selector.insert(selector, index);
        let shared = selector.iter().filter(|(key, _)| !tells_pods_apart(key));
        let size = |pair: &(&'a str, &'a str)| self.by_pair.get(pair).map_or(0, Vec::len);
        match shared.min_by_key(size) {
            Some(pair) => self.by_pair.entry(pair).or_default().push(index),
            None => self.of_one_pod.push(index),
        }
        index
    }

    /// The groups whose selector holds, asked of those only that can select pods with these labels, beside those that tell the
    /// pods apart.
    pub(super) fn matching(
        &self,
        labels: &Labels,
        mut holds: impl FnMut(&Labels) -> bool,
    ) -> Vec<usize> {
        let found = labels.iter().filter_map(|pair| self.by_pair.get(&pair));
        let candidates = found.flatten().chain(&self.of_one_pod).copied();
        let selector = |index: &usize| self.groups.get(*index).map(|group| group.selector);
        candidates
            .filter(|index| selector(index).is_some_and(&mut holds))
            .collect()
    }

    /// Gives the Services of a group to an ElastiService: those that none has yet.
    fn give(&mut self, group: usize, to: &mut Others) {
        if let Some(group) = self.groups.get_mut(group) {
            to.managed.extend(group.free.drain(..).cloned());
            to.unmanaged
                .extend(group.unmanaged.iter().copied().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::slim::FromObject as _;

    fn service(number: usize, headless: bool) -> ServiceView {
        let address = if headless { "None" } else { "10.0.0.1" };
        let object = json!({
            "metadata": {"namespace": "shop", "name": format!("web-{number:04}"), "resourceVersion": "1"},
            "spec": {"selector": {"app": "web"}, "clusterIP": address, "ports": [{"port": 80}]},
        });
        ServiceView::from_object(object).unwrap()
    }

    #[test]
    fn a_thousand_services_with_one_selector_cost_each_of_a_thousand_targets_one_comparison() {
        let views: Vec<ServiceView> = (0..1_000).map(|one| service(one, one % 2 == 1)).collect();
        let mut services = BySelector::default();
        views.iter().for_each(|view| services.insert(view));
        let labels = Labels::from([("app", "web")]);
        let mut comparisons = 0;
        let targets = (0..1_000).map(|_| {
            let mut others = Others::default();
            let groups = services.matching(&labels, |selector| {
                comparisons += 1;
                *selector == labels
            });
            groups
                .into_iter()
                .for_each(|group| services.give(group, &mut others));
            others
        });
        let all: Vec<Others> = targets.collect();
        assert_eq!(comparisons, 1_000);
        assert_eq!(all[0].managed.len(), 500, "the oldest has all of them");
        assert!(all[1..].iter().all(|others| others.managed.is_empty()));
        let named = |others: &Others| others.unmanaged == all[0].unmanaged;
        assert!(
            all.iter().all(named),
            "and each names those that none can have"
        );
        assert_eq!(all[0].unmanaged.len(), MOST_NAMED);
        assert_eq!(&*all[0].unmanaged[0].name, "web-0001");
    }
}
