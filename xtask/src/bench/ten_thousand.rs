//! Thousands of sleeping services on a real API server without nodes: `cargo xtask bench ten-thousand`.

use std::error::Error;
use std::process::Command;

use crate::checks::{cargo, run_command};
use crate::control_plane::ControlPlane;
use crate::kubernetes::go_programs;
use crate::paths;

/// Where the example gives pods their addresses: EndpointSlices refuse loopback addresses.
const POD_NETWORK: &str = "10.202.0.0/16";

/// Parses `[--services N]`.
pub(crate) fn services(arguments: &[&str]) -> Option<usize> {
    match arguments {
        [] => Some(3000),
        ["--services", number] => number.parse().ok().filter(|number| *number > 0),
        _ => None,
    }
}

/// Builds the example, starts the API server and its controllers, and measures.
pub(crate) fn run(services: usize) -> Result<(), Box<dyn Error>> {
    cargo("build --release --package elasti-e2e --example ten_thousand").into_result()?;
    let server = go_programs::kube("kube-apiserver")?;
    let mut plane = ControlPlane::start(&server, &go_programs::ETCD.path()?, "ten-thousand")?;
    plane.start_controllers(&go_programs::kube("kube-controller-manager")?)?;
    let _network = LocalNetwork::add()?;
    let mut example = Command::new(paths::target().join("release/examples/ten_thousand"));
    example.arg(services.to_string());
    example.arg(plane.write_kubeconfig()?);
    run_command(example.arg(plane.audit_log())).into_result()
}

/// Every address of the network is this machine's own, until this value is dropped.
struct LocalNetwork;

impl LocalNetwork {
    fn add() -> Result<Self, Box<dyn Error>> {
        match ip_route("replace").status()?.success() {
            true => Ok(Self),
            false => Err(format!("{POD_NETWORK} cannot be made local: this needs root").into()),
        }
    }
}

impl Drop for LocalNetwork {
    fn drop(&mut self) {
        // Left behind, it would only be replaced.
        let _ = ip_route("delete").status();
    }
}

fn ip_route(verb: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["route", verb, "local", POD_NETWORK, "dev", "lo"]);
    command
}

#[cfg(test)]
mod tests {
    use super::services;

    #[test]
    fn the_bench_takes_a_number_of_services() {
        assert_eq!(services(&[]), Some(3000));
        assert_eq!(services(&["--services", "100"]), Some(100));
        for wrong in ["0", "-1", "x"] {
            assert_eq!(services(&["--services", wrong]), None, "{wrong}");
        }
        assert_eq!(services(&["--seconds", "1"]), None);
    }
}
