//! Dependents go with their owners: in the background, in the foreground, or are orphaned.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind, only_uid};
use crate::api_server::object::Object as _;
use crate::api_server::resources::GroupResource;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

/// The key of garbage is an object's uid (as the name).
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    /// uid -> where the object is.
    locations: BTreeMap<String, (GroupResource, Key)>,
    /// owner's uid -> uids of dependents.
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Controller for Garbage {
    const COMPONENT: &'static str = "generic-garbage-collector";

    fn follows(&self) -> Vec<Kind> {
        vec![]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        let object = &change.object.value;
        let uid = object.text("/metadata/uid").to_owned();
        let before = change.previous.as_ref().map_or(&[][..], |previous| {
            previous.value.list("/metadata/ownerReferences")
        });
        for owner in before {
            if let Some(set) = self.dependents.get_mut(owner.text("/uid")) {
                set.remove(&uid);
            }
        }
        let owners: Vec<&str> = object
            .list("/metadata/ownerReferences")
            .iter()
            .map(|owner| owner.text("/uid"))
            .collect();
        let mut due = vec![uid.clone()];
        if change.deleted {
            self.locations.remove(&uid);
            due.extend(self.dependents.remove(&uid).into_iter().flatten());
            due.extend(owners.iter().map(|owner| (*owner).to_owned()));
        } else {
            self.locations.insert(
                uid.clone(),
                (change.group_resource.clone(), Key::from_object(object)),
            );
            for owner in owners {
                self.dependents
                    .entry(owner.to_owned())
                    .or_default()
                    .insert(uid.clone());
            }
        }
        due.iter().map(|uid| Key::new("", uid)).collect()
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let uid = &key.name;
        let Some((group_resource, place)) = self.locations.get(uid).cloned() else {
            return Ok(None);
        };
        let Some(object) = client
            .server
            .state
            .lock()
            .store
            .get(&group_resource, &place)
        else {
            return Ok(None);
        };
        let Some(path) = path(client, &group_resource, &place) else {
            return Ok(None);
        };
        let object = &object.value;
        let has = |finalizer: &str| {
            object
                .list("/metadata/finalizers")
                .iter()
                .any(|one| one == finalizer)
        };
        if object.at("/metadata/deletionTimestamp").is_string() {
            if has("orphan") {
                self.orphan(client, uid)?;
                return drop_finalizer(client, &path, object, "orphan");
            }
            if has("foregroundDeletion") {
                return self.delete_in_foreground(client, uid, &path, object);
            }
            return Ok(None);
        }
        let owners = object.list("/metadata/ownerReferences");
        let gone = |owner: &Value| !self.locations.contains_key(owner.text("/uid"));
        if !owners.is_empty() && owners.iter().all(gone) {
            client.delete_at(&path, &only_uid(uid))?;
        }
        Ok(None)
    }
}

impl Garbage {
    fn dependents_of(&self, owner: &str) -> Vec<(GroupResource, Key)> {
        let uids = self.dependents.get(owner).into_iter().flatten();
        uids.filter_map(|uid| self.locations.get(uid).cloned())
            .collect()
    }

    fn orphan(&self, client: &ControllerClient, owner: &str) -> Result<(), ApiError> {
        for (group_resource, key) in self.dependents_of(owner) {
            let Some(path) = path(client, &group_resource, &key) else {
                continue;
            };
            let Some(object) = client.server.state.lock().store.get(&group_resource, &key) else {
                continue;
            };
            let kept: Vec<&Value> = object
                .value
                .list("/metadata/ownerReferences")
                .iter()
                .filter(|one| one.text("/uid") != owner)
                .collect();
            let patch = json!({"metadata": {"ownerReferences": if kept.is_empty() { Value::Null } else { json!(kept) }}});
            client.send(
                &Method::PATCH,
                &path,
                "application/merge-patch+json",
                &patch,
            )?;
        }
        Ok(())
    }

    fn delete_in_foreground(
        &self,
        client: &ControllerClient,
        uid: &str,
        path: &str,
        object: &Value,
    ) -> Result<Option<Duration>, ApiError> {
        let mut left = false;
        for (group_resource, key) in self.dependents_of(uid) {
            let Some(dependent) = client.server.state.lock().store.get(&group_resource, &key)
            else {
                continue;
            };
            left = true;
            if dependent.value.at("/metadata/deletionTimestamp").is_null()
                && let Some(path) = self::path(client, &group_resource, &key)
            {
                client.delete_at(&path, &json!({"propagationPolicy": "Foreground"}))?;
            }
        }
        // The last dependent's end makes the owner due again.
        if left {
            Ok(None)
        } else {
            drop_finalizer(client, path, object, "foregroundDeletion")
        }
    }
}

fn drop_finalizer(
    client: &ControllerClient,
    path: &str,
    object: &Value,
    finalizer: &str,
) -> Result<Option<Duration>, ApiError> {
    let kept: Vec<&Value> = object
        .list("/metadata/finalizers")
        .iter()
        .filter(|one| *one != finalizer)
        .collect();
    let patch = json!({"metadata": {"finalizers": if kept.is_empty() { Value::Null } else { json!(kept) }}});
    client.send(&Method::PATCH, path, "application/merge-patch+json", &patch)?;
    Ok(None)
}

fn path(client: &ControllerClient, group_resource: &GroupResource, key: &Key) -> Option<String> {
    let state = client.server.state.lock();
    let resource = state
        .registry
        .all()
        .find(|one| one.group_resource == *group_resource && one.group == group_resource.0)?;
    let root = if resource.group.is_empty() {
        "/api".to_owned()
    } else {
        format!("/apis/{}", resource.group)
    };
    let namespace = if resource.namespaced {
        format!("/namespaces/{}", key.namespace)
    } else {
        String::new()
    };
    Some(format!(
        "{root}/{}{namespace}/{}/{}",
        resource.version, resource.plural, key.name
    ))
}
