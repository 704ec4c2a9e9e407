//! One accepted connection: holds it unread while no pod is ready, finds out what it speaks, serves it.
//! HTTP machinery is built only after the wait, unless the head could not be judged by a peek: 10,000 may wait.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::WakeClient;
use tokio::time::Instant;

use crate::access_log::AccessLog;
use crate::answer::Failure;
use crate::client_stream::{disconnected, disconnected_tcp};
use crate::clock::{Clock, to_std};
use crate::drain::{Ending, Lifecycle};
use crate::ended_hold::EndedHold;
use crate::forward::http::needs_pod;
use crate::forward::tcp::{self, Relay};
use crate::head;
use crate::header_blocks::HeaderBlocks;
use crate::hold::Asks;
use crate::host_route::HostRoute;
use crate::http_connection;
use crate::listener::ConnectionPermit;
use crate::metrics::Metrics;
use crate::net::TcpStream;
use crate::protocol::{self, CountedAs, Declared, Protocol};
use crate::reach::{Destination, Dispatcher, HoldOutcome};
use crate::sources::Sources;
use crate::table::{Service, ServiceStats};
use crate::trace::Tracer;
use crate::unfinished_heads::UnfinishedHeads;
use crate::wake_client;

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
    pub(crate) sources: Arc<Sources>,
    /// How long a relay may carry nothing, or a pod take nothing of an upload, before it is ended; `None`: for ever.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) unfinished_heads: Arc<UnfinishedHeads>,
    pub(crate) header_blocks: HeaderBlocks,
}

