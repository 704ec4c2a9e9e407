//! Forwards requests and connections to pods.
//! Never sends a request twice once a pod may have seen its first byte.

pub(crate) mod body;
pub(crate) mod grpc;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod http2_pool;
mod pod_stream;
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

/// Large enough for full speed; one for each thread, and what the other side of a busy relay has not taken yet.
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
