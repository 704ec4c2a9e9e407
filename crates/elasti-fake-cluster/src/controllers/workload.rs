//! What all workloads share: owned pods, readiness, owner references, template hashes, rounding.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::engine::{ControllerClient, Kind};
use crate::api_server::object::Object as _;
use crate::api_server::store::{Key, Stored};

/// The objects of `kind` in the owner's namespace that it controls.
pub(crate) fn controlled(client: &ControllerClient, kind: Kind, owner: &Value) -> Vec<Arc<Stored>> {
    let uid = owner.text("/metadata/uid");
    let all = client
        .list(kind, Some(owner.text("/metadata/namespace")))
        .into_iter();
    all.filter(|one| controller(&one.value).is_some_and(|reference| reference.text("/uid") == uid))
        .collect()
}

/// The owner reference that controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    object
        .list("/metadata/ownerReferences")
        .iter()
        .find(|one| one.at("/controller") == true)
}

/// The key of the controlling owner of a kind.
pub(crate) fn owner_key(object: &Value, kind: &str) -> Vec<Key> {
    let owner = controller(object).filter(|owner| owner.text("/kind") == kind);
    owner
        .map(|owner| Key::new(object.text("/metadata/namespace"), owner.text("/name")))
        .into_iter()
        .collect()
}

/// The owner reference of a controller.
pub(crate) fn owned_by(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": owner.text("/metadata/name"), "uid": owner.text("/metadata/uid"),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

pub(crate) fn is_going(object: &Value) -> bool {
    object.at("/metadata/deletionTimestamp").is_string()
}

pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// The condition of a workload whose pods are refused.
pub(crate) const FAILURE: &str = "ReplicaFailure";

/// A condition.
pub(crate) fn condition_of<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object.list("/status/conditions").iter();
    conditions.find(|one| one.text("/type") == kind)
}

/// A condition's status, `""` if absent.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    condition_of(object, kind).map_or("", |one| one.text("/status"))
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

/// Ready for at least `minReadySeconds`.
pub(crate) fn is_available(client: &ControllerClient, pod: &Value, min_ready_seconds: i64) -> bool {
    if !is_ready(pod) || min_ready_seconds <= 0 {
        return is_ready(pod);
    }
    let ready = pod
        .list("/status/conditions")
        .iter()
        .find(|one| one.text("/type") == "Ready");
    let since: Option<jiff::Timestamp> =
        ready.and_then(|one| one.text("/lastTransitionTime").parse().ok());
    since.is_some_and(|since| {
        client.clock().now().as_second() - since.as_second() >= min_ready_seconds
    })
}

/// A short name for a pod template, safe in labels and names.
pub(crate) fn template_hash(template: &Value) -> String {
    let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(template.to_string());
    digest
        .iter()
        .take(10)
        .filter_map(|byte| alphabet.get(usize::from(*byte) % alphabet.len()))
        .map(|letter| char::from(*letter))
        .collect()
}

/// `25%` or `3` of `total`.
pub(crate) fn portion(value: &Value, total: i64, round_up: bool) -> i64 {
    let percent = value
        .as_str()
        .and_then(|text| text.strip_suffix('%'))
        .and_then(|text| text.parse::<i64>().ok());
    match percent {
        Some(percent) if round_up => (percent * total + 99).div_euclid(100),
        Some(percent) => (percent * total).div_euclid(100),
        None => value.as_i64().unwrap_or(0),
    }
}

/// `value`, or null where Go leaves a zero out.
pub(crate) fn unless_zero(value: i64) -> Value {
    if value == 0 {
        Value::Null
    } else {
        json!(value)
    }
}

/// An object without its nulls.
pub(crate) fn compact(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    object
}
