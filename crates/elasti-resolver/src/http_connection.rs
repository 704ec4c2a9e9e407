//! One HTTP connection of a client: drives hyper, and answers each request on it.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use elasti_core::waiting_room::{RESERVED_BYTES, Refusal};
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use crate::answer::{self, Failure};
use crate::client_stream::{ClientStream, HeadBound};
use crate::connection::{Accepted, HEADER_TIMEOUT, Proxy, Route};
use crate::drain::Ending;
use crate::forward::body::{Body, RequestBody};
use crate::forward::headers::forwarded_for;
use crate::forward::http::forward;
use crate::forward::http2_pool::STREAM_WINDOW;
use crate::listener::ConnectionPermit;
use crate::protocol::Protocol;
use crate::reach::{Destination, HoldOutcome};
use crate::request_record::RequestRecord;
use crate::table::Service;
use crate::unfinished_heads::UnfinishedHead;

/// Bytes of one head.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// A first request never needs the pool of the waiting rooms.
const _: () = assert!(MAX_HEAD_BYTES as u64 + STREAM_WINDOW as u64 <= RESERVED_BYTES);
/// Streams of one client's connection: hyper's default; and resets that were not answered yet.
const MAX_STREAMS: u32 = 200;
/// All streams may have a full window unread while they are held, and none of them stops another:
/// 200 x 64 KiB = 12.5 MiB.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
const MAX_PENDING_RESETS: usize = 20;

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) proxy: Arc<Proxy>,
    route: Route,
    pub(crate) permit: ConnectionPermit,
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// The same, as the pod gets it.
    pub(crate) forwarded_for: HeaderValue,
    /// Of HTTP/1 only: hyper itself notices a reset HTTP/2 stream, but not a client that left an unread body behind.
    stream: Option<ClientStream>,
    /// Of HTTP/1 only.
    head: Option<Arc<UnfinishedHead>>,
    go_away: Notify,
    /// It has sent a request. Until then a graceful end would close a connection whose request is still unread.
    begun: AtomicBool,
    /// Its last request had a body, of which the client may still send the rest.
    uploads: AtomicBool,
    ending: Ending,
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
enum NoResponse {
    #[error("the client has disconnected")]
    ClientDisconnected,
    /// hyper resets the stream with the reason of its source.
    #[error("the pod refused the stream")]
    Refused(#[source] h2::Error),
}

/// Serves a connection to its end; its first request gets the outcome of the connection's wait.
pub(crate) async fn serve(accepted: Accepted, protocol: Protocol, first: HoldOutcome) {
    let Accepted {
        proxy,
        route,
        permit,
        mut ending,
        stream,
        peer,
    } = accepted;
    // Responses are written whole; waiting for the client's acknowledgement would only delay them.
    let _ = stream.set_nodelay(true);
    let is_http1 = protocol == Protocol::Http1;
    let head = is_http1.then(|| proxy.unfinished_heads.connection());
    let frames = (!is_http1).then(|| proxy.header_blocks.connection());
    let of_http1 = head.clone().map(HeadBound::Http1);
    let bound = of_http1.or(frames.clone().map(HeadBound::Http2));
    let stream = ClientStream::new(stream, bound);
    let connection = Arc::new(HttpConnection {
        proxy,
        route,
        permit,
        peer: peer.ip(),
        forwarded_for: forwarded_for(peer.ip()),
        stream: is_http1.then(|| stream.clone()),
        head,
        go_away: Notify::new(),
        begun: AtomicBool::new(false),
        uploads: AtomicBool::new(false),
        ending: ending.clone(),
    });
    let (shared, first) = (connection.clone(), Cell::new(first));
    let service = service_fn(move |request| {
        let (connection, first) = (shared.clone(), first.take());
        async move { connection.respond(request, first).await }
    });
    let io = TokioIo::new(stream.clone());
    // Both kinds of connection end in order when asked to, under two different types.
    macro_rules! drive {
        ($server:expr) => {{
            let mut server = std::pin::pin!($server);
            let mut disconnected = std::pin::pin!(connection.disconnected_unread());
            loop {
                tokio::select! {
                    // The server first: what it reads decides whether anyone else must look for the client's end.
                    biased;
                    ended = server.as_mut() => break ended,
                    () = disconnected.as_mut() => return,
                    () = connection.go_away.notified() => server.as_mut().graceful_shutdown(),
                    () = ending.begins() => {
                        // An idle connection ends now. A request that crosses that end must meet a reset, by which its
                        // client knows that it may send it again, and must not be read and dropped.
                        connection.uploads.store(false, Ordering::Relaxed);
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
        let _ = drive!(http2_server().serve_connection(io, service));
        if let Some(goaway) = frames.and_then(|frames| frames.goaway()) {
            tracing::debug!(client = connection.client(), "too many unfinished heads");
            let _ = { stream }.write_all(&goaway).await;
        }
        return;
    }
    let ended = drive!(http1_server().serve_connection(io, service).with_upgrades());
    connection.refuse_head().await;
    // One that was idle for too long has nothing to say any more.
    if !ended.is_err_and(|error| error.is_timeout()) {
        connection.linger().await;
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

pub(crate) fn http2_server() -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEADER_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_WINDOW as usize);
    server
}

impl HttpConnection {
    /// The response to one request; an error only where the client has disconnected, or a refused stream is passed on.
    async fn respond(
        &self,
        mut request: Request<Incoming>,
        first: HoldOutcome,
    ) -> Result<Response<Body>, NoResponse> {
        let record = RequestRecord::of_request(&self.proxy, &request, self.client());
        self.first_hold_ended(&record, &first, &mut request);
        self.begun.store(true, Ordering::Relaxed);
        let grpc = answer::is_grpc(request.headers()) && request.version() == Version::HTTP_2;
        let method = request.method().clone();
        let uploads = request.version() != Version::HTTP_2 && !request.body().is_end_stream();
        // It lives until the answer is known, so that what a client sends meanwhile counts as no head.
        let upload = self.head.as_ref().and_then(|head| head.whole(uploads));
        let request = request.map(|body| RequestBody::new(body, upload.clone()));
        let (destination, forwarded) = match (self.destination(&request), first.into_released()) {
            (Ok(destination), Ok(released)) => {
                let forwarded = forward(self, &destination, request, released, &record).await;
                let forwarded = forwarded.map_err(|failure| self.as_connected(failure));
                (Some(destination), forwarded)
            }
            (destination, Err(failure)) => (destination.ok(), Err(failure)),
            (Err(failure), _) => (None, Err(failure)),
        };
        self.ended(destination.as_ref(), &method, &forwarded, record);
        let nothing_follows =
            matches!(forwarded, Err(Failure::Deleted | Failure::SourceNotAllowed));
        let mut response = match forwarded {
            Ok(response) => response,
            Err(Failure::ClientDisconnected) => {
                return Err(NoResponse::ClientDisconnected);
            }
            Err(Failure::StreamRefused) => {
                return Err(NoResponse::Refused(h2::Reason::REFUSED_STREAM.into()));
            }
            Err(failure) => answer::failure(failure, grpc),
        };
        // hyper ends a connection on which a body stays unread; without a warning the next request would cross that end.
        let stays_unread = uploads && matches!(response.body(), Body::Own(_));
        let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        // What follows is no HTTP, or is not read.
        if upgraded || stays_unread {
            self.head.iter().for_each(|head| head.was_last());
        }
        if uploads || upgraded {
            self.uploads.store(uploads && !upgraded, Ordering::Relaxed);
        }
        if !upgraded && (stays_unread || nothing_follows || self.ending.has_begun()) {
            self.close_after(&mut response);
        }
        Ok(response)
    }

    /// The connection's own hold, which ended before its first request was read.
    fn first_hold_ended(
        &self,
        record: &RequestRecord,
        first: &HoldOutcome,
        request: &mut Request<Incoming>,
    ) {
        if let (Some(ended), Route::Service(to)) = (first.ended(), &self.route) {
            record.hold_ended(&self.proxy, &to.key, &ended, request.headers_mut());
        }
    }

    /// Counts a request that has ended, and logs it if it is one of the share.
    fn ended(
        &self,
        destination: Option<&Destination>,
        method: &Method,
        forwarded: &Result<Response<Body>, Failure>,
        record: RequestRecord,
    ) {
        let proxy = &self.proxy;
        proxy
            .metrics
            .request(destination, method, forwarded, record.took());
        let (status, reason) = match forwarded {
            Ok(response) => (Some(response.status()), ""),
            Err(failure) => (failure.told_status(), failure.reason().as_str()),
        };
        let status = status.map(|status| status.as_u16());
        record.end(proxy, destination, status, reason);
    }

    /// The client's address, as it is logged.
    pub(crate) fn client(&self) -> &str {
        self.forwarded_for.to_str().unwrap_or_default()
    }

    fn destination<B>(&self, request: &Request<B>) -> Result<Destination, Failure> {
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

    /// A client that came when its route was there hears that it is gone, not that there never was one.
    fn as_connected(&self, failure: Failure) -> Failure {
        match (failure, &self.route) {
            (Failure::NotManaged, Route::Service(_)) => Failure::Deleted,
            _ => failure,
        }
    }

    /// After the last answer: a client that still uploads must be able to read it.
    async fn linger(&self) {
        if let Some(stream) = &self.stream
            && self.uploads.load(Ordering::Relaxed)
        {
            stream.clone().linger().await;
        }
    }

    /// Tells a client why its head is not read to its end. It may see a reset instead: what it still sends is not read.
    async fn refuse_head(&self) {
        if let (Some(stream), Some(head)) = (&self.stream, &self.head)
            && head.was_refused()
        {
            tracing::debug!(client = self.client(), "too many unfinished heads");
            let answer = answer::as_text(Failure::Refused(Refusal::MemoryHigh));
            let _ = stream.clone().write_all(&answer).await;
        }
    }

    /// Ends when the client has disconnected.
    pub(crate) async fn client_disconnected(&self) {
        match &self.stream {
            Some(stream) => stream.disconnected().await,
            None => std::future::pending().await,
        }
    }

    /// Ends when the client has disconnected although hyper does not read from it, and so does not notice.
    async fn disconnected_unread(&self) {
        let Some(stream) = &self.stream else {
            return std::future::pending().await;
        };
        let mut disconnected = std::pin::pin!(stream.disconnected_unread());
        let noticed = poll_fn(|context| match stream.is_unread() {
            true => disconnected.as_mut().poll(context),
            false => Poll::Pending,
        });
        noticed.await;
    }

    /// Once its pods are in rotation a client should come back on the direct path; a client of the host route has none.
    pub(crate) fn close_if_in_rotation(&self, service: &Service, response: &mut Response<Body>) {
        if service.in_rotation && matches!(self.route, Route::Service(_)) {
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
