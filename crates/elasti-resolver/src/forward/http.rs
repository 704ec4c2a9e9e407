//! Forwards one HTTP request to a pod and its response back: head by head, frame by frame.

use elasti_api::{ProbeAnswer, WakeClient};
use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRequest;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use tokio::time::{Instant, sleep};

use super::body::{Body, RequestBody, ResponseGuard};
use super::grpc::CallDeadline;
use super::headers::{prepare, strip_hop_by_hop, wanted_upgrade, without_user};
use super::http2_pool::{Http2Pool, STREAM_WINDOW};
use super::pool::SendError;
use super::upgrade::{self, UpgradeGuard};
use crate::answer::{self, Failure};
use crate::ended_hold::EndedHold;
use crate::hold::Released;
use crate::http_connection::{HttpConnection, MAX_HEAD_BYTES};
use crate::pod::Pod;
use crate::protocol::CountedAs;
use crate::reach::{Attempt, AttemptError, Destination, NOT_NOW_BACKOFF};
use crate::request_record::RequestRecord;
use crate::table::{OpenGuard, Service};
use crate::{waiting_page, wake_client};

/// A pod that closes so many connections in a row before it has spoken HTTP/2, or stays silent on them, does not speak it.
const MOST_NOT_HTTP2: u32 = 3;

/// Forwards one request to a pod, holding it first where none is ready. One that was released with its connection was
/// judged before its wait: only a pod can answer it.
pub(crate) async fn forward(
    connection: &HttpConnection,
    destination: &Destination,
    mut request: Request<RequestBody>,
    released: Option<Released>,
    record: &RequestRecord,
) -> Result<Response<Body>, Failure> {
    let head_bytes = head_bytes(&request);
    if let Some(failure) = refusal(&request, head_bytes) {
        return Err(failure);
    }
    let dispatcher = &connection.proxy.dispatcher;
    let service = dispatcher.service(&destination.key)?;
    // For each request: on the host route each may name another service, and a spec may change under a connection.
    if !connection.proxy.admits(&service, connection.peer).await {
        return Err(Failure::SourceNotAllowed);
    }
    // Health checks that come all the time would call every sleep off.
    let rule = probe_rule(&service, &request);
    if rule.is_none() {
        connection.proxy.record_arrival(&service.stats);
    }
    if released.is_none() && !service.has_usable_pod(destination.listen_port) {
        if let Some(rule) = rule {
            return Ok(answer::probe(rule));
        }
        if gets_waiting_page(&service, &request) {
            let tells = dispatcher.wakes.tells_clients;
            let client = tells.then(|| wake_client::of_request(&request, connection.client()));
            let port = destination.listen_port;
            dispatcher.wake_without_waiting(&service, port, client.map(Box::new));
            return Ok(answer::waiting(&service.key, service.delay));
        }
    }
    let wanted = wanted_upgrade(request.headers());
    let attempt = HttpAttempt {
        connection,
        record,
        held_bytes: head_bytes + body_bytes(&request),
        call: (request.version() == Version::HTTP_2)
            .then(|| CallDeadline::from_headers(request.headers()))
            .flatten(),
        upgrade: wanted.as_ref().map(|_| hyper::upgrade::on(&mut request)),
        not_http2: 0,
        full: None,
    };
    prepare(&mut request, &connection.forwarded_for, wanted, || {
        let ServiceKey { namespace, service } = &*destination.key;
        HeaderValue::from_str(&format!("{service}.{namespace}")).ok()
    });
    dispatcher
        .reach(destination, service, released, attempt, request)
        .await
}

struct HttpAttempt<'a> {
    connection: &'a HttpConnection,
    record: &'a RequestRecord,
    /// What may be in memory of it while it waits.
    held_bytes: u64,
    call: Option<CallDeadline>,
    upgrade: Option<OnUpgrade>,
    /// How often in a row a pod closed before it had spoken HTTP/2, or said nothing.
    not_http2: u32,
    /// The pool of the last pod, if that could not take it yet.
    full: Option<Http2Pool>,
}

impl HttpAttempt<'_> {
    /// A pod that starts or ends may close a connection before it has spoken HTTP/2, and a busy one may take its time; one
    /// that does so again and again does not speak it, and is not waited for. It may speak HTTP/1.1 all the same, so no
    /// other request waits for it.
    fn failed(&mut self, error: SendError, pool: &Http2Pool) -> AttemptError<Request<RequestBody>> {
        self.full = None;
        match error {
            SendError::NotHttp2(request) | SendError::Silent(request)
                if self.not_http2 + 1 < MOST_NOT_HTTP2 =>
            {
                self.not_http2 += 1;
                AttemptError::NotNow(*request)
            }
            SendError::NotNow(request) => {
                self.not_http2 = 0;
                self.full = Some(pool.clone());
                AttemptError::NotNow(*request)
            }
            SendError::Unsent(request) => {
                self.not_http2 = 0;
                AttemptError::Unsent(*request)
            }
            SendError::NotHttp2(_) | SendError::Lost => AttemptError::Failed(Failure::PodClosed),
            SendError::Silent(_) => AttemptError::Failed(Failure::PodSilent),
            SendError::Refused => AttemptError::Failed(Failure::StreamRefused),
            SendError::Malformed => AttemptError::Failed(Failure::Malformed),
        }
    }
}

