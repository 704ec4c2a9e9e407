//! What the table needs of an EndpointSlice, parsed once when it arrives.
//! Apart from `facts::SliceFacts`, which drops what only forwarding needs (addresses, `appProtocol`) to spare memory.

use elasti_api::names;
use elasti_core::backends::{SliceEndpoint, TargetRef};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt as _;

/// One slice.
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
    pub(crate) fn from_slice(slice: &EndpointSlice) -> Self {
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
        kind: target.kind.clone().unwrap_or_default(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone().unwrap_or_default(),
        uid: target.uid.clone().unwrap_or_default(),
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
