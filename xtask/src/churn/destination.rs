//! Where a node sent a connection: what its connection tracking says of the client's port.

use std::net::{IpAddr, SocketAddr};

use crate::kubernetes::nodes::Node;

/// The address that took the place of the Service's; `None` if the node does not know the connection any more.
pub(crate) fn from_conntrack(node: Node, local_port: u16, to: SocketAddr) -> Option<IpAddr> {
    let (port, service) = (local_port.to_string(), to.ip().to_string());
    let mut list = node.command("conntrack");
    let output = list
        .args(["-L", "-p", "tcp", "--orig-port-src", &port])
        .args(["--orig-dst", &service])
        .output();
    replying(&String::from_utf8_lossy(&output.ok()?.stdout))
}

/// Each line has the two directions of one connection; the end that replies is the source of the second.
fn replying(listed: &str) -> Option<IpAddr> {
    let connection = listed.lines().find(|line| line.contains("dport="))?;
    let mut sources =
        { connection.split_whitespace() }.filter_map(|word| word.strip_prefix("src="));
    sources.nth(1)?.parse().ok()
}

/// In words.
pub(crate) fn describe(destination: Option<IpAddr>) -> String {
    destination.map_or_else(
        || "an unknown destination".into(),
        |address| address.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::replying;

    #[test]
    fn the_one_that_replies_is_the_destination() {
        let listed = "tcp      6 9 CLOSE src=10.199.0.1 dst=10.201.3.4 sport=41234 dport=80 \
                      src=10.200.1.7 dst=10.199.0.1 sport=8080 dport=41234 mark=0 use=1\n";
        assert_eq!(replying(listed), "10.200.1.7".parse().ok());
        assert_eq!(replying(""), None);
    }
}
