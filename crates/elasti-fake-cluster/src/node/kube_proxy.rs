//! One node's kube-proxy: listens on cluster addresses and passes connections to endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};
use crate::controllers::{Change, Controller, ControllerClient, Kind};
use crate::random::Randomness;

/// The address of every node. Nothing listens on its node ports: the machine's own programs may use them.
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

type Targets = Arc<Mutex<Vec<SocketAddr>>>;
/// Connections outlive the listener through which they came, as conntrack's do; they end with the node.
type Connections = Arc<Mutex<JoinSet<()>>>;

/// One listening Service port; without endpoints there is none, so that connections are refused.
struct ServiceListener {
    targets: Targets,
    task: AbortHandle,
}

impl Drop for ServiceListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct KubeProxy {
    node: String,
    lag: Arc<Mutex<Duration>>,
    applied: AppliedRoutes,
    listeners: BTreeMap<Key, BTreeMap<SocketAddr, ServiceListener>>,
    connections: Connections,
    /// What each Service looked like when something changed, and when this node is to know it.
    pending: BTreeMap<Key, VecDeque<(Instant, Routes)>>,
}

/// Addresses to listen on and where each leads.
type Routes = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// What one node's kube-proxy has applied so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppliedRoutes(Arc<Mutex<BTreeMap<Key, Routes>>>);

impl AppliedRoutes {
    fn set(&self, key: &Key, routes: &Routes) {
        self.0.lock().insert(key.clone(), routes.clone());
    }

    /// Where new connections to an address go: `None` if they are refused, nowhere if they are dropped.
    pub(crate) fn of_address(&self, address: SocketAddr) -> Option<Vec<SocketAddr>> {
        let all = self.0.lock();
        all.values()
            .find_map(|routes| routes.get(&address))
            .cloned()
    }
}

impl KubeProxy {
    pub(crate) fn new(node: &str, lag: Arc<Mutex<Duration>>, applied: AppliedRoutes) -> Self {
        Self {
            node: node.to_owned(),
            lag,
            applied,
            listeners: BTreeMap::new(),
            connections: Connections::default(),
            pending: BTreeMap::new(),
        }
    }
}

impl Controller for KubeProxy {
    const COMPONENT: &'static str = "kube-proxy";

    fn follows(&self) -> Vec<Kind> {
        vec![Kind::SERVICES, Kind::ENDPOINT_SLICES]
    }

    fn keys(&mut self, client: &ControllerClient, change: &Change) -> Vec<Key> {
        let object = &change.object.value;
        let key = if change.group_resource == Kind::SERVICES.group_resource() {
            Key::from_object(object)
        } else {
            let name = object.text("/metadata/labels/kubernetes.io~1service-name");
            Key::new(object.text("/metadata/namespace"), name)
        };
        let seen = client
            .get(Kind::SERVICES, &key)
            .map(|service| routes_of(client, &service.value, &self.node))
            .unwrap_or_default();
        let known_at = Instant::now() + self.lag();
        self.pending
            .entry(key.clone())
            .or_default()
            .push_back((known_at, seen));
        vec![key]
    }

    fn lag(&self) -> Duration {
        *self.lag.lock()
    }

    fn reconcile(
        &mut self,
        client: &ControllerClient,
        key: &Key,
    ) -> Result<Option<Duration>, ApiError> {
        let now = Instant::now();
        let pending = self.pending.entry(key.clone()).or_default();
        let mut latest = None;
        while let Some((_, seen)) = pending.pop_front_if(|(at, _)| *at <= now) {
            latest = Some(seen);
        }
        let later = pending.front().map(|(at, _)| *at - now);
        let Some(routes) = latest else {
            return Ok(later);
        };
        self.applied.set(key, &routes);
        let known = self.listeners.entry(key.clone()).or_default();
        known.retain(|address, _| routes.contains_key(address));
        let mut failed = false;
        for (address, targets) in routes.clone() {
            if address.ip() == HOST {
                continue;
            }
            match known.get(&address) {
                Some(listening) => *listening.targets.lock() = targets,
                None => match listen(address) {
                    Ok(listener) => {
                        let targets: Targets = Arc::new(Mutex::new(targets));
                        // Its own source: clients come when they like, and no name in the simulated cluster may depend on that.
                        let random = Randomness::seeded(client.server.randomness().seed());
                        let task = tokio::spawn(accept(
                            listener,
                            targets.clone(),
                            self.connections.clone(),
                            random,
                        ))
                        .abort_handle();
                        known.insert(address, ServiceListener { targets, task });
                    }
                    // The address may still be closing: this view is tried again.
                    Err(_) => failed = true,
                },
            }
        }
        if failed {
            self.pending
                .entry(key.clone())
                .or_default()
                .push_front((now, routes));
            return Ok(Some(Duration::from_millis(100)));
        }
        Ok(later)
    }
}

