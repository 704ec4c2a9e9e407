//! How long a target takes from the end of its cooldown to zero, with clients on every real node: `cargo xtask bench sleep`.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use crate::churn;
use crate::churn::request_log::RequestLog;
use crate::churn::timeline::{Edge, Timeline};
use crate::churn::world::{self, Size};
use crate::kubernetes::nodes::Node;

const COOLDOWN_SECONDS: u32 = 3;
const LIMIT: Duration = Duration::from_secs(180);
/// What users are promised, however many pods and nodes there are.
const GOAL: Duration = Duration::from_secs(60);

/// How often, and how large.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    runs: usize,
    nodes: usize,
    replicas: usize,
    mode: String,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            runs: 20,
            nodes: 6,
            replicas: 12,
            mode: "iptables".into(),
        };
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--runs", n] => options.runs = n.parse().ok().filter(|runs| *runs > 0)?,
                ["--nodes", n] => options.nodes = n.parse().ok()?,
                ["--replicas", n] => options.replicas = n.parse().ok()?,
                ["--proxy-mode", mode] => options.mode = (*mode).to_owned(),
                _ => return None,
            }
        }
        pairs.remainder().is_empty().then_some(options)
    }
}

/// Wakes the target from every node and lets it fall asleep, so often; a lost request is an error.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    world::install(&options.mode, options.nodes, 2)?;
    let size = Size {
        targets: 1,
        replicas: options.replicas,
        ..Size::default()
    };
    world::create(size, COOLDOWN_SECONDS)?;
    churn::wait_for_answer(0)?;
    let timeline = Timeline::watch(world::NAMESPACE);
    let target = world::target(0);
    let requests = RequestLog::new(Node::all()).to(vec![world::address(&target)?]);
    let measured = (0..options.runs)
        .map(|run| one(run, options, &target, &requests, &timeline))
        .collect::<Result<Vec<Duration>, _>>();
    timeline.end();
    world::remove()?;
    let mut took = measured?;
    took.sort_unstable();
    let at = |share: usize| took.get(share * (took.len() - 1) / 100);
    let seconds = |span: Option<&Duration>| span.map_or(f64::NAN, Duration::as_secs_f64);
    let (sent, answered, lost) = requests.counts();
    let in_time = took.iter().filter(|span| **span <= GOAL).count();
    println!(
        "{} pods on {} nodes, {}: asleep {} times of {}, {in_time} within {} s; from the end of the cooldown to zero p50 {:.1} s, max {:.1} s",
        options.replicas,
        options.nodes,
        options.mode,
        took.len(),
        options.runs,
        GOAL.as_secs(),
        seconds(at(50)),
        seconds(at(100)),
    );
    println!("{sent} requests, {answered} answered, {lost} lost");
    match (lost, options.runs - in_time) {
        (0, 0) => Ok(()),
        (0, late) => Err(format!("{late} times it took longer").into()),
        (lost, _) => Err(format!("{lost} requests were lost").into()),
    }
}

/// One wake, one request from every node once all pods are ready, and the time until zero.
fn one(
    run: usize,
    options: &Options,
    target: &str,
    requests: &RequestLog,
    timeline: &Timeline,
) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    requests.send_from_every_node(&format!("{target} wake"));
    while timeline.ready_pods(target) < options.replicas {
        if start.elapsed() > LIMIT {
            return Err(format!("{target} has too few ready pods").into());
        }
        thread::sleep(Duration::from_millis(100));
    }
    requests.send_from_every_node(&format!("{target} awake"));
    let last = Instant::now();
    let zero = timeline
        .wait_for(target, Edge::Zero, last, LIMIT)
        .ok_or_else(|| format!("{target} does not fall asleep"))?;
    let cooldown = Duration::from_secs(COOLDOWN_SECONDS.into());
    let took = zero.duration_since(last).saturating_sub(cooldown);
    println!(
        "{run:3} asleep {:.1} s after the cooldown",
        took.as_secs_f64()
    );
    Ok(took)
}
