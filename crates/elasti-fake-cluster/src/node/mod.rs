//! The simulated cluster's machines: a kubelet whose pods are servers in this process, and a kube-proxy.

mod app;
mod kube_proxy;
mod kubelet;
mod pod;
mod probe;
mod process;
mod visits;

pub use visits::{Visit, Visits};

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api_server::ApiServer;
use crate::api_server::object::Object as _;
use crate::controllers::{ControllerClient, Kind, run};
use kube_proxy::AppliedRoutes;

/// Kubernetes' period of the kubelet's status manager.
const KUBELET_TICK: Duration = Duration::from_secs(10);

/// How a node behaves.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// The first address of its pods, a loopback address; pods get the ones after it.
    pub pod_network: Ipv4Addr,
    /// When its first status tick comes.
    pub first_tick: Duration,
    /// How far the ticks are apart.
    pub tick: Duration,
}

impl NodeConfig {
    /// The `index`th node of a simulated cluster (`node-1`, `node-2`, …) with its pods behind `pod_network`.
    #[must_use]
    pub fn numbered(index: u8, pod_network: Ipv4Addr) -> Self {
        Self {
            name: format!("node-{index}"),
            pod_network,
            // Nodes tick at different moments, as machines do.
            first_tick: Duration::from_millis(10_000 - 1_700 * u64::from(index % 5)),
            tick: KUBELET_TICK,
        }
    }
}

/// A running node; dropping it is pulling its plug.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    proxy_lag: Arc<Mutex<Duration>>,
    routes: AppliedRoutes,
    visits: Visits,
    _tasks: JoinSet<()>,
}

impl Node {
    /// Registers the node and starts its kubelet and kube-proxy.
    #[must_use]
    pub fn start(server: &ApiServer, config: &NodeConfig) -> Self {
        let client = ControllerClient::new(server, "kubelet");
        register(&client, config);
        let proxy_lag = Arc::new(Mutex::new(Duration::ZERO));
        let routes = AppliedRoutes::default();
        let mut tasks = JoinSet::new();
        let visits = Visits::default();
        let kubelet = kubelet::Kubelet::new(config, visits.clone());
        tasks.spawn(kubelet::tick(kubelet.records(), client, config.clone()));
        tasks.spawn(run(kubelet, server.clone()));
        tasks.spawn(run(
            kube_proxy::KubeProxy::new(&config.name, proxy_lag.clone(), routes.clone()),
            server.clone(),
        ));
        Self {
            name: config.name.clone(),
            proxy_lag,
            routes,
            visits,
            _tasks: tasks,
        }
    }

    /// Every request that reached a pod of this node.
    #[must_use]
    pub fn visits(&self) -> Vec<Visit> {
        self.visits.all()
    }

    /// The same, shared: it grows with every request.
    #[must_use]
    pub fn shared_visits(&self) -> Visits {
        self.visits.clone()
    }

    /// Where this node sends new connections to a cluster address, or to a node port of `127.0.0.1`: `None` if they
    /// are refused; nowhere if they are dropped, as a `Local` policy does without an endpoint on the node.
    #[must_use]
    pub fn routes(&self, address: SocketAddr) -> Option<Vec<SocketAddr>> {
        self.routes.of_address(address)
    }

    /// How long this node's kube-proxy takes to follow a slice.
    pub fn set_proxy_lag(&self, lag: Duration) {
        *self.proxy_lag.lock() = lag;
    }
}

fn register(client: &ControllerClient, config: &NodeConfig) {
    let now = client.timestamp();
    let mut node = json!({
        "metadata": {"name": config.name, "labels": {"kubernetes.io/hostname": config.name, "kubernetes.io/os": "linux"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": config.name}],
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "1000"},
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000"},
            "nodeInfo": {
                "kubeletVersion": "v1.34.4", "osImage": "fake-cluster", "kernelVersion": "fake-cluster", "containerRuntimeVersion": "fake-cluster://1",
                "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": "",
            },
        },
    });
    node.put("/status/conditions", json!([{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]));
    // A node that is already there is the same node after a restart.
    let _ = client.create(Kind::NODES, "", &node);
}
