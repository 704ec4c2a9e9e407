//! The connections to one pod that wait for their next request, closed when they have waited too long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

use super::body::RequestBody;
use super::connect;
use super::http2_pool::Http2Pool;
use super::pod_stream::PodStream;

/// Servers close idle connections, Node's after 5 s; a request that crosses such a close is lost, so ours close first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle connections to one pod: the predecessor's `MAX_IDLE_PROXY_CONNS_PER_HOST`.
const MAX_IDLE: usize = 100;
/// A connection is ready again a few microseconds after the response has ended.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// What of an upload may wait for its pod; also the largest head of a response.
const BUFFER: usize = 64 * 1024;

/// A connection that speaks HTTP/1.1.
pub(crate) type Http1 = http1::SendRequest<RequestBody>;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No byte of it was sent: another pod may have it.
    Unsent(Box<Request<RequestBody>>),
    /// The same: the pod closed the connection before it had spoken HTTP/2.
    NotHttp2(Box<Request<RequestBody>>),
    /// The same: the pod accepted the connection, and said nothing on it.
    Silent(Box<Request<RequestBody>>),
    /// The same: all connections that the pod may have are full.
    NotNow(Box<Request<RequestBody>>),
    /// The pod may have seen it.
    Lost,
    /// The pod has seen it, and refused it before it did anything.
    Refused,
    /// Its body cannot be read: it is malformed, or the client has disconnected.
    Malformed,
}

#[derive(Debug)]
struct Idle {
    sender: Http1,
    since: Instant,
}

/// Those that speak HTTP/1.1, the longest idle first.
#[derive(Debug, Default)]
struct IdleList {
    idle: Vec<Idle>,
    /// A task closes those that are idle for too long.
    watched: bool,
}

/// The connections to one pod.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    http1: Arc<Mutex<IdleList>>,
    pub(crate) http2: Http2Pool,
}

impl Pool {
    /// Sends a request over HTTP/1.1. The connection comes with the response, for [`Pool::put`] once its body has ended.
    /// Nothing is sent if `client_disconnected` ends first: connecting may take seconds, and hyper does not notice that
    /// a client has disconnected while more than one piece of its body is unread.
    pub(crate) async fn send_http1(
        &self,
        address: SocketAddr,
        idle_timeout: Option<Duration>,
        mut request: Request<RequestBody>,
        client_disconnected: impl Future<Output = ()>,
        written: impl Fn(),
    ) -> Result<(Response<Incoming>, Http1), SendError> {
        let mut client_disconnected = std::pin::pin!(client_disconnected);
        loop {
            let reached = tokio::select! {
                // A pooled connection is there at once, and then the client need not be checked.
                biased;
                reached = self.get_http1(address, idle_timeout) => reached,
                () = client_disconnected.as_mut() => None,
            };
            let Some((mut sender, pooled)) = reached else {
                return Err(SendError::Unsent(Box::new(request)));
            };
            written();
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    // A pooled connection that closed before the first byte: try the next one, in the end a new one.
                    Some(unsent) if pooled => request = unsent,
                    Some(unsent) => return Err(SendError::Unsent(Box::new(unsent))),
                    None if error.error().is_user() => return Err(SendError::Malformed),
                    None => return Err(SendError::Lost),
                },
            }
        }
    }

    /// Takes back a connection whose response has ended.
    pub(crate) fn put(&self, sender: Http1) {
        let mut list = self.http1.lock();
        if list.idle.len() < MAX_IDLE && !sender.is_closed() {
            list.idle.push(Idle {
                sender,
                since: Instant::now(),
            });
            if !std::mem::replace(&mut list.watched, true) {
                tokio::spawn(close_idle(self.http1.clone()));
            }
        }
    }

    /// A pooled connection, or a new one; and whether it was pooled.
    async fn get_http1(
        &self,
        address: SocketAddr,
        idle_timeout: Option<Duration>,
    ) -> Option<(Http1, bool)> {
        match self.take().await {
            Some(sender) => Some((sender, true)),
            None => Some((open_http1(address, idle_timeout).await?, false)),
        }
    }

    async fn take(&self) -> Option<Http1> {
        loop {
            let Idle { mut sender, since } = self.http1.lock().idle.pop()?;
            if since.elapsed() >= IDLE_TIMEOUT {
                continue;
            }
            // Nearly always it is ready by now, and then no timer is needed.
            if sender.is_ready()
                || matches!(timeout(READY_TIMEOUT, sender.ready()).await, Ok(Ok(())))
            {
                return Some(sender);
            }
        }
    }
}

async fn open_http1(address: SocketAddr, idle_timeout: Option<Duration>) -> Option<Http1> {
    let stream = PodStream::new(connect(address).await?, idle_timeout);
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .ok()?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Some(sender)
}

/// Closes connections that are idle for too long, until none is left.
async fn close_idle(list: Arc<Mutex<IdleList>>) {
    let mut next = Instant::now() + IDLE_TIMEOUT;
    loop {
        sleep_until(next).await;
        let expired: Vec<Idle>;
        {
            let mut list = list.lock();
            let is_expired = |one: &Idle| one.since.elapsed() >= IDLE_TIMEOUT;
            let count = list.idle.partition_point(is_expired);
            expired = list.idle.drain(..count).collect();
            match list.idle.first() {
                Some(oldest) => next = oldest.since + IDLE_TIMEOUT,
                None => list.watched = false,
            }
            if !list.watched {
                return;
            }
        }
        drop(expired);
    }
}
