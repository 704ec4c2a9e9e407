//! The cells of the built-in kinds, as kubectl prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api_server::object::Object as _;
use crate::api_server::resources::Resource;
use crate::api_server::scale::selector_text;
use crate::clock::Clock;

/// The cells after the name.
#[rustfmt::skip]
pub(super) fn builtin(resource: &Resource, object: &Value, clock: Clock) -> Vec<Value> {
    let count = |pointer: &str| object.number(pointer).unwrap_or(0);
    let age = || age(object, clock);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => vec![object.at("/status/phase").clone(), age()],
        ("", "nodes") => node_cells(object, clock),
        ("", "pods") => pod_cells(object, clock),
        ("", "services") => service_cells(object, clock),
        ("", "endpoints") => vec![json!(endpoint_list(object)), age()],
        ("", "configmaps") => vec![json!(entries(object, &["/data", "/binaryData"])), age()],
        ("", "secrets") => vec![object.at("/type").clone(), json!(entries(object, &["/data"])), age()],
        ("", "serviceaccounts") => vec![json!(object.list("/secrets").len()), age()],
        ("apps", "deployments") => with_containers(object, vec![
            json!(format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"))),
            json!(count("/status/updatedReplicas")), json!(count("/status/availableReplicas")), age(),
        ], true),
        ("apps", "replicasets") => with_containers(object, vec![
            json!(count("/spec/replicas")), json!(count("/status/replicas")), json!(count("/status/readyReplicas")), age(),
        ], true),
        ("apps", "statefulsets") => with_containers(object, vec![
            json!(format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"))), age(),
        ], false),
        ("apps", "daemonsets") => with_containers(object, vec![
            json!(count("/status/desiredNumberScheduled")), json!(count("/status/currentNumberScheduled")), json!(count("/status/numberReady")),
            json!(count("/status/updatedNumberScheduled")), json!(count("/status/numberAvailable")),
            json!(labels(object.at("/spec/template/spec/nodeSelector"))), age(),
        ], true),
        ("autoscaling", _) => vec![
            json!(format!("{}/{}", object.text("/spec/scaleTargetRef/kind"), object.text("/spec/scaleTargetRef/name"))),
            json!(metric_targets(object)), json!(count("/spec/minReplicas").to_string()), json!(count("/spec/maxReplicas")),
            json!(count("/status/currentReplicas")), age(),
        ],
        ("policy", _) => vec![
            json!(scalar_or(object.at("/spec/minAvailable"), "N/A")), json!(scalar_or(object.at("/spec/maxUnavailable"), "N/A")),
            json!(count("/status/disruptionsAllowed")), age(),
        ],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") | ("apiextensions.k8s.io", _) => vec![object.at("/metadata/creationTimestamp").clone()],
        ("rbac.authorization.k8s.io", _) => binding_cells(object, clock),
        ("networking.k8s.io", _) => vec![json!(none_if_empty(selector_text(object.at("/spec/podSelector")))), age()],
        ("coordination.k8s.io", _) => vec![object.at("/spec/holderIdentity").clone(), age()],
        ("discovery.k8s.io", _) => slice_cells(object, clock),
        _ => vec![age()],
    }
}

fn entries(object: &Value, maps: &[&str]) -> usize {
    maps.iter()
        .map(|map| object.at(map).as_object().map_or(0, serde_json::Map::len))
        .sum()
}

fn with_containers(object: &Value, mut cells: Vec<Value>, selector: bool) -> Vec<Value> {
    let containers = object.list("/spec/template/spec/containers");
    for field in ["/name", "/image"] {
        cells.push(json!(
            containers
                .iter()
                .map(|container| container.text(field))
                .collect::<Vec<_>>()
                .join(",")
        ));
    }
    if selector {
        cells.push(json!(none_if_empty(selector_text(
            object.at("/spec/selector")
        ))));
    }
    cells
}

fn pod_cells(pod: &Value, clock: Clock) -> Vec<Value> {
    let statuses = pod.list("/status/containerStatuses");
    let ready = statuses
        .iter()
        .filter(|status| status.at("/ready") == true)
        .count();
    let restarts: i64 = statuses
        .iter()
        .filter_map(|status| status.number("/restartCount"))
        .sum();
    let last = statuses
        .iter()
        .map(|status| status.text("/lastState/terminated/finishedAt"))
        .max()
        .unwrap_or_default();
    let restarts = if restarts > 0 && !last.is_empty() {
        format!("{restarts} ({} ago)", since(last, clock))
    } else {
        restarts.to_string()
    };
    vec![
        json!(format!("{ready}/{}", pod.list("/spec/containers").len())),
        json!(pod_status(pod)),
        json!(restarts),
        age(pod, clock),
        json!(scalar_or(pod.at("/status/podIP"), "<none>")),
        json!(scalar_or(pod.at("/spec/nodeName"), "<none>")),
        json!(scalar_or(pod.at("/status/nominatedNodeName"), "<none>")),
        json!("<none>"),
    ]
}

/// The word in the STATUS column of a pod.
fn pod_status(pod: &Value) -> String {
    if pod.at("/metadata/deletionTimestamp").is_string() {
        return "Terminating".to_owned();
    }
    let mut word = scalar_or(pod.at("/status/reason"), pod.text("/status/phase"));
    for status in pod.list("/status/containerStatuses") {
        let waiting = status.text("/state/waiting/reason");
        let ended = status.text("/state/terminated/reason");
        if !waiting.is_empty() {
            word = waiting.to_owned();
        } else if !ended.is_empty() {
            word = ended.to_owned();
        }
    }
    word
}

fn service_cells(service: &Value, clock: Clock) -> Vec<Value> {
    let kind = service.text("/spec/type");
    let addresses: Vec<&str> = service
        .list("/status/loadBalancer/ingress")
        .iter()
        .map(|one| one.text("/ip"))
        .collect();
    let external = match kind {
        "ExternalName" => service.text("/spec/externalName").to_owned(),
        "LoadBalancer" if addresses.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => addresses.join(","),
        _ => none_if_empty(
            service
                .list("/spec/externalIPs")
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(","),
        ),
    };
    let ports: Vec<String> = service
        .list("/spec/ports")
        .iter()
        .map(|port| {
            let node = port
                .number("/nodePort")
                .filter(|node| *node > 0)
                .map_or_else(String::new, |node| format!(":{node}"));
            format!(
                "{}{node}/{}",
                port.number("/port").unwrap_or(0),
                port.text("/protocol")
            )
        })
        .collect();
    vec![
        json!(kind),
        json!(scalar_or(service.at("/spec/clusterIP"), "<none>")),
        json!(external),
        json!(none_if_empty(ports.join(","))),
        age(service, clock),
        json!(labels(service.at("/spec/selector"))),
    ]
}

fn node_cells(node: &Value, clock: Clock) -> Vec<Value> {
    let ready = node
        .list("/status/conditions")
        .iter()
        .find(|one| one.text("/type") == "Ready");
    let mut status = match ready.map(|one| one.text("/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.at("/spec/unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let all = node.strings("/metadata/labels");
    let roles: Vec<&str> = all
        .keys()
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let found = node
            .list("/status/addresses")
            .iter()
            .find(|one| one.text("/type") == kind);
        found
            .map_or("<none>", |one| one.text("/address"))
            .to_owned()
    };
    let version =
        |field: &str| scalar_or(node.at(&format!("/status/nodeInfo/{field}")), "<unknown>");
    vec![
        json!(status),
        json!(none_if_empty(roles.join(","))),
        age(node, clock),
        json!(node.text("/status/nodeInfo/kubeletVersion")),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(version("osImage")),
        json!(version("kernelVersion")),
        json!(version("containerRuntimeVersion")),
    ]
}

fn endpoint_list(endpoints: &Value) -> String {
    let mut all = Vec::new();
    for subset in endpoints.list("/subsets") {
        for address in subset.list("/addresses") {
            for port in subset.list("/ports") {
                all.push(format!(
                    "{}:{}",
                    address.text("/ip"),
                    port.number("/port").unwrap_or(0)
                ));
            }
        }
    }
    shorten(&all, 3)
}

fn slice_cells(slice: &Value, clock: Clock) -> Vec<Value> {
    let ports: Vec<String> = slice
        .list("/ports")
        .iter()
        .map(|port| scalar_or(port.at("/port"), "*"))
        .collect();
    let addresses: Vec<String> = slice
        .list("/endpoints")
        .iter()
        .flat_map(|one| one.list("/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let unset = |list: &[String]| {
        if list.is_empty() {
            "<unset>".to_owned()
        } else {
            shorten(list, 3)
        }
    };
    vec![
        slice.at("/addressType").clone(),
        json!(unset(&ports)),
        json!(unset(&addresses)),
        age(slice, clock),
    ]
}

fn binding_cells(binding: &Value, clock: Clock) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = binding
            .list("/subjects")
            .iter()
            .filter(|one| one.text("/kind") == kind);
        let names = of_kind.map(|one| {
            if kind == "ServiceAccount" {
                format!("{}/{}", one.text("/namespace"), one.text("/name"))
            } else {
                one.text("/name").to_owned()
            }
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    let role = format!(
        "{}/{}",
        binding.text("/roleRef/kind"),
        binding.text("/roleRef/name")
    );
    vec![
        json!(role),
        age(binding, clock),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn metric_targets(autoscaler: &Value) -> String {
    let all: Vec<String> = autoscaler
        .list("/spec/metrics")
        .iter()
        .map(|metric| {
            let kind = metric.text("/type");
            let at = format!(
                "/{}{}",
                kind.get(..1).unwrap_or_default().to_lowercase(),
                kind.get(1..).unwrap_or_default()
            );
            let name = metric.text(&format!("{at}/name"));
            let target = match metric.number(&format!("{at}/target/averageUtilization")) {
                Some(percent) => format!("<unknown>/{percent}%"),
                None => format!(
                    "<unknown>/{}",
                    scalar_or(
                        metric.at(&format!("{at}/target/averageValue")),
                        metric.text(&format!("{at}/target/value"))
                    )
                ),
            };
            if kind == "Resource" {
                format!("{name}: {target}")
            } else {
                target
            }
        })
        .collect();
    none_if_empty(shorten(&all, 2))
}

pub(super) fn event_cells(event: &Value, clock: Clock) -> Vec<Value> {
    let first_of = |fields: &[&str]| {
        fields
            .iter()
            .map(|field| event.text(field))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let last = first_of(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]);
    let first = first_of(&["/firstTimestamp", "/eventTime"]);
    let source = first_of(&["/source/component", "/reportingComponent"]);
    let host = event.text("/source/host");
    let count = event
        .number("/series/count")
        .or(event.number("/count"))
        .unwrap_or(1);
    vec![
        json!(since(&last, clock)),
        event.at("/type").clone(),
        event.at("/reason").clone(),
        json!(format!(
            "{}/{}",
            event.text("/involvedObject/kind").to_lowercase(),
            event.text("/involvedObject/name")
        )),
        json!(event.text("/involvedObject/fieldPath")),
        json!(if host.is_empty() {
            source
        } else {
            format!("{source}, {host}")
        }),
        json!(event.text("/message").trim()),
        json!(since(&first, clock)),
        json!(count),
        event.at("/metadata/name").clone(),
    ]
}

fn shorten(all: &[String], keep: usize) -> String {
    match all.len() {
        0 => "<none>".to_owned(),
        more if more > keep => format!(
            "{} + {} more...",
            all.get(..keep).unwrap_or_default().join(","),
            more - keep
        ),
        _ => all.join(","),
    }
}

fn labels(map: &Value) -> String {
    none_if_empty(
        map.strings("")
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join(","),
    )
}

fn scalar_or(value: &Value, otherwise: &str) -> String {
    match value {
        Value::Null => otherwise.to_owned(),
        Value::String(text) if text.is_empty() => otherwise.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn none_if_empty(text: String) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}

pub(super) fn age(object: &Value, clock: Clock) -> Value {
    json!(since(object.text("/metadata/creationTimestamp"), clock))
}

pub(super) fn since(time: &str, clock: Clock) -> String {
    match time.parse::<Timestamp>() {
        Ok(at) => human(clock.now().as_second() - at.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Kubernetes' short durations: `59s`, `3m5s`, `17m`, `5h2m`, `30h`, `5d3h`, `20d`.
fn human(seconds: i64) -> String {
    let pair = |whole: i64, unit: &str, part: i64, small: &str| {
        if part == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{part}{small}")
        }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1..=0 => "0s".to_owned(),
        1..=119 => format!("{seconds}s"),
        120..=599 => pair(minutes, "m", seconds % 60, "s"),
        600..=10_799 => format!("{minutes}m"),
        10_800..=28_799 => pair(hours, "h", minutes % 60, "m"),
        28_800..=172_799 => format!("{hours}h"),
        172_800..=691_199 => pair(days, "d", hours % 24, "h"),
        691_200..=63_071_999 => format!("{days}d"),
        _ => pair(days / 365, "y", days % 365, "d"),
    }
}
