//! A client's connection that hyper can own while a hold still notices that the client disconnects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use crate::header_blocks::ClientFrames;
use crate::net::{TcpStream, clear_urgent, close_writing, read};
use crate::protocol::TLS_FIRST_BYTE;
use crate::unfinished_heads::UnfinishedHead;

/// A client that is still sending when its answer is complete gets this long without a byte to notice the end, and at
/// most so long in total: closing at once would answer its bytes with a reset, which may destroy the answer on its way.
const LINGER_IDLE: Duration = Duration::from_secs(2);
const LINGER_MOST: Duration = Duration::from_secs(30);
/// What a client has sent before it closed its side goes on to its pod, unless that takes nothing for so long.
const STALLED: Duration = Duration::from_secs(5);

/// What bounds the memory of heads that a client does not end. Reads end with an error where there is no room for one.
#[derive(Clone, Debug)]
pub(crate) enum HeadBound {
    Http1(Arc<UnfinishedHead>),
    Http2(Arc<ClientFrames>),
}

impl HeadBound {
    /// These bytes have been read; false if there is no room for them.
    fn read(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Http1(head) => head.read(bytes.len()),
            Self::Http2(frames) => frames.read(bytes),
        }
    }
}

/// Reads and writes a connection that is shared.
#[derive(Clone, Debug)]
pub(crate) struct ClientStream {
    stream: Arc<TcpStream>,
    traffic: Arc<Traffic>,
    head: Option<HeadBound>,
}

/// What hyper does with the connection. One task polls it, so the parts need no order between them.
#[derive(Debug, Default)]
struct Traffic {
    /// It waits for bytes, and so notices the end.
    waits: AtomicBool,
    /// Reads and writes.
    count: AtomicU64,
}

impl Traffic {
    fn moved(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl ClientStream {
    pub(crate) fn new(stream: TcpStream, head: Option<HeadBound>) -> Self {
        Self {
            stream: Arc::new(stream),
            traffic: Arc::default(),
            head,
        }
    }

    /// Whether hyper leaves the client's bytes unread, so that it does not notice the client's end: a pod does not take
    /// its upload, or its next request has come already.
    pub(crate) fn is_unread(&self) -> bool {
        !self.traffic.waits.load(Ordering::Relaxed)
    }

    /// Ends when the client has disconnected and nothing has moved for a while after that.
    pub(crate) async fn disconnected_unread(&self) {
        loop {
            self.disconnected().await;
            let before = self.traffic.count.load(Ordering::Relaxed);
            sleep(STALLED).await;
            if self.traffic.count.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Ends when the client has closed its side, whether or not its bytes were read.
    pub(crate) async fn disconnected(&self) {
        disconnected(&self.stream).await;
    }

    /// Drops what the client still sends, until it has closed its side or has had its time.
    pub(crate) async fn linger(&mut self) {
        // What is dropped at once takes no memory.
        self.head = None;
        let until = Instant::now() + LINGER_MOST;
        let mut dropped = vec![0; 16 * 1024];
        while Instant::now() < until
            && matches!(
                timeout(LINGER_IDLE, self.read(&mut dropped)).await,
                Ok(Ok(1..))
            )
        {}
    }
}

/// Ends when the other side has closed its side or reset, whatever still lies unread in the kernel.
///
/// `PRIORITY` waits for urgent data, which HTTP clients do not send, or for the end of the readable side; `READABLE` would be
/// satisfied by the request that must stay unread.
pub(crate) async fn disconnected(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::PRIORITY | Interest::ERROR).await {
            Ok(ready) if ready.is_read_closed() || ready.is_error() => return,
            Err(_) => return,
            Ok(_) => {
                clear_urgent(stream);
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Ends when a client that speaks no HTTP has disconnected. One that sent bytes and closed only its own side may still
/// wait for what comes back; then only a reset counts. Not so TLS: nothing comes back for a handshake that was left.
pub(crate) async fn disconnected_tcp(stream: &TcpStream) {
    disconnected(stream).await;
    let mut first = [0; 1];
    let sent = matches!(stream.peek(&mut first).await, Ok(1));
    if sent && first != [TLS_FIRST_BYTE] {
        let _ = stream.ready(Interest::ERROR).await;
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let traffic = &self.traffic;
        loop {
            let ready = self.stream.poll_read_ready(cx);
            traffic.waits.store(ready.is_pending(), Ordering::Relaxed);
            ready!(ready)?;
            match read(&self.stream, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    traffic.moved();
                    let read = buffer.filled().get(before..).unwrap_or_default();
                    let fits = self.head.as_ref().is_none_or(|head| head.read(read));
                    let too_many = || Err(io::ErrorKind::OutOfMemory.into());
                    return Poll::Ready(if fits { done } else { too_many() });
                }
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    self.traffic.moved();
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    self.traffic.moved();
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(close_writing(&self.stream))
    }
}
