//! EndpointSlices of Services with a selector, as upstream writes them, with an adjustable lag.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Lags;
use super::engine::{Change, Controller, ControllerClient, Kind, only_uid};
use super::workload::{has_ended, is_going, is_ready};
use crate::api_server::object::Object as _;
use crate::api_server::selector::Selector;
use crate::api_server::status::ApiError;
use crate::api_server::store::Key;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Upstream's default size of a slice.
const ENDPOINTS_A_SLICE: usize = 100;

#[derive(Debug)]
pub(crate) struct EndpointSlices {
    lags: Lags,
}

impl EndpointSlices {
    pub(crate) fn new(lags: Lags) -> Self {
        Self { lags }
    }
}

impl Controller for EndpointSlices {
    const COMPONENT: &'static str = "endpointslice-controller";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::SERVICES, Kind::PODS, Kind::ENDPOINT_SLICES]
    }

    fn keys(&mut self, client: &ControllerClient, change: &Change) -> Vec<Key> {
        let object = &change.object.value;
        let namespace = object.text("/metadata/namespace");
        if change.group_resource == Kind::SERVICES.group_resource() {
            return vec![Key::from_object(object)];
        }
        if change.group_resource == Kind::ENDPOINT_SLICES.group_resource() {
            let labels = object.strings("/metadata/labels");
            let ours = labels
                .get(MANAGED_BY)
                .is_some_and(|manager| manager == MANAGER);
            return labels
                .get(SERVICE_NAME)
                .filter(|_| ours)
                .map(|name| Key::new(namespace, name))
                .into_iter()
                .collect();
        }
        let selects = |pod: &Value, service: &Value| {
            service.at("/spec/selector").is_object()
                && Selector::equalities(service.at("/spec/selector")).matches(pod)
        };
        let versions: Vec<&Value> = change
            .previous
            .iter()
            .map(|previous| &previous.value)
            .chain([object])
            .collect();
        let services = client.list(Kind::SERVICES, Some(namespace)).into_iter();
        services
            .filter(|service| versions.iter().any(|pod| selects(pod, &service.value)))
            .map(|service| Key::from_object(&service.value))
            .collect()
    }

    fn lag(&self) -> Duration {
        self.lags.endpoint_slices()
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let service = client
            .get(Kind::SERVICES, key)
            .filter(|service| !is_going(&service.value));
        let desired = service
            .as_ref()
            .map(|service| desired(client, &service.value))
            .unwrap_or_default();
        let slices = client
            .list(Kind::ENDPOINT_SLICES, Some(&key.namespace))
            .into_iter();
        let ours = |slice: &Value| {
            let labels = slice.strings("/metadata/labels");
            labels.get(SERVICE_NAME) == Some(&key.name)
                && labels
                    .get(MANAGED_BY)
                    .is_some_and(|manager| manager == MANAGER)
        };
        let mut known: Vec<Value> = slices
            .map(|slice| slice.value.clone())
            .filter(ours)
            .collect();
        for slice in desired {
            // A slice with the same ports keeps its name.
            let same = known
                .iter()
                .position(|old| old.list("/ports") == slice.list("/ports") && !is_going(old));
            match same.map(|at| known.remove(at)).or_else(|| known.pop()) {
                None => drop(client.create(Kind::ENDPOINT_SLICES, &key.namespace, &slice)?),
                Some(old) => update(client, &old, &slice)?,
            }
        }
        for old in known {
            client.delete(
                Kind::ENDPOINT_SLICES,
                &Key::from_object(&old),
                &only_uid(old.text("/metadata/uid")),
            )?;
        }
        Ok(None)
    }
}

fn update(client: &ControllerClient, old: &Value, desired: &Value) -> Result<(), ApiError> {
    let lists = ["/endpoints", "/ports"]
        .iter()
        .all(|list| old.list(list) == desired.list(list));
    let same = lists && old.at("/metadata/labels") == desired.at("/metadata/labels");
    if same {
        return Ok(());
    }
    let mut next = old.clone();
    for part in [
        "/endpoints",
        "/ports",
        "/metadata/labels",
        "/metadata/annotations",
    ] {
        next.put(part, desired.at(part).clone());
    }
    client.update(Kind::ENDPOINT_SLICES, &Key::from_object(old), &next)?;
    Ok(())
}

