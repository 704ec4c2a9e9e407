//! One node's kube-proxy: listens on cluster addresses and passes connections to endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::api_server::object::Object as _;
use crate::api_server::status::ApiError;
use crate::api_server::store::{Key, Stored};
use crate::controllers::{Change, Controller, ControllerClient, Kind};
use crate::random::Randomness;

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
    lag: Arc<Mutex<Duration>>,
    listeners: BTreeMap<Key, BTreeMap<SocketAddr, ServiceListener>>,
    connections: Connections,
    /// What each Service looked like when something changed, and when this node is to know it.
    pending: BTreeMap<Key, VecDeque<(Instant, Routes)>>,
}

/// Addresses to listen on and where each leads.
type Routes = BTreeMap<SocketAddr, Vec<SocketAddr>>;

impl KubeProxy {
    pub(crate) fn new(lag: Arc<Mutex<Duration>>) -> Self {
        Self {
            lag,
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
            .map(|service| routes_of(client, &service.value))
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
        let known = self.listeners.entry(key.clone()).or_default();
        known.retain(|address, _| routes.contains_key(address));
        let mut failed = false;
        for (address, targets) in routes.clone() {
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

/// The Service's addresses and where each leads.
fn routes_of(client: &ControllerClient, service: &Value) -> Routes {
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
        let Some(number) = port
            .number("/port")
            .and_then(|number| u16::try_from(number).ok())
        else {
            continue;
        };
        let targets = targets(&slices, port.text("/name"));
        if !targets.is_empty() {
            all.insert(SocketAddr::new(address.into(), number), targets);
        }
    }
    all
}

/// Where one named port leads: ready endpoints, else serving ones that are terminating.
fn targets(slices: &[Arc<Stored>], name: &str) -> Vec<SocketAddr> {
    let (mut ready, mut leaving) = (Vec::new(), Vec::new());
    for slice in slices {
        let target = slice
            .value
            .list("/ports")
            .iter()
            .find(|one| one.text("/name") == name);
        let Some(target) = target
            .and_then(|one| one.number("/port"))
            .and_then(|number| u16::try_from(number).ok())
        else {
            continue;
        };
        for endpoint in slice.value.list("/endpoints") {
            let ips = endpoint
                .list("/addresses")
                .iter()
                .filter_map(Value::as_str)
                .filter_map(|ip| ip.parse::<IpAddr>().ok());
            let addresses = ips.map(|ip| SocketAddr::new(ip, target));
            let says = |condition: &str, otherwise: bool| {
                endpoint
                    .at(&format!("/conditions/{condition}"))
                    .as_bool()
                    .unwrap_or(otherwise)
            };
            if says("ready", true) {
                ready.extend(addresses);
            } else if says("serving", true) && says("terminating", false) {
                leaving.extend(addresses);
            }
        }
    }
    if ready.is_empty() { leaving } else { ready }
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
    let reached = match target {
        Some(target) => TcpStream::connect(target).await.ok(),
        None => None,
    };
    match reached {
        Some(mut pod) => drop(copy_bidirectional(&mut client, &mut pod).await),
        // With iptables the client would see the pod's own refusal: a reset.
        None => drop(client.set_zero_linger()),
    }
}
