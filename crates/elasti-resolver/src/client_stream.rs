//! A client's connection that hyper can own while a hold still notices that the client disconnects.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::net::{TcpStream, close_writing, read};

/// Reads and writes a connection that is shared.
#[derive(Clone, Debug)]
pub(crate) struct ClientStream(pub(crate) Arc<TcpStream>);

impl ClientStream {
    /// Ends when the client has closed its side, whether or not its bytes were read.
    pub(crate) async fn disconnected(&self) {
        disconnected(&self.0).await;
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
            Ok(_) => tokio::task::yield_now().await,
        }
    }
}

/// Ends when a client that speaks no HTTP has disconnected. One that sent bytes and closed only its own side may still
/// wait for what comes back; then only a reset counts.
pub(crate) async fn disconnected_tcp(stream: &TcpStream) {
    disconnected(stream).await;
    let mut first = [0; 1];
    if matches!(stream.peek(&mut first).await, Ok(1)) {
        let _ = stream.ready(Interest::ERROR).await;
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match read(&self.0, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
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
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
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
        Poll::Ready(close_writing(&self.0))
    }
}