impl Attempt for HttpAttempt<'_> {
    type Message = Request<RequestBody>;
    type Reached = Response<Body>;

    fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    fn counted_as(&self) -> CountedAs {
        CountedAs::Http
    }

    fn client(&self, request: &Self::Message) -> WakeClient {
        wake_client::of_request(request, self.connection.client())
    }

    fn hold_ended(&self, key: &ServiceKey, ended: &EndedHold, request: &mut Self::Message) {
        let proxy = &self.connection.proxy;
        self.record
            .hold_ended(proxy, key, ended, request.headers_mut());
    }

    async fn try_pod(
        &mut self,
        service: &Service,
        pod: &Pod,
        mut request: Request<RequestBody>,
        written: impl Fn() + Send + Sync,
    ) -> Result<Response<Body>, AttemptError<Request<RequestBody>>> {
        let upload = request.body().upload();
        let (open, in_flight) = (OpenGuard::new(&service.stats), pod.begin_request());
        let (pool, address) = (&pod.state.pool, pod.backend.address);
        if let Some(call) = &self.call {
            call.shorten(request.headers_mut());
        }
        let (mut response, stream, pooled) = if request.version() == Version::HTTP_2 {
            let sent = pool.http2.send(address, request, self.deadline(), written);
            let sent = sent.await;
            let (response, stream) = sent.map_err(|error| self.failed(error, &pool.http2))?;
            (response, Some(stream), None)
        } else {
            let disconnected = self.connection.client_disconnected();
            let idle_timeout = self.connection.proxy.idle_timeout;
            let sent = pool.send_http1(address, idle_timeout, request, disconnected, written);
            let sent = sent.await;
            let (response, sender) = sent.map_err(|error| self.failed(error, &pool.http2))?;
            (response, None, Some((pod.state.clone(), sender)))
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = self.upgrade.take() else {
                return Err(AttemptError::Failed(Failure::PodClosed));
            };
            let guard = UpgradeGuard {
                _open: open,
                _in_flight: in_flight,
                _permit: self.connection.permit.clone(),
                idle_timeout: self.connection.proxy.idle_timeout,
            };
            return Ok(upgrade::switch(response, client, guard));
        }
        strip_hop_by_hop(response.headers_mut());
        let guard = ResponseGuard {
            _open: open,
            _in_flight: in_flight,
            _stream: stream,
            _upload: upload,
            connection: pooled,
        };
        let mut response = response.map(|body| Body::from_pod(body, guard));
        self.connection.close_if_in_rotation(service, &mut response);
        Ok(response)
    }

    async fn may_try_again(&self) {
        match &self.full {
            Some(pool) => pool.room().await,
            None => sleep(NOT_NOW_BACKOFF).await,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.call.map(|call| call.ends)
    }

    async fn client_disconnected(&self) {
        self.connection.client_disconnected().await;
    }
}

/// Why a request is refused, whatever the state of its service.
fn refusal<B>(request: &Request<B>, head_bytes: u64) -> Option<Failure> {
    if request.method() == Method::CONNECT {
        return Some(Failure::ConnectMethod);
    }
    // RFC 9112, 3.2: with two hosts, two proxies on the way could each believe another one.
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Some(Failure::Malformed);
    }
    // hyper's buffer may overshoot its bound by one read.
    (head_bytes > MAX_HEAD_BYTES as u64).then_some(Failure::HeadTooLarge)
}

fn gets_waiting_page<B>(service: &Service, request: &Request<B>) -> bool {
    let comes = service.obstacle.is_none() && !service.refuses_when_down;
    service.waiting_page && comes && waiting_page::is_for(request)
}

/// Whether only a pod can answer this request, so that it may wait unread.
pub(crate) fn needs_pod<B>(service: &Service, request: &Request<B>) -> bool {
    refusal(request, head_bytes(request)).is_none()
        && probe_rule(service, request).is_none()
        && !gets_waiting_page(service, request)
}

/// The probe rule that answers this request while the service sleeps.
fn probe_rule<'a, B>(service: &'a Service, request: &Request<B>) -> Option<&'a ProbeAnswer> {
    if service.probes.is_empty() {
        return None;
    }
    // A target that names a host counts before the header.
    let authority = request.uri().authority();
    let mut headers: Vec<(&str, &[u8])> = request
        .headers()
        .iter()
        .filter(|(name, _)| authority.is_none() || *name != header::HOST)
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    headers.extend(authority.map(|host| ("host", without_user(host).as_bytes())));
    let probe = ProbeRequest {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query(),
        headers: &headers,
    };
    service.probes.answer(&probe)
}

/// What may come of a body before a pod takes it. HTTP/2 reads each stream as far as its window; HTTP/1 leaves bodies in
/// the kernel.
fn body_bytes(request: &Request<RequestBody>) -> u64 {
    let body = request.body();
    if request.version() != Version::HTTP_2 || body.is_end_stream() {
        return 0;
    }
    let length = body.size_hint().upper().unwrap_or(u64::MAX);
    length.min(STREAM_WINDOW.into())
}

/// What a header line takes beside its name and value: its place in a table that grows by doubling, 104 bytes; the head
/// of HTTP/2 may be of lines that are one byte each on the wire.
const LINE_BYTES: usize = 128;

/// What a head takes of memory, which is more than came.
fn head_bytes<B>(request: &Request<B>) -> u64 {
    let lines = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + LINE_BYTES);
    let uri = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    (lines.sum::<usize>() + uri) as u64
}
