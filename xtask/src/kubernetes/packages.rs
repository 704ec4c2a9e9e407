//! The Debian packages of the test node: which are missing, and their installation.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file that shows that a package is there, and the package.
const NEEDED: [(&str, &str); 11] = [
    ("/usr/bin/containerd", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("/usr/sbin/conntrack", "conntrack"),
    ("/usr/sbin/iptables", "iptables"),
    ("/usr/sbin/nft", "nftables"),
    ("/usr/bin/prometheus", "prometheus"),
    ("/usr/bin/openssl", "openssl"),
    ("/usr/bin/mount", "mount"),
    ("/usr/bin/tar", "tar"),
    ("/bin/ip", "iproute2"),
];

/// Installs what is missing, or says what to install where that is not possible.
pub(crate) fn install_missing() -> Result<(), Box<dyn Error>> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!("missing on this machine: {names}").into());
    }
    println!("installing {names}");
    let installed =
        apt_get("install", &missing) || (apt_get("update", &[]) && apt_get("install", &missing));
    let missing = self::missing();
    if installed && missing.is_empty() {
        return Ok(());
    }
    Err(format!("could not install these packages: {}", missing.join(" ")).into())
}

/// The packages that are not there.
pub(crate) fn missing() -> Vec<&'static str> {
    let absent = NEEDED.iter().filter(|(file, _)| !Path::new(file).exists());
    absent.map(|(_, package)| *package).collect()
}

fn apt_get(verb: &str, packages: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command
        // The single-user run level keeps the packages from starting their own services.
        .env("RUNLEVEL", "1")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-o", "DPkg::Lock::Timeout=300", verb, "--yes"])
        .stdout(Stdio::null());
    if !packages.is_empty() {
        command.arg("--no-install-recommends").args(packages);
    }
    command.status().is_ok_and(|status| status.success())
}
