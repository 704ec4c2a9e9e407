//! The HTTP/2 connections to one pod: as many as its streams need, each opened outside the lock and once for all that wait.
//! No stream is queued inside a connection, where it would have no deadline: without room it stays unsent.

use std::error::Error as _;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, Shared};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::body::RequestBody;
use super::connect;
use super::pool::SendError;
use crate::reach::NOT_NOW_BACKOFF;

/// What one stream may have unread, towards clients and towards pods. A node answers within a millisecond, so a stream
/// still carries 64 MiB a second.
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;
/// Streams of one connection, where the pod allows as many.
const MAX_STREAMS: u32 = 100;
/// All streams may have a full window unread, and none of them stops another: 100 x 64 KiB = 6.4 MiB.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// 64 x 100 = 6,400 streams to one pod.
const MAX_CONNECTIONS: usize = 64;
/// Connections that end before they have taken a request.
const TRIES: usize = 3;
/// A connection that nothing used for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A pod that accepts a connection says as quickly what it allows on it.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(3);
const SETTINGS_POLL_MIN: Duration = Duration::from_millis(1);

type Sender = http2::SendRequest<RequestBody>;
type Opening = Shared<BoxFuture<'static, Result<(), OpenError>>>;

/// Why no connection could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenError {
    /// Another pod, or a later time, may do.
    Unreachable,
    /// It accepts connections, but ended this one before it spoke HTTP/2.
    NotHttp2,
    /// It accepts connections, but has said nothing on this one in time: it is busy, or waits for what is not HTTP/2.
    Silent,
}

/// How much a connection is used.
#[derive(Debug, Default)]
struct Usage {
    open: AtomicUsize,
    /// Since the connection was opened.
    begun: AtomicU64,
    /// The pool's: a stream has ended.
    room: Arc<Notify>,
}

/// One open stream; it makes room when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamGuard(Arc<Usage>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

#[derive(Debug)]
struct Connection {
    sender: Sender,
    usage: Arc<Usage>,
    /// What the pod allows.
    max_streams: watch::Receiver<usize>,
    /// `begun` when idle connections were last looked for.
    seen: u64,
}

impl Connection {
    fn has_room(&self) -> bool {
        let most = (*self.max_streams.borrow()).min(MAX_STREAMS as usize);
        self.usage.open.load(Ordering::Relaxed) < most
    }

    fn begin(&self) -> (Sender, StreamGuard) {
        self.usage.open.fetch_add(1, Ordering::Relaxed);
        self.usage.begun.fetch_add(1, Ordering::Relaxed);
        (self.sender.clone(), StreamGuard(self.usage.clone()))
    }

    /// Whether nothing used it since the last look.
    fn is_idle(&mut self) -> bool {
        let begun = self.usage.begun.load(Ordering::Relaxed);
        let unused = std::mem::replace(&mut self.seen, begun) == begun;
        unused && self.usage.open.load(Ordering::Relaxed) == 0
    }
}

#[derive(Debug, Default)]
struct State {
    connections: Vec<Connection>,
    /// The connection that is being opened, for all that wait for one.
    opening: Option<Opening>,
    /// A task closes idle connections.
    watched: bool,
}

/// The HTTP/2 connections to one pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Http2Pool {
    state: Arc<Mutex<State>>,
    room: Arc<Notify>,
}

