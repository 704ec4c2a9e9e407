//! The marks by which what KubeElasti made is known, by a record of its version 0.1.30. Only what carries one of them is
//! adopted; anything else that has a name of ours is foreign.

use elasti_api::names::{self, IpFamily};
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::observed::KedaPause;

/// The label that the pods of its operator have, as those of many other operators.
pub const OPERATOR_LABEL: &str = "control-plane=controller-manager";
/// What its operator's container runs, as those of many other operators.
const COMMAND: &str = "/manager";
/// A variable that no other operator has.
const VARIABLE: &str = "ELASTI_OPERATOR_DEPLOYMENT_NAME";
/// The first argument of our own resolver's container, and a variable that KubeElasti's never had.
const OUR_RESOLVER: &str = "resolver";
const OUR_RESOLVERS_VARIABLE: &str = "ELASTI_RESOLVER_TOKEN_FILE";
/// The variable, and the arguments, that restrict it to some namespaces.
const NAMESPACES_VARIABLE: &str = "WATCH_NAMESPACES";
const NAMESPACES_ARGUMENTS: [&str; 2] = ["--watch-namespaces=", "--watch-namespace="];

/// It made this slice: the name follows from the Service that the label names, no controller says that it manages it,
/// nothing but an ElastiService owns it, and it has one port, and addresses with nothing beside them.
pub(super) fn made_slice(slice: &EndpointSlice) -> bool {
    let label = |key: &str| slice.metadata.labels.as_ref()?.get(key);
    let managers = [names::SLICE_MANAGED_BY_LABEL, names::MANAGED_BY_LABEL];
    if managers.into_iter().any(|key| label(key).is_some()) {
        // Nearly every slice: its name need not be compared.
        return false;
    }
    let named = label(names::SERVICE_NAME_LABEL).is_some_and(|service| {
        let name = names::resolver_slice(service, IpFamily::V4, 0);
        slice.metadata.name.as_ref() == Some(&name)
    });
    let mut owners = slice.metadata.owner_references.iter().flatten();
    let ports = slice.ports.as_deref().unwrap_or_default();
    named
        && owners.all(super::is_elasti_service)
        && slice.address_type == IpFamily::V4.address_type()
        && ports.len() == 1
        && !slice.endpoints.is_empty()
        && slice.endpoints.iter().all(is_bare)
}

/// An endpoint without pod, node or condition.
fn is_bare(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let conditions = [conditions.ready, conditions.serving, conditions.terminating];
    endpoint.target_ref.is_none()
        && endpoint.node_name.is_none()
        && conditions.iter().all(Option::is_none)
}

/// It left this pause: it records nothing, but only it pauses at zero in this way.
pub(crate) fn left_pause(pause: &KedaPause) -> bool {
    pause.before.is_none()
        && pause.paused.as_deref() == Some("true")
        && pause.paused_replicas.as_deref() == Some("0")
}

/// A pod of its operator that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredecessorFacts {
    /// The namespaces that it serves; none means all.
    namespaces: Vec<String>,
}

impl PredecessorFacts {
    /// Reads a pod; `None` if it is no such pod.
    #[must_use]
    pub fn from_object(pod: &core_v1::Pod) -> Option<Self> {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        Self::from_spec(pod.spec.as_ref()?)
    }

    /// Reads the spec of a pod, or of a Deployment's template; `None` if it makes no such pod.
    #[must_use]
    pub fn from_spec(spec: &core_v1::PodSpec) -> Option<Self> {
        spec.containers.iter().find_map(of_container)
    }

    /// It manages ElastiServices of this namespace.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|one| one == namespace)
    }
}

/// Of pods with the label of resolvers: it is KubeElasti's, and its address is its own.
#[must_use]
pub fn is_predecessor_resolver(spec: &core_v1::PodSpec) -> bool {
    let ours = |container: &core_v1::Container| {
        let mut variables = container.env.iter().flatten();
        let first = container.args.iter().flatten().next();
        first.is_some_and(|one| one == OUR_RESOLVER)
            || variables.any(|one| one.name == OUR_RESOLVERS_VARIABLE)
    };
    spec.host_network != Some(true) && !spec.containers.iter().any(ours)
}

fn of_container(container: &core_v1::Container) -> Option<PredecessorFacts> {
    let variable = |name: &str| container.env.iter().flatten().find(|one| one.name == name);
    let command = container.command.iter().flatten().next();
    if command.is_none_or(|one| one != COMMAND) || variable(VARIABLE).is_none() {
        return None;
    }
    let by_variable = variable(NAMESPACES_VARIABLE).and_then(|one| one.value.as_deref());
    let by_argument = container.args.iter().flatten().filter_map(|argument| {
        let mut prefixes = NAMESPACES_ARGUMENTS.iter();
        prefixes.find_map(|prefix| argument.strip_prefix(prefix))
    });
    let lists = by_variable.into_iter().chain(by_argument);
    let names = lists.flat_map(|list| list.split(',')).map(str::trim);
    Some(PredecessorFacts {
        namespaces: names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}
