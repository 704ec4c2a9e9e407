//! A Kubernetes client that notices a dead connection in time.
//! Never retries for ever: whoever follows objects decides how long to go on.

use std::time::Duration;

use kube::{Client, Config};

/// A server that does not accept a connection by then is tried again.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Watches end by themselves after 18 s at the latest; one that says nothing for longer than this has no other end any more.
const READ_PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// Neither a kubeconfig nor a pod's service account was found, or it cannot be read.
    #[error("no access to Kubernetes is configured: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("the Kubernetes client cannot be made: {0}")]
    Client(#[from] kube::Error),
}

/// A client from the environment: a kubeconfig, or the pod's service account.
///
/// # Errors
/// If there is no configuration, or it cannot be used.
pub async fn from_environment() -> Result<Client, NoClient> {
    let config = Config::infer().await?;
    Ok(of(config)?)
}

/// A client with our time-outs.
///
/// # Errors
/// If the configuration cannot be used.
pub fn of(mut config: Config) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT_PATIENCE);
    config.read_timeout = Some(READ_PATIENCE);
    Client::try_from(config)
}
