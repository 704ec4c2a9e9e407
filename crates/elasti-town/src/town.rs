//! The whole town: API server, controllers, nodes and the Prometheus stand-in, started together.
//! Never leaves anything running once it is dropped.

use std::io;
use std::net::SocketAddr;

use crate::api_server::{ApiServer, ApiServerConfig, Listening};
use crate::controllers::Controllers;
use crate::node::{Node, NodeConfig};
use crate::prometheus::Prometheus;

/// A running town.
#[derive(Debug)]
pub struct Town {
    /// The API server.
    pub server: ApiServer,
    /// The controllers and their lags.
    pub controllers: Controllers,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The Prometheus stand-in.
    pub prometheus: Prometheus,
    listening: Listening,
}

impl Town {
    /// Starts a town with `nodes` nodes, its API on any loopback port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(config: ApiServerConfig, nodes: u8) -> io::Result<Self> {
        let server = ApiServer::new(config);
        let listening = server.listen(0).await?;
        let controllers = Controllers::start(&server);
        let nodes = (1..=nodes)
            .map(|index| Node::start(&server, NodeConfig::numbered(index)))
            .collect();
        let prometheus = Prometheus::start(server.clock()).await?;
        Ok(Self {
            server,
            controllers,
            nodes,
            prometheus,
            listening,
        })
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
