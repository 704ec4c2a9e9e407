//! The columns and cells that `kubectl get` prints, for built-in kinds and from printer columns.

mod cells;

use serde_json::{Value, json};

use super::json_path;
use super::object::Object as _;
use super::resources::Resource;
use crate::clock::Clock;

/// Name, type, priority.
type Column = (&'static str, &'static str, u8);

/// The built-in columns after `Name`; a kind without any shows its age.
#[rustfmt::skip]
fn builtin_columns(resource: &Resource) -> Vec<Column> {
    let all = |kind: &'static str, priority: u8, names: &[&'static str]| names.iter().map(|name| (*name, kind, priority)).collect::<Vec<_>>();
    let text = |names: &[&'static str]| all("string", 0, names);
    let number = |names: &[&'static str]| all("integer", 0, names);
    let wide = |names: &[&'static str]| all("string", 1, names);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => text(&["Status", "Age"]),
        ("", "nodes") => [text(&["Status", "Roles", "Age", "Version"]), wide(&["Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"])].concat(),
        ("", "pods") => [text(&["Ready", "Status", "Restarts", "Age"]), wide(&["IP", "Node", "Nominated Node", "Readiness Gates"])].concat(),
        ("", "services") => [text(&["Type", "Cluster-IP", "External-IP", "Port(s)", "Age"]), wide(&["Selector"])].concat(),
        ("", "endpoints") => text(&["Endpoints", "Age"]),
        ("", "configmaps") => text(&["Data", "Age"]),
        ("", "secrets") => text(&["Type", "Data", "Age"]),
        ("", "serviceaccounts") => text(&["Secrets", "Age"]),
        ("apps", "deployments") => [text(&["Ready", "Up-to-date", "Available", "Age"]), wide(&["Containers", "Images", "Selector"])].concat(),
        ("apps", "replicasets") => [number(&["Desired", "Current", "Ready"]), text(&["Age"]), wide(&["Containers", "Images", "Selector"])].concat(),
        ("apps", "statefulsets") => [text(&["Ready", "Age"]), wide(&["Containers", "Images"])].concat(),
        ("apps", "daemonsets") => [number(&["Desired", "Current", "Ready", "Up-to-date", "Available"]), text(&["Node Selector", "Age"]), wide(&["Containers", "Images", "Selector"])].concat(),
        ("autoscaling", _) => text(&["Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"]),
        ("policy", _) => [text(&["Min Available", "Max Unavailable"]), number(&["Allowed Disruptions"]), text(&["Age"])].concat(),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") | ("apiextensions.k8s.io", _) => all("date", 0, &["Created At"]),
        ("rbac.authorization.k8s.io", _) => [text(&["Role", "Age"]), wide(&["Users", "Groups", "ServiceAccounts"])].concat(),
        ("networking.k8s.io", _) => text(&["Pod-Selector", "Age"]),
        ("coordination.k8s.io", _) => text(&["Holder", "Age"]),
        ("discovery.k8s.io", _) => text(&["AddressType", "Ports", "Endpoints", "Age"]),
        _ => text(&["Age"]),
    }
}

/// Events have no name in front.
const EVENT_COLUMNS: &[Column] = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Subobject", "string", 1),
    ("Source", "string", 1),
    ("Message", "string", 0),
    ("First Seen", "string", 1),
    ("Count", "string", 1),
    ("Name", "string", 1),
];

fn definition(&(name, kind, priority): &Column) -> Value {
    let format = if name == "Name" { "name" } else { "" };
    json!({"name": name, "type": kind, "format": format, "description": name, "priority": priority})
}

/// `columnDefinitions`.
pub(crate) fn columns(resource: &Resource) -> Vec<Value> {
    if resource.plural == "events" && resource.custom.is_none() {
        return EVENT_COLUMNS.iter().map(definition).collect();
    }
    let mut all = vec![definition(&("Name", "string", 0))];
    match &resource.custom {
        Some(custom) if custom.columns.is_empty() => all.push(definition(&("Age", "date", 0))),
        Some(custom) => all.extend(
            custom
                .columns
                .iter()
                .map(|column| column.definition.clone()),
        ),
        None => all.extend(builtin_columns(resource).iter().map(definition)),
    }
    all
}

/// One row.
pub(crate) fn cells(resource: &Resource, object: &Value, clock: Clock) -> Vec<Value> {
    if resource.plural == "events" && resource.custom.is_none() {
        return cells::event_cells(object, clock);
    }
    let mut all = vec![json!(object.text("/metadata/name"))];
    match &resource.custom {
        Some(custom) if custom.columns.is_empty() => all.push(cells::age(object, clock)),
        Some(custom) => all.extend(custom.columns.iter().map(|column| {
            custom_cell(
                object,
                column.definition.text("/type"),
                &column.json_path,
                clock,
            )
        })),
        None => all.extend(cells::builtin(resource, object, clock)),
    }
    all
}

fn custom_cell(object: &Value, kind: &str, path: &str, clock: Clock) -> Value {
    let found = json_path::find(object, path);
    let Some(first) = found.first() else {
        return if kind == "date" {
            json!("<unknown>")
        } else {
            Value::Null
        };
    };
    match kind {
        "integer" => first.as_i64().map_or(Value::Null, Value::from),
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => json!(cells::since(first.as_str().unwrap_or_default(), clock)),
        _ => {
            let texts: Vec<String> = found
                .iter()
                .map(|value| {
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
                .collect();
            json!(texts.join(","))
        }
    }
}
