//! Which ElastiServices refer to which Service, target, autoscaler and kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use elasti_api::{AutoscalerType, names};
use jiff::Timestamp;

use super::{Cache, Claims};
use crate::name::{KindName, Name, TargetName};
use crate::slim::Declared;

impl Cache {
    /// The ElastiService that a Service belongs to: the oldest that names it, or else the one whose pods it selects.
    pub(crate) fn claimant(&self, service: &Name) -> Option<Name> {
        let manages = |user: &Name| {
            self.others(user)
                .is_some_and(|all| all.managed.contains(service))
        };
        let user = || {
            self.users
                .get(service)?
                .first()
                .filter(|user| manages(user))
        };
        self.manager_by_name(service)
            .or_else(|| user().cloned())
            .or_else(|| Some(self.oldest_by_name(service)?.name.clone()))
    }

    /// The ElastiService that names this Service, unless an older one has its target: then the Service is one of those that
    /// select the pods of that one.
    pub(super) fn manager_by_name(&self, service: &Name) -> Option<Name> {
        let named = self.oldest_by_name(service)?;
        let oldest = self.oldest_for_target(named);
        oldest
            .is_none_or(|(_, name)| *name == named.name.name)
            .then(|| named.name.clone())
    }

    /// What KubeElasti left of this Service is for this ElastiService to adopt.
    pub(crate) fn adopts(&self, service: &Name, me: &Name) -> bool {
        let is_named = self.by_service.get(service).is_some_and(|c| !c.is_empty());
        is_named && self.claimant(service).as_ref() == Some(me)
    }

    fn oldest_by_name(&self, service: &Name) -> Option<&Arc<Declared>> {
        let (_, name) = self.by_service.get(service)?.first()?;
        self.declared.get(&service.sibling(name.clone()))
    }

    /// The oldest ElastiService with the same Service.
    pub(crate) fn oldest_for_service(&self, me: &Declared) -> Option<&(Timestamp, Arc<str>)> {
        self.by_service.get(&me.service())?.first()
    }

    /// The oldest ElastiService with the same target.
    pub(crate) fn oldest_for_target(&self, me: &Declared) -> Option<&(Timestamp, Arc<str>)> {
        self.by_target.get(&target_of(me).workload())?.first()
    }

    pub(super) fn claim(&mut self, me: &Declared, touched: &mut BTreeSet<Name>) {
        let mine = (me.created, me.name.name.clone());
        let service = me.service();
        let is_new = !self.by_service.contains_key(&service);
        let claims = self.by_service.entry(service.clone()).or_default();
        insert_sorted(claims, mine.clone());
        let target = target_of(me);
        let claims = self.by_target.entry(target.workload()).or_default();
        insert_sorted(claims, mine);
        for kind in kinds_of(me) {
            self.name_kind(&kind, me);
            let users = self.by_kind.entry(kind).or_default();
            users.insert(me.name.clone());
        }
        if let Some(autoscaler) = autoscaler_of(me) {
            let users = self.by_autoscaler.entry(autoscaler).or_default();
            users.insert(me.name.clone());
        }
        if is_new {
            self.watch_objects_of(&service);
        }
        self.touch_service(&service, touched);
        self.touch_target(&target, touched);
    }

    pub(super) fn unclaim(&mut self, me: &Declared, touched: &mut BTreeSet<Name>) {
        let mine = (me.created, me.name.name.clone());
        let service = me.service();
        self.touch_service(&service, touched);
        let target = target_of(me);
        self.touch_target(&target, touched);
        let workload = target.workload();
        if let Some(claims) = self.by_target.get_mut(&workload) {
            claims.retain(|one| *one != mine);
            if claims.is_empty() {
                self.by_target.remove(&workload);
            }
        }
        for kind in kinds_of(me) {
            self.unname_kind(&kind, me);
            if let Some(users) = self.by_kind.get_mut(&kind) {
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
        // version of itself, its pods and slices stay cached.
        if let Some(claims) = self.by_service.get_mut(&service) {
            claims.retain(|one| *one != mine);
        }
    }

    /// Forgets the pods and slices of a Service that no ElastiService claims any more.
    pub(super) fn drop_unmanaged(&mut self, service: &Name) {
        if self.by_service.get(service).is_some_and(|c| !c.is_empty()) {
            return;
        }
        self.by_service.remove(service);
        if self.is_managed(service) {
            return;
        }
        self.public_of
            .remove(&service.sibling(names::private_service(&service.name)));
        for slice in first_slices(service) {
            self.our_slices.remove(&slice);
        }
        self.unindex_selector(service);
        self.not_read.remove(service);
        for name in self.slices.remove(service).into_iter().flatten() {
            self.service_of_slice.remove(&service.sibling(name.0));
        }
        for name in self.pods.remove(service).into_iter().flatten() {
            let pod = service.sibling(name.0);
            if let Some(services) = self.services_of_pod.get_mut(&pod) {
                services.retain(|other| other != service);
                if services.is_empty() {
                    self.services_of_pod.remove(&pod);
                }
            }
        }
    }
}

/// The names of our first slice of each family.
pub(crate) fn first_slices(service: &Name) -> [Name; 2] {
    [names::IpFamily::V4, names::IpFamily::V6]
        .map(|family| service.sibling(names::resolver_slice(&service.name, family, 0)))
}

fn insert_sorted(claims: &mut Claims, mine: (Timestamp, Arc<str>)) {
    if let Err(index) = claims.binary_search(&mine) {
        claims.insert(index, mine);
    }
}

/// The workload that an ElastiService scales.
pub(crate) fn target_of(me: &Declared) -> TargetName {
    let reference = &me.spec.scale_target_ref;
    let (group, version) = (reference.group(), reference.version());
    TargetName {
        kind: KindName::new(group, version, reference.canonical_kind()),
        name: me.name.sibling(reference.name.as_str()),
    }
}

/// The kinds that an ElastiService refers to.
pub(super) fn kinds_of(me: &Declared) -> Vec<KindName> {
    let autoscaler = me.spec.autoscaler.as_ref();
    let autoscaler = autoscaler.map(|autoscaler| autoscaler_kind(autoscaler.type_));
    [target_of(me).kind].into_iter().chain(autoscaler).collect()
}

/// The kind behind each type of autoscaler.
pub(crate) fn autoscaler_kind(type_: AutoscalerType) -> KindName {
    match type_ {
        AutoscalerType::Hpa => KindName::new("autoscaling", "v2", "HorizontalPodAutoscaler"),
        AutoscalerType::Keda => KindName::new("keda.sh", "v1alpha1", "ScaledObject"),
    }
}

fn autoscaler_of(me: &Declared) -> Option<(KindName, Name)> {
    let autoscaler = me.spec.autoscaler.as_ref()?;
    let name = me.name.sibling(autoscaler.name.as_str());
    Some((autoscaler_kind(autoscaler.type_), name))
}
