//! Forwards requests and connections to pods.
//! Never sends a request twice once a pod may have seen its first byte.

pub(crate) mod body;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod pool;
pub(crate) mod relay;
pub(crate) mod tcp;
pub(crate) mod upgrade;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use crate::net::TcpStream;

/// A pod that takes longer to accept is passed over; a node answers within a few milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// 64 KiB a direction: large enough for full speed, small enough for thousands of relays (1,000 x 128 KiB = 128 MiB).
pub(crate) const RELAY_BUFFER: usize = 64 * 1024;

/// A connection to a pod, or nothing: why does not matter, the next pod is tried.
async fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
        .await
        .ok()?
        .ok()?;
    // Without it small writes of a relay wait for the other side's acknowledgement; failing to set it costs only that.
    let _ = stream.set_nodelay(true);
    Some(stream)
}
