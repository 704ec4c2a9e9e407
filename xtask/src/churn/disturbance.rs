//! What may happen to Elasti while it works: restarts, upgrades, kills, an API server or a Prometheus that is away.

use std::error::Error;
use std::fmt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::request_log::clock;
use super::world;
use crate::kubernetes::nodes::Node;
use crate::kubernetes::{self, ready};
use crate::names;

pub(crate) const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    RestartOperators,
    RestartResolvers,
    Upgrade,
    KillLeader,
    StopPrometheus,
    KillResolver,
    StopApiServer,
}

/// In this order, spread over the run. The API server goes last: a resolver that is killed while nothing can be written
/// stays in the slices, and its share of the connections is refused until the API server is back.
const ALL: [Disturbance; 7] = [
    Disturbance::RestartOperators,
    Disturbance::RestartResolvers,
    Disturbance::Upgrade,
    Disturbance::KillLeader,
    Disturbance::StopPrometheus,
    Disturbance::KillResolver,
    Disturbance::StopApiServer,
];

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RestartOperators => "rollout restart of the operators",
            Self::RestartResolvers => "rollout restart of the resolvers",
            Self::Upgrade => "helm upgrade",
            Self::KillLeader => "kill -9 of the leading operator",
            Self::StopPrometheus => "Prometheus stopped for 20 s",
            Self::StopApiServer => "API server stopped for 60 s",
            Self::KillResolver => "kill -9 of a resolver",
        })
    }
}

/// Does all of them until the end, with even gaps.
pub(crate) fn all(end: Instant, resolvers: usize) {
    for (index, disturbance) in ALL.into_iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let rest = u32::try_from(ALL.len() - index + 1).unwrap_or(1);
        thread::sleep(left / rest / 2);
        println!("{} BEGIN {disturbance}", clock());
        let done = disturbance.make(resolvers);
        match done {
            Ok(()) => println!("{} END   {disturbance}", clock()),
            Err(error) => println!("{} FAILED {disturbance}: {error}", clock()),
        }
    }
}

impl Disturbance {
    fn make(self, resolvers: usize) -> Result<(), Box<dyn Error>> {
        match self {
            Self::RestartOperators => restart(OPERATOR),
            Self::RestartResolvers => restart(RESOLVER),
            Self::Upgrade => world::upgrade(resolvers, &["global.podAnnotations.upgraded=yes"]),
            Self::KillLeader => kill(world::RELEASE, &leader()?),
            Self::StopPrometheus => away("prometheus", Duration::from_secs(20)),
            Self::StopApiServer => {
                let before = renewed()?;
                away("kube-apiserver", Duration::from_secs(60))?;
                wait_for_renewal(&before)
            }
            Self::KillResolver => {
                let label = format!("--selector={}={RESOLVER}", names::RESOLVER_LABEL);
                let path = "--output=jsonpath={.items[0].metadata.name}";
                kill(world::RELEASE, &kubectl(&["get", "pods", &label, path])?)
            }
        }
    }
}

fn restart(deployment: &str) -> Result<(), Box<dyn Error>> {
    let deployment = format!("deployment/{deployment}");
    kubectl(&["rollout", "restart", &deployment])?;
    kubectl(&["rollout", "status", &deployment, "--timeout=120s"])?;
    Ok(())
}

/// Stops one of the node's processes and starts it again.
fn away(process: &str, duration: Duration) -> Result<(), Box<dyn Error>> {
    kubernetes::run(&["stop", process]).ok_or("stop is not known")??;
    thread::sleep(duration);
    kubernetes::run(&["start", process]).ok_or("start is not known")?
}

/// The pod that holds the Lease.
fn leader() -> Result<String, Box<dyn Error>> {
    let path = "--output=jsonpath={.spec.holderIdentity}";
    let holder = kubectl(&["get", "lease", names::LEASE, path])?;
    let pod = holder.split('_').next().unwrap_or_default();
    Ok(pod.to_owned())
}

fn renewed() -> Result<String, Box<dyn Error>> {
    kubectl(&[
        "get",
        "lease",
        names::LEASE,
        "--output=jsonpath={.spec.renewTime}",
    ])
}

/// Pods reach the API server through its Service, which nodes route to it again up to half a minute after its start.
fn wait_for_renewal(before: &str) -> Result<(), Box<dyn Error>> {
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        if renewed().is_ok_and(|now| now != before) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Err("the operators do not come back".into())
}

/// SIGKILL, behind Kubernetes' back.
pub(crate) fn kill(namespace: &str, pod: &str) -> Result<(), Box<dyn Error>> {
    let path = "--output=jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}";
    let answer = kubectl_in(namespace, &["get", "pod", pod, path])?;
    let (node, id) = answer
        .split_once(' ')
        .ok_or_else(|| format!("{pod} has no container yet"))?;
    let node = Node::named(node).ok_or_else(|| format!("{node} is not a node of ours"))?;
    let id = id.trim_start_matches("containerd://");
    let status = Command::new("ctr")
        .arg("--address")
        .arg(node.containerd_socket())
        .args([
            "--namespace",
            "k8s.io",
            "task",
            "kill",
            "--signal",
            "SIGKILL",
            id,
        ])
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("killing {pod} ended with {status}").into()),
    }
}

/// The output of kubectl in Elasti's own namespace.
fn kubectl(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    kubectl_in(world::RELEASE, arguments)
}

/// The output of kubectl in a namespace.
pub(crate) fn kubectl_in(namespace: &str, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = ready::kubectl(arguments)?
        .args(["--namespace", namespace])
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?.trim().to_owned()),
        false => Err(format!("kubectl {} failed", arguments.join(" ")).into()),
    }
}
