//! The pool of connections to the operators; one is open before the first wake needs it.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use elasti_runtime::peer_tls::ClientConfig;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use crate::net::{TcpStream, lookup_host};
use crate::wake::WakeError;

/// From the name to the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Spare connections are opened no more often than this: a sidecar or a proxy in front of the operator may close every
/// connection as soon as it is open.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Connections in the pool.
const MAX_IDLE: usize = 4;

pub(crate) type Connection = http1::SendRequest<Full<Bytes>>;

/// The idle connections.
#[derive(Default)]
pub(crate) struct Operators {
    /// Without it connections are plain.
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<Connection>>,
    /// One of all connections has ended. The connections themselves share this and nothing else of us: with more, they
    /// would keep themselves alive.
    ended: Arc<Notify>,
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operators").finish_non_exhaustive()
    }
}

impl Operators {
    /// With TLS no operator is spoken to that cannot prove that it is one.
    pub(crate) fn new(tls: Option<ClientConfig>) -> Self {
        Self {
            tls: tls.map(|config| TlsConnector::from(Arc::new(config))),
            ..Self::default()
        }
    }

    /// An idle connection, if one is still open.
    pub(crate) async fn take(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.ready().await.is_ok() {
                return Some(connection);
            }
        }
    }

    /// Returns a connection to the pool.
    pub(crate) fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        idle.retain(|one| !one.is_closed());
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    /// A new connection to any of the operators' addresses.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, WakeError> {
        let found = lookup_host(name)
            .await
            .map_err(|_| WakeError::Unreachable)?;
        let mut addresses: Vec<_> = found.collect();
        rand::seq::SliceRandom::shuffle(addresses.as_mut_slice(), &mut rand::rng());
        for address in addresses {
            let Ok(stream) = TcpStream::connect(address).await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            let Some(tls) = &self.tls else {
                return self.begin(stream).await;
            };
            let name = ServerName::try_from(names::OPERATOR_TLS_NAME);
            let name = name.map_err(|_| WakeError::Untrusted)?;
            let stream = tls.connect(name, stream).await.map_err(|error| {
                tracing::debug!(%address, %error, "TLS handshake failed");
                WakeError::Untrusted
            })?;
            return self.begin(stream).await;
        }
        Err(WakeError::Unreachable)
    }

    async fn begin<S>(&self, stream: S) -> Result<Connection, WakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (operator, connection) = handshake.map_err(|_| WakeError::Unreachable)?;
        let ended = self.ended.clone();
        tokio::spawn(async move {
            drop(connection.await);
            ended.notify_one();
        });
        Ok(operator)
    }

    fn has_open(&self) -> bool {
        self.idle.lock().iter().any(|one| !one.is_closed())
    }
}

/// Looking up a name and connecting cost a first request milliseconds, so this is done before it comes. Operators
/// close a connection after 30 idle seconds; that costs a connection or two a minute, and no request.
pub(crate) async fn keep_one_open(operators: Arc<Operators>, name: String) {
    loop {
        let next = Instant::now() + RECONNECT_INTERVAL;
        if !operators.has_open() {
            // Where this fails the operator is starting or absent; a wake will report it if it matters.
            let connected = timeout(CONNECT_TIMEOUT, operators.connect(&name)).await;
            if let Ok(Ok(connection)) = connected {
                operators.put(connection);
                operators.ended.notified().await;
            }
            sleep_until(next).await;
        } else {
            operators.ended.notified().await;
        }
    }
}

#[cfg(all(test, not(feature = "simulation")))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operator_that_ends_every_connection_is_not_hammered() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let keeping = tokio::spawn(keep_one_open(Arc::default(), name));
        let started = Instant::now();
        let mut connections = 0;
        while started.elapsed() < Duration::from_secs(20) {
            drop(listener.accept().await.unwrap());
            connections += 1;
            assert!(
                connections <= 21,
                "{connections} in {:?}",
                started.elapsed()
            );
        }
        keeping.abort();
    }
}
