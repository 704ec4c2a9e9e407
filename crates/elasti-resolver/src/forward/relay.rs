//! Copies bytes both ways until both sides have ended, or none has moved for long.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep};

use super::RELAY_BUFFER;

/// How a relay ended is between its two ends, so nothing is returned. Without an `idle_timeout` only they end it.
pub(crate) async fn relay<A, B>(client: &mut A, pod: &mut B, idle_timeout: Option<Duration>)
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let reads = AtomicU64::new(0);
    let mut client = Counted(client, &reads);
    let mut pod = Counted(pod, &reads);
    let copy = copy_bidirectional_with_sizes(&mut client, &mut pod, RELAY_BUFFER, RELAY_BUFFER);
    tokio::select! {
        _ = copy => {}
        () = idle(&reads, idle_timeout) => {}
    }
}

/// Ends when nothing was read for the whole time. Counting costs a relay less than reading the clock for each read.
async fn idle(reads: &AtomicU64, timeout: Option<Duration>) {
    let Some(timeout) = timeout else {
        return std::future::pending().await;
    };
    let (mut last, mut since) = (reads.load(Ordering::Relaxed), Instant::now());
    loop {
        sleep(timeout / 4).await;
        let now = reads.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= timeout {
            return;
        }
    }
}

/// One side, whose reads are counted: a byte that moves is read once.
struct Counted<'a, S: ?Sized>(&'a mut S, &'a AtomicU64);

impl<S: AsyncRead + Unpin + ?Sized> AsyncRead for Counted<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut *self.0).poll_read(cx, buffer));
        self.1.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin + ?Sized> AsyncWrite for Counted<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_relay_ends_when_nothing_moves_and_not_while_something_does() {
        let (mut client, mut near) = duplex(64);
        let (mut far, mut pod) = duplex(64);
        let timeout = Duration::from_secs(100);
        let relaying = tokio::spawn(async move { relay(&mut near, &mut far, Some(timeout)).await });
        for _ in 0..5 {
            sleep(Duration::from_secs(90)).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(pod.read_u8().await.unwrap(), b'x');
        }
        let last = Instant::now();
        relaying.await.unwrap();
        assert!(last.elapsed() >= timeout, "{:?}", last.elapsed());
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "both sides end");
    }
}
