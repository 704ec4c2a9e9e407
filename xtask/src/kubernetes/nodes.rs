//! The nodes of the cluster: the machine itself is the first, every other one lives in a network namespace of its own.

use std::error::Error;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::layout;

/// One address of the node network and one /24 of the pod network each; more than a machine can bear.
const NODES_MAX: u32 = 50;

/// One node, by its number from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node(u32);

/// The machine itself; everything that runs once in a cluster runs on it.
pub(crate) const FIRST: Node = Node(1);

impl Node {
    /// The first `count` nodes; `None` for a number that makes no cluster.
    pub(crate) fn first(count: u32) -> Option<Vec<Self>> {
        (1..=NODES_MAX)
            .contains(&count)
            .then(|| (1..=count).map(Self).collect())
    }

    /// The nodes of the cluster that is up; without one, the machine alone.
    pub(crate) fn all() -> Vec<Self> {
        let count = fs::read_to_string(count_file()).ok();
        let count = count.and_then(|text| text.trim().parse().ok());
        count.and_then(Self::first).unwrap_or_else(|| vec![FIRST])
    }

    /// Remembers how many there are, for every command after this one.
    pub(crate) fn remember(nodes: &[Self]) -> Result<(), Box<dyn Error>> {
        Ok(fs::write(count_file(), nodes.len().to_string())?)
    }

    /// The node of the present cluster with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|node| node.name() == name)
    }

    /// Its name in the cluster, and of its network namespace.
    pub(crate) fn name(self) -> String {
        self.suffixed("elasti-node")
    }

    /// A name that is this node's own: that of a process, for example.
    pub(crate) fn suffixed(self, name: &str) -> String {
        match self.0 {
            1 => name.to_owned(),
            number => format!("{name}-{number}"),
        }
    }

    pub(crate) fn address(self) -> String {
        format!("10.199.0.{}", self.0)
    }

    /// The addresses of its pods.
    pub(crate) fn pod_network(self) -> String {
        format!("10.200.{}.0/24", self.0 - 1)
    }

    /// The machine's end of the cable to the node.
    pub(crate) fn cable(self) -> String {
        format!("elasti-veth-{}", self.0)
    }

    /// Its network namespace; the machine has none of its own.
    pub(crate) fn namespace(self) -> Option<PathBuf> {
        (self != FIRST).then(|| Path::new("/run/netns").join(self.name()))
    }

    /// What it keeps while the cluster is up.
    pub(crate) fn state(self) -> PathBuf {
        self.within(layout::state())
    }

    /// Its sockets.
    pub(crate) fn run(self) -> PathBuf {
        self.within(layout::run())
    }

    fn within(self, folder: PathBuf) -> PathBuf {
        match self {
            FIRST => folder,
            _ => folder.join(self.name()),
        }
    }

    pub(crate) fn containerd_socket(self) -> PathBuf {
        self.run().join("containerd.sock")
    }

    /// A command that runs on this node. `ip netns exec` would remount /sys, and the kubelet would find no cgroups.
    pub(crate) fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match self.namespace() {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", namespace.display()));
                command.arg(program);
                command
            }
        }
    }

    /// From now on the sockets of this thread are opened on the node.
    pub(crate) fn enter(self) -> Result<(), Box<dyn Error>> {
        if let Some(path) = self.namespace() {
            let namespace = File::open(path)?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        Ok(())
    }
}

fn count_file() -> PathBuf {
    layout::state().join("nodes")
}

#[cfg(test)]
mod tests {
    use super::{FIRST, Node};

    #[test]
    fn every_node_has_names_and_addresses_of_its_own() {
        let nodes = Node::first(3).unwrap();
        let names: Vec<String> = nodes.iter().map(|node| node.name()).collect();
        assert_eq!(names, ["elasti-node", "elasti-node-2", "elasti-node-3"]);
        let pods: Vec<String> = nodes.iter().map(|node| node.pod_network()).collect();
        assert_eq!(pods, ["10.200.0.0/24", "10.200.1.0/24", "10.200.2.0/24"]);
        assert_eq!(FIRST.namespace(), None);
        assert!(nodes.iter().all(|node| node.cable().len() <= 15));
    }

    #[test]
    fn no_cluster_has_no_node_or_more_than_fit() {
        assert!(Node::first(0).is_none());
        assert!(Node::first(51).is_none());
    }
}
