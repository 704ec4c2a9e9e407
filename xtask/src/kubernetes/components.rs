//! The processes of the cluster, in the order in which they start, with their flags.

use std::error::Error;
use std::path::{Path, PathBuf};

use super::certificates::{self, FRONT_PROXY, kubeconfig_of};
use super::layout::{self, ETCD_CLIENT, ETCD_PEER, NODE_ADDRESS, POD_NETWORK, SERVICE_NETWORK};
use super::nodes::{FIRST, Node};
use super::process::Process;
use super::{ProxyMode, go_programs, partners};

/// What runs once, in the order of starting; all of it on the first node.
const OF_THE_CLUSTER: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "coredns",
    "prometheus",
];

/// Controllers of others that run beside Elasti, where a test asks for them; on the first node.
pub(super) const PARTNERS: [&str; 4] = ["metrics-server", "argo-rollouts", "keda", "traefik"];

/// What runs on every node, in the order of starting.
const OF_A_NODE: [&str; 3] = ["containerd", "kubelet", "kube-proxy"];

/// The names of all processes of a cluster with these nodes.
pub(crate) fn names(nodes: &[Node]) -> Vec<String> {
    let everywhere = nodes
        .iter()
        .flat_map(|node| OF_A_NODE.map(|name| node.suffixed(name)));
    let once = OF_THE_CLUSTER.into_iter().map(str::to_owned);
    once.chain(everywhere).collect()
}

/// The processes of a cluster with these nodes, and those that may run beside them.
pub(crate) fn names_with_partners(nodes: &[Node]) -> Vec<String> {
    let mut names = names(nodes);
    names.extend(PARTNERS.map(str::to_owned));
    names
}

/// The process of a name.
pub(crate) fn process(name: &str, mode: ProxyMode) -> Result<Process, Box<dyn Error>> {
    if OF_THE_CLUSTER.contains(&name) || PARTNERS.contains(&name) {
        let (program, arguments) = of_the_cluster(name)?;
        return Ok(Process {
            name: name.to_owned(),
            node: FIRST,
            program,
            arguments,
        });
    }
    let nodes = Node::all();
    let pairs = nodes
        .iter()
        .flat_map(|node| OF_A_NODE.map(|part| (*node, part)));
    let mut found = pairs.filter(|(node, part)| node.suffixed(part) == name);
    let (node, part) = found
        .next()
        .ok_or_else(|| format!("{name}: one of {}", names_with_partners(&nodes).join(", ")))?;
    let (program, arguments) = match part {
        "containerd" => (PathBuf::from("/usr/bin/containerd"), containerd(node)),
        "kubelet" => (go_programs::kube(part)?, kubelet(node)),
        _ => (go_programs::kube(part)?, proxy(node, mode)),
    };
    Ok(Process {
        name: name.to_owned(),
        node,
        program,
        arguments,
    })
}

fn of_the_cluster(name: &str) -> Result<(PathBuf, Vec<String>), Box<dyn Error>> {
    Ok(match name {
        "etcd" => (go_programs::ETCD.path()?, etcd()),
        "kube-apiserver" => (go_programs::kube(name)?, api_server()),
        "kube-controller-manager" => (go_programs::kube(name)?, controller_manager()),
        "kube-scheduler" => (go_programs::kube(name)?, scheduler()),
        "coredns" => (go_programs::COREDNS.path()?, coredns()),
        "metrics-server" => (
            go_programs::METRICS_SERVER.path()?,
            partners::metrics_server(),
        ),
        "argo-rollouts" => (go_programs::ROLLOUTS.path()?, partners::rollouts()),
        // KEDA and Traefik take some of their settings from the environment only.
        "keda" => (
            PathBuf::from("/usr/bin/env"),
            partners::keda(&go_programs::KEDA.path()?),
        ),
        "traefik" => (
            PathBuf::from("/usr/bin/env"),
            partners::traefik(&go_programs::TRAEFIK.path()?),
        ),
        _ => (PathBuf::from("/usr/bin/prometheus"), prometheus()),
    })
}

pub(super) fn in_state(name: &str) -> String {
    layout::state().join(name).display().to_string()
}

pub(super) fn key(name: &str) -> String {
    certificates::folder().join(name).display().to_string()
}

