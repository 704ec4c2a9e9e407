//! The world of a churn: the node, Elasti installed by its chart, and targets that fall asleep soon.

use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::kubernetes::layout;
use crate::kubernetes::{go_programs, ready};
use crate::paths::root;
use crate::{image, kubernetes};

/// Where the targets live.
pub(crate) const NAMESPACE: &str = "churn";
/// The release of the chart, and its namespace.
pub(crate) const RELEASE: &str = "elasti";
/// The chart in the repository.
pub(crate) const CHART: &str = "deploy/helm/elasti";
/// Where the app listens.
pub(crate) const APP_PORT: u16 = 8080;

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) targets: usize,
    pub(crate) replicas: usize,
    pub(crate) resolvers: usize,
}

/// Brings the node up, gives it the image, and installs or upgrades the chart; a cluster that is not ours is left as it
/// is, but for the chart.
pub(crate) fn install(mode: &str, nodes: usize, resolvers: usize) -> Result<(), Box<dyn Error>> {
    if layout::is_ours() {
        up(mode, nodes)?;
        image::run(&["--load"]).ok_or("image --load is not known")??;
    }
    upgrade(resolvers, &[])
}

/// Brings so many nodes up.
pub(crate) fn up(mode: &str, nodes: usize) -> Result<(), Box<dyn Error>> {
    let count = nodes.to_string();
    let done = kubernetes::run(&["up", "--nodes", &count, "--proxy-mode", mode]);
    done.ok_or_else(|| format!("no cluster of {nodes} nodes in mode {mode}"))?
}

/// Values of the chart for tests: the image of this working tree, and triggers that are read every second.
pub(crate) fn values(resolvers: usize) -> Vec<String> {
    vec![
        "global.image.registry=docker.io".to_owned(),
        "global.image.repository=local/elasti".to_owned(),
        "global.image.tag=dev".to_owned(),
        "elastiController.manager.imagePullPolicy=Never".to_owned(),
        "elastiResolver.proxy.imagePullPolicy=Never".to_owned(),
        "elastiController.manager.env.pollingInterval=1s".to_owned(),
        format!("elastiResolver.replicas={resolvers}"),
    ]
}

/// Installs the chart, or upgrades it with more values, in a namespace that takes only harmless pods.
pub(crate) fn upgrade(resolvers: usize, more: &[&str]) -> Result<(), Box<dyn Error>> {
    ready::apply(&restricted(RELEASE))?;
    let mut flags = values(resolvers);
    flags.extend(more.iter().map(|&flag| flag.to_owned()));
    let status = Command::new(go_programs::HELM.path()?)
        .env("KUBECONFIG", layout::kubeconfig())
        .args(["upgrade", "--install", RELEASE])
        .arg(root().join(CHART))
        .args(["--namespace", RELEASE, "--wait"])
        .args(["--timeout", "180s", "--set", &flags.join(",")])
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(format!("helm ended with {status}").into());
    }
    Ok(())
}

/// A namespace under Pod Security "restricted".
fn restricted(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  \
         labels: {{pod-security.kubernetes.io/enforce: restricted}}\n"
    )
}

/// The name of a target, of its Service and of its ElastiService.
pub(crate) fn target(index: usize) -> String {
    format!("churn-{index}")
}

/// Makes targets; each sleeps `cooldown` seconds after its last request, and sooner without any request.
pub(crate) fn create(size: Size, cooldown: u32) -> Result<(), Box<dyn Error>> {
    let mut objects = restricted(NAMESPACE);
    for index in 0..size.targets {
        let name = target(index);
        let workload = workload(&name, size.replicas);
        let steered = elasti_service(&name, size.replicas, cooldown);
        write!(objects, "---\n{workload}---\n{steered}")?;
    }
    ready::apply(&objects)?;
    (0..size.targets).try_for_each(|index| wait_for(&target(index)))
}

/// Makes a workload that Elasti does not know.
pub(crate) fn create_bare(name: &str) -> Result<(), Box<dyn Error>> {
    ready::apply(&workload(name, 1))?;
    wait_for(name)
}

fn wait_for(name: &str) -> Result<(), Box<dyn Error>> {
    let deployment = format!("deployment/{name}");
    let arguments = ["rollout", "status", "--namespace", NAMESPACE, &deployment];
    let status = ready::kubectl(&arguments)?.stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{deployment} does not come up").into()),
    }
}

fn workload(name: &str, replicas: usize) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {name}}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
        - name: app
          image: {image}
          imagePullPolicy: Never
          securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
          ports: [{{containerPort: {APP_PORT}}}]
          readinessProbe: {{httpGet: {{path: /status/200, port: {APP_PORT}}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: {APP_PORT}}}]
",
        image = image::HTTPBIN
    )
}

fn elasti_service(name: &str, replicas: usize, cooldown: u32) -> String {
    let prometheus = layout::prometheus();
    format!(
        "apiVersion: elasti.truefoundry.com/v1alpha1
kind: ElastiService
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  service: {name}
  minTargetReplicas: {replicas}
  cooldownPeriod: {cooldown}
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  triggers:
    - type: prometheus
      metadata: {{serverAddress: '{prometheus}', query: vector(0), threshold: '0.5'}}
"
    )
}

/// The address that clients of a target use.
pub(crate) fn address(target: &str) -> Result<SocketAddr, Box<dyn Error>> {
    let arguments = [
        "get",
        "service",
        target,
        "--namespace",
        NAMESPACE,
        "--output=jsonpath={.spec.clusterIP}:{.spec.ports[0].port}",
    ];
    let output = ready::kubectl(&arguments)?.output()?;
    Ok(String::from_utf8(output.stdout)?.parse()?)
}

/// Removes the targets, and waits until they are gone.
pub(crate) fn remove() -> Result<(), Box<dyn Error>> {
    for arguments in [
        &[
            "delete",
            "elastiservices",
            "--all",
            "--namespace",
            NAMESPACE,
            "--timeout=120s",
        ][..],
        &["delete", "namespace", NAMESPACE, "--timeout=120s"][..],
    ] {
        let status = ready::kubectl(arguments)?.stdout(Stdio::null()).status()?;
        if !status.success() {
            return Err(format!("kubectl {} ended with {status}", arguments.join(" ")).into());
        }
    }
    Ok(())
}
