//! The world of a churn: the node, Elasti installed by its chart, and targets that fall asleep soon.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use crate::kubernetes::layout;
use crate::kubernetes::nodes::Node;
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

/// Longer than a wake, so that pods that end and pods that start meet.
const SLOW_END_SECONDS: u32 = 20;

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) targets: usize,
    pub(crate) replicas: usize,
    pub(crate) resolvers: usize,
    /// Services of each target; requests go to each in turn.
    pub(crate) services: usize,
    pub(crate) kind: Kind,
    /// How long the app lives on after SIGTERM without a listener; `None`: it answers to its end.
    pub(crate) end_seconds: Option<u32>,
    /// How long the app takes to listen; `None`: at once.
    pub(crate) start_seconds: Option<u32>,
    /// The period of its readiness probe.
    pub(crate) probe_seconds: u32,
    /// Whether the resolver runs that probe while a request is held.
    pub(crate) probe_ahead: bool,
    /// One target after the other is a Deployment, a StatefulSet, one with two Services, one that ends slowly.
    pub(crate) mixed: bool,
    /// Services with `internalTrafficPolicy: Local`, one pod a node, and a resolver on every node.
    pub(crate) local: bool,
    /// The only node that its pods fit on; `None`: any.
    pub(crate) node: Option<Node>,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            targets: 3,
            replicas: 1,
            resolvers: 2,
            services: 1,
            kind: Kind::Deployment,
            end_seconds: None,
            start_seconds: None,
            probe_seconds: 1,
            probe_ahead: true,
            mixed: false,
            local: false,
            node: None,
        }
    }
}

impl Size {
    /// The sample app can end and start slowly, the other one cannot.
    pub(crate) fn needs_sample_app(&self) -> bool {
        self.mixed || self.end_seconds.is_some() || self.start_seconds.is_some()
    }

    /// Values of the chart for it.
    pub(crate) fn values(&self) -> &'static [&'static str] {
        match self.local {
            true => &["elastiResolver.kind=DaemonSet"],
            false => &[],
        }
    }

    /// What the target of this index is made of.
    pub(crate) fn of_target(self, index: usize) -> Self {
        if !self.mixed {
            return self;
        }
        let plain = Self {
            mixed: false,
            ..self
        };
        match index % 4 {
            0 => plain,
            1 => Self {
                kind: Kind::StatefulSet,
                ..plain
            },
            2 => Self {
                services: 2,
                ..plain
            },
            _ => Self {
                end_seconds: Some(SLOW_END_SECONDS),
                ..plain
            },
        }
    }
}

/// What a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    StatefulSet,
}

impl Kind {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "deployment" => Some(Self::Deployment),
            "statefulset" => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// Brings the node up, gives it the image, and installs or upgrades the chart; a cluster that is not ours is left as it
/// is, but for the chart.
pub(crate) fn install(mode: &str, nodes: usize, resolvers: usize) -> Result<(), Box<dyn Error>> {
    install_with(mode, nodes, resolvers, &[])
}

/// The same with more values of the chart.
pub(crate) fn install_with(
    mode: &str,
    nodes: usize,
    resolvers: usize,
    values: &[&str],
) -> Result<(), Box<dyn Error>> {
    if !layout::is_ours() {
        return upgrade(resolvers, values);
    }
    up(mode, nodes)?;
    image::run(&["--load"]).ok_or("image --load is not known")??;
    // The tag is always the same: pods of an older image are replaced only if something else about them changes.
    let built = fs::metadata(image::elasti_tar())?.modified()?;
    let built = built.duration_since(UNIX_EPOCH)?.as_secs();
    let built = format!("global.podAnnotations.built=at-{built}");
    upgrade(resolvers, &[values, &[&built]].concat())
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
        let (name, size) = (target(index), size.of_target(index));
        let workload = workload(&name, size);
        let steered = elasti_service(&name, size, cooldown);
        write!(objects, "---\n{workload}---\n{steered}")?;
    }
    ready::apply(&objects)?;
    let kind = |index| size.of_target(index).kind;
    (0..size.targets).try_for_each(|index| wait_for(&target(index), kind(index)))
}

