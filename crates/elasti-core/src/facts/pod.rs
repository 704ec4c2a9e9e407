//! Pods: the only place that reads `Ready`, `ContainersReady` and our drain mark.

use std::net::IpAddr;

use elasti_api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::obstacle::{Stall, stall};
use super::target::TargetFacts;
use crate::observed::{DeletionCost, Pod};

/// The pod condition that puts a pod into rotation.
pub(super) const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    /// The node it runs on; empty while unscheduled.
    pub node: String,
    /// `status.podIP` first, then the other `status.podIPs`.
    pub addresses: Vec<IpAddr>,
    /// Every container that the status lists runs, and it lists one.
    pub started: bool,
    /// Condition `Ready` is true.
    pub ready: bool,
    /// Since when condition `Ready` is true.
    pub ready_since: Option<Timestamp>,
    /// Condition `ContainersReady` is true, and so is each of the pod's readiness gates: without our mark it is ready.
    pub containers_ready: bool,
    /// Every condition that the spec names as a readiness gate is true.
    pub gates_open: bool,
    /// `Ready` is not true because of our mark.
    pub marked: bool,
    /// How readily a ReplicaSet stops it.
    pub deletion_cost: DeletionCost,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// It has succeeded or failed and will not run again: it counts for nothing.
    pub ended: bool,
    /// What keeps it from starting.
    pub stall: Option<Stall>,
    /// The uid of its controller; empty if it has none.
    pub controller: String,
    /// The workload whose ReplicaSet controls it: `Deployment/` or `Rollout/` and its name; `ReplicaSet/` and that one's
    /// name if it does not say whose it is.
    pub workload: Option<String>,
}

/// Which pod, in which version.
#[derive(Clone, Copy, Debug)]
pub struct PodId<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Its resource version.
    pub version: &'a str,
}

impl PodFacts {
    /// Reads a pod.
    #[must_use]
    pub fn from_object(pod: &core_v1::Pod) -> Self {
        let terminating = pod.metadata.deletion_timestamp.is_some();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let (controller, workload) = controller(&pod.metadata);
        let deletion_cost = deletion_cost(pod);
        let Some(status) = &pod.status else {
            return Self {
                node: node.unwrap_or_default(),
                deletion_cost,
                terminating,
                controller,
                workload,
                ..Self::default()
            };
        };
        let condition = |type_: &str| {
            let mut conditions = status.conditions.iter().flatten();
            conditions.find(|c| c.type_ == type_)
        };
        let holds = |type_: &str| condition(type_).is_some_and(|c| c.status == "True");
        let phase = status.phase.as_deref().unwrap_or_default();
        Self {
            node: node.unwrap_or_default(),
            addresses: addresses(status),
            started: started(status),
            ready: holds(READY),
            ready_since: condition(READY)
                .filter(|c| c.status == "True")
                .and_then(|c| c.last_transition_time.as_ref())
                .map(|at| at.0),
            containers_ready: holds(CONTAINERS_READY) && gates(pod).all(holds),
            gates_open: gates(pod).all(holds),
            marked: condition(READY).is_some_and(|c| {
                c.status != "True" && c.reason.as_deref() == Some(names::DRAIN_REASON)
            }),
            deletion_cost,
            terminating,
            ended: matches!(phase, "Succeeded" | "Failed"),
            stall: stall(pod),
            controller,
            workload,
        }
    }

    /// Its controller tells which Deployment or Rollout it belongs to.
    #[must_use]
    pub fn names_its_workload(&self) -> bool {
        let workload = self.workload.as_deref();
        workload.is_some_and(|one| !one.starts_with(REPLICA_SET))
    }

    /// What keeps it from starting, unless it is ready, marked or about to go.
    fn stalled(&self) -> Option<&Stall> {
        let stall = self.stall.as_ref();
        stall.filter(|_| !self.ready && !self.marked && !self.terminating)
    }