/// The slices that a Service should have: at least one, empty if no pod is selected.
fn desired(client: &ControllerClient, service: &Value) -> Vec<Value> {
    let selector = service.at("/spec/selector");
    if !selector.is_object() || service.text("/spec/type") == "ExternalName" {
        return Vec::new();
    }
    let chosen = Selector::equalities(selector);
    let pods = client
        .list(Kind::PODS, Some(service.text("/metadata/namespace")))
        .into_iter();
    let mut by_ports: BTreeMap<String, (Value, Vec<Value>)> = BTreeMap::new();
    for pod in pods.filter(|pod| {
        chosen.matches(&pod.value)
            && !has_ended(&pod.value)
            && !pod.value.text("/status/podIP").is_empty()
    }) {
        let ports = ports(service, &pod.value);
        by_ports
            .entry(ports.to_string())
            .or_insert_with(|| (ports, Vec::new()))
            .1
            .push(endpoint(client, service, &pod.value));
    }
    if by_ports.is_empty() {
        // Upstream's placeholder has no ports.
        return vec![slice(client, service, &json!([]), &[])];
    }
    by_ports
        .values()
        .flat_map(|(ports, endpoints)| {
            endpoints
                .chunks(ENDPOINTS_A_SLICE)
                .map(|some| slice(client, service, ports, some))
        })
        .collect()
}

fn slice(client: &ControllerClient, service: &Value, ports: &Value, endpoints: &[Value]) -> Value {
    let name = service.text("/metadata/name");
    let mut labels = json!(service.strings("/metadata/labels"));
    labels.put("/kubernetes.io~1service-name", name);
    labels.put("/endpointslice.kubernetes.io~1managed-by", MANAGER);
    if service.text("/spec/clusterIP") == "None" {
        labels.put("/service.kubernetes.io~1headless", "");
    }
    json!({
        "metadata": {
            "generateName": format!("{name}-"), "labels": labels,
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": client.timestamp()},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": name, "uid": service.text("/metadata/uid"),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    })
}

fn endpoint(client: &ControllerClient, service: &Value, pod: &Value) -> Value {
    let (serving, terminating) = (is_ready(pod), is_going(pod));
    let published = service.at("/spec/publishNotReadyAddresses") == true;
    let ready = published || (serving && !terminating);
    let mut endpoint = json!({
        "addresses": [pod.text("/status/podIP")],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod", "name": pod.text("/metadata/name"), "namespace": pod.text("/metadata/namespace"), "uid": pod.text("/metadata/uid"),
        },
    });
    let node = pod.text("/spec/nodeName");
    if !node.is_empty() {
        endpoint.put("/nodeName", node);
    }
    if let Some(node) = client.get(Kind::NODES, &Key::new("", node)) {
        let labels = node.value.strings("/metadata/labels");
        if let Some(zone) = labels.get("topology.kubernetes.io/zone") {
            endpoint.put("/zone", zone.as_str());
        }
    }
    endpoint
}

/// Init containers that go on running.
pub(crate) fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    let init = pod.list("/spec/initContainers").iter();
    init.filter(|one| one.text("/restartPolicy") == "Always")
}

/// The Service's ports as this pod serves them; a named port that the pod lacks is left out.
fn ports(service: &Value, pod: &Value) -> Value {
    let resolve = |target: &Value, protocol: &str| match target.as_str() {
        None => target.as_i64(),
        Some(name) => {
            let containers = pod.list("/spec/containers").iter();
            let all = containers
                .chain(sidecars(pod))
                .flat_map(|container| container.list("/ports"));
            all.filter(|port| port.text("/protocol") == protocol)
                .find(|port| port.text("/name") == name)
                .and_then(|port| port.number("/containerPort"))
        }
    };
    let mut all = Vec::new();
    for port in service.list("/spec/ports") {
        let Some(number) = resolve(port.at("/targetPort"), port.text("/protocol")) else {
            continue;
        };
        let mut entry =
            json!({"name": port.text("/name"), "port": number, "protocol": port.text("/protocol")});
        if !port.text("/appProtocol").is_empty() {
            entry.put("/appProtocol", port.text("/appProtocol"));
        }
        all.push(entry);
    }
    json!(all)
}