impl Http2Pool {
    /// Sends a request; `written` is called when a connection has it. A connection that ends in that moment, which
    /// servers do as they like, costs another try and not another pod. It waits for a connection until `deadline` at most.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        mut request: Request<RequestBody>,
        deadline: Option<Instant>,
        written: impl Fn(),
    ) -> Result<(Response<Incoming>, StreamGuard), SendError> {
        for _ in 0..TRIES {
            let (mut sender, stream) = match self.get_until(address, deadline).await {
                Ok(Some(found)) => found,
                Ok(None) => return Err(SendError::NotNow(Box::new(request))),
                Err(OpenError::Unreachable) => break,
                Err(OpenError::Silent) => return Err(SendError::Silent(Box::new(request))),
                Err(OpenError::NotHttp2) => return Err(SendError::NotHttp2(Box::new(request))),
            };
            written();
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, stream)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None if error.error().is_user() => return Err(SendError::Malformed),
                    None if was_refused(error.error()) => return Err(SendError::Refused),
                    None => return Err(SendError::Lost),
                },
            }
        }
        Err(SendError::Unsent(Box::new(request)))
    }

    /// Ends when a stream has ended, so that there may be room for another one, or a little later.
    pub(crate) async fn room(&self) {
        // A connection that the pod ended makes room as well, and a SETTINGS frame may.
        let _ = timeout(NOT_NOW_BACKOFF, self.room.notified()).await;
    }

    async fn get_until(
        &self,
        address: SocketAddr,
        deadline: Option<Instant>,
    ) -> Result<Option<(Sender, StreamGuard)>, OpenError> {
        let found = self.get(address);
        match deadline {
            Some(deadline) => {
                let found = timeout_at(deadline, found).await;
                found.unwrap_or(Err(OpenError::Unreachable))
            }
            None => found.await,
        }
    }

    /// A stream on a connection that has room, or on a new one; `None` if there are as many as may be.
    async fn get(&self, address: SocketAddr) -> Result<Option<(Sender, StreamGuard)>, OpenError> {
        loop {
            let opening = {
                let mut state = self.state.lock();
                let free = |one: &&Connection| one.has_room() && !one.sender.is_closed();
                if let Some(found) = state.connections.iter().find(free) {
                    return Ok(Some(found.begin()));
                }
                state.connections.retain(|one| !one.sender.is_closed());
                if state.connections.len() >= MAX_CONNECTIONS {
                    return Ok(None);
                }
                let opening = state.opening.get_or_insert_with(|| self.open(address));
                opening.clone()
            };
            opening.await?;
        }
    }

    /// In a task of its own: it goes on for the others when the first client that waits for it disconnects.
    fn open(&self, address: SocketAddr) -> Opening {
        let pool = self.clone();
        let task = tokio::spawn(async move {
            let opened = open(address, pool.room.clone()).await;
            let mut state = pool.state.lock();
            state.opening = None;
            state.connections.push(opened?);
            if !std::mem::replace(&mut state.watched, true) {
                tokio::spawn(pool.clone().close_idle());
            }
            Ok(())
        });
        let ended = task.map(|ended| ended.unwrap_or(Err(OpenError::Unreachable)));
        ended.boxed().shared()
    }

    /// Closes connections that nothing uses, until none is left.
    async fn close_idle(self) {
        loop {
            sleep(IDLE_TIMEOUT).await;
            let mut state = self.state.lock();
            state
                .connections
                .retain_mut(|one| !one.sender.is_closed() && !one.is_idle());
            if state.connections.is_empty() {
                state.watched = false;
                return;
            }
        }
    }
}

/// The pod has done nothing for it: it refused the stream, or said before that it takes no more (RFC 9113, 8.7).
fn was_refused(error: &hyper::Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let left = cause.is_go_away() && cause.reason() == Some(h2::Reason::NO_ERROR);
        cause.is_remote() && (left || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

async fn open(address: SocketAddr, room: Arc<Notify>) -> Result<Connection, OpenError> {
    let stream = connect(address).await.ok_or(OpenError::Unreachable)?;
    let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_WINDOW as usize)
        // So that the pod's SETTINGS can be waited for.
        .initial_max_send_streams(0)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| OpenError::NotHttp2)?;
    let (allow, mut max_streams) = watch::channel(0);
    tokio::spawn(async move {
        // hyper does not say when the pod's SETTINGS have come.
        let mut pause = SETTINGS_POLL_MIN;
        while connection.current_max_send_streams() == 0 {
            tokio::select! {
                _ = &mut connection => return,
                () = sleep(pause) => pause *= 2,
            }
        }
        let ended = poll_fn(|context| {
            let most = connection.current_max_send_streams();
            allow.send_if_modified(|before| std::mem::replace(before, most) != most);
            Pin::new(&mut connection).poll(context)
        });
        drop(ended.await);
    });
    match timeout(SETTINGS_TIMEOUT, max_streams.wait_for(|most| *most > 0)).await {
        Ok(Ok(_)) => {}
        Ok(Err(_)) => return Err(OpenError::NotHttp2),
        Err(_) => return Err(OpenError::Silent),
    }
    Ok(Connection {
        sender,
        usage: Arc::new(Usage {
            room,
            ..Usage::default()
        }),
        max_streams,
        seen: 0,
    })
}
