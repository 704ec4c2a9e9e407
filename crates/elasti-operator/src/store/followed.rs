//! Which kinds are followed. An ElastiService may name any kind, so each namespace gets only so many.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::{Cache, KindState};
use crate::name::{KindName, Name};
use crate::slim::Declared;

/// Kinds that one namespace may have followed, beside the well-known ones.
const MAX_KINDS_PER_NAMESPACE: usize = 8;
/// The same of all namespaces. Each kind costs one watch, or one call every 30 s if the cluster does not have it.
const MAX_KINDS: usize = 128;

/// The kinds that a namespace names, but for the well-known ones, and by which ElastiServices, oldest first.
pub(super) type NamedKinds = BTreeMap<KindName, BTreeSet<(Timestamp, Arc<str>)>>;

impl Cache {
    pub(super) fn name_kind(&mut self, kind: &KindName, me: &Declared) {
        if !kind.is_well_known() {
            let kinds = self.named_kinds.entry(me.name.namespace.clone());
            let users = kinds.or_default().entry(kind.clone()).or_default();
            users.insert((me.created, me.name.name.clone()));
        }
    }

    pub(super) fn unname_kind(&mut self, kind: &KindName, me: &Declared) {
        let Some(kinds) = self.named_kinds.get_mut(&me.name.namespace) else {
            return;
        };
        if let Some(users) = kinds.get_mut(kind) {
            users.remove(&(me.created, me.name.name.clone()));
            if users.is_empty() {
                kinds.remove(kind);
            }
        }
        if kinds.is_empty() {
            self.named_kinds.remove(&me.name.namespace);
        }
    }

    /// Chooses the kinds to follow; where that changes, the services that name them are touched.
    pub(super) fn choose_kinds(&mut self, touched: &mut BTreeSet<Name>) -> BTreeSet<KindName> {
        let followed = self.kinds_to_follow(MAX_KINDS_PER_NAMESPACE, MAX_KINDS);
        let before = std::mem::replace(&mut self.followed_kinds, followed);
        for kind in before.symmetric_difference(&self.followed_kinds) {
            touched.extend(self.by_kind.get(kind).into_iter().flatten().cloned());
        }
        self.followed_kinds.clone()
    }

    /// All well-known kinds that a service names. Of the others one of each namespace, then a second one of each, and so
    /// on, the oldest first: a namespace that names many leaves each other one its own.
    pub(super) fn kinds_to_follow(&self, of_each: usize, in_all: usize) -> BTreeSet<KindName> {
        let mut ranked: Vec<(usize, Timestamp, &KindName)> = Vec::new();
        for kinds in self.named_kinds.values() {
            let since = |(kind, users)| oldest(users).map(|since| (since, kind));
            let mut kinds: Vec<(Timestamp, &KindName)> = kinds.iter().filter_map(since).collect();
            kinds.sort_unstable();
            kinds.truncate(of_each);
            let kinds = kinds.into_iter().enumerate();
            ranked.extend(kinds.map(|(rank, (since, kind))| (rank, since, kind)));
        }
        ranked.sort_unstable();
        let mut seen = HashSet::new();
        let others = { ranked.into_iter() }
            .map(|(_, _, kind)| kind)
            .filter(|kind| seen.insert(*kind))
            .take(in_all);
        let well_known = self.by_kind.keys().filter(|kind| kind.is_well_known());
        well_known.chain(others).cloned().collect()
    }

    /// What is known of a kind that a service in this namespace names. One that the bounds leave out counts as absent.
    pub(crate) fn kind(&self, kind: &KindName, namespace: &str) -> KindState {
        if !self.followed_kinds.contains(kind) {
            return KindState::Absent;
        }
        let covers = |scope: &Option<String>| scope.as_deref().is_none_or(|one| one == namespace);
        let refused = self.refused_kinds.get(kind);
        if refused.is_some_and(|refused| refused.iter().any(covers)) {
            return KindState::Refused;
        }
        match self.kind_scopes.get(kind) {
            // A namespace that may not be read keeps no other one waiting.
            Some(listed) if listed.iter().any(covers) => KindState::Listed,
            _ => self.kinds.get(kind).copied().unwrap_or(KindState::Pending),
        }
    }
}

fn oldest(users: &BTreeSet<(Timestamp, Arc<str>)>) -> Option<Timestamp> {
    users.first().map(|(created, _)| *created)
}
