//! Waits until each part of the cluster answers, and gives it its first objects.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::go_programs;
use super::layout::{self, NODE_ADDRESS};
use super::nodes::Node;
use super::process::{self, wait_until};

/// Generous: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

const BASE_OBJECTS: &str = include_str!("base-objects.yaml");

pub(crate) fn api_server() -> Result<(), Box<dyn Error>> {
    wait("kube-apiserver", || succeeds(&["get", "--raw", "/readyz"]))
}

pub(crate) fn containerd(node: Node) -> Result<(), Box<dyn Error>> {
    wait(&node.suffixed("containerd"), || {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(node.containerd_socket());
        ctr.arg("version");
        ctr.output().is_ok_and(|output| output.status.success())
    })
}

/// Every node takes pods, names are answered, and Prometheus too.
pub(crate) fn nodes() -> Result<(), Box<dyn Error>> {
    Node::all().into_iter().try_for_each(node)?;
    wait("kube-controller-manager", || {
        succeeds(&["get", "serviceaccount", "default", "--namespace=default"])
    })?;
    wait("coredns", || answers(8181, "/ready"))?;
    wait("prometheus", || answers(9090, "/-/ready"))
}

/// This node takes pods.
pub(crate) fn node(node: Node) -> Result<(), Box<dyn Error>> {
    let object = format!("node/{}", node.name());
    wait(&node.suffixed("kubelet"), || {
        succeeds(&["wait", "--for=condition=Ready", &object, "--timeout=2s"])
    })
}

/// DNS and Prometheus, as Services.
pub(crate) fn apply_base_objects() -> Result<(), Box<dyn Error>> {
    apply(BASE_OBJECTS)
}

/// Applies manifests.
pub(crate) fn apply(objects: &str) -> Result<(), Box<dyn Error>> {
    let output = output_for(&mut kubectl(&["apply", "--filename=-"])?, objects)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into()),
    }
}

/// What a command says to this on its standard input.
pub(crate) fn output_for(command: &mut Command, input: &str) -> Result<Output, Box<dyn Error>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    Ok(child.wait_with_output()?)
}

/// The node as kubectl shows it.
pub(crate) fn node_line() -> Result<String, Box<dyn Error>> {
    let output = kubectl(&["get", "nodes", "--output=wide"])?.output()?;
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

pub(super) fn wait(name: &str, condition: impl FnMut() -> bool) -> Result<(), Box<dyn Error>> {
    if wait_until(LIMIT, condition) {
        return Ok(());
    }
    let log = process::log_of(name);
    Err(format!(
        "{name} is not ready after {} s; see {}",
        LIMIT.as_secs(),
        log.display()
    )
    .into())
}

/// `kubectl` on the cluster of this machine.
pub(crate) fn kubectl(arguments: &[&str]) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(go_programs::kube("kubectl")?);
    command
        .env("KUBECONFIG", layout::kubeconfig())
        .args(arguments);
    Ok(command)
}

pub(super) fn succeeds(arguments: &[&str]) -> bool {
    let output = |mut command: Command| -> Result<Output, Box<dyn Error>> { Ok(command.output()?) };
    kubectl(arguments)
        .and_then(output)
        .is_ok_and(|output| output.status.success())
}

/// One plain request to a port of the node's address.
pub(super) fn answers(port: u16, path: &str) -> bool {
    let ask = || -> Result<bool, Box<dyn Error>> {
        let address: SocketAddr = format!("{NODE_ADDRESS}:{port}").parse()?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1) == Some("200"))
    };
    ask().unwrap_or(false)
}
