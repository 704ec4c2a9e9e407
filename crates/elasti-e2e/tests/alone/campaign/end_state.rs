//! The state of the cluster at the end, without what differs between any two runs.

use std::collections::BTreeSet;

use elasti_e2e::{App, TestEnv};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Fields that tell a run's history or the server's own choices, not where it ended.
const PASSING: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "generateName",
    "lastTransitionTime",
    "lastProbeTime",
    "message",
    // A recent count, reported along with other changes.
    "held",
    // Facts about the pods' nodes and times, which differ by chance.
    "nodeName",
    "hostIP",
    "hostIPs",
    "containerStatuses",
    "annotations",
    "observedGeneration",
    "collisionCount",
];

/// Everything around an app.
pub(crate) async fn snapshot(env: &TestEnv, app: &App) -> Value {
    let resolvers = env.resolver_addresses();
    let mut all = Map::new();
    for (what, path) in [
        ("targets", app.targets()),
        ("services", app.core("services")),
        ("slices", app.slices_path()),
        ("pods", app.core("pods")),
    ] {
        let items = env.api().items(&path).await;
        let mut items: Vec<Value> = items.iter().map(|one| plain(one, &resolvers)).collect();
        items.sort_by_key(Value::to_string);
        all.insert(what.to_owned(), Value::Array(items));
    }
    let mut object = plain(&app.object().await, &resolvers);
    // Whether it was ever woken is history; it says when. A state that lasts no longer than a fault may go unrecorded.
    if let Some(status) = object["status"].as_object_mut() {
        for stamp in [
            "lastScaledUpTime",
            "lastSleepTime",
            "lastActiveTime",
            "quietSince",
            "lastWake",
            "asleepSeconds",
            "currentSleep",
            "saved",
            "savingsCalendar",
            "history",
        ] {
            status.remove(stamp);
        }
    }
    all.insert("elastiservice".to_owned(), object);
    Value::Object(all)
}

fn plain(value: &Value, resolvers: &BTreeSet<String>) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map
                .iter()
                .filter(|(key, _)| !PASSING.contains(&key.as_str()));
            Value::Object(
                kept.map(|(key, child)| (key.clone(), plain(child, resolvers)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(|item| plain(item, resolvers)).collect(),
        Value::String(text) => word(text, resolvers),
        other => other.clone(),
    }
}

fn word(text: &str, resolvers: &BTreeSet<String>) -> Value {
    if resolvers.contains(text) {
        return json!("<resolver>");
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return json!("<address>");
    }
    if text.parse::<Timestamp>().is_ok() {
        return json!("<time>");
    }
    if text.starts_with("http://127.0.0.1:") {
        return json!("<Prometheus>");
    }
    // A new operator knows that it was woken lately, but not who asked for it.
    if text == "WakeRequested" || text == "WokenByRequest" {
        return json!("CoolingDown");
    }
    // Generated names end in something random: web-5d8f7c9b4-x2v9k, web-4kk2d, elasti-web-pvt-4b5e57f6eb-2r9zr.
    match (text.split_once("web-"), text.rsplit_once('-')) {
        (Some(("", _)), _) => json!("web-<generated>"),
        (_, Some((stem, _))) if stem.starts_with("elasti-web-pvt-") => {
            json!(format!("{stem}-<generated>"))
        }
        _ => json!(text),
    }
}

/// Where two of them differ.
pub(crate) fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let mut all = Vec::new();
    compare("", wanted, found, &mut all);
    all
}

fn compare(path: &str, wanted: &Value, found: &Value, all: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                compare(&format!("{path}/{key}"), &wanted[key], &found[key], all);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (at, (left, right)) in left.iter().zip(right).enumerate() {
                compare(&format!("{path}/{at}"), left, right, all);
            }
        }
        _ if wanted == found => {}
        _ => all.push(format!("{path} is {found} instead of {wanted}")),
    }
}
