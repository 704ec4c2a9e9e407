//! Where the test node lives: its folders, addresses and names.

use std::path::PathBuf;
use std::sync::OnceLock;

/// A bridge without ports: the kernel need not have dummy devices.
pub(crate) const NODE_LINK: &str = "elasti-node";
/// The bridge that the pods' network cards are plugged into.
pub(crate) const POD_LINK: &str = "elasti-pods";
/// EndpointSlices refuse loopback addresses, so whatever runs on the host is reached here.
pub(crate) const NODE_ADDRESS: &str = "10.199.0.1";
/// Of all pods; each node has a part of it.
pub(crate) const POD_NETWORK: &str = "10.200.0.0/16";
pub(crate) const SERVICE_NETWORK: &str = "10.96.0.0/16";
/// The first address of the service network, which the API server takes for itself.
pub(crate) const API_SERVICE_ADDRESS: &str = "10.96.0.1";
pub(crate) const DNS_SERVICE_ADDRESS: &str = "10.96.0.10";
pub(crate) const CLUSTER_DOMAIN: &str = "cluster.local";
pub(crate) const API_SERVER: &str = "https://10.199.0.1:6443";
/// Not the usual ports: another etcd may run on this machine.
pub(crate) const ETCD_CLIENT: &str = "http://127.0.0.1:23790";
pub(crate) const ETCD_PEER: &str = "http://127.0.0.1:23800";

/// The name of the pod network, in CNI's configuration and in its result cache.
pub(crate) const CNI_NETWORK: &str = "elasti-kubernetes";

/// What the cluster keeps while it is up: data, keys, logs. One cluster a machine.
pub(crate) fn state() -> PathBuf {
    PathBuf::from("/var/lib/elasti-kubernetes")
}

/// Sockets and process ids.
pub(crate) fn run() -> PathBuf {
    PathBuf::from("/run/elasti-kubernetes")
}

/// The folder of logs, one a process.
pub(crate) fn logs() -> PathBuf {
    state().join("logs")
}

/// A cluster of the user's, where a flag names one.
static OTHER: OnceLock<Other> = OnceLock::new();

struct Other {
    kubeconfig: PathBuf,
    prometheus: String,
}

/// From now on another cluster is meant, and the Prometheus that its pods reach.
pub(crate) fn use_other(kubeconfig: &str, prometheus: &str) {
    // Said once, by a flag.
    let _ = OTHER.set(Other {
        kubeconfig: PathBuf::from(kubeconfig),
        prometheus: prometheus.to_owned(),
    });
}

/// Whether the cluster that is meant is this machine's own.
pub(crate) fn is_ours() -> bool {
    OTHER.get().is_none()
}

/// The administrator's kubeconfig.
pub(crate) fn kubeconfig() -> PathBuf {
    match OTHER.get() {
        Some(other) => other.kubeconfig.clone(),
        None => state().join("admin.kubeconfig"),
    }
}

/// The Prometheus that pods reach.
pub(crate) fn prometheus() -> String {
    match OTHER.get() {
        Some(other) => other.prometheus.clone(),
        None => format!("http://{NODE_ADDRESS}:9090"),
    }
}
