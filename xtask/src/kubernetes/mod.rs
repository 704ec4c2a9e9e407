//! A real Kubernetes of one node on this machine: `cargo xtask kubernetes`.
//! It never touches another cluster, nor anything on the machine that it did not make.

mod audit;
mod certificates;
mod components;
mod configuration;
pub(crate) mod go_programs;
pub(crate) mod layout;
mod leftovers;
mod network;
mod outside_files;
pub(crate) mod packages;
pub(crate) mod process;
pub(crate) mod ready;

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::{deny, image};

pub(crate) const USAGE: &str = "  kubernetes up [--proxy-mode iptables|nftables]
                  start a real one-node Kubernetes on this machine (as root)
  kubernetes down remove it with every trace
  kubernetes programs
                  only install and build what it and `test --real` need, each with its time
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
        ["up"] => locked(|| up(ProxyMode::Iptables)),
        ["up", "--proxy-mode", word] => {
            let mode = ProxyMode::parse(word)?;
            locked(|| up(mode))
        }
        ["down"] => locked(down),
        ["programs"] => programs(),
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

fn up(mode: ProxyMode) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    packages::install_missing()?;
    for program in go_programs::OF_THE_NODE {
        program.path()?;
    }
    if all_alive() && ProxyMode::of_cluster() == Some(mode) {
        println!("already up; kubeconfig: {}", layout::kubeconfig().display());
        return Ok(());
    }
    let images = image::of_the_node()?;
    let built = start.elapsed();
    say(start, "clearing the leftovers of an earlier cluster");
    leftovers::clear()?;
    fs::create_dir_all(layout::state())?;
    fs::write(mode_file(), mode.word())?;
    network::create()?;
    certificates::create()?;
    configuration::write()?;
    start_control_plane(start)?;
    start_node(start, &images)?;
    say(start, "Ready");
    let seconds = (start.elapsed() - built).as_secs_f32();
    println!(
        "up in {seconds:.1} s ({}); kubeconfig: {}",
        mode.word(),
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
    for name in ["etcd", "kube-apiserver", "containerd"] {
        start(name)?;
    }
    ready::api_server()?;
    for name in ["kube-controller-manager", "kube-scheduler"] {
        start(name)?;
    }
    ready::apply_base_objects()
}

fn start_node(since: Instant, images: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    say(since, "starting the node");
    ready::containerd()?;
    for tar in images {
        image::import(tar)?;
    }
    for name in ["kubelet", "kube-proxy", "coredns", "prometheus"] {
        start(name)?;
    }
    ready::node()
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
    for name in components::NAMES {
        match process::id(name) {
            Some(id) if process::is_alive(name) => println!(
                "{name:24} process {id:<8} {}",
                process::log_of(name).display()
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
    components::NAMES.iter().all(|name| process::is_alive(name))
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
