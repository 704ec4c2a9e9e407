//! The configuration files of the cluster's processes.

use std::error::Error;
use std::fs;
use std::path::Path;

use super::certificates::{self, kubeconfig_of};
use super::layout::{
    self, CLUSTER_DOMAIN, CNI_NETWORK, DNS_SERVICE_ADDRESS, NODE_ADDRESS, POD_LINK,
};
use super::nodes::Node;
use crate::image;

/// Writes all of them.
pub(crate) fn write() -> Result<(), Box<dyn Error>> {
    let state = layout::state();
    fs::create_dir_all(state.join("prometheus-targets"))?;
    for (name, content) in [
        ("audit-policy.yaml", AUDIT_POLICY.to_owned()),
        ("resolv.conf", format!("nameserver {NODE_ADDRESS}\n")),
        ("Corefile", corefile()),
        ("prometheus.yaml", prometheus(&state)),
    ] {
        fs::write(state.join(name), content)?;
    }
    Node::all().into_iter().try_for_each(write_for_node)
}

fn write_for_node(node: Node) -> Result<(), Box<dyn Error>> {
    let state = node.state();
    fs::create_dir_all(state.join("cni"))?;
    fs::create_dir_all(node.run())?;
    for (name, content) in [
        ("containerd.toml", containerd(node)),
        ("cni/10-pods.conflist", cni(node)),
        ("kubelet.yaml", kubelet(node)),
    ] {
        fs::write(state.join(name), content)?;
    }
    Ok(())
}

/// Calls of ordinary ServiceAccounts, for the comparison with their Roles; no others.
pub(crate) const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, userGroups: ['system:serviceaccounts:kube-system']}
  - {level: Metadata, userGroups: ['system:serviceaccounts']}
  - {level: None}
";

/// Lowering oom_score_adj may be forbidden (in a virtual machine's container, for one), and all
/// that containerd makes must lie in folders of ours.
fn containerd(node: Node) -> String {
    let (state, run) = (node.state(), node.run());
    format!(
        r#"version = 2
root = "{state}/containerd"
state = "{run}/containerd"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{pause}"
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{run}/runc"
"#,
        state = state.display(),
        run = run.display(),
        socket = node.containerd_socket().display(),
        pause = image::PAUSE,
    )
}

fn cni(node: Node) -> String {
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "{CNI_NETWORK}", "plugins": [
  {{"type": "bridge", "bridge": "{POD_LINK}", "isGateway": true, "hairpinMode": true,
    "ipam": {{"type": "host-local", "dataDir": "{state}/addresses",
             "ranges": [[{{"subnet": "{pods}"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}
]}}
"#,
        state = node.state().display(),
        pods = node.pod_network(),
    )
}

fn kubelet(node: Node) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {authority}}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
oomScoreAdj: 0
evictionHard: {{memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}}
imageGCHighThresholdPercent: 100
maxPods: 250
clusterDNS: ['{DNS_SERVICE_ADDRESS}']
clusterDomain: {CLUSTER_DOMAIN}
resolvConf: {shared}/resolv.conf
containerRuntimeEndpoint: unix://{socket}
podLogsDir: {state}/pod-logs
volumePluginDir: {state}/volume-plugins
",
        address = node.address(),
        authority = certificates::folder().join("ca.crt").display(),
        shared = layout::state().display(),
        state = node.state().display(),
        socket = node.containerd_socket().display(),
    )
}

/// No server behind it: a test asks for names of this cluster only.
fn corefile() -> String {
    format!(
        ".:53 {{
  bind {NODE_ADDRESS}
  errors
  ready {NODE_ADDRESS}:8181
  kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 5
  }}
  cache 5
}}
",
        kubeconfig = kubeconfig_of("onlooker").display()
    )
}

/// Debian's Prometheus cannot ask Kubernetes for targets: a test that wants something scraped
/// writes a file. Prometheus itself carries the label that triggers look for by default. How often rules are evaluated is
/// left at its default of a minute, as in most clusters: sub-queries without a step of their own go by it.
fn prometheus(state: &Path) -> String {
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: prometheus
    static_configs: [{{targets: ['{NODE_ADDRESS}:9090'], labels: {{container: prometheus}}}}]
  - job_name: tests
    file_sd_configs: [{{files: ['{state}/prometheus-targets/*.yaml'], refresh_interval: 5s}}]
",
        state = state.display()
    )
}
