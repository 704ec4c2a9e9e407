//! The node's address, its routes, and the switches in the kernel that pods need.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::layout::{self, NODE_ADDRESS, NODE_LINK, POD_LINK, SERVICE_NETWORK};

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const BRIDGED_FILTERING: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Makes the node's address and lets packets through.
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
    refuse_unknown_services()?;
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
    Ok(())
}

/// Refuses what no rule of kube-proxy's has translated. Else such a connection would be remembered untranslated for two
/// minutes, and a client with the same source port for the same Service within that time would get "no route to host",
/// long after kube-proxy has learned of the Service. The mark lets the rules be found and removed.
fn refuse_unknown_services() -> Result<(), Box<dyn Error>> {
    for chain in ["OUTPUT", "FORWARD"] {
        let mut command = Command::new("/usr/sbin/iptables");
        command
            .args([
                "--wait",
                "--append",
                chain,
                "--destination",
                SERVICE_NETWORK,
            ])
            .args(["--protocol", "tcp", "--match", "comment"])
            .args(["--comment", layout::CNI_NETWORK, "--jump", "REJECT"])
            .args(["--reject-with", "tcp-reset"]);
        let output = command.output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("iptables {chain}: {said}").into());
        }
    }
    Ok(())
}

/// Removes the links, with all that hangs on them, and sets forwarding as it was.
pub(crate) fn remove() -> Result<(), Box<dyn Error>> {
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
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {said}", arguments.join(" ")).into())
}
