//! What the server does when a CustomResourceDefinition comes, changes or goes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::apply::managed::{self, Writer};
use super::kinds::definitions;
use super::object::Object as _;
use super::resources::Resource;
use super::session::Session;
use super::store::{Key, Stored};

/// Held by the server until the last custom resource is gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Serves a definition and says so in its status, as a write of its own. Answers with the object as it was asked for.
pub(crate) fn sync(session: &mut Session<'_>, stored: &Arc<Stored>) -> Arc<Stored> {
    let definition = &stored.value;
    let (group, plural) = (
        definition.text("/spec/group"),
        definition.text("/spec/names/plural"),
    );
    session
        .state
        .registry
        .set_custom(group, plural, definitions::resources(definition));
    let time = session.context.timestamp();
    let mut next = definition.clone();
    next.put("/status", definitions::established(definition, &time));
    if next != *definition {
        let api_version = format!("{GROUP}/v1");
        let writer = Writer {
            manager: "kube-apiserver",
            api_version: &api_version,
            subresource: "status",
            time: &time,
        };
        let shape = session.resource().shape();
        managed::after_update(definition, &mut next, shape, writer);
        session
            .state
            .store
            .put(&(GROUP.to_owned(), PLURAL.to_owned()), next);
    }
    stored.clone()
}

/// A definition that goes takes its custom resources with it.
pub(crate) fn start_deletion(session: &mut Session<'_>, resource: &Resource, stored: &Arc<Stored>) {
    if !resource.is(GROUP, PLURAL) {
        return;
    }
    let (group, plural) = (
        stored.value.text("/spec/group").to_owned(),
        stored.value.text("/spec/names/plural").to_owned(),
    );
    let group_resource = (group.clone(), plural.clone());
    let Some(custom) = session
        .state
        .registry
        .all()
        .find(|one| one.is(&group, &plural))
        .cloned()
    else {
        return;
    };
    let time = session.context.timestamp();
    for object in session.state.store.list(&group_resource, None) {
        if object.value.list("/metadata/finalizers").is_empty() {
            session.remove(&custom, &Key::from_object(&object.value), None);
        } else if object.value.at("/metadata/deletionTimestamp").is_null() {
            let mut next = object.value.clone();
            next.put("/metadata/deletionTimestamp", time.as_str());
            next.put("/metadata/deletionGracePeriodSeconds", 0);
            session.state.store.put(&group_resource, next);
        }
    }
    finish_deletion(session, &custom);
}

/// The definition goes after its last custom resource.
pub(crate) fn finish_deletion(session: &mut Session<'_>, custom: &Resource) {
    if !session
        .state
        .store
        .list(&custom.group_resource, None)
        .is_empty()
    {
        return;
    }
    let group_resource = (GROUP.to_owned(), PLURAL.to_owned());
    let key = Key::new("", &format!("{}.{}", custom.plural, custom.group));
    let Some(definition) = session.state.store.get(&group_resource, &key) else {
        return;
    };
    if definition.value.at("/metadata/deletionTimestamp").is_null() {
        return;
    }
    let rest: Vec<Value> = definition
        .value
        .list("/metadata/finalizers")
        .iter()
        .filter(|one| *one != CLEANUP)
        .cloned()
        .collect();
    let mut last = definition.value.clone();
    last.put("/metadata/finalizers", json!(rest));
    if rest.is_empty() {
        let Some(resource) = session.state.registry.find(GROUP, "v1", PLURAL) else {
            return;
        };
        session.remove(&resource, &key, Some(last));
    } else {
        session.state.store.put(&group_resource, last);
    }
}

/// A definition that is being deleted carries the server's finalizer.
pub(crate) fn hold(resource: &Resource, finalizers: &mut Vec<Value>) {
    if resource.is(GROUP, PLURAL) && !finalizers.iter().any(|one| one == CLEANUP) {
        finalizers.push(CLEANUP.into());
    }
}
