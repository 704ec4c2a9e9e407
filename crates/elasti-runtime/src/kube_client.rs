//! A Kubernetes client that notices a dead connection in time.

use std::time::Duration;

use kube::{Client, Config};

use crate::tls;

/// A server that does not accept a connection by then is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Watches end by themselves after 18 s at the latest; one that is silent for longer than this is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

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
    Ok(from_config(config)?)
}

/// A client with our time-outs.
///
/// # Errors
/// If the configuration cannot be used.
pub fn from_config(config: Config) -> Result<Client, kube::Error> {
    with_read_timeout(config, READ_TIMEOUT)
}

fn with_read_timeout(mut config: Config, read_timeout: Duration) -> Result<Client, kube::Error> {
    tls::install_provider();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(read_timeout);
    // Else the time that a connection lay idle would count: a wake's write on one that lay idle for 19 s would be
    // cut off a second later, whether the server was at work on it or not.
    config.reset_reader_on_write = true;
    Client::try_from(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use kube::Config;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::with_read_timeout;

    const TIMEOUT: Duration = Duration::from_secs(10);
    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

    /// Answers every request on one connection after a while, and returns how many it received.
    async fn slow_server(listener: TcpListener, pauses: [Duration; 2]) -> usize {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = 0;
        for pause in pauses {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                break;
            }
            received += 1;
            sleep(pause).await;
            let _ = stream.write_all(ANSWER).await;
        }
        received
    }

    #[tokio::test]
    async fn the_time_that_a_connection_lay_idle_does_not_shorten_the_wait_for_an_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(slow_server(listener, [Duration::ZERO, TIMEOUT / 2]));
        let client = with_read_timeout(Config::new(url.parse().unwrap()), TIMEOUT).unwrap();
        let ask = async || {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            client.request::<serde_json::Value>(request).await
        };
        ask().await.unwrap();
        // Together longer than the time-out; each for itself well below it.
        sleep(TIMEOUT * 7 / 10).await;
        ask().await.unwrap();
        assert_eq!(server.await.unwrap(), 2, "on the same connection");
    }
}
