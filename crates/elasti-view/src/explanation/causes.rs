//! The problems of a service, each with the commands that show more and that fix it.

use elasti_api::{Reason, names};
use k8s_openapi::api::core::v1 as core_v1;

use super::events::last_message;
use super::{Cause, LiveObjects};
use crate::view::{Lookup, View};
use elasti_core::observed::{Observed, Obstacle, ObstacleKind, Pod};
use elasti_core::why::Why;

/// Every problem, worst first.
pub(super) fn causes(live: &LiveObjects, view: &View, o: &Observed, why: &Why) -> Vec<Cause> {
    let describe = Describer { live, view };
    let mut found = Vec::new();
    if view.phase.is_none() && view.trouble && view.reason == "Unseen" {
        found.push(describe.unseen());
    }
    let preconditions = matches!(
        why.reason,
        Reason::Conflict | Reason::Unsupported | Reason::TargetNotFound
    );
    let missing = why.reason == Reason::ServiceNotFound && live.service == Lookup::Missing;
    if (preconditions && live.target != Lookup::Unknown) || missing {
        found.push(describe.reason(why.reason, why.sentence.clone()));
    }
    let stuck = o.pods.iter().filter(|pod| !pod.terminating);
    for pod in stuck {
        if let Some(obstacle) = &pod.obstacle {
            found.push(describe.pod(pod, obstacle));
        }
    }
    if matches!(live.resolvers, Lookup::Found(_)) && o.ready_resolvers().next().is_none() {
        let sentence = "No resolver is ready: nothing may sleep, and what sleeps cannot be woken by a request.";
        found.push(describe.reason(Reason::NoResolver, sentence.to_owned()));
    }
    let unread = !view.triggers.iter().any(|one| one.reading == "unknown");
    for blocker in &view.blockers {
        // Not read yet, or no trigger at all, is no problem.
        if unread && blocker.reason == Reason::TriggerUnknown.as_str() {
            continue;
        }
        let reason = BLOCKING_TROUBLE
            .iter()
            .find(|one| one.as_str() == blocker.reason);
        if let Some(reason) = reason
            && !found.iter().any(|one: &Cause| one.reason == blocker.reason)
        {
            found.push(describe.reason(*reason, blocker.sentence.clone()));
        }
    }
    found
}

/// What keeps a service awake until a person acts.
const BLOCKING_TROUBLE: [Reason; 8] = [
    Reason::TriggerUnknown,
    Reason::InvalidWindow,
    Reason::AutoscalerNotFound,
    Reason::PortsExhausted,
    Reason::ServiceNotFound,
    Reason::NodesWithoutResolver,
    Reason::ResolverUnreachable,
    Reason::TicksTooDense,
];

/// Describes causes in words and commands.
struct Describer<'a> {
    live: &'a LiveObjects,
    view: &'a View,
}

