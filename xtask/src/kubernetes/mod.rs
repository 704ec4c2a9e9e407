//! A real Kubernetes of one or more nodes on this machine: `cargo xtask kubernetes`.
//! It never touches another cluster, nor anything on the machine that it did not make.

mod audit;
mod certificates;
mod components;
pub(crate) mod configuration;
pub(crate) mod go_programs;
pub(crate) mod layout;
mod leftovers;
mod network;
pub(crate) mod nodes;
mod outside_files;
pub(crate) mod packages;
pub(crate) mod partners;
pub(crate) mod process;
pub(crate) mod ready;

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nodes::{FIRST, Node};

use crate::{deny, image};

pub(crate) const USAGE: &str = "  kubernetes up [--nodes N] [--proxy-mode iptables|nftables]
                  start a real Kubernetes of N nodes (1) on this machine (as root)
  kubernetes down remove it with every trace
  kubernetes programs [--partners]
                  only install and build what it and `test --real` need, each with its time; or KEDA, Argo Rollouts,
                  metrics-server and Traefik for `e2e --partners`
  kubernetes status | kubeconfig
                  what runs; where the administrator's kubeconfig is
  kubernetes audit
                  compare the calls of Elasti's accounts with their Roles
  kubernetes stop|start PROCESS
                  stop or start one of its processes
  kubernetes kubectl|helm ARGUMENT…
                  run one of them on it
";

/// How kube-proxy writes its rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyMode {
    Iptables,
    Nftables,
}

impl ProxyMode {
    fn word(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let modes = [Self::Iptables, Self::Nftables];
        modes.into_iter().find(|mode| mode.word() == word)
    }

    /// The mode that the present cluster was started with.
    fn of_cluster() -> Option<Self> {
        Self::parse(&fs::read_to_string(mode_file()).ok()?)
    }
}

/// Does what the words ask for; `None` where they ask for nothing known.
pub(crate) fn run(words: &[&str]) -> Option<Result<(), Box<dyn Error>>> {
    Some(match words {
        ["up", flags @ ..] => {
            let (mode, nodes) = flags_of_up(flags)?;
            locked(|| up(mode, &nodes))
        }
        ["down"] => locked(down),
        ["programs"] => programs(),
        ["programs", "--partners"] => partners::build(),
        ["status"] => status(),
        ["kubeconfig"] => {
            println!("{}", layout::kubeconfig().display());
            Ok(())
        }
        ["audit"] => audit::run(),
        ["start", name] => locked(|| start(name)),
        ["stop", name] => locked(|| process::stop(name)),
        ["kubectl", rest @ ..] => replace_with(go_programs::kube("kubectl"), rest),
        ["helm", rest @ ..] => replace_with(go_programs::HELM.path(), rest),
        _ => return None,
    })
}

fn flags_of_up(words: &[&str]) -> Option<(ProxyMode, Vec<Node>)> {
    let (mut mode, mut nodes) = (ProxyMode::Iptables, vec![FIRST]);
    let mut pairs = words.chunks_exact(2);
    for pair in &mut pairs {
        match pair {
            ["--proxy-mode", word] => mode = ProxyMode::parse(word)?,
            ["--nodes", count] => nodes = Node::first(count.parse().ok()?)?,
            _ => return None,
        }
    }
    pairs.remainder().is_empty().then_some((mode, nodes))
}

fn up(mode: ProxyMode, nodes: &[Node]) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    packages::install_missing()?;
    for program in go_programs::OF_THE_NODE {
        program.path()?;
    }
    if all_alive() && ProxyMode::of_cluster() == Some(mode) && Node::all() == nodes {
        println!("already up; kubeconfig: {}", layout::kubeconfig().display());
        return Ok(());
    }
    let images = image::of_the_node()?;
    let built = start.elapsed();
    say(start, "clearing the leftovers of an earlier cluster");
    leftovers::clear()?;
    fs::create_dir_all(layout::state())?;
    fs::write(mode_file(), mode.word())?;
    Node::remember(nodes)?;
    network::create()?;
    certificates::create()?;
    configuration::write()?;
    start_control_plane(start)?;
    start_nodes(start, &images)?;
    say(start, "Ready");
    let seconds = (start.elapsed() - built).as_secs_f32();
    println!(
        "up in {seconds:.1} s ({}, {} nodes); kubeconfig: {}",
        mode.word(),
        nodes.len(),
        layout::kubeconfig().display()
    );
    Ok(())
}

