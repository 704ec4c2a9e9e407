//! Forwards one HTTP request to a pod and its response back: head by head, frame by frame.

use elasti_core::probe_response::ProbeRequest;
use elasti_core::waiting_room::RESERVED_BYTES;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::body::{Body, ResponseGuard};
use super::headers::{prepare, strip_hop_by_hop, wanted_upgrade};
use super::pool::SendError;
use super::upgrade::{self, UpgradeGuard};
use crate::answer::{self, Failure};
use crate::hold::Released;
use crate::http_connection::HttpConnection;
use crate::pod::Pod;
use crate::reach::{Attempt, AttemptError, Destination};
use crate::table::{OpenGuard, Service};
use crate::waiting_page;

/// Forwards one request to a pod, holding it first where none is ready. One that was released with its connection was
/// judged before its wait: only a pod can answer it.
pub(crate) async fn forward(
    connection: &HttpConnection,
    destination: &Destination,
    mut request: Request<Incoming>,
    released: Option<Released>,
) -> Result<Response<Body>, Failure> {
    let head_bytes = head_bytes(&request);
    if let Some(failure) = refusal(&request, head_bytes) {
        return Err(failure);
    }
    let dispatcher = &connection.proxy.dispatcher;
    let service = dispatcher.service(&destination.key)?;
    connection.proxy.record_arrival(&service.stats);
    if released.is_none() && !service.has_usable_pod(destination.listen_port) {
        if let Some(response) = answer_probe(&service, &request) {
            return Ok(response);
        }
        if gets_waiting_page(&service, &request) {
            dispatcher.wake_without_waiting(&service);
            return Ok(answer::waiting(&service.key));
        }
    }
    let wanted = wanted_upgrade(request.headers());
    let attempt = HttpAttempt {
        connection,
        head_bytes,
        upgrade: wanted.as_ref().map(|_| hyper::upgrade::on(&mut request)),
    };
    prepare(&mut request, &connection.forwarded_for, wanted);
    dispatcher
        .reach(destination, service, released, attempt, request)
        .await
}

struct HttpAttempt<'a> {
    connection: &'a HttpConnection,
    /// In memory while it waits.
    head_bytes: u64,
    upgrade: Option<OnUpgrade>,
}

impl Attempt for HttpAttempt<'_> {
    type Message = Request<Incoming>;
    type Reached = Response<Body>;

    fn held_bytes(&self) -> u64 {
        self.head_bytes
    }

    async fn try_pod(
        &mut self,
        service: &Service,
        pod: &Pod,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, AttemptError<Request<Incoming>>> {
        let (open, in_flight) = (OpenGuard::new(&service.stats), pod.begin_request());
        let (pool, address) = (&pod.state.pool, pod.backend.address);
        let (mut response, pooled) = if request.version() == Version::HTTP_2 {
            (pool.send_http2(address, request).await?, None)
        } else {
            let disconnected = self.connection.client_disconnected();
            let (response, sender) = pool.send_http1(address, request, disconnected).await?;
            (response, Some((pod.state.clone(), sender)))
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
            connection: pooled,
        };
        let mut response = response.map(|body| Body::from_pod(body, guard));
        self.connection.close_if_in_rotation(service, &mut response);
        Ok(response)
    }

    async fn client_disconnected(&self) {
        self.connection.client_disconnected().await;
    }
}

impl From<SendError> for AttemptError<Request<Incoming>> {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unsent(request) => Self::Unsent(*request),
            SendError::Lost => Self::Failed(Failure::PodClosed),
            SendError::Malformed => Self::Failed(Failure::Malformed),
        }
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
    (head_bytes > RESERVED_BYTES).then_some(Failure::HeadTooLarge)
}

fn gets_waiting_page<B>(service: &Service, request: &Request<B>) -> bool {
    let comes = service.obstacle.is_none() && !service.refuses_when_down;
    service.waiting_page && comes && waiting_page::is_for(request)
}

/// Whether only a pod can answer this request, so that it may wait unread.
pub(crate) fn needs_pod<B>(service: &Service, request: &Request<B>) -> bool {
    refusal(request, head_bytes(request)).is_none()
        && answer_probe(service, request).is_none()
        && !gets_waiting_page(service, request)
}

/// The response of the probe rules to a request for a sleeping service.
fn answer_probe<B>(service: &Service, request: &Request<B>) -> Option<Response<Body>> {
    if service.probes.is_empty() {
        return None;
    }
    let mut headers: Vec<(&str, &[u8])> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    if let Some(authority) = request.uri().authority()
        && !request.headers().contains_key(header::HOST)
    {
        headers.push(("host", authority.as_str().as_bytes()));
    }
    let probe = ProbeRequest {
        method: request.method().as_str(),
        path: request.uri().path(),
        query: request.uri().query(),
        headers: &headers,
    };
    service.probes.answer(&probe).map(answer::probe)
}

/// The bytes of a head as it came: each header line has four more for `: ` and the line's end.
fn head_bytes<B>(request: &Request<B>) -> u64 {
    let lines = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request
        .uri()
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    (lines.sum::<usize>() + uri) as u64
}
