//! What the table needs of an EndpointSlice, parsed once when it is read; the rest of the object is dropped.
//! Apart from `facts::SliceFacts`, which drops what only forwarding needs (addresses, `appProtocol`) to spare memory.

use elasti_api::names;
use elasti_core::backends::{SliceEndpoint, TargetRef};
use elasti_core::ports::ServiceKey;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;

use crate::follow::Kept;

/// Names and UIDs of objects are shorter; the API server does not check those that a slice refers to.
const MAX_NAME_BYTES: usize = 253;

/// One slice, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct NamedSlice {
    /// The Service that it belongs to.
    pub(crate) service: ServiceKey,
    pub(crate) name: String,
    pub(crate) view: SliceView,
}

impl Kept for NamedSlice {
    type Object = EndpointSlice;

    fn from_object(object: EndpointSlice) -> Self {
        let service = object.labels().get(names::SERVICE_NAME_LABEL);
        let service = service.cloned().unwrap_or_default();
        Self {
            service: ServiceKey::new(object.namespace().unwrap_or_default(), service),
            name: object.name_any(),
            view: SliceView::from_slice(&object),
        }
    }
}

/// What a slice says.
#[derive(Clone, Debug)]
pub(crate) struct SliceView {
    pub(crate) ports: Vec<SlicePort>,
    /// Without port: each of the slice's ports goes with each of its addresses.
    pub(crate) endpoints: Vec<SliceEndpoint>,
}

/// One port of a slice.
#[derive(Clone, Debug)]
pub(crate) struct SlicePort {
    pub(crate) name: String,
    pub(crate) number: Option<u16>,
    pub(crate) app_protocol: Option<String>,
}

impl SliceView {
    fn from_slice(slice: &EndpointSlice) -> Self {
        let namespace = slice.namespace().unwrap_or_default();
        let managed_by = slice
            .labels()
            .get(names::SLICE_MANAGED_BY_LABEL)
            .cloned()
            .unwrap_or_default();
        let ports = slice.ports.iter().flatten().map(|port| SlicePort {
            name: port.name.clone().unwrap_or_default(),
            number: port.port.and_then(|number| u16::try_from(number).ok()),
            app_protocol: port.app_protocol.clone(),
        });
        let endpoints = slice
            .endpoints
            .iter()
            .flat_map(|endpoint| addresses(endpoint, &namespace, &managed_by));
        Self {
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        }
    }
}

fn addresses<'a>(
    endpoint: &'a Endpoint,
    namespace: &'a str,
    managed_by: &'a str,
) -> impl Iterator<Item = SliceEndpoint> + 'a {
    let target = endpoint.target_ref.as_ref().map(|target| TargetRef {
        kind: name(target.kind.as_ref()),
        namespace: name(target.namespace.as_ref()),
        name: name(target.name.as_ref()),
        uid: name(target.uid.as_ref()),
    });
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    endpoint.addresses.iter().map(move |address| SliceEndpoint {
        namespace: namespace.to_owned(),
        managed_by: managed_by.to_owned(),
        target: target.clone(),
        address: address.clone(),
        port: None,
        ready: conditions.ready,
        terminating: conditions.terminating,
    })
}

/// Empty if it is none.
fn name(text: Option<&String>) -> String {
    let short = text.filter(|text| text.len() <= MAX_NAME_BYTES);
    short.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_slice_only_what_the_table_needs_is_kept() {
        let too_long = "UNUSED".repeat(100);
        let object = json!({
            "metadata": {
                "name": "cart-1", "namespace": "shop",
                "annotations": {"a": "UNUSED"},
                "labels": {names::SERVICE_NAME_LABEL: "cart", "b": "UNUSED"},
                "managedFields": [{"manager": "UNUSED"}],
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "appProtocol": "h2c"}],
            "endpoints": [{
                "addresses": ["10.0.0.7"],
                "conditions": {"ready": true},
                "hostname": "UNUSED",
                "nodeName": "UNUSED",
                "deprecatedTopology": {"c": "UNUSED"},
                "targetRef": {"kind": "Pod", "name": "cart-x", "uid": too_long, "fieldPath": "UNUSED"},
            }],
        });
        let kept = NamedSlice::from_object(serde_json::from_value(object).unwrap());
        let text = format!("{kept:?}");
        assert!(!text.contains("UNUSED"), "{text}");
        assert_eq!(kept.service, ServiceKey::new("shop", "cart"));
        assert_eq!((kept.name.as_str(), kept.view.ports.len()), ("cart-1", 1));
        let target = kept.view.endpoints[0].target.clone().unwrap();
        assert_eq!((target.name.as_str(), target.uid.as_str()), ("cart-x", ""));
    }
}