impl Proxy {
    /// Notes that a connection or request arrived that is use of a service.
    pub(crate) fn record_arrival(&self, stats: &ServiceStats) {
        let now = self.clock.millis();
        stats
            .last_arrival_millis
            .store(now, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether a service accepts this source.
    pub(crate) async fn admits(&self, service: &Service, source: IpAddr) -> bool {
        match &service.allow_from {
            Some(rule) => {
                let admitted = self.sources.admit(rule, &service.key.namespace, source);
                Box::pin(admitted).await
            }
            None => true,
        }
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
    pub(crate) ending: Ending,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
}

/// How the wait of an unread connection ended.
enum Unread {
    Ended(HoldOutcome),
    Http2,
    ClientLeft,
}

impl Accepted {
    /// Serves the connection to its end. What comes after a wait is boxed, so that a held connection costs no memory
    /// for it.
    pub(crate) async fn serve(self) {
        if let Some(service) = self.restricted() {
            if !self.proxy.admits(&service, self.peer.ip()).await {
                let refused = HoldOutcome::Refused(Failure::SourceNotAllowed, None);
                return Box::pin(self.answer_if_http(refused)).await;
            }
            if service.counts_connections() {
                self.proxy.record_arrival(&service.stats);
            }
        }
        let (mut protocol, mut first) = (None, HoldOutcome::NotHeld);
        if let Some((service, listen_port)) = self.must_wait() {
            let mut waits_unread = true;
            if service.answers_without_pod() {
                (protocol, waits_unread) = Box::pin(self.judge(&service)).await;
            }
            if waits_unread {
                match self.hold(&service, listen_port).await {
                    Unread::Ended(outcome) => first = outcome,
                    Unread::Http2 => protocol = Some(Protocol::Http2),
                    Unread::ClientLeft => return,
                }
            }
        }
        if protocol.is_none() && matches!(first, HoldOutcome::Refused(..)) {
            return Box::pin(self.answer_if_http(first)).await;
        }
        if protocol.is_none() {
            // By now the Service's `appProtocol` may be known.
            protocol = protocol::detect(&self.stream, self.declared(), HEADER_TIMEOUT).await;
        }
        match (protocol, &self.route) {
            (Some(Protocol::Tcp), Route::Service(destination)) => {
                let destination = destination.clone();
                self.is_use(&destination);
                Box::pin(self.relay(destination, first)).await;
            }
            (Some(Protocol::Silent), Route::Service(destination)) => {
                let destination = destination.clone();
                self.is_use(&destination);
                Box::pin(self.serve_silent(destination, first)).await;
            }
            (Some(http @ (Protocol::Http1 | Protocol::Http2)), _) => {
                Box::pin(http_connection::serve(self, http, first)).await;
            }
            (_, Route::ByHost) | (None, _) => {}
        }
    }

    /// No rule can answer what is not HTTP.
    fn is_use(&self, destination: &Destination) {
        if let Some(service) = self.proxy.dispatcher.table.service(&destination.key) {
            self.proxy.record_arrival(&service.stats);
        }
    }

    /// The service, if it accepts only some sources.
    fn restricted(&self) -> Option<Arc<Service>> {
        let Route::Service(destination) = &self.route else {
            return None;
        };
        let service = self.proxy.dispatcher.table.service(&destination.key)?;
        service.allow_from.is_some().then_some(service)
    }

    /// The service and its port, if no pod can take this connection now.
    fn must_wait(&self) -> Option<(Arc<Service>, u16)> {
        let Route::Service(destination) = &self.route else {
            return None;
        };
        let service = self.proxy.dispatcher.table.service(&destination.key)?;
        let listen_port = destination.listen_port;
        service
            .must_wait(listen_port)
            .then_some((service, listen_port))
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

    /// Waits for a pod, unread. HTTP/2 is not held so: its clients give a connection up that shows no SETTINGS for a
    /// few seconds, and each of its streams has a deadline of its own.
    async fn hold(&self, service: &Service, listen_port: u16) -> Unread {
        let since = Instant::now();
        let asks = Asks::unread(listen_port, since + to_std(service.room.timeout));
        self.proxy.record_arrival(&service.stats);
        let dispatcher = &self.proxy.dispatcher;
        let client = match dispatcher.wakes.tells_clients && !service.has_waiters() {
            true => Some(Box::new(Box::pin(self.client()).await)),
            false => None,
        };
        let ended = tokio::select! {
            held = dispatcher.hold(service, asks, client) => held,
            () = self.client_disconnected() => Err(Failure::ClientDisconnected),
            () = protocol::speaks_http2(&self.stream), if self.declared() != Declared::Other => {
                return Unread::Http2;
            }
        };
        let counted_as = CountedAs::so_far(&self.stream, self.declared());
        let hold = EndedHold::now(since, ended.as_ref().err().copied());
        dispatcher.hold_ended(&service.key, counted_as, &hold);
        match ended {
            Ok(released) => Unread::Ended(HoldOutcome::Released(released, hold)),
            Err(Failure::ClientDisconnected) => Unread::ClientLeft,
            Err(failure) => Unread::Ended(HoldOutcome::Refused(failure, Some(hold))),
        }
    }

    async fn client(&self) -> WakeClient {
        wake_client::of_unread(&self.stream, self.declared(), self.peer.ip()).await
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
        let from = self.peer.ip();
        tcp::relay(&self.proxy, &destination, (&mut self.stream, from), first).await;
    }

    /// Serves a client that has sent nothing for a moment. If no pod was reached, or it closed before the first byte, a
    /// request may still be on the way.
    async fn serve_silent(mut self, destination: Destination, first: HoldOutcome) {
        let client = (&mut self.stream, self.peer.ip());
        let relayed = tcp::relay_silent(&self.proxy, &destination, client, first).await;
        if let ControlFlow::Continue(first) = relayed {
            self.answer_if_http(first).await;
        }
    }

    /// Gives a client the time to show whether it speaks HTTP. If so it is served, or gets the refusal as a response;
    /// else the connection just ends.
    async fn answer_if_http(self, first: HoldOutcome) {
        let declared = self.declared();
        match protocol::detect_within(&self.stream, declared, REFUSAL_TIMEOUT).await {
            Some(Protocol::Tcp | Protocol::Silent) | None => {
                if let (Route::Service(to), HoldOutcome::Refused(failure, hold)) =
                    (&self.route, &first)
                {
                    let relay = Relay::new(&self.proxy, to, &self.stream, self.peer.ip());
                    relay.refused(*failure, hold.as_ref());
                }
            }
            Some(http) => http_connection::serve(self, http, first).await,
        }
    }
}
