//! Each step as the object or patch that carries it out.
//! Never talks to the cluster: the same step gives the same object.

use std::collections::BTreeMap;

use elasti_api::names::{self, IpFamily};
use elasti_core::observed::{Family, PrivateServiceShape, ServicePort, SliceShape};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::name::Name;
use crate::slim::Declared;

/// As many endpoints as Kubernetes itself puts into one slice.
const ENDPOINTS_A_SLICE: usize = 100;
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// An object of ours, and its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rendered {
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// The private Service: the public one's selector and ports, a cluster IP, and nothing else.
pub(crate) fn private_service(me: &Declared, shape: &PrivateServiceShape) -> Rendered {
    let PrivateServiceShape {
        selector,
        ports,
        families,
    } = shape;
    let name = names::private_service(&me.spec.service);
    let mut spec = json!({
        "type": "ClusterIP",
        "selector": selector,
        "ports": ports.iter().map(service_port).collect::<Vec<_>>(),
    });
    // With both families the cluster chooses which comes first, as it did for the public Service.
    let policy = match families.len() {
        0 | 1 => "SingleStack",
        _ => "PreferDualStack",
    };
    put(&mut spec, "ipFamilyPolicy", json!(policy));
    if families.len() == 1 {
        let family: Vec<&str> = families
            .iter()
            .map(|f| ip_family(*f).address_type())
            .collect();
        put(&mut spec, "ipFamilies", json!(family));
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(me, &name, BTreeMap::new()),
        "spec": spec,
    });
    Rendered { name, object }
}

fn service_port(port: &ServicePort) -> Value {
    let ServicePort {
        name,
        port,
        target_port,
        tcp,
        app_protocol,
    } = port;
    let target = match target_port.parse::<u16>() {
        Ok(number) => json!(number),
        Err(_) => json!(target_port),
    };
    let protocol = if *tcp { "TCP" } else { "UDP" };
    let mut rendered = json!({"port": port, "targetPort": target, "protocol": protocol});
    if !name.is_empty() {
        put(&mut rendered, "name", json!(name));
    }
    if let Some(spoken) = app_protocol {
        put(&mut rendered, "appProtocol", json!(spoken));
    }
    rendered
}

/// The slices that point the Service at the resolvers: one for each family and each hundred addresses.
pub(crate) fn slices(me: &Declared, shapes: &[SliceShape]) -> Vec<Rendered> {
    let mut rendered = Vec::new();
    for shape in shapes {
        let SliceShape {
            family,
            ports,
            addresses,
        } = shape;
        let addresses: Vec<_> = addresses.iter().collect();
        for (index, some) in addresses.chunks(ENDPOINTS_A_SLICE).enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let name = names::resolver_slice(&me.spec.service, ip_family(*family), index);
            let ports: Vec<Value> = ports
                .iter()
                .map(|p| json!({"name": p.name, "port": p.listen_port, "protocol": "TCP"}))
                .collect();
            let ready = json!({"ready": true, "serving": true, "terminating": false});
            let endpoints: Vec<Value> = some
                .iter()
                .map(|address| json!({"addresses": [address], "conditions": ready}))
                .collect();
            let labels = BTreeMap::from([
                (names::SERVICE_NAME_LABEL, me.spec.service.clone()),
                (
                    names::SLICE_MANAGED_BY_LABEL,
                    names::SLICE_MANAGED_BY_ELASTI.to_owned(),
                ),
            ]);
            let object = json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata(me, &name, labels),
                "addressType": ip_family(*family).address_type(),
                "ports": ports,
                "endpoints": endpoints,
            });
            rendered.push(Rendered { name, object });
        }
    }
    rendered
}

fn metadata(me: &Declared, name: &str, labels: BTreeMap<&str, String>) -> Value {
    let mut all = labels;
    all.insert(names::MANAGED_BY_LABEL, names::MANAGED_BY.to_owned());
    all.insert(names::ELASTI_SERVICE_LABEL, label_value(&me.name.name));
    json!({
        "name": name,
        "namespace": &*me.name.namespace,
        "labels": all,
        "ownerReferences": [{
            "apiVersion": format!("{}/v1alpha1", names::GROUP),
            "kind": "ElastiService",
            "name": &*me.name.name,
            "uid": me.uid,
            "controller": true,
        }],
    })
}

/// A name as a label's value: an object's name may be longer than a label can be.
fn label_value(name: &str) -> String {
    let cut: String = name.chars().take(LONGEST_LABEL).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// Takes a pod out of rotation while it still answers, if it is as it was observed.
pub(crate) fn mark(version: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"resourceVersion": version},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "False",
            "reason": names::DRAIN_REASON,
            "message": "Elasti takes the pod out of rotation before it puts the service to sleep.",
            "lastTransitionTime": whole(now),
        }]},
    })
}

/// Puts a pod that we took out back into rotation, if it is as it was observed.
pub(crate) fn unmark(version: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"resourceVersion": version},
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": null,
            "message": null,
            "lastTransitionTime": whole(now),
        }]},
    })
}

/// The finalizers with ours, or without, if nobody has written in between.
pub(crate) fn finalizers(me: &Declared, ours: bool) -> Value {
    let mut all: Vec<&str> = me.finalizers.iter().map(String::as_str).collect();
    all.retain(|one| *one != names::FINALIZER);
    if ours {
        all.push(names::FINALIZER);
    }
    json!({"metadata": {"resourceVersion": me.version, "uid": me.uid, "finalizers": all}})
}

/// The scale to write, if nothing about the target has changed.
pub(crate) fn scale(target: &Name, version: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": &*target.name, "namespace": &*target.namespace, "resourceVersion": version},
        "spec": {"replicas": replicas},
    })
}

/// The whole status, where what it no longer says is taken out.
pub(crate) fn status(version: &str, before: &Value, next: &Value) -> Value {
    let mut status = next.clone();
    for key in before.as_object().into_iter().flatten().map(|(key, _)| key) {
        if next.get(key).is_none() {
            put(&mut status, key, Value::Null);
        }
    }
    json!({"metadata": {"resourceVersion": version}, "status": status})
}

/// In whole seconds, as Kubernetes keeps it.
fn whole(moment: Timestamp) -> String {
    let whole = Timestamp::from_second(moment.as_second()).unwrap_or(moment);
    whole.to_string()
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert(key.to_owned(), value);
    }
}

fn ip_family(family: Family) -> IpFamily {
    match family {
        Family::V4 => IpFamily::V4,
        Family::V6 => IpFamily::V6,
    }
}
