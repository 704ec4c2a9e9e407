//! The pods of a service that is being woken: they show their readiness a second before the slices do.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use elasti_core::backends::{Backend, check_address};
use elasti_core::facts::{PodFacts, named_ports};
use elasti_core::probe_ahead::{Candidate, candidate};
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;

use crate::follow::{Change, Kept};
use crate::routes::BackendFilter;

/// The pods of one service, with what its Service says about ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartingPods {
    /// `appProtocol` by port name.
    pub(crate) protocols: HashMap<String, String>,
    ports: Vec<ServicePort>,
    pods: HashMap<String, PodView>,
    /// The [`Probed::generation`]s that have just passed here.
    passed: HashSet<u64>,
    last_generation: u64,
}

/// A pod that may be probed ahead of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// One time of being unready: of one pod and one run of its containers, until it is ready or may not be probed. What
    /// has passed in it says nothing about the next one.
    pub(crate) generation: u64,
    pub(crate) address: IpAddr,
    pub(crate) candidate: Candidate,
}

/// A pod as it was last read.
#[derive(Clone, Debug)]
pub(crate) struct SeenPod {
    name: String,
    view: PodView,
}

impl Kept for SeenPod {
    type Object = Pod;

    fn from_object(pod: Pod) -> Self {
        Self {
            name: pod.name_any(),
            view: PodView::from_pod(&pod),
        }
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
    generation: u64,
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
            passed: HashSet::new(),
            last_generation: 0,
        }
    }

    pub(crate) fn apply(&mut self, change: Change<SeenPod>) {
        match change {
            Change::All(pods) => {
                let mut before = std::mem::take(&mut self.pods);
                for pod in pods {
                    let before = before.remove(&pod.name);
                    self.set(pod, before);
                }
            }
            Change::Set(pod) => {
                let before = self.pods.remove(&pod.name);
                self.set(pod, before);
            }
            Change::Deleted(pod) => drop(self.pods.remove(&pod.name)),
        }
        let known: HashSet<u64> = self.pods.values().map(|pod| pod.generation).collect();
        self.passed.retain(|passed| known.contains(passed));
    }

    fn set(&mut self, SeenPod { name, mut view }: SeenPod, before: Option<PodView>) {
        let before = before.filter(|before| view.waits_on(before));
        view.generation = before.map_or_else(
            || {
                self.last_generation += 1;
                self.last_generation
            },
            |before| before.generation,
        );
        self.pods.insert(name, view);
    }

    /// The pods to probe, at most so many: those that have passed, which must be asked again, and then always the same
    /// ones first.
    pub(crate) fn to_probe(&self, most: usize) -> Vec<Probed> {
        let all = self.pods.iter().filter_map(|(name, pod)| {
            let one = Probed {
                generation: pod.generation,
                address: *pod.addresses.first()?,
                candidate: pod.candidate.clone()?,
            };
            Some(((!self.is_probed(pod), name), one))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().take(most).map(|(_, one)| one).collect()
    }

    /// The probes of a pod pass, or do not any more.
    pub(crate) fn set_passed(&mut self, pod: &Probed, passes: bool) {
        match passes {
            true => drop(self.passed.insert(pod.generation)),
            false => drop(self.passed.remove(&pod.generation)),
        }
    }

    /// Whether its probes have passed since it was last ready, and nothing else keeps it from being ready.
    fn is_probed(&self, pod: &PodView) -> bool {
        pod.candidate.is_some() && self.passed.contains(&pod.generation)
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
            generation: 0,
        }
    }

    /// The same run of the same pod was not ready before either.
    fn waits_on(&self, before: &Self) -> bool {
        let run = |pod: &Self| Some(pod.candidate.as_ref()?.run.clone());
        self.uid == before.uid && run(self).is_some() && run(self) == run(before)
    }

    fn port_number(&self, port: &ServicePort) -> Option<u16> {
        let number = match &port.target_port {
            None | Some(IntOrString::Int(0)) => u16::try_from(port.port).ok(),
            Some(IntOrString::Int(number)) => u16::try_from(*number).ok(),
            Some(IntOrString::String(name)) => self.ports.get(name).copied(),
        };
        number.filter(|number| *number != 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready: bool) -> SeenPod {
        let ready = if ready { "True" } else { "False" };
        let running = json!({"name": "app", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        let object = json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"containers": [{"name": "app", "readinessProbe": {"tcpSocket": {"port": 80}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [running],
                "conditions": [{"type": "Ready", "status": ready}]},
        });
        SeenPod::from_object(serde_json::from_value(object).unwrap())
    }

    fn is_probed(pods: &StartingPods, name: &str) -> bool {
        pods.is_probed(&pods.pods[name])
    }

    #[test]
    fn what_a_pod_passed_before_it_was_ready_or_listed_anew_without_it_counts_no_more() {
        let mut pods = StartingPods::default();
        pods.apply(Change::Set(pod("a", false)));
        let first = pods.to_probe(4).remove(0);
        pods.set_passed(&first, true);
        pods.apply(Change::Set(pod("a", false)));
        pods.apply(Change::All(vec![pod("a", false), pod("b", false)]));
        assert!(is_probed(&pods, "a") && !is_probed(&pods, "b"));
        pods.apply(Change::Set(pod("a", true)));
        pods.apply(Change::Set(pod("a", false)));
        assert!(!is_probed(&pods, "a"), "no probe of this time has passed");
        let second = pods.to_probe(1).remove(0);
        assert_ne!(first.generation, second.generation);
        pods.set_passed(&second, true);
        pods.set_passed(&first, false);
        assert!(is_probed(&pods, "a"), "the end of an old one says nothing");
        pods.apply(Change::All(vec![]));
        pods.apply(Change::Set(pod("a", false)));
        assert!(!is_probed(&pods, "a"));
        assert_eq!(pods.passed.len(), 0);
    }

    #[test]
    fn a_pod_that_has_passed_is_probed_on_whatever_the_names_of_others() {
        let mut pods = StartingPods::default();
        pods.apply(Change::All(vec![pod("d", false), pod("e", false)]));
        let last = pods.to_probe(2).remove(1);
        pods.set_passed(&last, true);
        for name in ["a", "b", "c"] {
            pods.apply(Change::Set(pod(name, false)));
        }
        let probed = pods.to_probe(2);
        assert_eq!(probed[0], last);
        assert_eq!(probed[1].generation, pods.pods["a"].generation);
        pods.set_passed(&last, false);
        assert!(!pods.to_probe(4).contains(&last));
    }
}
