//! Relays a connection that is not HTTP, or that must not be parsed: TLS, databases, servers that speak first.
//! Never reads a byte before a pod is connected, nor one that may still turn out to be HTTP's.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use elasti_api::WakeClient;
use elasti_core::ports::ServiceKey;
use tokio::time::sleep;

use super::connect;
use super::relay::relay as copy;
use crate::answer::Failure;
use crate::client_stream::disconnected_tcp;
use crate::connection::Proxy;
use crate::ended_hold::EndedHold;
use crate::hold::Released;
use crate::net::TcpStream;
use crate::pod::{InFlightGuard, Pod};
use crate::protocol::{self, CountedAs, Declared, Protocol};
use crate::reach::{Attempt, AttemptError, Destination, HoldOutcome};
use crate::request_record::RequestRecord;
use crate::table::{OpenGuard, Service};

/// Relays until both sides have ended. Without a pod the connection is closed: raw TCP has no response that says why.
pub(crate) async fn relay(
    proxy: &Proxy,
    destination: &Destination,
    (client, from): (&mut TcpStream, IpAddr),
    first: HoldOutcome,
) {
    let relay = Relay::new(proxy, destination, client, from);
    match relay.reach(client, first).await {
        Ok(reached) => relay.run(reached, client).await,
        Err(failure) => relay.refused(failure, None),
    }
}

/// The same for a client that has sent nothing for a moment: either its server speaks first, or its request is late.
/// The first byte decides. Continues, with the client unread, if it speaks HTTP after all or may still do so: the pod
/// closed before either side sent a byte, or no pod could be reached.
pub(crate) async fn relay_silent(
    proxy: &Proxy,
    destination: &Destination,
    (client, from): (&mut TcpStream, IpAddr),
    first: HoldOutcome,
) -> ControlFlow<(), HoldOutcome> {
    let maybe_http = ControlFlow::Continue(HoldOutcome::NotHeld);
    let relay = Relay::new(proxy, destination, client, from);
    let reached = tokio::select! {
        biased;
        reached = relay.reach(client, first) => reached,
        // It is better held as HTTP: then it is noticed when it disconnects, whatever it has sent.
        () = sends_http(proxy, destination, client) => return maybe_http,
    };
    let reached = match reached {
        Ok(reached) => reached,
        Err(Failure::ClientDisconnected) => {
            relay.refused(Failure::ClientDisconnected, None);
            return ControlFlow::Break(());
        }
        Err(failure) => return ControlFlow::Continue(HoldOutcome::Refused(failure, None)),
    };
    let (mut from_client, mut from_pod) = ([0; 1], [0; 1]);
    tokio::select! {
        // A pod that closes idle connections may do so in the moment in which a request comes.
        biased;
        _ = client.peek(&mut from_client) => {
            if is_http(proxy, destination, client).await {
                return maybe_http;
            }
        }
        peeked = reached.pod.peek(&mut from_pod) => {
            if !matches!(peeked, Ok(1)) {
                return maybe_http;
            }
        }
        () = idle(proxy.idle_timeout) => return ControlFlow::Break(()),
    }
    relay.run(reached, client).await;
    ControlFlow::Break(())
}

/// Ends if a client's first bytes are HTTP's.
async fn sends_http(proxy: &Proxy, destination: &Destination, client: &TcpStream) {
    let mut first = [0; 1];
    let sent = matches!(client.peek(&mut first).await, Ok(1));
    if !(sent && is_http(proxy, destination, client).await) {
        std::future::pending().await
    }
}

/// Whether what a client has sent is HTTP's.
async fn is_http(proxy: &Proxy, destination: &Destination, client: &TcpStream) -> bool {
    let table = &proxy.dispatcher.table;
    let declared = table.declared_protocol(destination.listen_port);
    let protocol = protocol::detect(client, declared, Duration::ZERO).await;
    matches!(protocol, Some(Protocol::Http1 | Protocol::Http2))
}

async fn idle(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// A pod that was reached for a client; counts as open for as long as it lives.
struct Reached {
    pod: TcpStream,
    _in_flight: InFlightGuard,
    _open: OpenGuard,
}

/// One connection that is relayed, or refused: counted and, if it is one of the share, logged.
pub(crate) struct Relay<'a> {
    proxy: &'a Proxy,
    destination: &'a Destination,
    counted_as: CountedAs,
    from: IpAddr,
    record: RequestRecord,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        proxy: &'a Proxy,
        destination: &'a Destination,
        client: &TcpStream,
        from: IpAddr,
    ) -> Self {
        let counted_as = CountedAs::so_far(client, Declared::Other);
        Self {
            proxy,
            destination,
            counted_as,
            from,
            record: RequestRecord::of_connection(proxy, counted_as, from),
        }
    }

    async fn reach(&self, client: &TcpStream, first: HoldOutcome) -> Result<Reached, Failure> {
        if let Some(ended) = first.ended() {
            self.record.add_hold(&ended);
        }
        let released = first.into_released()?;
        let dispatcher = &self.proxy.dispatcher;
        let service = dispatcher.service(&self.destination.key)?;
        let attempt = TcpAttempt {
            client,
            relay: self,
        };
        dispatcher
            .reach(self.destination, service, released, attempt, ())
            .await
    }

    async fn run(self, mut reached: Reached, client: &mut TcpStream) {
        self.count(None);
        let _ = client.set_nodelay(true);
        copy(client, &mut reached.pod, self.proxy.idle_timeout).await;
        self.record
            .end(self.proxy, Some(self.destination), None, "");
    }

    /// No pod was reached; `hold` if it was not told of yet.
    pub(crate) fn refused(self, failure: Failure, hold: Option<&EndedHold>) {
        self.count(Some(failure));
        if let Some(ended) = hold {
            self.record.add_hold(ended);
        }
        let reason = failure.reason().as_str();
        self.record
            .end(self.proxy, Some(self.destination), None, reason);
    }

    fn count(&self, failure: Option<Failure>) {
        let metrics = &self.proxy.metrics;
        metrics.relay(&self.destination.key, self.counted_as, failure);
    }
}

struct TcpAttempt<'a> {
    client: &'a TcpStream,
    relay: &'a Relay<'a>,
}

impl Attempt for TcpAttempt<'_> {
    type Message = ();
    type Reached = Reached;

    /// Its bytes stay in the kernel.
    fn held_bytes(&self) -> u64 {
        0
    }

    fn counted_as(&self) -> CountedAs {
        self.relay.counted_as
    }

    fn client(&self, (): &()) -> WakeClient {
        let address = self.relay.from.to_canonical().to_string();
        WakeClient::at(self.relay.counted_as.as_str(), &address)
    }

    fn hold_ended(&self, _: &ServiceKey, ended: &EndedHold, (): &mut ()) {
        self.relay.record.add_hold(ended);
    }

    async fn try_pod(
        &mut self,
        service: &Service,
        pod: &Pod,
        (): (),
        written: impl Fn() + Send + Sync,
    ) -> Result<Reached, AttemptError<()>> {
        // Counted before it is reached: the leader must not see the service idle meanwhile.
        let (open, in_flight) = (OpenGuard::new(&service.stats), pod.begin_request());
        match connect(pod.backend.address).await {
            Some(stream) => {
                written();
                Ok(Reached {
                    pod: stream,
                    _in_flight: in_flight,
                    _open: open,
                })
            }
            None => Err(AttemptError::Unsent(())),
        }
    }

    /// The kernel accepts for a pod, however busy that is.
    fn reached(released: Released) {
        released.connected();
    }

    async fn client_disconnected(&self) {
        disconnected_tcp(self.client).await;
    }
}
