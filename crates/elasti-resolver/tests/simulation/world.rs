//! One seed's world: services that sleep and wake, the operator, resolvers, and what goes wrong with them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use elasti_api::{ActivityReport, WakeRequest, names};
use elasti_resolver::{Running, Settings};
use elasti_simulated_network::{Network, SimRng, TcpListener, TcpStream, listen};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::kubernetes::{ELASTI_SERVICES, Kubernetes, PODS, SERVICES, SLICES};
use crate::ledger::Ledger;
use crate::pods::{Behaviour, PROBE, Pod, Stop};

pub const SETTLE: Duration = Duration::from_secs(2);
const OPERATOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)), 8013);
/// Faults end here, so that liveness can be checked.
const FAULTS_END: Duration = Duration::from_secs(40);

/// A service's plan for one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: &'static str,
    pub listen_port: u16,
    pub tcp: bool,
    pub timeout: Duration,
    pub max_held: Option<u32>,
    pub starts: bool,
    /// Why its pods cannot start, once the operator has noticed.
    pub obstacle: Option<&'static str>,
    pub behaviours: Vec<Behaviour>,
}

#[derive(Debug, Default)]
struct Live {
    replicas: usize,
    marked: bool,
    pods: Vec<(Arc<Pod>, bool)>,
}

struct Instance {
    address: IpAddr,
    running: Arc<Running>,
    draining_since: Mutex<Option<Instant>>,
}

/// Everything of one seed.
pub struct World {
    pub ledger: Arc<Ledger>,
    pub plans: Vec<Plan>,
    pub network: Network,
    began: Instant,
    cluster: Arc<Kubernetes>,
    live: Vec<Mutex<Live>>,
    instances: Vec<Instance>,
    rng: Mutex<SimRng>,
    next_pod: Mutex<u8>,
    obstacles_until: Instant,
}

fn plan(rng: &mut SimRng, name: &'static str, listen_port: u16, tcp: bool) -> Plan {
    let starts = !rng.percent(8);
    let mut behaviours = vec![Behaviour::Good; usize::try_from(rng.between(1, 2)).unwrap()];
    for _ in 0..rng.between(0, 2) {
        let nth = u32::try_from(rng.between(1, 4)).unwrap();
        behaviours.push(match rng.between(0, 9) {
            0 => Behaviour::Late(rng.millis(10, 3000)),
            1 | 2 => Behaviour::Refuses,
            3 => Behaviour::BlackHole,
            4 => Behaviour::ResetsFirst(nth),
            5 => Behaviour::ClosesIdle(rng.millis(200, 5000)),
            6 => Behaviour::Breaks(nth),
            7 => Behaviour::Cuts(nth),
            8 => Behaviour::Dies(nth),
            _ => Behaviour::Hangs,
        });
    }
    let turn = usize::try_from(rng.between(0, 3)).unwrap() % behaviours.len();
    behaviours.rotate_left(turn);
    Plan {
        name,
        listen_port,
        tcp,
        timeout: Duration::from_secs(rng.between(20, 50)),
        max_held: rng
            .percent(15)
            .then(|| u32::try_from(rng.between(1, 4)).unwrap()),
        starts,
        obstacle: rng.percent(50).then_some("ImagePull").filter(|_| !starts),
        behaviours,
    }
}

impl World {
    pub fn start(seed: u64) -> Arc<Self> {
        let mut rng = SimRng::new(seed);
        let network = Network::enter(rng.fork());
        let cluster = Kubernetes::new(rng.fork());
        let plans = vec![
            plan(&mut rng, "cart", 20_001, false),
            plan(&mut rng, "shop", 20_002, false),
            plan(&mut rng, "db", 20_003, true),
        ];
        let ledger: Arc<Ledger> = Arc::default();
        ledger.links(network.longest_delay());
        for one in &plans {
            ledger.timeout(one.name, one.timeout);
            if !one.starts {
                ledger.stuck(one.name);
            }
            if one.max_held.is_some() {
                ledger.excuse(one.name, "ServiceFull");
            }
            declare(&cluster, one);
        }
        let resolvers: Vec<IpAddr> = (0..rng.between(1, 2))
            .map(|at| IpAddr::V4(Ipv4Addr::new(10, 0, 1, u8::try_from(at).unwrap() + 1)))
            .collect();
        let instances: Vec<Instance> = resolvers
            .iter()
            .map(|address| Instance {
                address: *address,
                running: Arc::new(
                    Running::start(settings(*address, &resolvers), cluster.client()).unwrap(),
                ),
                draining_since: Mutex::default(),
            })
            .collect();
        let obstacles_until = Instant::now() + rng.millis(5_000, 60_000);
        let world = Arc::new(Self {
            ledger,
            network,
            began: Instant::now(),
            cluster,
            live: plans.iter().map(|_| Mutex::default()).collect(),
            instances,
            plans,
            rng: Mutex::new(rng),
            next_pod: Mutex::new(0),
            obstacles_until,
        });
        tokio::spawn(operator(world.clone()));
        tokio::spawn(faults(world.clone()));
        for at in 0..world.plans.len() {
            tokio::spawn(scale_to_zero_when_idle(world.clone(), at));
        }
        world
    }

