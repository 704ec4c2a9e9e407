//! What clients see while no operator runs: the only pod is killed, then the target is scaled to zero by hand:
//! `cargo xtask bench without-operator`.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::churn::disturbance::{self, OPERATOR, kubectl_in};
use crate::churn::request::Outcome;
use crate::churn::request_log::{Entry, RequestLog, clock};
use crate::churn::timeline::{Edge, Timeline};
use crate::churn::{destination, world};
use crate::kubernetes::nodes::Node;
use crate::names;

/// It must not fall asleep by itself.
const COOLDOWN_SECONDS: u32 = 3600;
const REQUESTS_PER_SECOND: u32 = 20;
const RESOLVERS: usize = 2;
/// Nodes follow an EndpointSlice within this.
const SETTLE: Duration = Duration::from_secs(2);
/// How long requests arrive before and after each of the two.
const PAUSE: Duration = Duration::from_secs(6);
const LIMIT: Duration = Duration::from_secs(90);

/// Where.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    nodes: usize,
    mode: String,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            nodes: 3,
            mode: "iptables".into(),
        };
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--nodes", n] => options.nodes = n.parse().ok()?,
                ["--proxy-mode", mode] => options.mode = (*mode).to_owned(),
                _ => return None,
            }
        }
        pairs.remainder().is_empty().then_some(options)
    }
}

/// Sends from every node all the time; a request that anything but a dying pod refuses is an error.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    world::install(&options.mode, options.nodes, RESOLVERS)?;
    let size = world::Size {
        targets: 1,
        ..world::Size::default()
    };
    world::create(size, COOLDOWN_SECONDS)?;
    let target = world::target(0);
    wait_for_net(&target)?;
    let timeline = Timeline::watch(world::NAMESPACE);
    let requests = RequestLog::new(Node::all()).to(vec![world::address(&target)?]);
    let operators = kubectl_in(world::RELEASE, &["get", "deployment", OPERATOR, REPLICAS])?;
    let start = Instant::now();
    let outcome = disturb(&target, &requests, &timeline);
    // Also after a failure: the next run needs operators.
    scale(world::RELEASE, OPERATOR, &operators)?;
    let deaths = outcome?;
    let answered = wait_for(&timeline, &target, Edge::PodReady, start);
    let entries = requests.close();
    timeline.end();
    world::remove()?;
    answered?;
    judge(&entries, &deaths)
}

/// A pod that stopped, and how long nodes may have sent to it: until they followed the Service's own slices, which showed
/// no ready pod any more.
struct Death {
    address: Option<IpAddr>,
    from: Instant,
    until: Instant,
}

impl Death {
    /// The pod refused this request. The kernel forgets at once where a refused connection was sent, so its time tells:
    /// as long as there is a ready pod, nodes send to no other place.
    fn explains(&self, outcome: &Outcome) -> bool {
        match outcome.destination {
            Some(_) => outcome.destination == self.address,
            None => (self.from..=self.until).contains(&outcome.sent_at),
        }
    }
}

const REPLICAS: &str = "--output=jsonpath={.spec.replicas}";

