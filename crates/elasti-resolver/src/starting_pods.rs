//! The pods of a service that is being woken: they show their readiness a second before the slices do.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use elasti_core::backends::{Backend, check_address};
use elasti_core::facts::{PodFacts, named_ports};
use elasti_core::probe_ahead::{Candidate, candidate};
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
    /// By uid of the pod, the run of its containers whose probes have just passed here.
    passed: HashMap<String, String>,
}

/// A pod that may be probed ahead of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) uid: String,
    pub(crate) address: IpAddr,
    pub(crate) candidate: Candidate,
}

impl Probed {
    /// The same run of the same pod.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.candidate.run == other.candidate.run
    }
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
    candidate: Option<Candidate>,
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
            passed: HashMap::new(),
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

    /// The pods to probe, at most so many, always the same ones first.
    pub(crate) fn to_probe(&self, most: usize) -> Vec<Probed> {
        let all = self.pods.iter().filter_map(|(name, pod)| {
            let one = Probed {
                uid: pod.uid.clone(),
                address: *pod.addresses.first()?,
                candidate: pod.candidate.clone()?,
            };
            Some((name, one))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(name, _)| *name);
        all.into_iter().take(most).map(|(_, one)| one).collect()
    }

    /// The probes of this run of a pod pass, or do not any more.
    pub(crate) fn set_passed(&mut self, pod: &Probed, passes: bool) {
        match passes {
            true => drop(
                self.passed
                    .insert(pod.uid.clone(), pod.candidate.run.clone()),
            ),
            false => drop(self.passed.remove(&pod.uid)),
        }
    }

    /// Whether its probes have passed: of the run that goes on, and while nothing else keeps it from being ready.
    fn is_probed(&self, pod: &PodView) -> bool {
        let passed = self.passed.get(&pod.uid);
        let run = pod.candidate.as_ref().map(|one| &one.run);
        passed.is_some() && passed == run
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
                    probed: self.is_probed(pod),
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
        let mut ports = HashMap::new();
        for (name, number) in named_ports(pod) {
            // The first of a name counts, as for the endpoint-slice controller.
            ports.entry(name.to_owned()).or_insert(number);
        }
        Self {
            uid: pod.uid().unwrap_or_default(),
            addresses,
            ports,
            ready,
            terminating,
            marked,
            sick: !containers_ready,
            candidate: candidate(pod),
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
