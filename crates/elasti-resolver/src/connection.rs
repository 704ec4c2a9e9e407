//! One accepted connection: hold it unread, see what it speaks, serve it.
//! Never builds HTTP machinery for a connection that still waits, unless its head could not be judged from outside.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::{self, Failure};
use crate::client_stream::{ClientStream, abandoned, left};
use crate::clock::to_std;
use crate::forward::body::Body;
use crate::forward::headers::forwarded_for;
use crate::forward::http::{Destination, forward, needs_a_pod};
use crate::forward::tcp;
use crate::head;
use crate::hold::Released;
use crate::host_route;
use crate::listener::ConnectionPermit;
use crate::net::TcpStream;
use crate::protocol::{self, Protocol};
use crate::resolver::Resolver;
use crate::table::Service;

/// A head must be complete by then, and an idle connection ends after it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that is refused, or whose pod ended before a word, has this long to show whether it speaks HTTP, so that
/// it can be told why, or served.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of one head, as the waiting rooms count on (`waiting_room::RESERVED_BYTES`).
const HEAD_BYTES: usize = 64 * 1024;
/// Streams of one client's connection; hyper's default of 200, and of resets that nobody answered, 20.
const STREAMS: u32 = 200;
const RESETS: usize = 20;

/// Where the requests of one connection go.
#[derive(Clone, Debug)]
pub(crate) enum Aim {
    /// All to one port of one service.
    Fixed(Destination),
    /// Each to the service that its host names.
    ByHost,
}

/// The client of one HTTP connection.
#[derive(Debug)]
pub(crate) struct HttpClient {
    /// Its address, as the pod is told.
    pub(crate) forwarded_for: HeaderValue,
    pub(crate) permit: ConnectionPermit,
    /// The release that the connection had before its first request was read.
    pub(crate) first: Mutex<Option<Released>>,
    /// Why the connection could not wait. Its first request hears it; a later one is a new guest.
    refusal: Mutex<Option<Failure>>,
    /// Of HTTP/1 only: hyper itself sees a leaving HTTP/2 stream, but not a client that left an unread body behind.
    stream: Option<ClientStream>,
    go_away: Notify,
    /// It has sent a request. Until then a graceful end would close a connection whose request is still unread.
    begun: AtomicBool,
}

impl HttpClient {
    /// Ends when the client has left.
    pub(crate) async fn left(&self) {
        match &self.stream {
            Some(stream) => stream.left().await,
            None => std::future::pending().await,
        }
    }

    /// Once its pods are in rotation a client should come back on the direct path.
    pub(crate) fn move_on(&self, service: &Service, answer: &mut Response<Body>) {
        if service.in_rotation {
            self.last_answer(answer);
        }
    }

