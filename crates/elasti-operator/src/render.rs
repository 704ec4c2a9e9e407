//! Each step as the object or patch that carries it out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use elasti_api::names::{self, IpFamily};
use elasti_core::observed::{Family, PrivateServiceShape, ServicePort, SliceRole, SliceShape};
use elasti_core::step::{CostChange, PodRef};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::name::Name;
use crate::slim::Declared;

/// As many endpoints as Kubernetes itself puts into one slice.
const ENDPOINTS_PER_SLICE: usize = 100;
/// The longest value of a label.
const MAX_LABEL_BYTES: usize = 63;

/// An object of ours, and its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rendered {
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// The private Service: the public one's selector and ports, a cluster IP, and nothing else. KubeElasti's resolver dials
/// that IP after a rollback, and the API server lets no Service that has one become headless.
pub(crate) fn private_service(
    me: &Declared,
    service: &str,
    shape: &PrivateServiceShape,
) -> Rendered {
    let PrivateServiceShape {
        selector,
        ports,
        families,
    } = shape;
    let name = names::private_service(service);
    let mut spec = json!({
        "type": "ClusterIP",
        "selector": selector.to_map(),
        "ports": ports.iter().map(service_port).collect::<Vec<_>>(),
    });
    // With both families the cluster chooses which comes first, as it did for the public Service.
    let policy = match families.len() {
        0 | 1 => "SingleStack",
        _ => "PreferDualStack",
    };
    set(&mut spec, "ipFamilyPolicy", json!(policy));
    if families.len() == 1 {
        let family: Vec<&str> = families
            .iter()
            .map(|f| ip_family(*f).address_type())
            .collect();
        set(&mut spec, "ipFamilies", json!(family));
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
        set(&mut rendered, "name", json!(name));
    }
    if let Some(protocol) = app_protocol {
        set(&mut rendered, "appProtocol", json!(protocol));
    }
    rendered
}

