//! The pods of a service that is being woken: they show their readiness a second before the slices do.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use elasti_core::backends::{Backend, check_address};
use elasti_core::facts::PodFacts;
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use crate::follow::Change;
use crate::routes::BackendFilter;

/// The pods of one service, with what its Service says about ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartingPods {
    /// `appProtocol` by port name.
    pub(crate) protocols: HashMap<String, String>,
    ports: Vec<ServicePort>,
    pods: HashMap<String, PodView>,
}

#[derive(Clone, Debug)]
struct PodView {
    uid: String,
    addresses: Vec<IpAddr>,
    /// Named container ports.
    ports: HashMap<String, u16>,
    ready: bool,
    terminating: bool,
    marked: bool,
    /// Its containers are not ready.
    sick: bool,
}

impl StartingPods {
    /// For a Service whose pods are not known yet.
    pub(crate) fn new(service: &Service) -> Self {
        let ports = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ports.clone())
            .unwrap_or_default();
        let protocol = |port: &ServicePort| {
            Some((
                port.name.clone().unwrap_or_default(),
                port.app_protocol.clone()?,
            ))
        };
        Self {
            protocols: ports.iter().filter_map(protocol).collect(),
            ports,
            pods: HashMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, change: Change<Pod>) {
        let entry = |pod: &Pod| (pod.name_any(), PodView::from_pod(pod));
        match change {
            Change::All(pods) => self.pods = pods.iter().map(entry).collect(),
            Change::Set(pod) => self.pods.extend([entry(&pod)]),
            Change::Deleted(pod) => drop(self.pods.remove(&pod.name_any())),
        }
    }

    pub(crate) fn contains(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// The backends of the Service's port of this name.
    pub(crate) fn backends(&self, port: &str, filter: &BackendFilter) -> Vec<Backend> {
        let named = |one: &&ServicePort| one.name.as_deref().unwrap_or_default() == port;
        let Some(port) = self.ports.iter().find(named) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (name, pod) in &self.pods {
            let Some(number) = pod.port_number(port) else {
                continue;
            };
            for address in &pod.addresses {
                let Ok(address) = check_address(*address, &filter.resolvers, filter.policy) else {
                    continue;
                };
                all.push(Backend {
                    pod: name.clone(),
                    uid: pod.uid.clone(),
                    address: SocketAddr::new(address, number),
                    ready: pod.ready,
                    terminating: pod.terminating,
                    marked: pod.marked,
                    sick: pod.sick,
                });
            }
        }
        all
    }
}

impl PodView {
    fn from_pod(pod: &Pod) -> Self {
        let PodFacts {
            addresses,
            ready,
            containers_ready,
            terminating,
            marked,
            ..
        } = PodFacts::from_object(pod);
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        Self {
            uid: pod.uid().unwrap_or_default(),
            addresses,
            ports: ports
                .filter_map(|port| {
                    Some((port.name.clone()?, u16::try_from(port.container_port).ok()?))
                })
                .collect(),
            ready,
            terminating,
            marked,
            sick: !containers_ready,
        }
    }

    fn port_number(&self, port: &ServicePort) -> Option<u16> {
        match &port.target_port {
            None => u16::try_from(port.port).ok(),
            Some(IntOrString::Int(0)) => u16::try_from(port.port).ok(),
            Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
            Some(IntOrString::String(name)) => self.ports.get(name).copied(),
        }
    }
}
