//! Connections to one pod that are kept for the next request.
//! Never hands out a connection that is closed, busy or has been idle for long.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::connect;

/// Servers close idle connections, Node's after 5 s; a request that crosses such a close is lost, so ours go first.
const LONGEST_IDLE: Duration = Duration::from_secs(4);
/// Idle connections to one pod: the predecessor's `MAX_IDLE_PROXY_CONNS_PER_HOST`.
const MOST_IDLE: usize = 100;
/// The answer's end and the connection's readiness are a few microseconds apart.
const READY_TIMEOUT: Duration = Duration::from_millis(50);

/// A connection that speaks HTTP/1.1.
pub(crate) type Http1 = http1::SendRequest<Incoming>;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// No byte of it was sent: another pod may have it.
    Unsent(Box<Request<Incoming>>),
    /// The pod may have seen it.
    Lost,
    /// Its body cannot be read: the client's own fault, or the client is gone.
    Malformed,
}

#[derive(Debug)]
struct Idle {
    sender: Http1,
    since: Instant,
}

/// Kept connections to one pod.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Idle>>,
    http2: tokio::sync::Mutex<Option<http2::SendRequest<Incoming>>>,
}

impl Pool {
    /// Sends a request over HTTP/1.1. The connection comes back with the answer, to be returned once its body has ended.
    /// Nothing is sent if `left` ends first: a pod may take seconds to be reached, and hyper does not tell that a
    /// client has left while more than one piece of its body is unread.
    pub(crate) async fn send_http1(
        &self,
        address: SocketAddr,
        mut request: Request<Incoming>,
        left: impl Future<Output = ()>,
    ) -> Result<(Response<Incoming>, Http1), NoAnswer> {
        let mut left = std::pin::pin!(left);
        loop {
            let reached = tokio::select! {
                // A kept connection is there at once, and then nobody needs to look at the client.
                biased;
                reached = self.reach_http1(address) => reached,
                () = left.as_mut() => None,
            };
            let Some((mut sender, kept)) = reached else {
                return Err(NoAnswer::Unsent(Box::new(request)));
            };
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok((answer, sender)),
                Err(mut error) => match error.take_message() {
                    // A kept connection that closed before the first byte: the next one, at last a fresh one.
                    Some(unsent) if kept => request = unsent,
                    Some(unsent) => return Err(NoAnswer::Unsent(Box::new(unsent))),
                    None if error.error().is_user() => return Err(NoAnswer::Malformed),
                    None => return Err(NoAnswer::Lost),
                },
            }
        }
    }

    /// Sends a request over the pod's one HTTP/2 connection.
    pub(crate) async fn send_http2(
        &self,
        address: SocketAddr,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let mut kept = self.http2.lock().await;
        let mut sender = match kept.as_ref().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender.clone(),
            None => match open_http2(address).await {
                Some(sender) => kept.insert(sender).clone(),
                None => return Err(NoAnswer::Unsent(Box::new(request))),
            },
        };
        drop(kept);
        sender
            .try_send_request(request)
            .await
            .map_err(|mut error| match error.take_message() {
                Some(unsent) => NoAnswer::Unsent(Box::new(unsent)),
                None if error.error().is_user() => NoAnswer::Malformed,
                None => NoAnswer::Lost,
            })
    }

    /// Keeps a connection whose answer has ended.
    pub(crate) fn keep(&self, sender: Http1) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE && !sender.is_closed() {
            idle.push(Idle {
                sender,
                since: Instant::now(),
            });
        }
    }

    /// A kept connection, or a new one; and whether it was kept.
    async fn reach_http1(&self, address: SocketAddr) -> Option<(Http1, bool)> {
        match self.take().await {
            Some(sender) => Some((sender, true)),
            None => Some((open_http1(address).await?, false)),
        }
    }

    async fn take(&self) -> Option<Http1> {
        loop {
            let Idle { mut sender, since } = self.idle.lock().pop()?;
            if since.elapsed() >= LONGEST_IDLE {
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