/// The slices that point the Service at the resolvers: one for each family and each hundred addresses.
pub(crate) fn slices(me: &Declared, service: &str, shapes: &[SliceShape]) -> Vec<Rendered> {
    let mut rendered = Vec::new();
    for shape in shapes {
        let SliceShape {
            family,
            role,
            ports,
            endpoints,
        } = shape;
        let endpoints: Vec<_> = endpoints.iter().collect();
        for (index, some) in endpoints.chunks(ENDPOINTS_PER_SLICE).enumerate() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let name = names::resolver_slice(service, ip_family(*family), index);
            let ports: Vec<Value> = ports
                .iter()
                .map(|p| json!({"name": p.name, "port": p.listen_port, "protocol": "TCP"}))
                .collect();
            let endpoints: Vec<Value> = some
                .iter()
                .map(|(address, node)| endpoint(**address, node, *role))
                .collect();
            let labels = BTreeMap::from([
                (names::SERVICE_NAME_LABEL, service.to_owned()),
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

/// One resolver. A node uses an endpoint that is serving and terminating exactly while the Service has no ready one.
fn endpoint(address: IpAddr, node: &str, role: SliceRole) -> Value {
    let conditions = match role {
        SliceRole::Redirect => json!({"ready": true, "serving": true, "terminating": false}),
        SliceRole::Net => json!({"ready": false, "serving": true, "terminating": true}),
    };
    let mut endpoint = json!({"addresses": [address], "conditions": conditions});
    if !node.is_empty() {
        set(&mut endpoint, "nodeName", json!(node));
    }
    endpoint
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
    let cut: String = name.chars().take(MAX_LABEL_BYTES).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// Takes a pod out of rotation while it still answers, if it is as it was observed.
pub(crate) fn mark(pod: &PodRef, now: Timestamp) -> Value {
    json!({
        "metadata": pod_metadata(pod),
        "status": {"conditions": [{
            "type": "Ready",
            "status": "False",
            "reason": names::DRAIN_REASON,
            "message": "Elasti takes the pod out of rotation before it puts the service to sleep.",
            "lastTransitionTime": whole_seconds(now),
        }]},
    })
}

/// Puts a pod that we took out back into rotation, if it is as it was observed.
pub(crate) fn unmark(pod: &PodRef, now: Timestamp) -> Value {
    json!({
        "metadata": pod_metadata(pod),
        "status": {"conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": null,
            "message": null,
            "lastTransitionTime": whole_seconds(now),
        }]},
    })
}

/// Gives a pod back the deletion cost that it had, if it is as it was observed.
pub(crate) fn reset_cost(pod: &PodRef, _: Timestamp) -> Value {
    json!({"metadata": pod_metadata(pod)})
}

fn pod_metadata(pod: &PodRef) -> Value {
    let mut metadata = json!({"resourceVersion": pod.version});
    let cost = match pod.cost {
        CostChange::Keep => return metadata,
        CostChange::Lower => json!(names::LOWEST_DELETION_COST),
        CostChange::Remove => Value::Null,
    };
    let annotations = json!({names::DELETION_COST_ANNOTATION: cost});
    set(&mut metadata, "annotations", annotations);
    metadata
}

/// The finalizers with ours, or without, if the object has not been written in between.
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

/// The whole status; fields that it no longer has are set to null.
pub(crate) fn status(version: &str, before: &Value, next: &Value) -> Value {
    let mut status = next.clone();
    null_missing(before, &mut status);
    json!({"metadata": {"resourceVersion": version}, "status": status})
}

/// A merge patch does not change what it does not name, at every depth.
fn null_missing(before: &Value, next: &mut Value) {
    for (key, was) in before.as_object().into_iter().flatten() {
        match next.get_mut(key) {
            Some(is) => null_missing(was, is),
            None => set(next, key, Value::Null),
        }
    }
}

/// In whole seconds, as Kubernetes keeps it.
fn whole_seconds(moment: Timestamp) -> String {
    let whole = Timestamp::from_second(moment.as_second()).unwrap_or(moment);
    whole.to_string()
}

fn set(object: &mut Value, key: &str, value: Value) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use std::net::{Ipv4Addr, Ipv6Addr};

    use elasti_api::ListenPort;

    use super::*;
    use crate::slim::{FromObject as _, SliceView};

    #[test]
    fn fields_that_a_status_no_longer_has_are_nulled_at_every_depth() {
        let before =
            json!({"held": 1, "lastWake": {"by": "Traffic", "readyAt": "x"}, "ports": [{"a": 1}]});
        let next = json!({"lastWake": {"by": "Manual"}, "ports": [{}]});
        let patch = status("7", &before, &next);
        assert_eq!(
            patch["status"],
            json!({"held": null, "lastWake": {"by": "Manual", "readyAt": null}, "ports": [{}]})
        );
    }

    fn me() -> Declared {
        Declared::from_object(json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "finalizers": ["other"]},
            "spec": {
                "service": "cart", "triggers": [],
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"},
            },
        }))
        .unwrap()
    }

    fn shape(family: Family, addresses: impl Iterator<Item = IpAddr>) -> SliceShape {
        SliceShape {
            family,
            ports: vec![ListenPort {
                name: "http".into(),
                port: 80,
                listen_port: 20_001,
            }],
            role: SliceRole::Net,
            endpoints: addresses.map(|a| (a, "node-1".to_owned())).collect(),
        }
    }

    #[test]
    fn many_resolvers_are_split_into_slices_of_a_hundred_and_families_are_kept_apart() {
        let v4 = (0..=249_u8).map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let v6 = (1..=3_u16).map(|n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)));
        let shapes = [shape(Family::V4, v4), shape(Family::V6, v6)];
        let rendered = slices(&me(), "cart", &shapes);
        let sizes: Vec<usize> = rendered
            .iter()
            .map(|r| r.object["endpoints"].as_array().unwrap().len())
            .collect();
        assert_eq!(sizes, [100, 100, 50, 3]);
        let names: std::collections::BTreeSet<&str> =
            rendered.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names.len(), 4);
        for one in rendered {
            let family = one.object["addressType"].as_str().unwrap().to_owned();
            let read = SliceView::from_object(one.object).unwrap();
            assert!(read.facts.by_elasti && !read.facts.by_kubernetes);
            assert_eq!(read.facts.owner.as_deref(), Some("u1"));
            assert_eq!(read.service, Some(Name::new("shop", "cart")));
            assert_eq!(read.facts.ports, [("http".to_owned(), 20_001)]);
            let same = |a: &IpAddr| a.is_ipv4() == (family == "IPv4");
            let addresses = &read.facts.addresses;
            assert!(addresses.iter().all(|(address, _)| same(address)));
            assert!(addresses.iter().all(|(_, node)| **node == *"node-1"));
            assert_eq!(read.facts.role, SliceRole::Net);
        }
    }

    #[test]
    fn the_private_service_read_back_has_the_shape_that_was_rendered() {
        let port = |name: &str, tcp: bool, target: &str| ServicePort {
            name: name.into(),
            port: 80,
            target_port: target.into(),
            tcp,
            app_protocol: tcp.then(|| "kubernetes.io/h2c".into()),
        };
        let shape = PrivateServiceShape {
            selector: [("app", "cart")].into(),
            ports: vec![port("http", true, "web"), port("dns", false, "53")],
            families: [Family::V6].into(),
        };
        let rendered = private_service(&me(), "cart", &shape);
        assert_eq!(rendered.name, names::private_service("cart"));
        let read = crate::slim::ServiceView::from_object(rendered.object).unwrap();
        let read = read.facts;
        assert!(read.plain);
        assert_eq!(read.owner.as_deref(), Some("u1"));
        assert_eq!(read.service.selector, shape.selector);
        assert_eq!(read.service.ports, shape.ports);
        assert_eq!(read.service.families, shape.families);
    }

    #[test]
    fn our_finalizer_comes_and_goes_beside_those_of_others() {
        let mut me = me();
        let with = finalizers(&me, true);
        assert_eq!(
            with["metadata"]["finalizers"],
            json!(["other", names::FINALIZER])
        );
        me.finalizers.push(names::FINALIZER.into());
        let without = finalizers(&me, false);
        assert_eq!(without["metadata"]["finalizers"], json!(["other"]));
        assert_eq!(without["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn a_field_that_a_status_no_longer_has_is_nulled() {
        let patch = status(
            "7",
            &json!({"mode": "proxy", "quietSince": "x"}),
            &json!({"mode": "serve"}),
        );
        assert_eq!(
            patch["status"],
            json!({"mode": "serve", "quietSince": null})
        );
    }

    #[test]
    fn a_long_name_still_is_a_label() {
        assert_eq!(label_value(&"a".repeat(80)).len(), 63);
        assert_eq!(
            label_value(&format!("{}-{}", "a".repeat(62), "b")),
            "a".repeat(62)
        );
    }
}
