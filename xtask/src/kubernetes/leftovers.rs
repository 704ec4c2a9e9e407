//! Removes all that a cluster leaves on the machine, whether it was stopped, killed or half started.

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::layout::{self, CNI_NETWORK};
use super::nodes::Node;
use super::process::{self, wait_until};
use super::{components, go_programs, network, outside_files};
use crate::paths;

const END: Duration = Duration::from_secs(15);

/// Chains and comments that only Kubernetes and its network plugins write.
const RULES: [&str; 3] = ["KUBE-", "CNI-", CNI_NETWORK];

/// Stops every process and removes every trace.
pub(crate) fn clear() -> Result<(), Box<dyn Error>> {
    for name in components::names_with_partners(&Node::all()).iter().rev() {
        process::stop(name)?;
    }
    end_containers()?;
    unmount_all()?;
    remove_rules()?;
    network::remove()?;
    outside_files::remove();
    for folder in [layout::run(), layout::state()] {
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
        }
    }
    Ok(())
}

/// Everything of a cluster that is on the machine now, in words.
pub(crate) fn found() -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for folder in [layout::run(), layout::state()] {
        if folder.exists() {
            found.push(format!("folder {}", folder.display()));
        }
    }
    found.extend(shims()?.into_iter().map(|id| format!("shim {id}")));
    let (programs, built) = (paths::cache()?, paths::target());
    for id in process::all_ids()? {
        // The link of a process that has just ended is gone.
        let program = fs::read_link(format!("/proc/{id}/exe")).unwrap_or_default();
        // `.ci/run` builds in the same cache, and this is such a process.
        if program.starts_with(&programs) && !program.starts_with(&built) {
            found.push(format!("process {id}, {}", program.display()));
        }
    }
    let mounts = our_mounts(&fs::read_to_string("/proc/self/mountinfo")?);
    found.extend(
        mounts
            .iter()
            .map(|point| format!("mount {}", point.display())),
    );
    for link in [layout::NODE_LINK, layout::POD_LINK] {
        if PathBuf::from("/sys/class/net").join(link).exists() {
            found.push(format!("link {link}"));
        }
    }
    for name in network::namespaces() {
        found.push(format!("network namespace {name}"));
    }
    for family in ["iptables", "ip6tables"] {
        let saved = Command::new(format!("/usr/sbin/{family}-save")).output()?;
        let saved = String::from_utf8(saved.stdout)?;
        if without_our_rules(&saved) != saved {
            found.push(format!("rules of {family}"));
        }
    }
    Ok(found)
}

/// Kills each container's first process, which takes the rest with it, and then its shim.
fn end_containers() -> Result<(), Box<dyn Error>> {
    let shims = shims()?;
    for id in process::all_ids()? {
        if process::parent(id).is_some_and(|parent| shims.contains(&parent)) {
            process::kill("KILL", id);
        }
    }
    for shim in shims {
        process::kill("KILL", shim);
    }
    if wait_until(END, || shims_are_gone().unwrap_or(false)) {
        return Ok(());
    }
    Err("containers of the cluster do not end".into())
}

fn shims_are_gone() -> Result<bool, Box<dyn Error>> {
    Ok(shims()?.is_empty())
}

/// Shims say on their command line whose they are.
fn shims() -> Result<Vec<u32>, Box<dyn Error>> {
    let run = layout::run().display().to_string();
    let ours = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let shim = words
            .next()
            .is_some_and(|program| program.ends_with(b"/containerd-shim-runc-v2"));
        shim && words.any(|word| word.starts_with(run.as_bytes()))
    };
    Ok(process::all_ids()?.into_iter().filter(ours).collect())
}

/// Network namespaces, container file systems and the pods' volumes, the newest first.
fn unmount_all() -> Result<(), Box<dyn Error>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for point in our_mounts(&mounts).into_iter().rev() {
        let plain = Command::new("umount")
            .arg(&point)
            .stderr(Stdio::null())
            .status()?;
        if !plain.success() {
            Command::new("umount").arg("--lazy").arg(&point).status()?;
        }
    }
    Ok(())
}

fn our_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(PathBuf::from)
        .filter(|point| point.starts_with(layout::run()) || point.starts_with(layout::state()))
        .collect()
}

/// kube-proxy removes what it made in either mode; the kubelet's and the network plugins' rules
/// are taken out of what is left.
fn remove_rules() -> Result<(), Box<dyn Error>> {
    let clean = Command::new(go_programs::kube("kube-proxy")?)
        .args(["--cleanup", "--kubeconfig=/dev/null"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if !clean.success() {
        println!("kube-proxy --cleanup ended with {clean}; going on without it");
    }
    for family in ["iptables", "ip6tables"] {
        let saved = Command::new(format!("/usr/sbin/{family}-save")).output()?;
        let saved = String::from_utf8(saved.stdout)?;
        let kept = without_our_rules(&saved);
        if kept != saved {
            restore(family, &kept)?;
        }
    }
    for family in ["ip", "ip6"] {
        // There is one only if kube-proxy ran in nftables mode and could not clean up.
        let _ = Command::new("/usr/sbin/nft")
            .args(["delete", "table", family, "kube-proxy"])
            .stderr(Stdio::null())
            .status();
    }
    Ok(())
}

fn without_our_rules(saved: &str) -> String {
    let foreign = |line: &&str| !RULES.iter().any(|mark| line.contains(mark));
    let mut kept: String = saved
        .lines()
        .filter(foreign)
        .flat_map(|line| [line, "\n"])
        .collect();
    if !saved.ends_with('\n') {
        kept.pop();
    }
    kept
}

fn restore(family: &str, rules: &str) -> Result<(), Box<dyn Error>> {
    let mut child = Command::new(format!("/usr/sbin/{family}-restore"))
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(format!("{family}-restore ended with {status}").into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{our_mounts, without_our_rules};

    #[test]
    fn only_rules_of_the_cluster_are_removed() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
                     -A PREROUTING -p tcp --dport 80 -j DOCKER\n-A POSTROUTING -j CNI-ab12\nCOMMIT\n";
        let kept =
            "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp --dport 80 -j DOCKER\nCOMMIT\n";
        assert_eq!(without_our_rules(saved), kept);
        assert_eq!(without_our_rules(kept), kept);
        assert_eq!(without_our_rules(""), "");
    }

    #[test]
    fn only_mounts_of_the_cluster_are_unmounted() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      30 22 0:4 net:[1] /run/elasti-kubernetes/containerd/netns/cni-1 rw - nsfs nsfs rw\n\
                      31 22 0:9 / /var/lib/elasti-kubernetes-other rw - tmpfs tmpfs rw\n";
        let wanted = PathBuf::from("/run/elasti-kubernetes/containerd/netns/cni-1");
        assert_eq!(our_mounts(mounts), [wanted]);
    }
}