impl Describer<'_> {
    fn kubectl(&self, rest: &str) -> String {
        format!("kubectl -n {} {rest}", self.view.namespace)
    }

    /// The target as kubectl takes it: `deployment/web`.
    fn target(&self) -> String {
        let target = &self.view.target;
        format!("{}/{}", target.kind.to_ascii_lowercase(), target.name)
    }

    fn unseen(&self) -> Cause {
        Cause {
            reason: "Unseen".to_owned(),
            sentence: self.view.sentence.clone(),
            message: None,
            inspect: vec![
                "elasti check".to_owned(),
                "kubectl get pods -A | grep elasti-operator".to_owned(),
            ],
            fix: vec!["Install Elasti, or let its operator watch this namespace.".to_owned()],
        }
    }

    /// A cause that no pod has.
    fn reason(&self, reason: Reason, sentence: String) -> Cause {
        let View {
            name,
            service,
            target,
            ..
        } = self.view;
        let kind = target.kind.to_ascii_lowercase();
        let delete = self.kubectl(&format!("delete elastiservice {name}"));
        let edit = self.kubectl(&format!("edit elastiservice {name}"));
        let (inspect, fix) = match reason {
            Reason::TargetNotFound => (
                vec![self.kubectl(&format!("get {kind}"))],
                vec![format!("Create {}, or: {delete}", self.target())],
            ),
            Reason::ServiceNotFound => (
                vec![self.kubectl("get services")],
                vec![format!("Create the Service {service}, or: {delete}")],
            ),
            Reason::Conflict => (vec![self.kubectl("get elastiservices")], vec![delete]),
            Reason::NoResolver | Reason::ResolverUnreachable => (
                vec![
                    "elasti check".to_owned(),
                    format!(
                        "kubectl get pods -A -l {}={}",
                        names::RESOLVER_LABEL,
                        names::RESOLVER_LABEL_VALUE
                    ),
                ],
                Vec::new(),
            ),
            Reason::TriggerUnknown | Reason::InvalidWindow | Reason::AutoscalerNotFound => (
                vec![self.kubectl(&format!("get elastiservice {name} -o yaml"))],
                vec![edit],
            ),
            _ => (
                vec![self.kubectl(&format!("describe elastiservice {name}"))],
                Vec::new(),
            ),
        };
        Cause {
            reason: reason.as_str().to_owned(),
            sentence,
            message: None,
            inspect,
            fix,
        }
    }

    /// A pod that cannot start: what Kubernetes says about it, and what to inspect.
    fn pod(&self, pod: &Pod, obstacle: &Obstacle) -> Cause {
        let name = &pod.name;
        let describe = self.kubectl(&format!("describe pod {name}"));
        let sentence = obstacle.sentence(name);
        let container = self
            .stuck_container(name)
            .unwrap_or_else(|| "CONTAINER".to_owned());
        let (message, inspect, fix) = match obstacle.kind {
            ObstacleKind::ImagePull | ObstacleKind::ImageMissing | ObstacleKind::ImageInvalid => (
                self.waiting_message(name)
                    .or_else(|| last_message(self.live, name, &["Failed", "InspectFailed"])),
                vec![describe],
                vec![self.kubectl(&format!("set image {} {container}=IMAGE", self.target()))],
            ),
            ObstacleKind::CrashLoop => (
                self.last_end(name),
                vec![self.kubectl(&format!("logs {name} -c {container} --previous"))],
                Vec::new(),
            ),
            ObstacleKind::Unschedulable => (
                last_message(self.live, name, &["FailedScheduling"]),
                vec![describe, "kubectl get nodes".to_owned()],
                Vec::new(),
            ),
            _ if pod.uid.is_empty() => return self.refused(obstacle),
            ObstacleKind::Refused
            | ObstacleKind::Quota
            | ObstacleKind::Webhook
            | ObstacleKind::Config
            | ObstacleKind::Creating => (None, vec![describe], Vec::new()),
            ObstacleKind::Initializing => {
                let logs = self.kubectl(&format!("logs {name} -c {container}"));
                (None, vec![logs, describe], Vec::new())
            }
            ObstacleKind::NeverReady => (
                last_message(self.live, name, &["Unhealthy", "ProbeError"]),
                vec![self.kubectl(&format!("logs {name}")), describe],
                Vec::new(),
            ),
        };
        Cause {
            reason: obstacle.reason().as_str().to_owned(),
            // What is in the sentence already need not be said twice.
            message: message.filter(|text| !sentence.contains(text.trim_end_matches('.'))),
            sentence,
            inspect,
            fix,
        }
    }

    /// Pods that the API server refuses.
    fn refused(&self, obstacle: &Obstacle) -> Cause {
        let quota = obstacle.kind == ObstacleKind::Quota;
        let mut inspect = vec![self.kubectl(&format!("describe {}", self.target()))];
        if quota {
            inspect.push(self.kubectl("describe resourcequota"));
        }
        Cause {
            reason: obstacle.reason().as_str().to_owned(),
            sentence: format!(
                "The API server refuses the pods of {}: {}.",
                self.target(),
                obstacle.message
            ),
            message: None,
            inspect,
            fix: Vec::new(),
        }
    }

    fn containers(&self, pod: &str) -> impl Iterator<Item = &core_v1::ContainerStatus> {
        let of_name = |one: &&core_v1::Pod| one.metadata.name.as_deref() == Some(pod);
        let status = self.live.pods.iter().find(of_name);
        let status = status.and_then(|one| one.status.as_ref());
        status.into_iter().flat_map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        })
    }

    fn stuck_container(&self, pod: &str) -> Option<String> {
        let mut stuck = self.containers(pod).filter(|one| !one.ready);
        stuck.next().map(|one| one.name.clone())
    }

    fn waiting_message(&self, pod: &str) -> Option<String> {
        let mut messages = self.containers(pod).filter_map(|one| {
            let waiting = one.state.as_ref()?.waiting.as_ref()?;
            let message = waiting.message.as_deref()?;
            // A back-off message has the error only in newer versions of Kubernetes.
            match message.split_once(": ErrImagePull: ") {
                Some((_, error)) => Some(error.to_owned()),
                None if message.starts_with("Back-off") => None,
                None => Some(message.to_owned()),
            }
        });
        messages.next()
    }

    /// How a container last ended, and how often it was restarted.
    fn last_end(&self, pod: &str) -> Option<String> {
        self.containers(pod).find_map(|one| {
            let end = one.last_state.as_ref()?.terminated.as_ref()?;
            let why = match end.reason.as_deref() {
                Some("OOMKilled") => " (out of memory: raise its limit)",
                _ => "",
            };
            let message = end.message.as_deref().map(str::trim).unwrap_or_default();
            let message = match message.is_empty() {
                true => String::new(),
                false => format!(": {message}"),
            };
            Some(format!(
                "container {} ended with exit code {}{why} and was restarted {} times{message}",
                one.name, end.exit_code, one.restart_count
            ))
        })
    }
}
