//! Connections to the operators: a few are kept, and one is open before anybody needs it.
//! Never says anything over them: `wake.rs` does.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::net::{TcpStream, lookup_host};
use crate::wake::WakeFault;

/// From the name to the handshake.
const TIMEOUT: Duration = Duration::from_secs(3);
/// While nobody waits, connections are tried no more often than this: what accepts in an operator's stead, a sidecar
/// or a proxy, may end every connection as soon as it is open.
const PAUSE: Duration = Duration::from_secs(1);
/// Connections that are kept.
const MOST_IDLE: usize = 4;

pub(crate) type Connection = http1::SendRequest<Full<Bytes>>;

/// The connections that nobody uses at this moment.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    idle: Mutex<Vec<Connection>>,
    /// One of all connections has ended. The connections themselves share this and nothing else of us: with more, they
    /// would keep themselves alive.
    ended: Arc<Notify>,
}

impl Operators {
    /// A kept connection, if one is still open.
    pub(crate) async fn kept(&self) -> Option<Connection> {
        loop {
            let mut kept = self.idle.lock().pop()?;
            if kept.ready().await.is_ok() {
                return Some(kept);
            }
        }
    }

    /// Keeps a connection for the next one who needs it.
    pub(crate) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        idle.retain(|one| !one.is_closed());
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }

    /// A new connection to any of the operators' addresses.
    pub(crate) async fn connect(&self, name: &str) -> Result<Connection, WakeFault> {
        let found = lookup_host(name)
            .await
            .map_err(|_| WakeFault::Unreachable)?;
        let mut addresses: Vec<_> = found.collect();
        rand::seq::SliceRandom::shuffle(addresses.as_mut_slice(), &mut rand::rng());
        for address in addresses {
            let Ok(stream) = TcpStream::connect(address).await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            let handshake = http1::handshake(TokioIo::new(stream)).await;
            let (operator, connection) = handshake.map_err(|_| WakeFault::Unreachable)?;
            let ended = self.ended.clone();
            tokio::spawn(async move {
                drop(connection.await);
                ended.notify_one();
            });
            return Ok(operator);
        }
        Err(WakeFault::Unreachable)
    }

    fn has_open(&self) -> bool {
        self.idle.lock().iter().any(|one| !one.is_closed())
    }
}

/// Looking up a name and connecting cost a first request milliseconds, so this is done before it comes. Operators
/// close a connection after half a minute without a word; that costs one connection a minute or two, and no call.
pub(crate) async fn keep_one_open(operators: Arc<Operators>, name: String) {
    loop {
        let next = Instant::now() + PAUSE;
        if !operators.has_open() {
            // Without one, an operator starts or there is none at all: a wake tells if it matters.
            let connected = timeout(TIMEOUT, operators.connect(&name)).await;
            if let Ok(Ok(connection)) = connected {
                operators.keep(connection);
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
