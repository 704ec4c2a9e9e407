//! The pod template of a workload: what can be judged of its pods before there is one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, PodTemplateSpec};
use serde_json::Value;

/// What is kept of a pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateFacts {
    /// The labels of its pods.
    pub labels: BTreeMap<String, String>,
    /// A container has a readiness probe.
    pub readiness_probe: bool,
    /// Names and numbers of the ports that containers declare. Init containers count: one that goes on running may be
    /// the one that answers.
    pub ports: Vec<(String, u16)>,
}

impl TemplateFacts {
    /// Reads the template of a workload; `None` if it has none with containers.
    #[must_use]
    pub fn from_object(workload: &Value) -> Option<Self> {
        let template = workload.pointer("/spec/template")?.clone();
        let template: PodTemplateSpec = serde_json::from_value(template).ok()?;
        let pod = template.spec.filter(|pod| !pod.containers.is_empty())?;
        let all = { pod.containers.iter() }.chain(pod.init_containers.iter().flatten());
        Some(Self {
            labels: template.metadata.and_then(|m| m.labels).unwrap_or_default(),
            readiness_probe: pod.containers.iter().any(|c| c.readiness_probe.is_some()),
            ports: all
                .flat_map(|c| c.ports.iter().flatten())
                .map(port)
                .collect(),
        })
    }
}

fn port(port: &ContainerPort) -> (String, u16) {
    let number = u16::try_from(port.container_port).unwrap_or_default();
    (port.name.clone().unwrap_or_default(), number)
}
