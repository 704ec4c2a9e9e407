//! Copies bytes both ways until both sides have ended, or none has moved for long.
//! A relay that carries nothing keeps no buffer: all relays of a thread read into the same one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use super::RELAY_BUFFER;

thread_local! {
    /// What is read goes on at once, or is copied out of here if the other side takes no more.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; RELAY_BUFFER].into());
}
/// A relay lets others run after so many reads.
const READS_AT_ONCE: u32 = 16;

/// How a relay ended is between its two ends, so nothing is returned. Without an `idle_timeout` only they end it.
pub(crate) async fn relay<A, B>(client: &mut A, pod: &mut B, idle_timeout: Option<Duration>)
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let reads = AtomicU64::new(0);
    let (mut up, mut down) = (Direction::new(&reads), Direction::new(&reads));
    let copy = poll_fn(|context| {
        let (up, down) = (
            up.poll_copy(context, client, pod),
            down.poll_copy(context, pod, client),
        );
        match (up, down) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(()),
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    });
    tokio::select! {
        () = copy => {}
        () = idle(&reads, idle_timeout) => {}
    }
}

/// One direction of a relay.
struct Direction<'a> {
    /// A byte that moves is read once.
    reads: &'a AtomicU64,
    /// What was read and not taken yet.
    rest: Vec<u8>,
    taken: usize,
    needs_flush: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Copying,
    /// The reader has ended; the writer has not been ended yet.
    Ending,
    Ended,
}

impl<'a> Direction<'a> {
    fn new(reads: &'a AtomicU64) -> Self {
        Self {
            reads,
            rest: Vec::new(),
            taken: 0,
            needs_flush: false,
            state: State::Copying,
        }
    }

    /// Ready when the reader has ended and the writer was ended after it.
    fn poll_copy<R, W>(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        for _ in 0..READS_AT_ONCE {
            if self.state == State::Ended {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_rest(context, writer))?;
            if self.state == State::Ending {
                ready!(Pin::new(&mut *writer).poll_shutdown(context))?;
                self.state = State::Ended;
                continue;
            }
            if self.poll_read(context, reader, writer)?.is_pending() {
                if std::mem::take(&mut self.needs_flush)
                    && Pin::new(&mut *writer).poll_flush(context)?.is_pending()
                {
                    self.needs_flush = true;
                }
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, and writes what the other side takes of it.
    fn poll_read<R, W>(
        &mut self,
        context: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        BUFFER.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(reader).poll_read(context, &mut read))?;
            self.reads.fetch_add(1, Ordering::Relaxed);
            let mut left = read.filled();
            if left.is_empty() {
                self.state = State::Ending;
            }
            while !left.is_empty() {
                match Pin::new(&mut *writer).poll_write(context, left)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(count) => {
                        self.needs_flush = true;
                        left = left.get(count..).unwrap_or_default();
                    }
                    Poll::Pending => {
                        self.rest.extend_from_slice(left);
                        break;
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    /// Writes what the other side has not taken, and gives its memory back.
    fn poll_rest<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        context: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<io::Result<()>> {
        while let Some(left) = self.rest.get(self.taken..).filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut *writer).poll_write(context, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.taken = self.taken.saturating_add(count),
            }
            self.needs_flush = true;
        }
        (self.rest, self.taken) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
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

    /// Both ends of a pair get what the other end sends, though each carries only 64 bytes at a time.
    #[tokio::test]
    async fn every_byte_arrives_in_order_on_both_ways_and_each_end_is_passed_on() {
        let (mut client, mut near) = duplex(64);
        let (mut far, mut pod) = duplex(100);
        let relaying = tokio::spawn(async move { relay(&mut near, &mut far, None).await });
        let sent: Vec<u8> = (0..300_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let (up, down) = (
            sent.clone(),
            sent.iter().rev().copied().collect::<Vec<u8>>(),
        );
        let answer = down.clone();
        let pod = tokio::spawn(async move {
            let mut received = vec![0; 300_000];
            pod.read_exact(&mut received).await.unwrap();
            assert_eq!(
                pod.read(&mut [0]).await.unwrap(),
                0,
                "the client ended its side"
            );
            pod.write_all(&answer).await.unwrap();
            pod.shutdown().await.unwrap();
            received
        });
        client.write_all(&up).await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received == down && pod.await.unwrap() == up);
        relaying.await.unwrap();
    }

    #[tokio::test]
    async fn an_idle_relay_keeps_no_buffer() {
        let (mut client, mut near) = duplex(64);
        let (mut far, mut pod) = duplex(64);
        let reads = AtomicU64::new(0);
        let mut up = Direction::new(&reads);
        {
            let mut poll = async || {
                let copied = poll_fn(|context| {
                    Poll::Ready(up.poll_copy(context, &mut near, &mut far).is_pending())
                });
                assert!(copied.await);
            };
            for _ in 0..3 {
                client.write_all(&[7; 60]).await.unwrap();
                poll().await;
            }
            let mut received = 0;
            while received < 180 {
                received += pod.read(&mut [0; 64]).await.unwrap();
                poll().await;
            }
        }
        assert_eq!(up.rest.capacity(), 0);
    }
}
