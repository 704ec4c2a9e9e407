//! A kubeconfig file for kubectl and kube-rs.

use std::net::SocketAddr;

/// The server address carries the token too: kubectl sends none over plain HTTP.
pub(crate) fn text(address: SocketAddr, token: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: fake-cluster
  cluster:
    server: http://{address}/as/{token}
contexts:
- name: fake-cluster
  context:
    cluster: fake-cluster
    namespace: default
    user: fake-cluster
current-context: fake-cluster
users:
- name: fake-cluster
  user:
    token: {token}
"
    )
}
