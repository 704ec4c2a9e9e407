//! A Kubernetes client that notices a dead connection in time.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

use crate::tls;

/// A server that does not accept a connection by then is tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A watch that is silent for 75 s is renewed (`watch.rs`); other calls have shorter time-outs of their own.
const READ_TIMEOUT: Duration = Duration::from_secs(80);
/// A connection on which nothing came for this long is probed: a watch may wait for minutes, and the machine at its other
/// end may have gone without a word. 10 + 2 x 5 = 20 s until it counts as dead.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;
/// A burst of calls opens a hundred connections, each of which holds 20 KiB for as long as it is open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection's buffer grows with what is read, by default to 400 KiB, and stays so large as long as the connection
/// lives. Heads of answers are far smaller.
const MOST_BUFFERED: usize = 32 * 1024;
/// What was sent and is not acknowledged by then makes the connection count as dead too.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

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
    // kube's own stack tunnels through a proxy; the connection that could die is the proxy's then.
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(
            { config.default_retry }.then(|| RetryLayer::new(RetryPolicy::server_retry())),
        )
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http_client(&config)?);
    Ok(Client::new(service, config.default_namespace))
}

/// As kube makes it, but that dead connections are noticed.
fn http_client(
    config: &Config,
) -> Result<legacy::Client<impl legacy::connect::Connect + Clone + use<>, Body>, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE_IDLE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http1_max_buf_size(MOST_BUFFERED)
        .build(connector);
    Ok(client)
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

    /// What the kernel does next on the connection to this port: 2 is a keepalive probe.
    #[cfg(target_os = "linux")]
    fn timer_of_connection_to(port: u16) -> Option<u32> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let mut rows = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[2].ends_with(&format!(":{port:04X}")) && row[3] == "01")?;
        row[5].split(':').next().unwrap().parse().ok()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_that_waits_is_probed_so_that_a_dead_one_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(slow_server(listener, [Duration::ZERO, Duration::ZERO]));
        let config = Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
        let client = with_read_timeout(config, TIMEOUT).unwrap();
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        client.request::<serde_json::Value>(request).await.unwrap();
        // A timer for what was sent runs first, until that is acknowledged.
        while timer_of_connection_to(port) != Some(2) {
            assert!(!server.is_finished(), "the connection is not probed");
            sleep(Duration::from_millis(20)).await;
        }
        server.abort();
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