/// Takes the operators away, kills the pod, and scales to zero; gives the pods that died.
fn disturb(
    target: &str,
    requests: &RequestLog,
    timeline: &Timeline,
) -> Result<Vec<Death>, Box<dyn Error>> {
    scale(world::RELEASE, OPERATOR, "0")?;
    let selector = "--selector=control-plane=controller-manager";
    kubectl_in(
        world::RELEASE,
        &["wait", "--for=delete", "pod", selector, "--timeout=90s"],
    )?;
    println!("{} no operator is left", clock());
    let constant = requests.clone();
    let of = format!("{target} constant");
    // Long enough for all of it; what is held after the last moment is still waited for.
    let sender = thread::spawn(move || {
        constant.burst(&of, REQUESTS_PER_SECOND, 6 * PAUSE);
    });
    thread::sleep(PAUSE);
    let address = timeline.ready_address(target);
    let name = kubectl_in(world::NAMESPACE, &["get", "pods", POD_NAME])?;
    let killed = Instant::now();
    disturbance::kill(world::NAMESPACE, &name)?;
    println!("{} kill -9 of {name} at {address:?}", clock());
    let first = Death {
        address,
        from: killed,
        until: wait_for(timeline, target, Edge::OutOfRotation, killed)? + SETTLE,
    };
    let back = wait_for(timeline, target, Edge::PodReady, killed)?;
    println!(
        "{} ready again after {:.1} s",
        clock(),
        (back - killed).as_secs_f64()
    );
    thread::sleep(PAUSE);
    let address = timeline.ready_address(target);
    let zeroed = Instant::now();
    scale(world::NAMESPACE, target, "0")?;
    println!("{} scaled to zero by hand", clock());
    let second = Death {
        address,
        from: zeroed,
        until: wait_for(timeline, target, Edge::OutOfRotation, zeroed)? + SETTLE,
    };
    wait_for(timeline, target, Edge::PodGone, zeroed)?;
    thread::sleep(PAUSE);
    let (sent, answered, lost) = requests.counts();
    println!(
        "{} at zero: {sent} sent, {answered} answered, {lost} lost, the rest is held",
        clock()
    );
    sender.join().map_err(|_| "a client panicked")?;
    Ok(vec![first, second])
}

const POD_NAME: &str = "--output=jsonpath={.items[0].metadata.name}";

fn scale(namespace: &str, deployment: &str, replicas: &str) -> Result<(), Box<dyn Error>> {
    let replicas = format!("--replicas={replicas}");
    kubectl_in(namespace, &["scale", "deployment", deployment, &replicas])?;
    Ok(())
}

fn wait_for(
    timeline: &Timeline,
    target: &str,
    edge: Edge,
    after: Instant,
) -> Result<Instant, Box<dyn Error>> {
    let seen = timeline.wait_for(target, edge, after, LIMIT);
    seen.ok_or_else(|| format!("{target} did not come to {edge:?}").into())
}

/// Until every resolver is in the slice, and every node knows.
fn wait_for_net(target: &str) -> Result<(), Box<dyn Error>> {
    let selector = format!(
        "--selector=kubernetes.io/service-name={target},{}={}",
        names::SLICE_MANAGED_BY_LABEL,
        names::SLICE_MANAGED_BY_ELASTI
    );
    let path = "--output=jsonpath={.items[*].endpoints[*].addresses[0]}";
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let found = kubectl_in(
            world::NAMESPACE,
            &["get", "endpointslices", &selector, path],
        )?;
        if found.split_whitespace().count() == RESOLVERS {
            thread::sleep(SETTLE);
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Err(format!("{target} has no net of {RESOLVERS} resolvers").into())
}

/// Tells what refused each lost request.
fn judge(entries: &[Entry], deaths: &[Death]) -> Result<(), Box<dyn Error>> {
    let lost: Vec<&Outcome> = entries
        .iter()
        .map(|entry| &entry.outcome)
        .filter(|outcome| outcome.result.is_err())
        .collect();
    let by_pod = |outcome: &Outcome| deaths.iter().any(|death| death.explains(outcome));
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in &lost {
        let by = match by_pod(outcome) {
            true => "the dying pod".into(),
            false => destination::describe(outcome.destination),
        };
        *refused.entry(by).or_default() += 1;
    }
    let slowest = entries.iter().map(|entry| entry.outcome.took).max();
    println!(
        "{} requests, {} answered, {} lost; slowest {:.1} s",
        entries.len(),
        entries.len() - lost.len(),
        lost.len(),
        slowest.unwrap_or_default().as_secs_f64()
    );
    for (by, count) in &refused {
        println!("  refused by {by}: {count}");
    }
    match lost.iter().filter(|outcome| !by_pod(outcome)).count() {
        0 => Ok(()),
        others => Err(format!("{others} requests were lost elsewhere than at a dying pod").into()),
    }
}
