//! A stand-in for KEDA: ScaledObjects keep their target between bounds, and honour the pause annotations.
//! Tests say whether a trigger is active by the annotation `fake-cluster.example/active`.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::engine::{Change, Controller, ControllerClient, Kind};
use super::workload::is_going;
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

/// KEDA's default polling interval is 30 s; the stand-in is as quick as its tests.
const RESYNC_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ScaledObjects;

/// The definition, as open as KEDA's is detailed.
pub(crate) fn definition() -> Value {
    super::stand_in_definition(
        "keda.sh",
        "ScaledObject",
        "scaledobjects",
        "so",
        &json!({"status": {}}),
    )
}

impl Controller for ScaledObjects {
    const COMPONENT: &'static str = "keda-operator";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::SCALED_OBJECTS]
    }

    fn keys(&mut self, _: &ControllerClient, change: &Change) -> Vec<Key> {
        if change.deleted {
            vec![]
        } else {
            vec![Key::from_object(&change.object.value)]
        }
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let Some(object) = client
            .get(Kind::SCALED_OBJECTS, key)
            .filter(|object| !is_going(&object.value))
        else {
            return Ok(None);
        };
        let object = &object.value;
        let annotation = |name: &str| {
            object
                .text(&format!(
                    "/metadata/annotations/{}",
                    name.replace('/', "~1")
                ))
                .to_owned()
        };
        let held = annotation("autoscaling.keda.sh/paused-replicas")
            .parse::<i64>()
            .ok();
        let paused = held.is_some() || annotation("autoscaling.keda.sh/paused") == "true";
        if let Some(path) = target(client, object) {
            let scale = client.send(&Method::GET, &path, "", &Value::Null)?;
            let current = scale.number("/spec/replicas").unwrap_or(0);
            let wanted = match held {
                Some(replicas) => replicas,
                None if paused => current,
                None => desired(
                    object,
                    current,
                    annotation("fake-cluster.example/active") == "true",
                ),
            };
            if wanted != current {
                client.send(
                    &Method::PATCH,
                    &path,
                    "application/merge-patch+json",
                    &json!({"spec": {"replicas": wanted}}),
                )?;
            }
        }
        let word = if paused { "True" } else { "False" };
        let status = json!({"conditions": [{"type": "Paused", "status": word}], "scaleTargetKind": object.text("/spec/scaleTargetRef/kind")});
        client.put_status_of(
            Kind::SCALED_OBJECTS,
            "keda.sh/v1alpha1",
            "ScaledObject",
            object,
            status,
        )?;
        Ok(Some(RESYNC_INTERVAL))
    }
}

/// Between the bounds; an idle target may be at `minReplicaCount` (0 by default), an active one has at least 1.
fn desired(object: &Value, current: i64, active: bool) -> i64 {
    let least = object.number("/spec/minReplicaCount").unwrap_or(0);
    let most = object
        .number("/spec/maxReplicaCount")
        .unwrap_or(100)
        .max(least);
    if active {
        current.clamp(least.max(1), most.max(1))
    } else {
        least
    }
}

/// The path of the target's `/scale`.
fn target(client: &ControllerClient, object: &Value) -> Option<String> {
    let reference = object.at("/spec/scaleTargetRef");
    let kind = if reference.text("/kind").is_empty() {
        "Deployment"
    } else {
        reference.text("/kind")
    };
    let api_version = if reference.text("/apiVersion").is_empty() {
        "apps/v1"
    } else {
        reference.text("/apiVersion")
    };
    let state = client.server.state.lock();
    let resource = state
        .registry
        .all()
        .find(|one| one.kind == kind && one.api_version() == api_version && one.scale.is_some())?;
    let namespace = object.text("/metadata/namespace");
    Some(format!(
        "/apis/{api_version}/namespaces/{namespace}/{}/{}/scale",
        resource.plural,
        reference.text("/name")
    ))
}