    /// The pod as a decision takes it at this time, with `spec.hold.failFastSeconds`.
    #[must_use]
    pub fn pod(&self, id: PodId<'_>, fail_fast: Option<SignedDuration>, now: Timestamp) -> Pod {
        let stalled = self.stalled();
        Pod {
            name: id.name.to_owned(),
            uid: id.uid.to_owned(),
            version: id.version.to_owned(),
            node: self.node.clone(),
            started: self.started,
            ready: self.ready,
            ready_since: self.ready_since,
            containers_ready: self.containers_ready,
            marked: self.marked,
            deletion_cost: self.deletion_cost,
            terminating: self.terminating,
            obstacle: stalled.and_then(|stall| stall.obstacle(fail_fast, now)),
        }
    }
}

/// Which workload owns pods.
#[derive(Clone, Copy, Debug)]
pub struct PodOwner<'a> {
    /// Its group.
    pub group: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl PodOwner<'_> {
    /// Whether the pod is one of this workload's; `None` if that cannot be known, so that its labels decide. Workloads of
    /// other kinds may own their pods by objects in between, and a Deployment adopts ReplicaSets that have another name.
    /// `exists` tells whether there is a workload of this kind with that name.
    #[must_use]
    pub fn owns(&self, pod: &PodFacts, exists: impl Fn(&str) -> bool) -> Option<bool> {
        if !self.uid.is_empty() && pod.controller == self.uid {
            return Some(true);
        }
        let by_replica_sets = match (self.group, self.kind) {
            ("apps", "Deployment") | ("argoproj.io", "Rollout") => true,
            ("apps", _) => false,
            _ => return None,
        };
        let workload = pod.workload.as_deref().and_then(|one| one.split_once('/'));
        match workload.filter(|_| by_replica_sets) {
            Some((REPLICA_SET, _)) => None,
            Some((kind, name)) if kind == self.kind => match name == self.name {
                true => Some(true),
                false => exists(name).then_some(false),
            },
            // A pod without a controller: nothing in `apps` leaves its own so.
            None if pod.controller.is_empty() && self.group != "apps" => None,
            _ => Some(false),
        }
    }
}

const REPLICA_SET: &str = "ReplicaSet";

/// A pod's controller, and the workload behind it. A Deployment names its ReplicaSets after itself and the hash of the
/// template, which is also a label of their pods; so do Argo's Rollouts. So no ReplicaSet needs to be read.
fn controller(metadata: &ObjectMeta) -> (String, Option<String>) {
    let owners = metadata.owner_references.iter().flatten();
    let Some(owner) = { owners }.find(|one| one.controller == Some(true)) else {
        return (String::new(), None);
    };
    if owner.kind != REPLICA_SET {
        return (owner.uid.clone(), None);
    }
    let labels = metadata.labels.iter().flatten();
    let mut hashes = labels.filter_map(|(label, hash)| match label.as_str() {
        "pod-template-hash" => Some(("Deployment", hash)),
        "rollouts-pod-template-hash" => Some(("Rollout", hash)),
        _ => None,
    });
    let workload = hashes.find_map(|(kind, hash)| {
        let name = owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')?;
        Some(format!("{kind}/{name}"))
    });
    let plain = || format!("{REPLICA_SET}/{}", owner.name);
    (owner.uid.clone(), Some(workload.unwrap_or_else(plain)))
}

impl<'a> PodId<'a> {
    /// Which pod this is.
    #[must_use]
    pub fn from_object(pod: &'a core_v1::Pod) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        Self {
            name: text(&pod.metadata.name),
            uid: text(&pod.metadata.uid),
            version: text(&pod.metadata.resource_version),
        }
    }
}

/// The containers of a pod that run beside each other: the plain ones, and native sidecars, which are init containers
/// that are restarted always. Their ports and probes count alike.
pub(crate) fn lasting_containers(pod: &core_v1::Pod) -> impl Iterator<Item = &core_v1::Container> {
    let spec = pod.spec.iter();
    let sidecars = spec.clone().flat_map(|spec| spec.init_containers.iter());
    let sidecars = sidecars.flatten().filter(|one| is_sidecar(one));
    spec.flat_map(|spec| &spec.containers).chain(sidecars)
}

fn is_sidecar(init: &core_v1::Container) -> bool {
    init.restart_policy.as_deref() == Some("Always")
}

