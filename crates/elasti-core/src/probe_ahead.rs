//! A pod's own probes, run ahead of the kubelet while requests are held: which pods may be probed, by which probes, when,
//! and what the results mean. A resolver only does the network I/O.
//!
//! A kubelet probes every `periodSeconds`, 10 by default, and tells others a second later: an app that starts in 3 s is
//! ready after 12. The same probe, run here, knows it after 3.

mod progress;
mod redirect;
#[cfg(test)]
mod tests;

use std::time::Duration;

use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::facts::{PodFacts, lasting_containers};

pub use progress::{Progress, Slots};
pub use redirect::{HttpTarget, MOST_REQUESTS, Verdict};

/// What asks a container whether it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `httpGet`: any 2xx or 3xx passes; a redirect on the same host is followed. No certificate is checked, as by a
    /// kubelet.
    Http {
        /// What is asked first.
        target: HttpTarget,
        /// `httpHeaders`.
        headers: Vec<(String, String)>,
    },
    /// `tcpSocket`: a connection passes.
    Tcp {
        /// The port of the pod.
        port: u16,
    },
    /// `grpc`: `grpc.health.v1.Health/Check` with the status SERVING passes.
    Grpc {
        /// The port of the pod.
        port: u16,
        /// The service to ask about.
        service: String,
    },
}

/// One probe of one container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// What is asked.
    pub call: Call,
    /// How long an answer may take.
    pub timeout: Duration,
    /// `initialDelaySeconds`.
    pub delay: Duration,
    /// `periodSeconds`.
    pub period: Duration,
    /// `successThreshold`.
    pub successes: u32,
    /// `failureThreshold`.
    pub failures: u32,
}

/// The probes of one container that must pass here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerProbes {
    /// Before the readiness probe, unless the kubelet has seen it pass.
    pub startup: Option<Probe>,
    /// `None` where the kubelet says that the container is ready and nothing can be asked here.
    pub readiness: Option<Probe>,
}

/// A pod that may be probed ahead of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// Which run of its containers this is: when and how often each was started. What one run has passed says nothing
    /// about the next.
    pub run: String,
    /// What must pass.
    pub containers: Vec<ContainerProbes>,
}

/// The pod as one that may be probed: it is not ready and not marked, does not terminate, every readiness gate is true,
/// every container runs, and for each of them there is a probe that can be run here, or it is ready by the kubelet.
#[must_use]
pub fn candidate(pod: &core_v1::Pod) -> Option<Candidate> {
    let facts = PodFacts::from_object(pod);
    let excluded = facts.ready || facts.marked || facts.terminating || facts.ended;
    if excluded || facts.addresses.is_empty() || !facts.gates_open {
        return None;
    }
    let containers: Option<Vec<_>> = lasting_containers(pod)
        .map(|container| of_container(pod, container))
        .collect();
    let (containers, runs): (Vec<ContainerProbes>, Vec<String>) = containers?.into_iter().unzip();
    // Without any probe the kubelet's word comes at once.
    let any = containers.iter().any(|one| one.readiness.is_some());
    any.then(|| Candidate {
        run: runs.join(" "),
        containers,
    })
}

fn of_container(
    pod: &core_v1::Pod,
    container: &core_v1::Container,
) -> Option<(ContainerProbes, String)> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    let status = all.find(|one| one.name == container.name)?;
    let running = status.state.as_ref()?.running.as_ref()?;
    let startup = match &container.startup_probe {
        Some(probe) if status.started != Some(true) => Some(probe_of(container, probe)?),
        _ => None,
    };
    let readiness = container.readiness_probe.as_ref();
    let readiness = readiness.and_then(|probe| probe_of(container, probe));
    if readiness.is_none() && !status.ready {
        return None;
    }
    let started = running.started_at.as_ref().map(|at| at.0.to_string());
    let run = format!("{}/{}", started.unwrap_or_default(), status.restart_count);
    Some((ContainerProbes { startup, readiness }, run))
}

/// The probe, if it can be run here. One that names a `host` would let a pod aim a resolver at others; a command can
/// only be run by the kubelet.
fn probe_of(container: &core_v1::Container, probe: &core_v1::Probe) -> Option<Probe> {
    let call = match (&probe.http_get, &probe.tcp_socket, &probe.grpc) {
        (Some(http), None, None) => Call::Http {
            target: HttpTarget {
                tls: http.scheme.as_deref() == Some("HTTPS"),
                port: port(container, &http.port)?,
                path: absolute(http.path.as_deref().unwrap_or_default()),
            },
            headers: { http.http_headers.iter().flatten() }
                .map(|one| (one.name.clone(), one.value.clone()))
                .collect(),
        },
        (None, Some(tcp), None) => Call::Tcp {
            port: port(container, &tcp.port)?,
        },
        (None, None, Some(grpc)) => Call::Grpc {
            port: u16::try_from(grpc.port).ok().filter(|port| *port > 0)?,
            service: grpc.service.clone().unwrap_or_default(),
        },
        _ => return None,
    };
    let http_host = probe.http_get.as_ref().and_then(|http| http.host.as_ref());
    let tcp_host = probe.tcp_socket.as_ref().and_then(|tcp| tcp.host.as_ref());
    if http_host.or(tcp_host).is_some_and(|host| !host.is_empty()) {
        return None;
    }
    let number = |value: Option<i32>, default: u32| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.unwrap_or(default)
    };
    let seconds =
        |value: Option<i32>, default: u32| Duration::from_secs(number(value, default).into());
    let second = Duration::from_secs(1);
    Some(Probe {
        call,
        timeout: seconds(probe.timeout_seconds, 1).max(second),
        delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10).max(second),
        successes: number(probe.success_threshold, 1).max(1),
        failures: number(probe.failure_threshold, 3).max(1),
    })
}

fn absolute(path: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{path}")
}

/// A port by its number, or by its name among those of the same container.
fn port(container: &core_v1::Container, port: &IntOrString) -> Option<u16> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|one| one.name.as_deref() == Some(name));
            match named {
                Some(one) => one.container_port,
                // A kubelet takes a number that is written as text.
                None => name.parse().ok()?,
            }
        }
    };
    u16::try_from(number).ok().filter(|port| *port > 0)
}
