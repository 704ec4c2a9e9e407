//! What the programs of the cluster write outside of its folders, whatever their configuration says.
//! It never removes a file that cannot be shown to be the cluster's, nor a folder that is not empty.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::{self, CNI_NETWORK};
use super::nodes::Node;

/// Removes all of it; what is gone already is fine, so errors are ignored.
pub(crate) fn remove() {
    for file in shim_sockets()
        .into_iter()
        .chain(network_results())
        .chain(log_links())
        .chain([PathBuf::from(
            "/var/lib/kubelet/device-plugins/kubelet.sock",
        )])
    {
        let _ = fs::remove_file(file);
    }
    for folder in [
        "/run/containerd/s",
        "/run/containerd",
        "/var/lib/cni/results",
        "/var/lib/cni",
        "/var/log/containers",
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet",
    ] {
        let _ = fs::remove_dir(folder);
    }
    for controller in entries(Path::new("/sys/fs/cgroup")) {
        remove_empty_groups(&controller.join("k8s.io"));
    }
}

/// Shims listen in a folder that all containerds of a machine share.
fn shim_sockets() -> Vec<PathBuf> {
    let bundles = Node::all().into_iter().map(|node| {
        node.run()
            .join("containerd/io.containerd.runtime.v2.task/k8s.io")
    });
    bundles
        .flat_map(|folder| entries(&folder))
        .filter_map(|bundle| fs::read_to_string(bundle.join("address")).ok())
        .filter_map(|address| address.strip_prefix("unix://").map(PathBuf::from))
        .collect()
}

/// Network plugins keep a file for each pod's card and one for its loopback; only the first
/// names our network, and both name the pod.
fn network_results() -> Vec<PathBuf> {
    let all = entries(Path::new("/var/lib/cni/results"));
    let pods: Vec<String> = all.iter().filter_map(|file| pod_of(file)).collect();
    let ours = |file: &PathBuf| {
        let name = file.to_string_lossy();
        pods.iter().any(|pod| name.contains(pod.as_str()))
    };
    all.iter().filter(|file| ours(file)).cloned().collect()
}

/// The pod's part of `<network>-<pod>-eth0`.
fn pod_of(result: &Path) -> Option<String> {
    let name = result.file_name()?.to_str()?;
    let rest = name.strip_prefix(CNI_NETWORK)?.strip_prefix('-')?;
    Some(rest.rsplit_once('-')?.0.to_owned())
}

/// The kubelet links every container's log from one folder.
fn log_links() -> Vec<PathBuf> {
    let ours = |link: &PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(layout::state()));
    let links = entries(Path::new("/var/log/containers"));
    links.into_iter().filter(ours).collect()
}

/// The kernel refuses to remove a group that holds a process.
fn remove_empty_groups(group: &Path) {
    for inner in entries(group).iter().filter(|path| path.is_dir()) {
        remove_empty_groups(inner);
    }
    let _ = fs::remove_dir(group);
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::pod_of;

    #[test]
    fn only_results_of_our_network_name_a_pod() {
        let pod = |name| pod_of(Path::new(name));
        assert_eq!(
            pod("/r/elasti-kubernetes-0a1b-eth0").as_deref(),
            Some("0a1b")
        );
        assert_eq!(pod("/r/cni-loopback-0a1b-lo"), None);
        assert_eq!(pod("/r/podman-0a1b-eth0"), None);
    }
}
