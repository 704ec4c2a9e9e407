//! Targets that fall asleep and wake under fire, on the real node: `cargo xtask churn`.

pub(crate) mod destination;
pub(crate) mod disturbance;
pub(crate) mod request;
pub(crate) mod request_log;
pub(crate) mod timeline;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use request_log::{Entry, RequestLog};
use timeline::{Edge, Observation, Timeline};
use world::Size;

use crate::kubernetes::layout;
use crate::kubernetes::nodes::{FIRST, Node};
use crate::{image, paths};

pub(crate) const USAGE: &str = "  churn [--minutes N] [--targets N] [--replicas N] [--resolvers N] [--nodes N] [--proxy-mode iptables|nftables]
        [--kind deployment|statefulset|mixed] [--services N] [--policy cluster|local] [--end-seconds N] [--kubeconfig FILE --prometheus URL] [--disturb]
                  bursts at every edge of going to sleep, and constant load, from every real node; counts what is lost;
                  --kind mixed: beside Deployments also StatefulSets, targets with two Services, apps that end slowly;
                  --policy local: internalTrafficPolicy Local, one pod a node, the resolver as a DaemonSet;
                  --disturb restarts, upgrades and kills Elasti meanwhile, and takes Prometheus and the API server away
";

/// Short, so that much happens in a minute.
const COOLDOWN_SECONDS: u32 = 3;
const BURST_PER_SECOND: u32 = 50;
const BURST: Duration = Duration::from_secs(2);
const CONSTANT_PER_SECOND: u32 = 20;
/// A sleep takes about 20 s: settle, the kubelet's tick, settle.
const EDGE_LIMIT: Duration = Duration::from_secs(30);
/// Two settle times: what happens between two edges is swept by the offsets after the first.
const SWEEP: Duration = Duration::from_millis(3000);

/// The edges that bursts are aimed at, in turn.
const AIMS: [Edge; 10] = [
    Edge::Redirected,
    Edge::Zero,
    Edge::Marked,
    Edge::PodGone,
    Edge::Unmarked,
    Edge::PodEnding,
    Edge::MarkedAgain,
    Edge::OutOfRotation,
    Edge::Restored,
    Edge::Zero,
];

/// How long, how large, in which mode.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    minutes: u64,
    size: Size,
    nodes: usize,
    mode: String,
    disturb: bool,
    /// Another cluster than this machine's own: its kubeconfig, and the Prometheus that its pods reach.
    kubeconfig: Option<String>,
    prometheus: Option<String>,
}

impl Options {
    /// Parses the flags; `None` where one is not known.
    pub(crate) fn parse(arguments: &[&str]) -> Option<Self> {
        let mut options = Self {
            minutes: 10,
            size: Size::default(),
            nodes: 1,
            mode: "iptables".into(),
            disturb: arguments.last() == Some(&"--disturb"),
            kubeconfig: None,
            prometheus: None,
        };
        let arguments = arguments.strip_suffix(&["--disturb"]).unwrap_or(arguments);
        let mut pairs = arguments.chunks_exact(2);
        for pair in &mut pairs {
            match pair {
                ["--minutes", n] => options.minutes = n.parse().ok()?,
                ["--targets", n] => options.size.targets = n.parse().ok()?,
                ["--replicas", n] => options.size.replicas = n.parse().ok()?,
                ["--resolvers", n] => options.size.resolvers = n.parse().ok()?,
                ["--kind", "mixed"] => options.size.mixed = true,
                ["--kind", kind] => options.size.kind = world::Kind::parse(kind)?,
                ["--policy", policy] => options.size.local = parse_policy(policy)?,
                ["--services", n] => options.size.services = n.parse().ok()?,
                ["--end-seconds", n] => options.size.end_seconds = Some(n.parse().ok()?),
                ["--nodes", n] => options.nodes = n.parse().ok()?,
                ["--proxy-mode", mode] => options.mode = (*mode).to_owned(),
                ["--kubeconfig", file] => options.kubeconfig = Some((*file).to_owned()),
                ["--prometheus", url] => options.prometheus = Some((*url).to_owned()),
                _ => return None,
            }
        }
        // Disturbances kill processes of the node, which must be ours.
        let foreign = options.kubeconfig.is_some();
        let whole = foreign == options.prometheus.is_some() && !(foreign && options.disturb);
        (pairs.remainder().is_empty() && whole).then_some(options)
    }
}