    /// This answer is the connection's last.
    fn last_answer(&self, answer: &mut Response<Body>) {
        if self.stream.is_some() {
            answer
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else {
            self.go_away.notify_one();
        }
    }
}

/// Serves a connection to one port of one service.
pub(crate) async fn serve(
    resolver: Arc<Resolver>,
    permit: ConnectionPermit,
    stream: TcpStream,
    peer: SocketAddr,
) {
    let listen_port = permit.listen_port;
    let Some(service) = resolver.table.load().at(listen_port).cloned() else {
        return;
    };
    resolver.saw(&service.seen);
    let aim = Aim::Fixed(Destination {
        key: Arc::new(service.key.clone()),
        listen_port,
        seen: service.seen.clone(),
    });
    let must_wait = service.has_waiters()
        || !service
            .port(listen_port)
            .is_some_and(|port| port.has_usable_pod());
    let mut released = None;
    if must_wait && Box::pin(may_wait_unread(&resolver, &service, &stream, listen_port)).await {
        let deadline = Instant::now() + to_std(service.room.timeout);
        let waiting = resolver.hold_for_pod(&service, 0, deadline);
        let verdict = tokio::select! {
            verdict = waiting => verdict,
            () = gone(&resolver, listen_port, &stream) => return,
        };
        match verdict {
            Ok(free) => released = Some(free),
            Err(failure) => {
                let told = answer_if_http(&resolver, permit, stream, peer, aim, Some(failure));
                return Box::pin(told).await;
            }
        }
    }
    // The Service's `appProtocol` may have become known during the wait. What comes after it is boxed, so that a
    // connection that waits costs no memory for it.
    let declared = resolver.app_protocol(listen_port);
    match protocol::of(&stream, declared.as_deref(), HEADER_TIMEOUT).await {
        Some(Protocol::Tcp) => Box::pin(tcp::relay(&resolver, &permit, stream, released)).await,
        Some(Protocol::Silent) => {
            let serving = serve_silent(&resolver, permit, stream, peer, aim, released);
            Box::pin(serving).await;
        }
        Some(http) => {
            let first = released.map(Ok);
            let serving = serve_http(&resolver, permit, stream, peer, http, aim, first);
            Box::pin(serving).await;
        }
        None => {}
    }
}

/// Whether the connection may wait without being read: nothing but a pod can answer its first request.
async fn may_wait_unread(
    resolver: &Resolver,
    service: &Service,
    stream: &TcpStream,
    listen_port: u16,
) -> bool {
    if service.probes.is_empty() && !service.waiting_page {
        return true;
    }
    let declared = resolver.app_protocol(listen_port);
    match protocol::of(stream, declared.as_deref(), HEADER_TIMEOUT).await {
        Some(Protocol::Http1) => {
            let head = head::peek(stream).await;
            head.is_some_and(|head| needs_a_pod(service, &head))
        }
        _ => false,
    }
}

/// Ends when a held client has left; what it speaks decides what its closed side means.
async fn gone(resolver: &Resolver, listen_port: u16, stream: &TcpStream) {
    left(stream).await;
    let declared = resolver.app_protocol(listen_port);
    if protocol::of(stream, declared.as_deref(), Duration::ZERO).await == Some(Protocol::Tcp) {
        abandoned(stream).await;
    }
}

/// Serves a connection to the host route.
pub(crate) async fn serve_by_host(
    resolver: Arc<Resolver>,
    permit: ConnectionPermit,
    stream: TcpStream,
    peer: SocketAddr,
) {
    match protocol::of(&stream, Some("http"), HEADER_TIMEOUT).await {
        Some(Protocol::Tcp | Protocol::Silent) | None => {}
        Some(http) => serve_http(&resolver, permit, stream, peer, http, Aim::ByHost, None).await,
    }
}

/// Serves a client that has said nothing for a moment. If no pod was reached or it ended without a word, the client may
/// have words on the way: a short while later it hears the end too, for it may be one that waits for a greeting.
async fn serve_silent(
    resolver: &Arc<Resolver>,
    permit: ConnectionPermit,
    stream: TcpStream,
    peer: SocketAddr,
    aim: Aim,
    released: Option<Released>,
) {
    let relayed = tcp::relay_silent(resolver, &permit, stream, released).await;
    let Some((stream, failure)) = relayed else {
        return;
    };
    answer_if_http(resolver, permit, stream, peer, aim, failure).await;
}

/// Gives a client the time to show whether it speaks HTTP. If so it is served, or told why not; else the connection
/// just ends.
async fn answer_if_http(
    resolver: &Arc<Resolver>,
    permit: ConnectionPermit,
    stream: TcpStream,
    peer: SocketAddr,
    aim: Aim,
    failure: Option<Failure>,
) {
    let declared = resolver.app_protocol(permit.listen_port);
    match protocol::of_refused(&stream, declared.as_deref(), REFUSAL_TIMEOUT).await {
        Some(Protocol::Tcp | Protocol::Silent) | None => {}
        Some(http) => {
            let first = failure.map(Err);
            serve_http(resolver, permit, stream, peer, http, aim, first).await;
        }
    }
}

async fn serve_http(
    resolver: &Arc<Resolver>,
    permit: ConnectionPermit,
    stream: TcpStream,
    peer: SocketAddr,
    protocol: Protocol,
    aim: Aim,
    first: Option<Result<Released, Failure>>,
) {
    // Answers are written whole; waiting for the client's acknowledgement would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = ClientStream(Arc::new(stream));
    let (released, refusal) = match first {
        Some(Ok(released)) => (Some(released), None),
        Some(Err(failure)) => (None, Some(failure)),
        None => (None, None),
    };
    let client = Arc::new(HttpClient {
        forwarded_for: forwarded_for(peer.ip()),
        permit,
        first: Mutex::new(released),
        refusal: Mutex::new(refusal),
        stream: (protocol == Protocol::Http1).then(|| stream.clone()),
        go_away: Notify::new(),
        begun: AtomicBool::new(false),
    });
    let (caller, inside) = (client.clone(), resolver.clone());
    let service = service_fn(move |request| {
        let (resolver, client, aim) = (inside.clone(), caller.clone(), aim.clone());
        async move { respond(&resolver, &client, &aim, request).await }
    });
    let mut closing = resolver.closing();
    let io = TokioIo::new(stream);
    // Both kinds of connection end in order when asked to, under two different types.
    macro_rules! drive {
        ($connection:expr) => {{
            let mut connection = std::pin::pin!($connection);
            loop {
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = client.go_away.notified() => connection.as_mut().graceful_shutdown(),
                    () = closing.begins() => {
                        if protocol == Protocol::Http2 || client.begun.load(Ordering::Relaxed) {
                            connection.as_mut().graceful_shutdown();
                        }
                    }
                }
            }
        }};
    }
    if protocol == Protocol::Http2 {
        drive!(http2_server().serve_connection(io, service))
    } else {
        drive!(http1_server().serve_connection(io, service).with_upgrades())
    }
}

/// At most 100 headers: hyper's default, for which it needs no memory of its own.
fn http1_server() -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEAD_BYTES);
    server
}

fn http2_server() -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEADER_TIMEOUT)
        .adaptive_window(true);
    server
}

/// The answer to one request; an error only where nobody is left to hear one.
async fn respond(
    resolver: &Arc<Resolver>,
    client: &HttpClient,
    aim: &Aim,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    let started = Instant::now();
    client.begun.store(true, Ordering::Relaxed);
    let grpc = answer::is_grpc(request.headers()) && request.version() == Version::HTTP_2;
    let uploads = request.version() != Version::HTTP_2 && !request.body().is_end_stream();
    let refusal = client.refusal.lock().take();
    let destination = match (refusal, aim) {
        (Some(failure), _) => Err(failure),
        (None, Aim::Fixed(destination)) => Ok(destination.clone()),
        (None, Aim::ByHost) => host_route::destination(resolver, &request),
    };
    let answered = match &destination {
        Ok(destination) => forward(resolver, destination, client, request).await,
        Err(failure) => Err(*failure),
    };
    resolver
        .metrics
        .request(destination.as_ref().ok(), &answered, started.elapsed());
    let mut answer = match answered {
        Ok(answer) => answer,
        Err(Failure::ClientLeft) => return Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        Err(failure) => answer::failure(failure, grpc),
    };
    // hyper ends a connection on which a body stays unread; unless it is told, the next request would cross that end.
    let stays_unread = uploads && matches!(answer.body(), Body::Own(_));
    let goes_on = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    if !goes_on && (stays_unread || resolver.is_closing()) {
        client.last_answer(&mut answer);
    }
    Ok(answer)
}