/// All nodes listen on the same address; the kernel picks one, as if the client were on that node.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// The Service's addresses and where each leads from one node. An address without a route refuses connections;
/// one whose route is empty drops them, as a `Local` policy does on a node without an endpoint.
fn routes_of(client: &ControllerClient, service: &Value, node: &str) -> Routes {
    let Ok(address) = service.text("/spec/clusterIP").parse::<Ipv4Addr>() else {
        return BTreeMap::new();
    };
    let (namespace, name) = (
        service.text("/metadata/namespace"),
        service.text("/metadata/name"),
    );
    let slices = client
        .list(Kind::ENDPOINT_SLICES, Some(namespace))
        .into_iter();
    let slices: Vec<_> = slices
        .filter(|slice| {
            slice
                .value
                .text("/metadata/labels/kubernetes.io~1service-name")
                == name
        })
        .collect();
    let mut all = BTreeMap::new();
    for port in service
        .list("/spec/ports")
        .iter()
        .filter(|port| port.text("/protocol") != "UDP")
    {
        let endpoints = Endpoints::of_port(&slices, port.text("/name"), node);
        let number = |field: &str| {
            port.number(field)
                .and_then(|number| u16::try_from(number).ok())
        };
        let addresses = [
            (
                IpAddr::V4(address),
                number("/port"),
                "internalTrafficPolicy",
            ),
            (HOST, number("/nodePort"), "externalTrafficPolicy"),
        ];
        for (address, number, policy) in addresses {
            let local = service.text(&format!("/spec/{policy}")) == "Local";
            if let Some(number) = number
                && let Some(usable) = endpoints.usable(local)
            {
                all.insert(SocketAddr::new(address, number), usable);
            }
        }
    }
    all
}

/// One endpoint as a kube-proxy knows it.
#[derive(Clone, Copy)]
struct Endpoint {
    ready: bool,
    serving_while_terminating: bool,
    local: bool,
}

/// The endpoints of one Service port. An address and port in two slices is one endpoint, and its conditions are not
/// merged: they are those of the slice that is read first, or of the last one that says the endpoint is local.
/// kube-proxy reads slices in no order; here they are read by name.
struct Endpoints(BTreeMap<SocketAddr, Endpoint>);

impl Endpoints {
    fn of_port(slices: &[Arc<Stored>], name: &str, node: &str) -> Self {
        let mut all = BTreeMap::new();
        for slice in slices {
            let mut ports = slice.value.list("/ports").iter();
            let Some(port) = ports
                .find(|one| one.text("/name") == name)
                .and_then(|one| one.number("/port"))
                .and_then(|number| u16::try_from(number).ok())
            else {
                continue;
            };
            for endpoint in slice.value.list("/endpoints") {
                let first = endpoint.text("/addresses/0");
                let Ok(ip) = first.parse::<IpAddr>() else {
                    continue;
                };
                let says = |condition: &str, otherwise: bool| {
                    let said = endpoint.at(&format!("/conditions/{condition}")).as_bool();
                    said.unwrap_or(otherwise)
                };
                let endpoint = Endpoint {
                    ready: says("ready", true),
                    serving_while_terminating: says("serving", true) && says("terminating", false),
                    local: endpoint.text("/nodeName") == node,
                };
                let known = all.entry(SocketAddr::new(ip, port)).or_insert(endpoint);
                if endpoint.local {
                    *known = endpoint;
                }
            }
        }
        Self(all)
    }

    /// `CategorizeEndpoints`: the ready endpoints; without one, those that serve while they terminate. A `Local`
    /// policy decides that among the node's own. `None` if the Service has no usable endpoint anywhere.
    fn usable(&self, local: bool) -> Option<Vec<SocketAddr>> {
        let choose = |fits: &dyn Fn(&Endpoint) -> bool| -> Vec<SocketAddr> {
            let fitting = self.0.iter().filter(|(_, endpoint)| fits(endpoint));
            fitting.map(|(address, _)| *address).collect()
        };
        let reachable = |endpoint: &Endpoint| !local || endpoint.local;
        let ready = choose(&|one| reachable(one) && one.ready);
        let usable = if ready.is_empty() {
            choose(&|one| reachable(one) && one.serving_while_terminating)
        } else {
            ready
        };
        let anywhere = choose(&|one| one.ready || one.serving_while_terminating);
        (!anywhere.is_empty()).then_some(usable)
    }
}

async fn accept(
    listener: TcpListener,
    targets: Targets,
    connections: Connections,
    random: Randomness,
) {
    loop {
        // A failed accept is the client's loss; the listener lives on.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let chosen = {
            let targets = targets.lock();
            targets.get(random.below(targets.len())).copied()
        };
        let mut open = connections.lock();
        while open.try_join_next().is_some() {}
        open.spawn(forward(stream, chosen));
    }
}

async fn forward(mut client: TcpStream, target: Option<SocketAddr>) {
    let Some(target) = target else {
        // Dropped packets: the client waits until it gives up.
        drop(copy(&mut client, &mut sink()).await);
        return;
    };
    match TcpStream::connect(target).await {
        Ok(mut pod) => drop(copy_bidirectional(&mut client, &mut pod).await),
        // With iptables the client would see the pod's own refusal: a reset.
        Err(_) => drop(client.set_zero_linger()),
    }
}
