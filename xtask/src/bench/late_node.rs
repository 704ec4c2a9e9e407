//! Requests that are held for a pod whose only node appears two minutes later: `cargo xtask bench late-node`.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use super::cold_start;
use crate::churn;
use crate::churn::disturbance::kubectl_in;
use crate::churn::request_log::{Entry, RequestLog, clock};
use crate::churn::timeline::{Edge, Timeline};
use crate::churn::world::{self, Size};
use crate::kubernetes::nodes::{FIRST, Node};
use crate::kubernetes::{self, ready};

const NODES: usize = 2;
const RESOLVERS: usize = 1;
const REQUESTS: usize = 5;
const COOLDOWN_SECONDS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(120);
/// Of a node, in the order of starting. Its containerd goes on: what it has pulled is there when the node is back.
const PROCESSES: [&str; 2] = ["kubelet", "kube-proxy"];
/// A request waits no longer than 300 s, and the node and the pod take their time to start.
const AWAY_SECONDS_MAX: u64 = 240;

/// How long the node is away, and how kube-proxy writes its rules.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    away: Duration,
    mode: String,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            away: Duration::from_secs(120),
            mode: "iptables".into(),
        };
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--away-seconds", n] => {
                    let seconds = n.parse().ok().filter(|n| *n <= AWAY_SECONDS_MAX)?;
                    options.away = Duration::from_secs(seconds);
                }
                ["--proxy-mode", mode] => options.mode = (*mode).to_owned(),
                _ => return None,
            }
        }
        pairs.remainder().is_empty().then_some(options)
    }
}

/// What is under test, and how it is watched.
struct Trial {
    /// The node that its pods need.
    late: Node,
    target: String,
    timeline: Timeline,
    requests: RequestLog,
}

/// Sends requests while the node is away, and starts it again; a lost request is an error.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    install(&options.mode)?;
    let late = Node::all().into_iter().find(|node| *node != FIRST);
    let late = late.ok_or("the cluster has one node only")?;
    wait_until_empty(late, world::RELEASE)?;
    let size = Size {
        targets: 1,
        node: Some(late),
        ..Size::default()
    };
    world::create(size, COOLDOWN_SECONDS)?;
    churn::wait_for_answer(0)?;
    let target = world::target(0);
    let trial = Trial {
        late,
        // Not on the node that is away.
        requests: RequestLog::new(vec![FIRST]).to(vec![world::address(&target)?]),
        target,
        timeline: Timeline::watch(world::NAMESPACE),
    };
    let measured = trial.measure(options.away);
    // Also after a failure.
    let back = bring_back(late);
    let removed = world::remove();
    trial.timeline.end();
    let (ready, entries) = measured?;
    back?;
    let lost = trial.print(ready, &entries);
    removed?;
    match lost {
        0 => Ok(()),
        lost => Err(format!("{lost} requests were lost").into()),
    }
}

/// Elasti on the first node only, so that taking the other one away changes nothing but the room for the app. Every
/// command that needs Elasti installs it with values of its own, so nothing of this is left for the next one.
fn install(mode: &str) -> Result<(), Box<dyn Error>> {
    let there = |component: &str| {
        let node = FIRST.name();
        format!(r"{component}.nodeSelector.kubernetes\.io/hostname={node}")
    };
    let (operators, resolvers) = (there("elastiController"), there("elastiResolver"));
    world::install_with(mode, NODES, RESOLVERS, &[&operators, &resolvers])
}

