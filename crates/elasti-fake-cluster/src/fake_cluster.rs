//! The whole simulated cluster: API server, controllers, nodes and the Prometheus stand-in, started together.

use std::io;
use std::net::SocketAddr;

use crate::api_server::{ApiServer, ApiServerConfig, Listening};
use crate::controllers::{Controllers, install_stand_ins};
use crate::loopback::LoopbackBlock;
use crate::node::{Node, NodeConfig, Visit};
use crate::prometheus::Prometheus;

/// A running simulated cluster.
#[derive(Debug)]
pub struct FakeCluster {
    /// The API server.
    pub server: ApiServer,
    /// The controllers and their lags.
    pub controllers: Controllers,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Prometheus stand-in.
    pub prometheus: Prometheus,
    listening: Listening,
    _block: LoopbackBlock,
}

impl FakeCluster {
    /// Starts a simulated cluster with `nodes` nodes (at most 11), its API on any loopback port, and loopback
    /// addresses that no other simulated cluster on this machine uses (`service_range` is set accordingly).
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(config: ApiServerConfig, nodes: u8) -> io::Result<Self> {
        Self::start_with(config, nodes, |_| {}).await
    }

    /// Starts a simulated cluster whose nodes differ.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start_with(
        config: ApiServerConfig,
        nodes: u8,
        change: impl Fn(&mut NodeConfig),
    ) -> io::Result<Self> {
        let block = LoopbackBlock::claim()?;
        let server = ApiServer::new(ApiServerConfig {
            service_range: block.services(),
            ..config
        });
        let listening = server.listen(0).await?;
        let controllers = Controllers::start(&server);
        let node = |index| {
            let mut config = NodeConfig::numbered(index, block.pods(index));
            change(&mut config);
            Node::start(&server, &config)
        };
        let nodes = (1..=nodes.min(11)).map(node).collect();
        let prometheus = Prometheus::start(server.clock()).await?;
        Ok(Self {
            server,
            controllers,
            nodes,
            prometheus,
            listening,
            _block: block,
        })
    }

    /// Installs the definitions of Argo Rollouts and KEDA ScaledObjects, which stand-ins then serve.
    pub fn install_rollouts_and_keda(&self) {
        install_stand_ins(&self.server);
    }

    /// Every request that reached a pod, node by node.
    #[must_use]
    pub fn visits(&self) -> Vec<Visit> {
        self.nodes.iter().flat_map(Node::visits).collect()
    }

    /// Where the API listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.server.kubeconfig(self.address())
    }
}