    pub fn fork(&self) -> SimRng {
        self.rng.lock().fork()
    }

    /// Ends when every resolver has its routes.
    pub async fn ready(&self) {
        while !self
            .instances
            .iter()
            .all(|instance| instance.running.is_ready())
        {
            sleep(Duration::from_millis(20)).await;
        }
        // Listeners open a moment after the table.
        sleep(Duration::from_millis(100)).await;
    }

    /// Where the nodes send a new connection: to a resolver that is not draining, or has been for less than they take.
    pub fn instance(&self, rng: &mut SimRng) -> Option<IpAddr> {
        let open = self.instances.iter().filter(|instance| {
            let draining_since = *instance.draining_since.lock();
            draining_since
                .is_none_or(|since| since + SETTLE - Duration::from_millis(500) > Instant::now())
        });
        let open: Vec<IpAddr> = open.map(|instance| instance.address).collect();
        let last = open.len().checked_sub(1)?;
        open.get(usize::try_from(rng.between(0, last as u64)).unwrap())
            .copied()
    }

    pub fn held(&self) -> usize {
        self.instances
            .iter()
            .map(|instance| instance.running.held())
            .sum()
    }

    /// Asks every resolver for its activity until nothing is held or open.
    pub async fn slots_are_free(&self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..300 {
            let mut free = true;
            for instance in &self.instances {
                let report = match activity(instance.address).await {
                    Ok(report) => report,
                    // While the API server is down no token can be reviewed.
                    Err(why) => {
                        (free, last) = (false, why);
                        continue;
                    }
                };
                free &= report
                    .services
                    .iter()
                    .all(|one| one.held == 0 && one.open == 0)
                    && instance.running.held() == 0;
                last = format!("{:?}", report.services);
            }
            if free {
                return Ok(());
            }
            sleep(Duration::from_secs(1)).await;
        }
        Err(format!("slots are still taken: {last}"))
    }

    /// Whether every drain ends.
    pub async fn drains_end(&self) -> Result<(), String> {
        for instance in self
            .instances
            .iter()
            .filter(|instance| instance.draining_since.lock().is_some())
        {
            let drained = timeout(Duration::from_secs(120), instance.running.drain()).await;
            drained.map_err(|_| "a drain never ends".to_owned())?;
            self.ledger.count("drains");
        }
        Ok(())
    }

    fn wake(self: &Arc<Self>, name: &str) {
        let Some(at) = self.plans.iter().position(|plan| plan.name == name) else {
            return self.ledger.report_violation(format!("a wake for {name}"));
        };
        self.ledger.count("wakes");
        let plan = &self.plans[at];
        if self.live[at].lock().marked {
            self.mark(at, false);
        }
        if std::mem::replace(&mut self.live[at].lock().replicas, plan.behaviours.len()) > 0 {
            return;
        }
        self.status(at, "proxy", "Waking", None);
        let blocked = !plan.starts && Instant::now() < self.obstacles_until;
        if blocked {
            tokio::spawn(stuck(self.clone(), at));
            return;
        }
        for behaviour in plan.behaviours.clone() {
            tokio::spawn(run_pod(self.clone(), at, behaviour));
        }
    }

    fn status(&self, at: usize, mode: &str, phase: &str, reason: Option<&str>) {
        self.cluster
            .change(ELASTI_SERVICES, self.plans[at].name, |object| {
                object["status"]["mode"] = json!(mode);
                object["status"]["phase"] = json!(phase);
                object["status"]["reason"] = json!(reason);
            });
    }

