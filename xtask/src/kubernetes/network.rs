//! The node's address, its routes, and the switches in the kernel that pods need.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::layout::{self, NODE_ADDRESS, NODE_LINK, POD_LINK, SERVICE_NETWORK};
use super::nodes::{FIRST, Node};

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const BRIDGED_FILTERING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Makes the nodes and their addresses, and lets packets through.
pub(crate) fn create() -> Result<(), Box<dyn Error>> {
    let node = format!("{NODE_ADDRESS}/32");
    ip(&["link", "add", NODE_LINK, "type", "bridge"])?;
    ip(&["address", "add", &node, "dev", NODE_LINK])?;
    ip(&["link", "set", NODE_LINK, "up"])?;
    // A cluster address without a Service must end here and not leave the machine.
    ip(&[
        "route",
        "add",
        SERVICE_NETWORK,
        "dev",
        NODE_LINK,
        "src",
        NODE_ADDRESS,
    ])?;
    refuse_unknown_services(FIRST)?;
    let before = fs::read_to_string(FORWARDING)?;
    fs::write(forwarding_before(), before)?;
    fs::write(FORWARDING, "1")?;
    if !fs::read_to_string(BRIDGED_FILTERING).is_ok_and(|value| value.trim() == "1") {
        // Two pods on one bridge: without it answers would not find their way back through
        // the translation of the Service's address.
        fs::write(BRIDGED_FILTERING, "1").map_err(|error| {
            format!("{BRIDGED_FILTERING}: {error}; the kernel needs br_netfilter")
        })?;
    }
    let others = Node::all().into_iter().filter(|node| *node != FIRST);
    others.into_iter().try_for_each(join)
}

/// A node of its own network namespace, on a cable to the machine's bridge. It reaches everything through the machine.
fn join(node: Node) -> Result<(), Box<dyn Error>> {
    let (name, address, cable) = (node.name(), node.address(), node.cable());
    ip(&["netns", "add", &name])?;
    ip(&[
        "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &name,
    ])?;
    ip(&["link", "set", &cable, "master", NODE_LINK, "up"])?;
    ip(&["route", "add", &address, "dev", NODE_LINK])?;
    let pods = node.pod_network();
    ip(&[
        "route", "add", &pods, "via", &address, "dev", NODE_LINK, "onlink",
    ])?;
    let own = format!("{address}/32");
    for words in [
        &["link", "set", "lo", "up"][..],
        &["address", "add", &own, "dev", "eth0"],
        &["link", "set", "eth0", "up"],
        &["route", "add", NODE_ADDRESS, "dev", "eth0"],
        &[
            "route",
            "add",
            "default",
            "via",
            NODE_ADDRESS,
            "dev",
            "eth0",
        ],
    ] {
        on_node(node, "ip", words)?;
    }
    // What lies below /proc/sys/net is the namespace's of the process that opens it.
    for switch in [FORWARDING, BRIDGED_FILTERING] {
        on_node(node, "sh", &["-c", &format!("echo 1 > {switch}")])?;
    }
    refuse_unknown_services(node)
}

/// Refuses what no rule of kube-proxy's has translated. Else such a connection would be remembered untranslated for two
/// minutes, and a client with the same source port for the same Service within that time would get "no route to host",
/// long after kube-proxy has learned of the Service. The mark lets the rules be found and removed.
fn refuse_unknown_services(node: Node) -> Result<(), Box<dyn Error>> {
    for chain in ["OUTPUT", "FORWARD"] {
        let words = [
            "--wait",
            "--append",
            chain,
            "--destination",
            SERVICE_NETWORK,
            "--protocol",
            "tcp",
            "--match",
            "comment",
            "--comment",
            layout::CNI_NETWORK,
            "--jump",
            "REJECT",
            "--reject-with",
            "tcp-reset",
        ];
        on_node(node, "/usr/sbin/iptables", &words)?;
    }
    Ok(())
}

/// The network namespaces of nodes that are on the machine, whatever cluster they are of.
pub(crate) fn namespaces() -> Vec<String> {
    let prefix = format!("{}-", FIRST.name());
    let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&prefix))
        .collect()
}

/// Removes the links and the nodes, with all that hangs on them, and sets forwarding as it was.
pub(crate) fn remove() -> Result<(), Box<dyn Error>> {
    // The cable goes with the namespace that holds its other end.
    for name in namespaces() {
        ip(&["netns", "delete", &name])?;
    }
    for link in [NODE_LINK, POD_LINK] {
        if Path::new("/sys/class/net").join(link).exists() {
            ip(&["link", "delete", link])?;
        }
    }
    if let Ok(before) = fs::read_to_string(forwarding_before()) {
        fs::write(FORWARDING, before)?;
    }
    Ok(())
}

fn forwarding_before() -> PathBuf {
    layout::state().join("ip_forward.before")
}

fn ip(arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    on_node(FIRST, "ip", arguments)
}

/// Runs a command on a node; what it says is shown only if it fails.
fn on_node(node: Node, program: &str, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut command = node.command(program);
    let output = command.args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let words = arguments.join(" ");
    Err(format!("{program} {words} on {}: {said}", node.name()).into())
}