pub(super) fn kubeconfig_flag(user: &str) -> String {
    format!("--kubeconfig={}", show(&kubeconfig_of(user)))
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn etcd() -> Vec<String> {
    vec![
        format!("--data-dir={}", in_state("etcd")),
        // Tests keep nothing that a power cut may take.
        "--unsafe-no-fsync".into(),
        format!("--listen-client-urls={ETCD_CLIENT}"),
        format!("--advertise-client-urls={ETCD_CLIENT}"),
        format!("--listen-peer-urls={ETCD_PEER}"),
        format!("--initial-advertise-peer-urls={ETCD_PEER}"),
        format!("--initial-cluster=default={ETCD_PEER}"),
        "--log-level=warn".into(),
    ]
}

fn api_server() -> Vec<String> {
    vec![
        format!("--etcd-servers={ETCD_CLIENT}"),
        format!("--bind-address={NODE_ADDRESS}"),
        format!("--advertise-address={NODE_ADDRESS}"),
        "--secure-port=6443".into(),
        format!("--tls-cert-file={}", key("apiserver.crt")),
        format!("--tls-private-key-file={}", key("apiserver.key")),
        format!("--client-ca-file={}", key("ca.crt")),
        format!("--token-auth-file={}", key("tokens.csv")),
        format!("--kubelet-client-certificate={}", key("kubelet-client.crt")),
        format!("--kubelet-client-key={}", key("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        // Who asks an aggregated API server, such as metrics-server, is said in these headers.
        format!("--proxy-client-cert-file={}", key("front-proxy.crt")),
        format!("--proxy-client-key-file={}", key("front-proxy.key")),
        format!("--requestheader-client-ca-file={}", key("ca.crt")),
        format!("--requestheader-allowed-names={FRONT_PROXY}"),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--authorization-mode=Node,RBAC".into(),
        // Some clusters let no account own an object whose finalizers it may not change; the chart must work there.
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement".into(),
        "--allow-privileged=true".into(),
        format!("--service-cluster-ip-range={SERVICE_NETWORK}"),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", key("account.key")),
        format!("--service-account-signing-key-file={}", key("account.key")),
        format!("--audit-policy-file={}", in_state("audit-policy.yaml")),
        format!(
            "--audit-log-path={}",
            show(&layout::logs().join("audit.log"))
        ),
        "--profiling=false".into(),
    ]
}

fn controller_manager() -> Vec<String> {
    vec![
        kubeconfig_flag("kube-controller-manager"),
        "--use-service-account-credentials=true".into(),
        format!("--service-account-private-key-file={}", key("account.key")),
        format!("--root-ca-file={}", key("ca.crt")),
        format!("--cluster-cidr={POD_NETWORK}"),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
    ]
}

fn scheduler() -> Vec<String> {
    vec![
        kubeconfig_flag("kube-scheduler"),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
    ]
}

fn containerd(node: Node) -> Vec<String> {
    let file = node.state().join("containerd.toml");
    vec![format!("--config={}", show(&file))]
}

fn kubelet(node: Node) -> Vec<String> {
    let own = |name: &str| show(&node.state().join(name));
    vec![
        format!("--config={}", own("kubelet.yaml")),
        kubeconfig_flag(&node.suffixed("kubelet")),
        format!("--root-dir={}", own("kubelet")),
        format!("--cert-dir={}", own("kubelet-certificates")),
        format!("--hostname-override={}", node.name()),
        format!("--node-ip={}", node.address()),
    ]
}

fn proxy(node: Node, mode: ProxyMode) -> Vec<String> {
    vec![
        kubeconfig_flag("kube-proxy"),
        format!("--proxy-mode={}", mode.word()),
        format!("--hostname-override={}", node.name()),
        format!("--cluster-cidr={POD_NETWORK}"),
        "--oom-score-adj=0".into(),
        // The size of the connection table is the machine's affair.
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0s".into(),
        "--conntrack-tcp-timeout-close-wait=0s".into(),
    ]
}

fn coredns() -> Vec<String> {
    vec!["-conf".into(), in_state("Corefile")]
}

fn prometheus() -> Vec<String> {
    vec![
        format!("--config.file={}", in_state("prometheus.yaml")),
        format!("--storage.tsdb.path={}", in_state("prometheus")),
        format!("--web.listen-address={NODE_ADDRESS}:9090"),
        "--log.level=warn".into(),
    ]
}
