//! The pool of connections to one pod.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::connect;

/// Servers close idle connections, Node's after 5 s; a request that crosses such a close is lost, so ours close first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Idle connections to one pod: the predecessor's `MAX_IDLE_PROXY_CONNS_PER_HOST`.
const MAX_IDLE: usize = 100;
/// A connection is ready again a few microseconds after the response has ended.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// A connection that speaks HTTP/1.1.
pub(crate) type Http1 = http1::SendRequest<Incoming>;

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No byte of it was sent: another pod may have it.
    Unsent(Box<Request<Incoming>>),
    /// The pod may have seen it.
    Lost,
    /// Its body cannot be read: it is malformed, or the client has disconnected.
    Malformed,
}

#[derive(Debug)]
struct Idle {
    sender: Http1,
    since: Instant,
}

/// The idle connections to one pod.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    http2: tokio::sync::Mutex<Option<http2::SendRequest<Incoming>>>,
}

impl Pool {
    /// Sends a request over HTTP/1.1. The connection comes with the response, for [`Pool::put`] once its body has ended.
    /// Nothing is sent if `client_disconnected` ends first: connecting may take seconds, and hyper does not notice that
    /// a client has disconnected while more than one piece of its body is unread.
    pub(crate) async fn send_http1(
        &self,
        address: SocketAddr,
        mut request: Request<Incoming>,
        client_disconnected: impl Future<Output = ()>,
    ) -> Result<(Response<Incoming>, Http1), SendError> {
        let mut client_disconnected = std::pin::pin!(client_disconnected);
        loop {
            let reached = tokio::select! {
                // A pooled connection is there at once, and then the client need not be checked.
                biased;
                reached = self.get_http1(address) => reached,
                () = client_disconnected.as_mut() => None,
            };
            let Some((mut sender, pooled)) = reached else {
                return Err(SendError::Unsent(Box::new(request)));
            };
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

    /// Sends a request over the pod's one HTTP/2 connection.
    pub(crate) async fn send_http2(
        &self,
        address: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, SendError> {
        let mut pooled = self.http2.lock().await;
        let mut sender = match pooled.as_ref().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender.clone(),
            None => match open_http2(address).await {
                Some(sender) => pooled.insert(sender).clone(),
                None => return Err(SendError::Unsent(Box::new(request))),
            },
        };
        drop(pooled);
        sender
            .try_send_request(request)
            .await
            .map_err(|mut error| match error.take_message() {
                Some(unsent) => SendError::Unsent(Box::new(unsent)),
                None if error.error().is_user() => SendError::Malformed,
                None => SendError::Lost,
            })
    }

    /// Takes back a connection whose response has ended.
    pub(crate) fn put(&self, sender: Http1) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(Idle {
                sender,
                since: Instant::now(),
            });
        }
    }

    /// A pooled connection, or a new one; and whether it was pooled.
    async fn get_http1(&self, address: SocketAddr) -> Option<(Http1, bool)> {
        match self.take().await {
            Some(sender) => Some((sender, true)),
            None => Some((open_http1(address).await?, false)),
        }
    }

    async fn take(&self) -> Option<Http1> {
        loop {
            let Idle { mut sender, since } = self.idle.lock().pop()?;
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

async fn open_http1(address: SocketAddr) -> Option<Http1> {
    let stream = connect(address).await?;
    let (sender, connection) = http1::Builder::new()
        .handshake(TokioIo::new(stream))
        .await
        .ok()?;
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Some(sender)
}

async fn open_http2(address: SocketAddr) -> Option<http2::SendRequest<Incoming>> {
    let stream = connect(address).await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .handshake(TokioIo::new(stream))
        .await
        .ok()?;
    tokio::spawn(async move { drop(connection.await) });
    Some(sender)
}