/// Makes a workload that Elasti does not know.
pub(crate) fn create_bare(name: &str, size: Size) -> Result<(), Box<dyn Error>> {
    ready::apply(&workload(name, size))?;
    wait_for(name, Kind::Deployment)
}

fn wait_for(name: &str, kind: Kind) -> Result<(), Box<dyn Error>> {
    let deployment = format!("{kind:?}/{name}").to_lowercase();
    let arguments = ["rollout", "status", "--namespace", NAMESPACE, &deployment];
    let status = ready::kubectl(&arguments)?.stdout(Stdio::null()).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{deployment} does not come up").into()),
    }
}

fn workload(name: &str, size: Size) -> String {
    let Size {
        replicas,
        services,
        kind,
        end_seconds,
        start_seconds,
        probe_seconds,
        ..
    } = size;
    let image = match size.needs_sample_app() {
        true => image::SAMPLE_APP,
        false => image::HTTPBIN,
    };
    let policy = match size.local {
        true => "Local",
        false => "Cluster",
    };
    let services = (0..services).map(|index| service(name, index, policy));
    let services: String = services.collect();
    let placement = placement(name, size);
    let governing = match kind {
        Kind::Deployment => String::new(),
        Kind::StatefulSet => format!("\n  serviceName: {name}"),
    };
    let [start_seconds, end_seconds] = [start_seconds, end_seconds].map(Option::unwrap_or_default);
    format!(
        "apiVersion: apps/v1
kind: {kind:?}
metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {name}}}}}
spec:
  replicas: {replicas}{governing}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}{placement}
      containers:
        - name: app
          image: {image}
          imagePullPolicy: Never
          env:
            - {{name: START_SECONDS, value: '{start_seconds}'}}
            - {{name: END_SECONDS, value: '{end_seconds}'}}
          securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
          ports: [{{containerPort: {APP_PORT}}}]
          readinessProbe: {{httpGet: {{path: /status/200, port: {APP_PORT}}}, periodSeconds: {probe_seconds}}}
{services}"
    )
}

/// Where the pods of a workload may be, as lines of their spec.
fn placement(name: &str, size: Size) -> String {
    let one_a_node = match size.local {
        true => format!(
            "\n      affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             [{{topologyKey: kubernetes.io/hostname, labelSelector: {{matchLabels: {{app: {name}}}}}}}]}}}}"
        ),
        false => String::new(),
    };
    let only_there = match size.node.map(Node::name) {
        Some(node) => format!("\n      nodeSelector: {{kubernetes.io/hostname: {node}}}"),
        None => String::new(),
    };
    one_a_node + &only_there
}

/// The Service of this index of a target.
pub(crate) fn service_name(target: &str, index: usize) -> String {
    match index {
        0 => target.to_owned(),
        more => format!("{target}-also-{more}"),
    }
}

fn service(target: &str, index: usize, policy: &str) -> String {
    let name = service_name(target, index);
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  selector: {{app: {target}}}
  internalTrafficPolicy: {policy}
  ports: [{{name: http, port: 80, targetPort: {APP_PORT}}}]
"
    )
}

fn elasti_service(name: &str, size: Size, cooldown: u32) -> String {
    let prometheus = layout::prometheus();
    let Size {
        replicas,
        kind,
        probe_ahead,
        ..
    } = size;
    format!(
        "apiVersion: elasti.truefoundry.com/v1alpha1
kind: ElastiService
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  service: {name}
  minTargetReplicas: {replicas}
  cooldownPeriod: {cooldown}
  wake: {{probeAhead: {probe_ahead}}}
  scaleTargetRef: {{apiVersion: apps/v1, kind: {kind:?}, name: {name}}}
  triggers:
    - type: prometheus
      metadata: {{serverAddress: '{prometheus}', query: vector(0), threshold: '0.5'}}
"
    )
}

/// The addresses of a target's Services.
pub(crate) fn addresses(target: &str, services: usize) -> Result<Vec<SocketAddr>, Box<dyn Error>> {
    let all = (0..services).map(|index| address(&service_name(target, index)));
    all.collect()
}

/// The address that clients of a Service use.
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