    /// Takes the pods out of rotation without ending them, or puts them back.
    fn mark(&self, at: usize, marked: bool) {
        let pods = {
            let mut live = self.live[at].lock();
            live.marked = marked;
            live.pods.clone()
        };
        for (pod, ready) in &pods {
            let ready = *ready && !marked;
            self.cluster
                .set(PODS, &pod.name, pod_object(pod, ready, marked));
        }
        self.publish(at);
    }

    /// Updates the slice from the pods.
    fn publish(&self, at: usize) {
        let live = self.live[at].lock();
        let plan = &self.plans[at];
        let endpoints = live.pods.iter().map(|(pod, ready)| {
            json!({
                "addresses": [pod.address.ip().to_string()], "conditions": {"ready": *ready && !live.marked, "terminating": false},
                "targetRef": {"kind": "Pod", "namespace": "default", "name": pod.name, "uid": pod.name},
            })
        });
        let endpoints: Vec<Value> = endpoints.collect();
        let good = live
            .pods
            .iter()
            .any(|(pod, ready)| *ready && pod.behaviour == Behaviour::Good)
            && !live.marked;
        self.ledger.good(plan.name, good);
        let private = names::private_service(plan.name);
        self.cluster.set(SLICES, &format!("{private}-x"), json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"labels": {
                names::SERVICE_NAME_LABEL: private, names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES,
                names::ELASTI_SERVICE_LABEL: plan.name,
            }},
            "ports": [{"name": "main", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints,
        }));
    }
}

fn settings(address: IpAddr, resolvers: &[IpAddr]) -> Settings {
    Settings {
        bind: address,
        admin: SocketAddr::new(address, 8013),
        health: SocketAddr::new(address, 8011),
        proxy: Some(SocketAddr::new(address, 8012)),
        operator: OPERATOR.to_string(),
        resolvers: resolvers.iter().copied().collect(),
        settle: SETTLE,
        memory_group: "/nowhere".into(),
        activity_readers: ["operator".to_owned()].into(),
        ..Settings::default()
    }
}

fn declare(cluster: &Kubernetes, plan: &Plan) {
    let mut hold = json!({"timeoutSeconds": plan.timeout.as_secs()});
    if let Some(most) = plan.max_held {
        hold["maxRequests"] = json!(most);
    }
    cluster.set(ELASTI_SERVICES, plan.name, json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": plan.name}, "service": plan.name, "hold": hold,
            "triggers": [{"type": "prometheus", "metadata": {"query": "x", "threshold": "1", "serverAddress": "http://p"}}],
        },
        "status": {"mode": "proxy", "phase": "Asleep", "ports": [{"name": "main", "port": 80, "listenPort": plan.listen_port}]},
    }));
    cluster.set(SERVICES, &names::private_service(plan.name), json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {},
        "spec": {"selector": {"app": plan.name}, "ports": [{"name": "main", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    }));
}