/// Everything that is installed or compiled, so that it is there when a check needs it.
fn programs() -> Result<(), Box<dyn Error>> {
    packages::install_missing()?;
    for program in go_programs::ALL {
        timed(|| program.path())?;
    }
    timed(deny::program)?;
    timed(image::elasti)?;
    timed(image::sample_app)
}

fn timed(build: impl FnOnce() -> Result<PathBuf, Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let path = build()?;
    let seconds = start.elapsed().as_secs_f32();
    println!("{} after {seconds:.1} s", path.display());
    Ok(())
}

fn start_control_plane(since: Instant) -> Result<(), Box<dyn Error>> {
    say(since, "starting the control plane");
    for name in ["etcd", "kube-apiserver"] {
        start(name)?;
    }
    ready::api_server()?;
    for name in ["kube-controller-manager", "kube-scheduler"] {
        start(name)?;
    }
    ready::apply_base_objects()
}

/// Between the starts of two nodes: a kubelet's ticks, every 10 s, count from its start, and so lie apart.
const BETWEEN_NODES: Duration = Duration::from_millis(1700);

fn start_nodes(since: Instant, images: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    say(since, "starting the nodes");
    let nodes = Node::all();
    for node in &nodes {
        start(&node.suffixed("containerd"))?;
    }
    for node in &nodes {
        ready::containerd(*node)?;
    }
    for tar in images {
        image::import(tar)?;
    }
    for name in ["coredns", "prometheus"] {
        start(name)?;
    }
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            std::thread::sleep(BETWEEN_NODES);
        }
        start(&node.suffixed("kubelet"))?;
        start(&node.suffixed("kube-proxy"))?;
    }
    ready::nodes()
}

fn start(name: &str) -> Result<(), Box<dyn Error>> {
    let mode = ProxyMode::of_cluster().ok_or("no cluster is up; `cargo xtask kubernetes up`")?;
    components::process(name, mode)?.start()
}

fn down() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    leftovers::clear()?;
    println!("down in {:.1} s", start.elapsed().as_secs_f32());
    Ok(())
}

/// What of the cluster is still on this machine.
pub(crate) fn leftovers() -> Result<Vec<String>, Box<dyn Error>> {
    leftovers::found()
}

fn status() -> Result<(), Box<dyn Error>> {
    for name in components::names(&Node::all()) {
        match process::id(&name) {
            Some(id) if process::is_alive(&name) => println!(
                "{name:24} process {id:<8} {}",
                process::log_of(&name).display()
            ),
            Some(id) => println!("{name:24} DEAD, was process {id}"),
            None => println!("{name:24} not started"),
        }
    }
    if !all_alive() {
        return Err("the cluster is not up".into());
    }
    println!("{}", ready::node_line()?);
    Ok(())
}

fn all_alive() -> bool {
    components::names(&Node::all())
        .iter()
        .all(|name| process::is_alive(name))
}

fn mode_file() -> PathBuf {
    layout::state().join("proxy-mode")
}

fn say(since: Instant, what: &str) {
    println!("[{:5.1} s] {what}", since.elapsed().as_secs_f32());
}

/// Two at a time would take each other's processes for leftovers.
fn locked(action: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    // Our own processes are ours.
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Err("a node needs root: mounts, network namespaces, packet rules".into());
    }
    let lock = File::create("/run/elasti-kubernetes.lock")?;
    lock.lock()?;
    action()
}

/// Becomes the program, with the cluster's kubeconfig.
fn replace_with(
    program: Result<PathBuf, Box<dyn Error>>,
    arguments: &[&str],
) -> Result<(), Box<dyn Error>> {
    let error = Command::new(program?)
        .args(arguments)
        .env("KUBECONFIG", layout::kubeconfig())
        .exec();
    Err(error.into())
}
