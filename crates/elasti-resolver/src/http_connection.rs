//! One HTTP connection of a client: drives hyper, and answers each request on it.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::{self, Failure};
use crate::client_stream::ClientStream;
use crate::connection::{Accepted, HEADER_TIMEOUT, Proxy, Route};
use crate::forward::body::Body;
use crate::forward::headers::forwarded_for;
use crate::forward::http::forward;
use crate::listener::ConnectionPermit;
use crate::protocol::Protocol;
use crate::reach::{Destination, HoldOutcome};
use crate::table::Service;

/// Bytes of one head, as the waiting rooms count on (`waiting_room::RESERVED_BYTES`).
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Streams of one client's connection: hyper's default; and resets that were not answered yet.
const MAX_STREAMS: u32 = 200;
const MAX_PENDING_RESETS: usize = 20;

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) proxy: Arc<Proxy>,
    route: Route,
    pub(crate) permit: ConnectionPermit,
    /// The client's address, as the pod gets it.
    pub(crate) forwarded_for: HeaderValue,
    /// Of HTTP/1 only: hyper itself notices a reset HTTP/2 stream, but not a client that left an unread body behind.
    stream: Option<ClientStream>,
    go_away: Notify,
    /// It has sent a request. Until then a graceful end would close a connection whose request is still unread.
    begun: AtomicBool,
}

/// Serves a connection to its end; its first request gets the outcome of the connection's wait.
pub(crate) async fn serve(accepted: Accepted, protocol: Protocol, first: HoldOutcome) {
    let Accepted {
        proxy,
        route,
        permit,
        stream,
        peer,
    } = accepted;
    // Responses are written whole; waiting for the client's acknowledgement would only delay them.
    let _ = stream.set_nodelay(true);
    let stream = ClientStream(Arc::new(stream));
    let mut closing = proxy.lifecycle.closing();
    let connection = Arc::new(HttpConnection {
        proxy,
        route,
        permit,
        forwarded_for: forwarded_for(peer.ip()),
        stream: (protocol == Protocol::Http1).then(|| stream.clone()),
        go_away: Notify::new(),
        begun: AtomicBool::new(false),
    });
    let (shared, first) = (connection.clone(), Cell::new(first));
    let service = service_fn(move |request| {
        let (connection, first) = (shared.clone(), first.take());
        async move { connection.respond(request, first).await }
    });
    let io = TokioIo::new(stream);
    // Both kinds of connection end in order when asked to, under two different types.
    macro_rules! drive {
        ($server:expr) => {{
            let mut server = std::pin::pin!($server);
            loop {
                tokio::select! {
                    _ = server.as_mut() => return,
                    () = connection.go_away.notified() => server.as_mut().graceful_shutdown(),
                    () = closing.begins() => {
                        let begun = connection.begun.load(Ordering::Relaxed);
                        if protocol == Protocol::Http2 || begun {
                            server.as_mut().graceful_shutdown();
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
        .max_buf_size(MAX_HEAD_BYTES);
    server
}

fn http2_server() -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEADER_TIMEOUT)
        .adaptive_window(true);
    server
}

impl HttpConnection {
    /// The response to one request; an error only where the client has disconnected.
    async fn respond(
        &self,
        request: Request<Incoming>,
        first: HoldOutcome,
    ) -> io::Result<Response<Body>> {
        let started = Instant::now();
        self.begun.store(true, Ordering::Relaxed);
        let grpc = answer::is_grpc(request.headers()) && request.version() == Version::HTTP_2;
        let method = request.method().clone();
        let uploads = request.version() != Version::HTTP_2 && !request.body().is_end_stream();
        let accepted = first
            .into_released()
            .and_then(|released| Ok((self.destination(&request)?, released)));
        let (destination, forwarded) = match accepted {
            Ok((destination, released)) => {
                let forwarded = forward(self, &destination, request, released).await;
                (Some(destination), forwarded)
            }
            Err(failure) => (None, Err(failure)),
        };
        self.proxy
            .metrics
            .request(destination.as_ref(), &method, &forwarded, started.elapsed());
        let mut response = match forwarded {
            Ok(response) => response,
            Err(Failure::ClientDisconnected) => {
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
            }
            Err(failure) => answer::failure(failure, grpc),
        };
        // hyper ends a connection on which a body stays unread; without a warning the next request would cross that end.
        let stays_unread = uploads && matches!(response.body(), Body::Own(_));
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !upgraded && (stays_unread || self.proxy.lifecycle.is_closing()) {
            self.close_after(&mut response);
        }
        Ok(response)
    }

    fn destination(&self, request: &Request<Incoming>) -> Result<Destination, Failure> {
        match &self.route {
            Route::Service(destination) => Ok(destination.clone()),
            Route::ByHost => {
                let Proxy {
                    host_route,
                    dispatcher,
                    metrics,
                    ..
                } = &*self.proxy;
                let found = host_route.find(&dispatcher.table, request);
                metrics.host(found.as_ref());
                found.ok_or(Failure::NotManaged)
            }
        }
    }

    /// Ends when the client has disconnected.
    pub(crate) async fn client_disconnected(&self) {
        match &self.stream {
            Some(stream) => stream.disconnected().await,
            None => std::future::pending().await,
        }
    }

    /// Once its pods are in rotation a client should come back on the direct path.
    pub(crate) fn close_if_in_rotation(&self, service: &Service, response: &mut Response<Body>) {
        if service.in_rotation {
            self.close_after(response);
        }
    }

    /// This response is the connection's last.
    fn close_after(&self, response: &mut Response<Body>) {
        if self.stream.is_some() {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        } else {
            self.go_away.notify_one();
        }
    }
}