/// The same with a readiness probe, and a container that runs.
fn probed_pod_object(pod: &Pod) -> Value {
    let mut object = pod_object(pod, false, false);
    let http = json!({"port": 8080, "path": format!("/{PROBE}")});
    let container = json!({"name": "app", "readinessProbe": {"httpGet": http}});
    object["spec"]["containers"] = json!([container]);
    object["status"]["containerStatuses"] = json!([{
        "name": "app", "image": "app", "imageID": "", "ready": false, "started": true, "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }]);
    object
}

fn pod_object(pod: &Pod, ready: bool, marked: bool) -> Value {
    let mut condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    if marked {
        condition["reason"] = json!(names::DRAIN_REASON);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": pod.service}, "uid": pod.name}, "spec": {"containers": []},
        "status": {"podIP": pod.address.ip().to_string(), "podIPs": [{"ip": pod.address.ip().to_string()}], "conditions": [condition]},
    })
}

/// A wake without effect until the obstacle is removed.
async fn stuck(world: Arc<World>, at: usize) {
    let plan = world.plans[at].clone();
    if let Some(reason) = plan.obstacle {
        sleep(Duration::from_secs(3)).await;
        world.ledger.excuse(plan.name, reason);
        world.status(at, "proxy", "Waking", Some(reason));
    }
    tokio::time::sleep_until(world.obstacles_until).await;
    world.status(at, "proxy", "Waking", None);
    world.live[at].lock().replicas = 0;
}

#[allow(
    clippy::too_many_lines,
    reason = "the life of a pod, from its start to its end"
)]
async fn run_pod(world: Arc<World>, at: usize, mut behaviour: Behaviour) {
    loop {
        let (nth, rng) = {
            let mut next = world.next_pod.lock();
            *next = next.wrapping_add(1);
            (*next, world.fork())
        };
        let plan = &world.plans[at];
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, nth)), 8080);
        let pod = Pod::new(
            format!("{}-{nth}", plan.name),
            plan.name,
            address,
            behaviour,
            plan.tcp,
            world.ledger.clone(),
            rng,
        );
        let (start, slice_lag, probed, warms_up, kubelet_lag) = {
            let mut rng = world.rng.lock();
            let (start, slice_lag) = (rng.millis(100, 8000), rng.millis(0, 1000));
            let probed = !plan.tcp && rng.percent(50);
            (
                start,
                slice_lag,
                probed,
                rng.millis(0, 3000),
                rng.millis(0, 10_000),
            )
        };
        if behaviour == Behaviour::BlackHole {
            world.network.black_hole(address.ip());
        }
        world.live[at].lock().pods.push((pod.clone(), false));
        world
            .cluster
            .set(PODS, &pod.name, pod_object(&pod, false, false));
        sleep(start).await;
        pod.well.store(!probed, Ordering::Relaxed);
        let serving = tokio::spawn(pod.clone().serve());
        tokio::task::yield_now().await;
        if probed {
            world.cluster.set(PODS, &pod.name, probed_pod_object(&pod));
            sleep(warms_up).await;
            pod.well.store(true, Ordering::Relaxed);
            sleep(kubelet_lag).await;
        }
        pod.ready.store(true, Ordering::Relaxed);
        let marked = {
            let mut live = world.live[at].lock();
            live.pods
                .iter_mut()
                .filter(|(one, _)| one.name == pod.name)
                .for_each(|(_, ready)| *ready = true);
            live.marked
        };
        world
            .cluster
            .set(PODS, &pod.name, pod_object(&pod, !marked, marked));
        let late = world.clone();
        tokio::spawn(async move {
            sleep(slice_lag).await;
            late.publish(at);
            sleep(Duration::from_secs(3)).await;
            let in_rotation = late.live[at].lock().pods.iter().any(|(_, ready)| *ready);
            if in_rotation && !late.live[at].lock().marked {
                late.status(at, "serve", "Serving", None);
            }
        });
        let stop = serving.await.unwrap();
        // A pod that ended in order was taken out before.
        if stop == Stop::InOrder {
            return;
        }
        world.ledger.count("pods crashed");
        world.live[at]
            .lock()
            .pods
            .retain(|(one, _)| one.name != pod.name);
        let lag = world.rng.lock().millis(0, 1500);
        sleep(lag).await;
        world.cluster.delete(PODS, &pod.name);
        world.publish(at);
        if world.live[at].lock().replicas == 0 {
            return;
        }
        behaviour = Behaviour::Good;
    }
}

/// Puts a service to sleep when it is quiet, as the operator does: redirect, mark, settle, check again, then zero.
async fn scale_to_zero_when_idle(world: Arc<World>, at: usize) {
    let name = world.plans[at].name;
    loop {
        sleep(Duration::from_secs(1)).await;
        let has_pods = world.live[at].lock().pods.iter().all(|(_, ready)| *ready)
            && !world.live[at].lock().pods.is_empty();
        let wants_sleep = world.rng.lock().percent(40);
        if !has_pods || !wants_sleep || !world.ledger.quiet(name, Duration::from_secs(2)) {
            continue;
        }
        let since = Instant::now();
        world.status(at, "proxy", "Draining", None);
        world.mark(at, true);
        sleep(SETTLE).await;
        let cancelled = world.ledger.began_since(name, since) || !world.live[at].lock().marked;
        if cancelled {
            world.ledger.count("sleeps cancelled");
            world.mark(at, false);
            continue;
        }
        let pods = {
            let mut live = world.live[at].lock();
            live.replicas = 0;
            live.marked = false;
            std::mem::take(&mut live.pods)
        };
        world.status(at, "proxy", "Asleep", None);
        world.publish(at);
        for (pod, _) in pods {
            world.cluster.delete(PODS, &pod.name);
            pod.stop.send_replace(Stop::InOrder);
        }
        world.ledger.count("sleeps");
    }
}