/// Whether a Service's traffic policy is `Local`; `None` where it is no policy.
fn parse_policy(word: &str) -> Option<bool> {
    match word {
        "local" => Some(true),
        "cluster" => Some(false),
        _ => None,
    }
}

/// Runs the churn; a lost request is an error.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    if let (Some(file), Some(prometheus)) = (&options.kubeconfig, &options.prometheus) {
        layout::use_other(file, prometheus);
    }
    let (resolvers, values) = (options.size.resolvers, options.size.values());
    world::install_with(&options.mode, options.nodes, resolvers, values)?;
    if options.size.needs_sample_app() && layout::is_ours() {
        image::import(&image::sample_app()?)?;
    }
    // The last target is the one under constant load.
    let all = Size {
        targets: options.size.targets + 1,
        ..options.size
    };
    world::create(all, COOLDOWN_SECONDS)?;
    (0..all.targets).try_for_each(wait_for_answer)?;
    let timeline = Timeline::watch(world::NAMESPACE);
    let start = Instant::now();
    let entries = fire(options, &timeline, start);
    let (seen, cancelled) = timeline.seen();
    timeline.end();
    write_raw(&seen)?;
    let removed = world::remove();
    let lost = print(options, start, &entries?, &seen, cancelled);
    removed?;
    match lost {
        0 => Ok(()),
        lost => Err(format!("{lost} requests were lost").into()),
    }
}