impl Trial {
    /// Gives the moment at which the node was Ready, and every request.
    fn measure(&self, away: Duration) -> Result<(Instant, Vec<Entry>), Box<dyn Error>> {
        cold_start::at_zero(&self.target, 0, &self.timeline)?;
        wait_until_empty(self.late, world::NAMESPACE)?;
        take_away(self.late)?;
        println!("{} {} is away", clock(), self.late.name());
        let start = Instant::now();
        for _ in 0..REQUESTS {
            self.requests.send(&format!("{} held", self.target));
        }
        self.seen(Edge::Woken, start)?;
        thread::sleep(away.saturating_sub(start.elapsed()));
        let (sent, answered, lost) = self.requests.counts();
        println!(
            "{} after {} s: {sent} sent, {answered} answered, {lost} lost, the rest is held",
            clock(),
            away.as_secs()
        );
        if answered > 0 {
            return Err("the app answered without its node".into());
        }
        bring_back(self.late)?;
        let ready = Instant::now();
        println!("{} {} is Ready", clock(), self.late.name());
        Ok((ready, self.requests.close()))
    }

    fn seen(&self, edge: Edge, after: Instant) -> Result<Instant, Box<dyn Error>> {
        let seen = self.timeline.wait_for(&self.target, edge, after, LIMIT);
        seen.ok_or_else(|| format!("{} did not come to {edge:?}", self.target).into())
    }

    /// Prints how long after the node was Ready each was answered, and gives how many were lost.
    fn print(&self, ready: Instant, entries: &[Entry]) -> usize {
        let (seen, _) = self.timeline.seen();
        // A pod was ready before the sleep, too.
        let mut wake = seen.iter().skip_while(|one| one.edge != Edge::Woken);
        if let Some(pod) = wake.find(|one| one.edge == Edge::PodReady) {
            println!("pod Ready {:+.2} s after the node", seconds(ready, pod.at));
        }
        for entry in entries {
            let outcome = &entry.outcome;
            let answered = seconds(ready, outcome.sent_at + outcome.took);
            match &outcome.result {
                Ok(()) => println!("{} answered {answered:+.2} s after the node", entry.id),
                Err(lost) => println!("{} LOST {answered:+.2} s after the node: {lost}", entry.id),
            }
        }
        let answered = entries.iter().filter(|e| e.outcome.result.is_ok()).count();
        let lost = REQUESTS - answered;
        println!("{REQUESTS} requests, {answered} answered, {lost} lost");
        lost
    }
}

/// From one moment to another, which may be the earlier one.
fn seconds(from: Instant, to: Instant) -> f64 {
    match to.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    }
}

/// Waits until no pod of a namespace is on a node.
fn wait_until_empty(node: Node, namespace: &str) -> Result<(), Box<dyn Error>> {
    let there = format!("--field-selector=spec.nodeName={}", node.name());
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let found = kubectl_in(namespace, &["get", "pods", &there, "--output=name"])?;
        if found.is_empty() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Err(format!("pods of {namespace} do not leave {}", node.name()).into())
}

/// Stops what runs on a node, and removes it from the cluster. Its kube-proxy goes first: it follows the Node object.
fn take_away(node: Node) -> Result<(), Box<dyn Error>> {
    for name in PROCESSES.iter().rev() {
        kubernetes::run(&["stop", &node.suffixed(name)]).ok_or("stop is not known")??;
    }
    kubectl_in(
        world::NAMESPACE,
        &["delete", "node", &node.name(), "--timeout=60s"],
    )?;
    Ok(())
}

/// Starts what does not run. The kubelet registers the node anew; its pod network is in files and routes, not in the
/// Node object.
fn bring_back(node: Node) -> Result<(), Box<dyn Error>> {
    for name in PROCESSES {
        kubernetes::run(&["start", &node.suffixed(name)]).ok_or("start is not known")??;
    }
    ready::node(node)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Options;

    #[test]
    fn the_node_is_away_for_less_time_than_a_request_waits() {
        let away = |arguments: &[&str]| Options::parse(arguments).map(|one| one.away);
        assert_eq!(away(&[]), Some(Duration::from_secs(120)));
        assert_eq!(away(&["--away-seconds", "5"]), Some(Duration::from_secs(5)));
        for wrong in [&["--away-seconds", "241"][..], &["--away-seconds"]] {
            assert_eq!(away(wrong), None, "{wrong:?}");
        }
    }
}
