//! The HTTP/1.1 server of our own endpoints, with a limit on connections and on the wait for a request's head.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Running out of file descriptors must not become a busy loop.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where connections come from: the machine's sockets, or a simulated network's.
pub trait Listener: Send + Sync {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and who opened it.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }
}

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct HttpServer {
    /// Open connections; more wait in the kernel's backlog until one ends.
    pub max_connections: usize,
    /// Open connections of one address; more are closed at once.
    pub max_connections_per_peer: usize,
    /// How long a request's head may take, and how long an idle connection is kept.
    pub header_timeout: Duration,
}

impl HttpServer {
    /// Serves for as long as the future lives; dropping it closes every connection.
    pub async fn serve<L, A, F, B>(self, listener: L, answer: A)
    where
        L: Listener,
        A: Fn(IpAddr, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Error: Into<BoxError>, Data: Send> + Send + 'static,
    {
        self.serve_with_tls(listener, None, answer).await;
    }

    /// The same for clients that speak TLS as well as for those that do not: one port serves both, because scrapers and
    /// KubeElasti's resolvers know no TLS. The first byte tells.
    pub async fn serve_with_tls<L, A, F, B>(self, listener: L, tls: Option<TlsAcceptor>, answer: A)
    where
        L: Listener,
        A: Fn(IpAddr, Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Error: Into<BoxError>, Data: Send> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(self.max_connections));
        let peers = Arc::new(Peers::default());
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            let Ok((stream, peer)) = accepted else {
                sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            let peer = peer.ip();
            let Some(permit) = peers.admit(peer, self.max_connections_per_peer, permit) else {
                continue;
            };
            let (answer, tls) = (answer.clone(), tls.clone());
            connections.spawn(async move {
                let answer = move |request| answer(peer, request);
                let Some(tls) = tls else {
                    self.answer_all(stream, answer).await;
                    return drop(permit);
                };
                match timeout(self.header_timeout, begin(stream, &tls)).await {
                    Ok(Ok(Begun::Plain(stream))) => self.answer_all(stream, answer).await,
                    Ok(Ok(Begun::Tls(stream))) => self.answer_all(stream, answer).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => {}
                }
                drop(permit);
            });
        }
    }

    async fn answer_all<S, A, F, B>(self, stream: S, answer: A)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Result<Response<B>, Infallible>> + Send + 'static,
        B: Body<Error: Into<BoxError>, Data: Send> + Send + 'static,
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        // The client's hang-up is no error of ours.
        let _ = connection.await;
    }
}

/// The first byte of a TLS handshake; no method of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// A connection whose first byte has come.
enum Begun<S> {
    Plain(Unread<S>),
    Tls(Box<tokio_rustls::server::TlsStream<Unread<S>>>),
}

async fn begin<S>(mut stream: S, tls: &TlsAcceptor) -> io::Result<Begun<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let byte = stream.read_u8().await?;
    let stream = Unread {
        byte: Some(byte),
        stream,
    };
    Ok(match byte {
        TLS_HANDSHAKE => Begun::Tls(Box::new(tls.accept(stream).await?)),
        _ => Begun::Plain(stream),
    })
}

/// A stream whose first byte is read again: a stream of a simulated network cannot be peeked at.
struct Unread<S> {
    byte: Option<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(byte) = self.byte.take()
        {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// How many connections each peer has.
#[derive(Debug, Default)]
struct Peers(Mutex<HashMap<IpAddr, usize>>);

/// A connection that counts until it is dropped.
struct ConnectionPermit {
    peers: Arc<Peers>,
    peer: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Peers {
    fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        most: usize,
        permit: OwnedSemaphorePermit,
    ) -> Option<ConnectionPermit> {
        let mut counts = self.0.lock();
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(ConnectionPermit {
            peers: self.clone(),
            peer,
            _permit: permit,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}
