//! Relays a connection that is not HTTP, or that must not be parsed: TLS, databases, servers that speak first.
//! Never reads a byte before a pod is connected, nor one that may still turn out to be HTTP's.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::sleep;

use super::connect;
use super::relay::relay as copy;
use crate::answer::Failure;
use crate::client_stream::disconnected_tcp;
use crate::connection::Proxy;
use crate::net::TcpStream;
use crate::pod::{InFlightGuard, Pod};
use crate::protocol::{self, Protocol};
use crate::reach::{Attempt, AttemptError, Destination, HoldOutcome};
use crate::table::{OpenGuard, Service};

/// Relays until both sides have ended. Without a pod the connection is closed: raw TCP has no response that says why.
pub(crate) async fn relay(
    proxy: &Proxy,
    destination: &Destination,
    client: &mut TcpStream,
    first: HoldOutcome,
) {
    if let Ok(mut reached) = reach(proxy, destination, client, first).await {
        reached.relay(proxy, client).await;
    }
}

/// The same for a client that has sent nothing for a moment: either its server speaks first, or its request is late.
/// The first byte decides. Continues, with the client unread, if it speaks HTTP after all or may still do so: the pod
/// closed before either side sent a byte, or no pod could be reached.
pub(crate) async fn relay_silent(
    proxy: &Proxy,
    destination: &Destination,
    client: &mut TcpStream,
    first: HoldOutcome,
) -> ControlFlow<(), HoldOutcome> {
    let maybe_http = ControlFlow::Continue(HoldOutcome::NotHeld);
    let reached = tokio::select! {
        biased;
        reached = reach(proxy, destination, client, first) => reached,
        // It is better held as HTTP: then it is noticed when it disconnects, whatever it has sent.
        () = sends_http(proxy, destination, client) => return maybe_http,
    };
    let mut reached = match reached {
        Ok(reached) => reached,
        Err(Failure::ClientDisconnected) => return ControlFlow::Break(()),
        Err(failure) => return ControlFlow::Continue(HoldOutcome::Refused(failure)),
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
    reached.relay(proxy, client).await;
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

impl Reached {
    async fn relay(&mut self, proxy: &Proxy, client: &mut TcpStream) {
        let _ = client.set_nodelay(true);
        copy(client, &mut self.pod, proxy.idle_timeout).await;
    }
}

async fn reach(
    proxy: &Proxy,
    destination: &Destination,
    client: &TcpStream,
    first: HoldOutcome,
) -> Result<Reached, Failure> {
    let released = first.into_released()?;
    let dispatcher = &proxy.dispatcher;
    let service = dispatcher.service(&destination.key)?;
    let attempt = TcpAttempt { client };
    dispatcher
        .reach(destination, service, released, attempt, ())
        .await
}

struct TcpAttempt<'a> {
    client: &'a TcpStream,
}

impl Attempt for TcpAttempt<'_> {
    type Message = ();
    type Reached = Reached;

    /// Its bytes stay in the kernel.
    fn held_bytes(&self) -> u64 {
        0
    }

    async fn try_pod(
        &mut self,
        service: &Service,
        pod: &Pod,
        (): (),
    ) -> Result<Reached, AttemptError<()>> {
        // Counted before it is reached: the leader must not see the service idle meanwhile.
        let (open, in_flight) = (OpenGuard::new(&service.stats), pod.begin_request());
        match connect(pod.backend.address).await {
            Some(stream) => Ok(Reached {
                pod: stream,
                _in_flight: in_flight,
                _open: open,
            }),
            None => Err(AttemptError::Unsent(())),
        }
    }

    async fn client_disconnected(&self) {
        disconnected_tcp(self.client).await;
    }
}