/// The TCP ports of a pod that have names, for a Service's `targetPort`.
pub fn named_ports(pod: &core_v1::Pod) -> impl Iterator<Item = (&str, u16)> {
    let ports = lasting_containers(pod).flat_map(|one| one.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().is_none_or(|one| one == "TCP"));
    tcp.filter_map(|port| {
        let number = u16::try_from(port.container_port).ok()?;
        Some((port.name.as_deref()?, number))
    })
}

/// Whether condition `Ready` of a pod is true.
#[must_use]
pub fn is_ready(pod: &core_v1::Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c.type_ == READY && c.status == "True")
}

/// The pods of a Service as a decision takes them, in the order of their names, and when what keeps one of them from
/// starting next counts for more. Pods that have ended are left out; if none is left, what refuses the target's pods
/// takes their place.
pub fn pods_of_service<'a>(
    pods: impl Iterator<Item = (PodId<'a>, &'a PodFacts)>,
    target: Option<(&str, &TargetFacts)>,
    fail_fast: Option<SignedDuration>,
    now: Timestamp,
) -> (Vec<Pod>, Option<Timestamp>) {
    let mut requeue_at: Option<Timestamp> = None;
    let mut requeue = |stall: Option<&Stall>| {
        if let Some(at) = stall.and_then(|stall| stall.changes_at(fail_fast, now)) {
            requeue_at = Some(requeue_at.map_or(at, |before| before.min(at)));
        }
    };
    let mut all: Vec<Pod> = pods
        .filter(|(_, facts)| !facts.ended)
        .map(|(id, facts)| {
            requeue(facts.stalled());
            facts.pod(id, fail_fast, now)
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some((name, stall)) = target.and_then(|target| refused(&all, target)) {
        requeue(Some(stall));
        let obstacle = stall.obstacle(fail_fast, now);
        all.extend(obstacle.map(|obstacle| Pod::refused(name, obstacle)));
    }
    (all, requeue_at)
}

/// A pod that is refused never exists; only the workload tells what refuses it. While another pod of the Service
/// exists, even one that terminates, that pod may be what the new one waits for.
fn refused<'a>(
    pods: &[Pod],
    (name, facts): (&'a str, &'a TargetFacts),
) -> Option<(&'a str, &'a Stall)> {
    let refused = facts.refused.as_ref();
    refused
        .filter(|_| pods.is_empty() && facts.replicas != Some(0))
        .map(|stall| (name, stall))
}

fn deletion_cost(pod: &core_v1::Pod) -> DeletionCost {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|all| all.get(names::DELETION_COST_ANNOTATION));
    match cost.map(String::as_str) {
        None => DeletionCost::Unset,
        Some(names::LOWEST_DELETION_COST) => DeletionCost::Lowest,
        Some(_) => DeletionCost::Other,
    }
}

/// The addresses that a pod shares with nothing else: none if it is on its node's network, and none once it has ended,
/// when they may go to another pod.
#[must_use]
pub fn own_addresses(pod: &core_v1::Pod) -> Vec<IpAddr> {
    let on_node = pod.spec.as_ref().and_then(|spec| spec.host_network);
    let Some(status) = pod.status.as_ref().filter(|_| on_node != Some(true)) else {
        return Vec::new();
    };
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return Vec::new();
    }
    let all = addresses(status).into_iter();
    all.map(|address| address.to_canonical()).collect()
}

fn addresses(status: &core_v1::PodStatus) -> Vec<IpAddr> {
    let first = status.pod_ip.iter();
    let all = status.pod_ips.iter().flatten().map(|one| &one.ip);
    let mut addresses = Vec::new();
    for address in first.chain(all).filter_map(|text| text.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// The conditions that others must set to true before the pod may be `Ready`.
fn gates(pod: &core_v1::Pod) -> impl Iterator<Item = &str> {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_ref());
    let gates = gates.into_iter().flatten();
    gates.map(|gate| gate.condition_type.as_str())
}

pub(super) fn started(status: &core_v1::PodStatus) -> bool {
    let mut containers = status.container_statuses.iter().flatten().peekable();
    let runs = |one: &core_v1::ContainerStatus| {
        let state = one.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    };
    containers.peek().is_some() && containers.all(runs)
}