/// Stalls, API outages, and a resolver that drains.
async fn faults(world: Arc<World>) {
    let mut rng = world.fork();
    world.ready().await;
    let drains = world.instances.len() > 1 && rng.percent(50);
    let drain_at = rng.between(0, 7);
    for at in 0..8 {
        let pause = rng.millis(1000, 6000);
        sleep(pause).await;
        if drains && at == drain_at {
            let instance = &world.instances[0];
            world.ledger.drained();
            *instance.draining_since.lock() = Some(Instant::now());
            let running = instance.running.clone();
            tokio::spawn(async move { running.drain().await });
        }
        let until = Instant::now() + rng.millis(50, 4000);
        match rng.between(0, 11) {
            0 => {
                let pods: Vec<IpAddr> = world
                    .live
                    .iter()
                    .flat_map(|live| {
                        live.lock()
                            .pods
                            .iter()
                            .map(|(pod, _)| pod.address.ip())
                            .collect::<Vec<_>>()
                    })
                    .collect();
                for pod in pods.into_iter().filter(|_| rng.percent(50)) {
                    world.network.stall(pod, until);
                }
                world.ledger.count("stalls");
                world.ledger.dark(until);
            }
            1 => {
                world.network.stall(world.instances[0].address, until);
                world.ledger.count("stalls");
                world.ledger.dark(until);
            }
            2 => {
                world.network.stall(OPERATOR.ip(), until);
                world.ledger.count("stalls");
            }
            3 => {
                world.cluster.down(until);
                world.ledger.count("API outages");
                world.ledger.dark(until);
            }
            _ => {}
        }
    }
}

/// Takes wakes; loses, delays and refuses some while faults last.
async fn operator(world: Arc<World>) {
    let mut rng = world.fork();
    loop {
        let listener = listen(OPERATOR).unwrap();
        let open = if rng.percent(30) && world.began.elapsed() < FAULTS_END {
            rng.millis(500, 15_000)
        } else {
            Duration::from_secs(3600)
        };
        let _ = timeout(open, serve_wakes(&world, &listener, &mut rng)).await;
        drop(listener);
        world.ledger.count("operator outages");
        let away = rng.millis(100, 4000);
        sleep(away).await;
    }
}

async fn serve_wakes(world: &Arc<World>, listener: &TcpListener, rng: &mut SimRng) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (world, rng) = (world.clone(), Arc::new(Mutex::new(rng.fork())));
        let service = service_fn(move |request| {
            let (world, rng) = (world.clone(), rng.clone());
            async move { serve_wake(&world, &rng, request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move { drop(connection.await) });
    }
}

async fn serve_wake(
    world: &Arc<World>,
    rng: &Mutex<SimRng>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let body = request
        .into_body()
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let wake: WakeRequest = serde_json::from_slice(&body)?;
    let lost = || Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let (delivery, delay) = {
        let mut rng = rng.lock();
        let faults_ended = world.began.elapsed() > FAULTS_END;
        (
            if faults_ended { 9 } else { rng.between(0, 9) },
            rng.millis(0, 5000),
        )
    };
    match delivery {
        0 => {
            world.ledger.count("wakes lost");
            return lost();
        }
        1 => {
            world.wake(&wake.svc);
            return lost();
        }
        2 => {
            world.ledger.count("wakes late");
            sleep(delay).await;
        }
        3 => {
            return Ok(Response::builder()
                .status(500)
                .body(Full::default())
                .unwrap());
        }
        _ => {}
    }
    world.wake(&wake.svc);
    Ok(Response::new(Full::default()))
}

async fn activity(address: IpAddr) -> Result<ActivityReport, String> {
    let report = async {
        let stream = TcpStream::connect(SocketAddr::new(address, 8013))
            .await
            .map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move { drop(connection.await) });
        let request = Request::get(names::ACTIVITY_PATH)
            .header("host", "x")
            .header("authorization", "Bearer y")
            .body(Full::<Bytes>::default())
            .unwrap();
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let body = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        serde_json::from_slice(&body).map_err(|_| String::from_utf8_lossy(&body).into_owned())
    };
    timeout(Duration::from_secs(60), report)
        .await
        .unwrap_or_else(|_| Err("no activity report".into()))
}