/// A new Service answers only when its first slice has reached kube-proxy: that is not Elasti's, and not counted.
pub(crate) fn wait_for_answer(index: usize) -> Result<(), Box<dyn Error>> {
    let name = world::target(index);
    let to = world::address(&name)?;
    let start = Instant::now();
    while let Err(lost) = request::send(to, "first").result {
        println!(
            "before the start, {name} after {:?}: {lost}",
            start.elapsed()
        );
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Sends everything, and waits for every answer.
fn fire(
    options: &Options,
    timeline: &Timeline,
    start: Instant,
) -> Result<Vec<Entry>, Box<dyn Error>> {
    let end = start + Duration::from_secs(60 * options.minutes);
    let requests = RequestLog::new(clients());
    let mut workers = Vec::new();
    for index in 0..options.size.targets {
        let name = world::target(index);
        let to = world::addresses(&name, options.size.of_target(index).services)?;
        let (requests, timeline) = (requests.to(to), timeline.clone());
        workers.push(thread::spawn(move || {
            bursts(&requests, &timeline, (&name, index), end);
        }));
    }
    let name = world::target(options.size.targets);
    let services = options.size.of_target(options.size.targets).services;
    let constant = requests.to(world::addresses(&name, services)?);
    workers.push(thread::spawn(move || {
        let duration = end.saturating_duration_since(Instant::now());
        constant.burst(&format!("{name} constant"), CONSTANT_PER_SECOND, duration);
    }));
    if options.disturb {
        let resolvers = options.size.resolvers;
        workers.push(thread::spawn(move || disturbance::all(end, resolvers)));
    }
    while workers.iter().any(|worker| !worker.is_finished()) {
        thread::sleep(Duration::from_secs(1));
        if start.elapsed().as_secs().is_multiple_of(30) {
            let (sent, answered, lost) = requests.counts();
            println!(
                "[{:4} s] {sent} sent, {answered} answered, {lost} lost",
                start.elapsed().as_secs()
            );
        }
    }
    for worker in workers {
        worker.join().map_err(|_| "a client panicked")?;
    }
    Ok(requests.close())
}

/// Where clients are: on every node of ours, or on this machine where the cluster is another one.
fn clients() -> Vec<Node> {
    match layout::is_ours() {
        true => Node::all(),
        false => vec![FIRST],
    }
}

/// Burst after burst, each aimed at an edge and a moment after it.
fn bursts(requests: &RequestLog, timeline: &Timeline, (name, index): (&str, usize), end: Instant) {
    let mut last = Instant::now();
    let aims = AIMS.into_iter().cycle().skip(3 * index);
    for (round, aim) in aims.enumerate() {
        let limit = EDGE_LIMIT.min(end.saturating_duration_since(Instant::now()));
        let seen = timeline.wait_for(name, aim, last, limit);
        if Instant::now() >= end {
            return;
        }
        // The golden ratio spreads the offsets evenly, however many there are.
        let fraction = ((round as f64) * 0.618_034 + (index as f64) * 0.37).fract();
        thread::sleep(SWEEP.mul_f64(fraction));
        let of = match seen {
            Some(_) => format!("{name} {aim:?}"),
            None => format!("{name} unaimed"),
        };
        requests.burst(&of, BURST_PER_SECOND, BURST);
        last = Instant::now();
    }
}

/// Prints what happened, and gives how many were lost.
fn print(
    options: &Options,
    start: Instant,
    entries: &[Entry],
    seen: &[Observation],
    cancelled: usize,
) -> usize {
    let lost: Vec<&Entry> = entries
        .iter()
        .filter(|e| e.outcome.result.is_err())
        .collect();
    for entry in &lost {
        print_lost(entry, start, seen);
    }
    let count = |edge: Edge| seen.iter().filter(|s| s.edge == edge).count();
    let slowest = entries.iter().map(|e| e.outcome.took).max();
    println!(
        "{} on {} nodes, {} min, {:?}, and one target more under constant load",
        options.mode, options.nodes, options.minutes, options.size,
    );
    println!("  requests         {}", entries.len());
    println!("  lost             {}", lost.len());
    println!("  sleeps           {}", count(Edge::Zero));
    println!("  cancelled sleeps {cancelled}");
    println!("  wakes            {}", count(Edge::Woken));
    println!("  redirects        {}", count(Edge::Redirected));
    println!(
        "  marks            {}",
        count(Edge::Marked) + count(Edge::MarkedAgain)
    );
    println!(
        "  slowest answer   {:.2} s",
        slowest.unwrap_or_default().as_secs_f32()
    );
    let mut by_target: BTreeMap<&str, usize> = BTreeMap::new();
    for observation in seen.iter().filter(|s| s.edge == Edge::Zero) {
        *by_target.entry(&observation.target).or_default() += 1;
    }
    println!("  sleeps by target {by_target:?}");
    println!("  {}", timeline::ready_to_restored(seen));
    let drains = timeline::drains(seen);
    println!("  {}", request_log::during_drains(entries, &drains));
    for entry in request_log::slow_in_drains(entries, &drains) {
        println!("SLOW {}", about(entry, start));
        print_around(entry, start, seen);
    }
    for (kind, about) in request_log::by_kind(entries) {
        println!("  at {kind:14} {about}");
    }
    lost.len()
}

/// Everything that the watcher saw, to find the cause of a loss.
fn write_raw(seen: &[Observation]) -> Result<(), Box<dyn Error>> {
    let folder = paths::target().join("churn");
    fs::create_dir_all(&folder)?;
    let lines = seen
        .iter()
        .map(|one| format!("{} {} {:?}\n", one.clock, one.target, one.edge));
    fs::write(folder.join("timeline.txt"), lines.collect::<String>())?;
    Ok(())
}

/// One lost request, with what happened to its target around it.
fn print_lost(entry: &Entry, start: Instant, seen: &[Observation]) {
    if let Err(lost) = &entry.outcome.result {
        println!("LOST {}: {lost}", about(entry, start));
    }
    print_around(entry, start, seen);
}

/// Which request it was, from where, when, and how long it took.
fn about(entry: &Entry, start: Instant) -> String {
    let outcome = &entry.outcome;
    format!(
        "{} ({}) sent at {:.3} s from {} port {} to {}, after {:.3} s",
        entry.id,
        entry.of,
        outcome.sent_at.duration_since(start).as_secs_f64(),
        entry.node.name(),
        outcome.local_port,
        destination::describe(outcome.destination),
        outcome.took.as_secs_f64()
    )
}

/// What happened to its target around it.
fn print_around(entry: &Entry, start: Instant, seen: &[Observation]) {
    let at = entry.outcome.sent_at.duration_since(start);
    let target = entry.of.split(' ').next().unwrap_or_default();
    let (from, to) = (
        at.saturating_sub(Duration::from_secs(15)),
        at + Duration::from_secs(5),
    );
    for observation in seen.iter().filter(|s| s.target == target) {
        let when = observation.at.saturating_duration_since(start);
        if when >= from && when <= to {
            println!("     {:.3} s {:?}", when.as_secs_f64(), observation.edge);
        }
    }
}
