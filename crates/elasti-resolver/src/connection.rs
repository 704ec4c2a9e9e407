//! One accepted connection: holds it unread while no pod is ready, finds out what it speaks, serves it.
//! HTTP machinery is built only after the wait, unless the head could not be judged by a peek: 10,000 may wait.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client_stream::{disconnected, disconnected_tcp};
use crate::clock::{Clock, to_std};
use crate::drain::Lifecycle;
use crate::forward::http::needs_pod;
use crate::forward::tcp;
use crate::head;
use crate::host_route::HostRoute;
use crate::http_connection;
use crate::listener::ConnectionPermit;
use crate::metrics::Metrics;
use crate::net::TcpStream;
use crate::protocol::{self, Declared, Protocol};
use crate::reach::{Destination, Dispatcher, HoldOutcome};
use crate::table::{Service, ServiceStats};

/// A head must be complete by then, and an idle connection ends after it.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that is refused, or whose pod closed before the first byte, has this long to show whether it speaks HTTP,
/// so that it gets a response.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What serving a connection needs of the resolver.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) host_route: HostRoute,
    /// How long a relay may carry nothing before it is ended; `None`: for ever.
    pub(crate) idle_timeout: Option<Duration>,
}

impl Proxy {
    /// Notes that a connection or request arrived for a service.
    pub(crate) fn record_arrival(&self, stats: &ServiceStats) {
        let now = self.clock.millis();
        stats
            .last_arrival_millis
            .store(now, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Where the requests of one connection go.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// All to one port of one service.
    Service(Destination),
    /// Each to the service that its host names.
    ByHost,
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) route: Route,
    pub(crate) permit: ConnectionPermit,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
}

impl Accepted {
    /// Serves the connection to its end. What comes after a wait is boxed, so that a held connection costs no memory
    /// for it.
    pub(crate) async fn serve(self) {
        let (mut protocol, mut first) = (None, HoldOutcome::NotHeld);
        if let Some(service) = self.must_wait() {
            let mut waits_unread = true;
            if service.answers_without_pod() {
                (protocol, waits_unread) = Box::pin(self.judge(&service)).await;
            }
            if waits_unread {
                let Some(outcome) = self.hold(&service).await else {
                    return;
                };
                first = outcome;
            }
        }
        if protocol.is_none() && matches!(first, HoldOutcome::Refused(_)) {
            return Box::pin(self.answer_if_http(first)).await;
        }
        if protocol.is_none() {
            // By now the Service's `appProtocol` may be known.
            protocol = protocol::detect(&self.stream, self.declared(), HEADER_TIMEOUT).await;
        }
        match (protocol, &self.route) {
            (Some(Protocol::Tcp), Route::Service(destination)) => {
                let destination = destination.clone();
                Box::pin(self.relay(destination, first)).await;
            }
            (Some(Protocol::Silent), Route::Service(destination)) => {
                let destination = destination.clone();
                Box::pin(self.serve_silent(destination, first)).await;
            }
            (Some(http @ (Protocol::Http1 | Protocol::Http2)), _) => {
                Box::pin(http_connection::serve(self, http, first)).await;
            }
            (_, Route::ByHost) | (None, _) => {}
        }
    }

    /// The service, if no pod can take this connection now.
    fn must_wait(&self) -> Option<Arc<Service>> {
        let Route::Service(destination) = &self.route else {
            return None;
        };
        let service = self.proxy.dispatcher.table.service(&destination.key)?;
        service
            .must_wait(destination.listen_port)
            .then_some(service)
    }

    /// What a connection speaks whose first request may be answered without a pod, and whether it may wait unread all
    /// the same: only a pod can answer that request.
    async fn judge(&self, service: &Service) -> (Option<Protocol>, bool) {
        let protocol = protocol::detect(&self.stream, self.declared(), HEADER_TIMEOUT).await;
        let waits_unread = protocol == Some(Protocol::Http1)
            && head::peek(&self.stream)
                .await
                .is_some_and(|head| needs_pod(service, &head));
        (protocol, waits_unread)
    }

    /// Waits for a pod, unread; `None` if the client disconnected.
    async fn hold(&self, service: &Service) -> Option<HoldOutcome> {
        let deadline = Instant::now() + to_std(service.room.timeout);
        tokio::select! {
            held = self.proxy.dispatcher.hold(service, 0, deadline) => Some(held.into()),
            () = self.client_disconnected() => None,
        }
    }

    /// Ends when a held client has disconnected; what it speaks decides what its closed side means.
    async fn client_disconnected(&self) {
        disconnected(&self.stream).await;
        let protocol = protocol::detect(&self.stream, self.declared(), Duration::ZERO).await;
        if protocol == Some(Protocol::Tcp) {
            disconnected_tcp(&self.stream).await;
        }
    }

    fn declared(&self) -> Declared {
        match &self.route {
            Route::ByHost => Declared::Http,
            Route::Service(destination) => {
                let table = &self.proxy.dispatcher.table;
                table.declared_protocol(destination.listen_port)
            }
        }
    }

    async fn relay(mut self, destination: Destination, first: HoldOutcome) {
        tcp::relay(&self.proxy, &destination, &mut self.stream, first).await;
    }

    /// Serves a client that has sent nothing for a moment. If no pod was reached, or it closed before the first byte, a
    /// request may still be on the way.
    async fn serve_silent(mut self, destination: Destination, first: HoldOutcome) {
        let (proxy, client) = (&self.proxy, &mut self.stream);
        let relayed = tcp::relay_silent(proxy, &destination, client, first).await;
        if let ControlFlow::Continue(first) = relayed {
            self.answer_if_http(first).await;
        }
    }

    /// Gives a client the time to show whether it speaks HTTP. If so it is served, or gets the refusal as a response;
    /// else the connection just ends.
    async fn answer_if_http(self, first: HoldOutcome) {
        let declared = self.declared();
        match protocol::detect_within(&self.stream, declared, REFUSAL_TIMEOUT).await {
            Some(Protocol::Tcp | Protocol::Silent) | None => {}
            Some(http) => http_connection::serve(self, http, first).await,
        }
    }
}
