//! Carries one HTTP request to a pod and its answer back: head by head, frame by frame.
//! Never sends a request again once a pod may have seen it, and never invents an answer: `answer.rs` does.

use std::collections::BTreeSet;
use std::sync::Arc;

use elasti_core::ports::ServiceKey;
use elasti_core::probe_response::ProbeRequest;
use elasti_core::waiting_room::RESERVED_BYTES;
use futures::FutureExt as _;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;

use super::body::{Body, Carried};
use super::headers::{prepare, strip_hop_by_hop, wanted_upgrade};
use super::pool::NoAnswer;
use super::upgrade::{self, Stream};
use crate::answer::{self, Failure};
use crate::clock::to_std;
use crate::connection::HttpClient;
use crate::hold::Released;
use crate::pod::{Pod, choose};
use crate::resolver::Resolver;
use crate::table::{Open, Seen, Service};
use crate::waiting_page;

/// Where a request is meant to go.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) key: Arc<ServiceKey>,
    pub(crate) listen_port: u16,
    /// Of the service when it was found; for counting only.
    pub(crate) seen: Arc<Seen>,
}

/// A request on its way.
struct Journey<'a> {
    resolver: &'a Arc<Resolver>,
    destination: &'a Destination,
    client: &'a HttpClient,
    deadline: Instant,
    /// Bytes of its head, which is in memory while it waits.
    head_bytes: u64,
    upgrade: Option<OnUpgrade>,
}

/// Carries one request to a pod, holding it first where none is ready.
pub(crate) async fn forward(
    resolver: &Arc<Resolver>,
    destination: &Destination,
    client: &HttpClient,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let head_bytes = head_bytes(&request);
    if let Some(failure) = unfit(&request, head_bytes) {
        return Err(failure);
    }
    let service = resolver.service(&destination.key)?;
    resolver.saw(&service.seen);
    let asleep = !service
        .port(destination.listen_port)
        .is_some_and(|port| port.has_usable_pod());
    if asleep && let Some(probed) = answer_probe(&service, &request) {
        return Ok(probed);
    }
    if asleep && gets_waiting_page(&service, &request) {
        resolver.wake_without_waiting(&service);
        return Ok(answer::waiting(&service.key));
    }
    let wanted = wanted_upgrade(request.headers());
    let upgrade = wanted.as_ref().map(|_| hyper::upgrade::on(&mut request));
    let released = client.first.lock().take();
    let journey = Journey {
        resolver,
        destination,
        client,
        deadline: released.as_ref().map_or_else(
            || Instant::now() + to_std(service.room.timeout),
            |released| released.deadline,
        ),
        head_bytes,
        upgrade,
    };
    prepare(&mut request, &client.forwarded_for, wanted);
    journey.run(service, request, released).await
}

impl Journey<'_> {
    async fn run(
        mut self,
        mut service: Arc<Service>,
        mut request: Request<Incoming>,
        mut released: Option<Released>,
    ) -> Result<Response<Body>, Failure> {
        let mut tried = BTreeSet::new();
        loop {
            // It left while a pod was being reached, or time has passed with one that could not be.
            if !tried.is_empty() && self.client.left().now_or_never().is_some() {
                return Err(Failure::ClientLeft);
            }
            let Some(port) = service.port(self.destination.listen_port) else {
                return Err(Failure::NotManaged);
            };
            let turn = released.is_some() || !service.has_waiters();
            let Some(pod) = choose(&port.pods, &tried).filter(|_| turn) else {
                if let Some(released) = released.take() {
                    released.failed();
                }
                if !tried.is_empty() {
                    self.resolver.hold.rest(&service.key);
                    tried.clear();
                }
                released = Some(self.wait(&service).await?);
                service = self.resolver.service(&self.destination.key)?;
                continue;
            };
            match self.send(&service, pod, request).await {
                Ok(answer) => {
                    if let Some(released) = released {
                        released.answered();
                    }
                    return Ok(answer);
                }
                Err(NoAnswer::Unsent(unsent)) => {
                    request = *unsent;
                    tried.insert(pod.backend.pod.clone());
                    service = self.resolver.service(&self.destination.key)?;
                }
                Err(NoAnswer::Lost) => return Err(Failure::PodClosed),
                Err(NoAnswer::Malformed) => return Err(Failure::Malformed),
            }
        }
    }

    async fn wait(&self, service: &Service) -> Result<Released, Failure> {
        let waiting = self
            .resolver
            .hold_for_pod(service, self.head_bytes, self.deadline);
        tokio::select! {
            verdict = waiting => verdict,
            () = self.client.left() => Err(Failure::ClientLeft),
        }
    }

    async fn send(
        &mut self,
        service: &Service,
        pod: &Pod,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, NoAnswer> {
        let (open, under_way) = (Open::count(&service.seen), pod.under_way());
        let (pool, address) = (&pod.state.pool, pod.backend.address);
        let (mut answer, back) = if request.version() == Version::HTTP_2 {
            (pool.send_http2(address, request).await?, None)
        } else {
            let left = self.client.left();
            let (answer, sender) = pool.send_http1(address, request, left).await?;
            (answer, Some((pod.state.clone(), sender)))
        };
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client) = self.upgrade.take() else {
                return Err(NoAnswer::Lost);
            };
            let permit = self.client.permit.clone();
            return Ok(upgrade::switch(
                answer,
                client,
                Stream {
                    _open: open,
                    _under_way: under_way,
                    _permit: permit,
                    longest_idle: self.resolver.settings.longest_idle,
                },
            ));
        }
        strip_hop_by_hop(answer.headers_mut());
        let carried = Carried {
            _open: open,
            _under_way: under_way,
            back,
        };
        let mut answer = answer.map(|body| Body::of_pod(body, carried));
        self.client.move_on(service, &mut answer);
        Ok(answer)
    }
}

/// Why a request goes nowhere, whatever the state of its service.
fn unfit<B>(request: &Request<B>, head_bytes: u64) -> Option<Failure> {
    if request.method() == Method::CONNECT {
        return Some(Failure::ConnectMethod);
    }
    // RFC 9112, 3.2: with two hosts two parties on the way could each believe another one.
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return Some(Failure::Malformed);
    }
    // hyper's buffer may overshoot its bound by one read.
    (head_bytes > RESERVED_BYTES).then_some(Failure::HeadTooLarge)
}

fn gets_waiting_page<B>(service: &Service, request: &Request<B>) -> bool {
    service.waiting_page && service.obstacle.is_none() && waiting_page::is_for(request)
}

/// Whether only a pod can answer this request, so that it may wait unread.
pub(crate) fn needs_a_pod<B>(service: &Service, request: &Request<B>) -> bool {
    unfit(request, head_bytes(request)).is_none()
        && answer_probe(service, request).is_none()
        && !gets_waiting_page(service, request)
}

/// What core's rules say about a request to a sleeping service.
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
