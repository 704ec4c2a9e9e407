//! The connections to one pod that wait for their next request, closed when they have waited too long.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::body::RequestBody;
use super::http1_connection::Http1;
use super::http2_pool::Http2Pool;

/// Servers close idle connections, Node's after 5 s; a request that crosses such a close is lost, so ours close first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle connections to one pod: the predecessor's `MAX_IDLE_PROXY_CONNS_PER_HOST`.
const MAX_IDLE: usize = 100;

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
    connection: Http1,
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
            let Some((mut connection, pooled)) = reached else {
                return Err(SendError::Unsent(Box::new(request)));
            };
            written();
            match connection.send(request).await {
                Ok(response) => return Ok((response, connection)),
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
    pub(crate) fn put(&self, connection: Http1) {
        let Some(connection) = connection.into_idle() else {
            return;
        };
        let mut list = self.http1.lock();
        if list.idle.len() < MAX_IDLE {
            list.idle.push(Idle {
                connection,
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
        match self.take() {
            Some(connection) => Some((connection, true)),
            None => Some((Http1::open(address, idle_timeout).await?, false)),
        }
    }

    /// The one that was used last: the pod may have closed it, which shows before anything is sent.
    fn take(&self) -> Option<Http1> {
        let last = self.http1.lock().idle.pop();
        let fresh = last.filter(|idle| idle.since.elapsed() < IDLE_TIMEOUT);
        fresh.map(|idle| idle.connection)
    }
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
