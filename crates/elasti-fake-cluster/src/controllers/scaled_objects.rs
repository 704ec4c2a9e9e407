//! A stand-in for KEDA: ScaledObjects keep their target between bounds, and honour the pause annotations.
//! Never reads a metric: tests say whether a trigger is active by the annotation `fake_cluster.example/active`.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::engine::{Change, Controller, Desk, Kind};
use super::workload::is_going;
use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

/// KEDA's default polling interval is 30 s; the stand-in is as quick as its tests.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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

    fn keys(&mut self, _: &Desk, change: &Change) -> Vec<Key> {
        if change.deleted {
            vec![]
        } else {
            vec![Key::of(&change.object.value)]
        }
    }

    fn reconcile(&mut self, desk: &Desk, key: &Key) -> Result<Option<Duration>, ApiError> {
        let Some(object) = desk
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
        if let Some(path) = target(desk, object) {
            let scale = desk.ask(&Method::GET, &path, "", &Value::Null)?;
            let current = scale.number("/spec/replicas").unwrap_or(0);
            let wanted = match held {
                Some(replicas) => replicas,
                None if paused => current,
                None => wished(
                    object,
                    current,
                    annotation("fake-cluster.example/active") == "true",
                ),
            };
            if wanted != current {
                desk.ask(
                    &Method::PATCH,
                    &path,
                    "application/merge-patch+json",
                    &json!({"spec": {"replicas": wanted}}),
                )?;
            }
        }
        let word = if paused { "True" } else { "False" };
        let status = json!({"conditions": [{"type": "Paused", "status": word}], "scaleTargetKind": object.text("/spec/scaleTargetRef/kind")});
        desk.put_status_of(
            Kind::SCALED_OBJECTS,
            "keda.sh/v1alpha1",
            "ScaledObject",
            object,
            status,
        )?;
        Ok(Some(LOOK_AGAIN))
    }
}

/// Between the bounds; an idle target may be at `minReplicaCount` (0 by default), an active one has at least 1.
fn wished(object: &Value, current: i64, active: bool) -> i64 {
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
fn target(desk: &Desk, object: &Value) -> Option<String> {
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
    let state = desk.server.state.lock();
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
