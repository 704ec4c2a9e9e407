//! A namespace that is being deleted loses its content first, then itself.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::engine::{Change, Controller, ControllerClient, Kind};
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

/// How often a namespace with content left is reconciled.
const RESYNC_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Namespaces;

impl Controller for Namespaces {
    const COMPONENT: &'static str = "namespace-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::NAMESPACES]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        let going = change.object.value.text("/status/phase") == "Terminating" && !change.deleted;
        if going {
            vec![Key::from_object(&change.object.value)]
        } else {
            vec![]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(namespace) = client.get(Kind::NAMESPACES, key) else {
            return Ok(None);
        };
        let mut left = 0;
        for (path, going) in content(client, &key.name) {
            left += 1;
            if !going {
                client.delete_at(&path, &json!({"propagationPolicy": "Background"}))?;
            }
        }
        if left > 0 {
            return Ok(Some(RESYNC_INTERVAL));
        }
        let mut empty = namespace.value.clone();
        empty.put("/spec/finalizers", json!([]));
        client.send(
            &Method::PUT,
            &format!("/api/v1/namespaces/{}/finalize", key.name),
            "application/json",
            &empty,
        )?;
        Ok(None)
    }
}

/// The paths of all objects in a namespace, and whether they are already being deleted.
fn content(client: &ControllerClient, namespace: &str) -> Vec<(String, bool)> {
    let state = client.server.state.lock();
    let mut seen = Vec::new();
    let mut all = Vec::new();
    for resource in state
        .registry
        .all()
        .filter(|one| one.namespaced && one.allows("delete"))
    {
        if seen.contains(&resource.group_resource) {
            continue;
        }
        seen.push(resource.group_resource.clone());
        let root = if resource.group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{}", resource.group)
        };
        for object in state.store.list(&resource.group_resource, Some(namespace)) {
            let name = object.value.text("/metadata/name");
            let path = format!(
                "{root}/{}/namespaces/{namespace}/{}/{name}",
                resource.version, resource.plural
            );
            all.push((
                path,
                object.value.at("/metadata/deletionTimestamp").is_string(),
            ));
        }
    }
    all
}
