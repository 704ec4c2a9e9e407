//! Relays a connection that is not HTTP, or that must not be understood: TLS, databases, servers that speak first.
//! Never reads a byte before a pod is connected, nor one that may still turn out to be HTTP's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connect;
use super::relay::relay as copy;
use crate::answer::Failure;
use crate::client_stream::abandoned;
use crate::clock::to_std;
use crate::hold::Released;
use crate::listener::ConnectionPermit;
use crate::net::TcpStream;
use crate::pod::{Pod, UnderWay, choose};
use crate::protocol::{self, Protocol};
use crate::resolver::Resolver;
use crate::table::Open;

/// Relays until both sides have ended. Without a pod the connection is closed: there are no words to say why.
pub(crate) async fn relay(
    resolver: &Arc<Resolver>,
    permit: &ConnectionPermit,
    client: TcpStream,
    released: Option<Released>,
) {
    if let Ok(mut reached) = open(resolver, permit, &client, released).await {
        reached.carry(resolver, client).await;
    }
}

/// The same for a client that has said nothing for a moment: either its server speaks first, or its words are late.
/// Whoever speaks first tells. The client comes back, unread, if it speaks HTTP after all, or may still do so: the pod
/// has ended before anybody said a word, or no pod could be reached, which is told.
pub(crate) async fn relay_silent(
    resolver: &Arc<Resolver>,
    permit: &ConnectionPermit,
    client: TcpStream,
    released: Option<Released>,
) -> Option<(TcpStream, Option<Failure>)> {
    let opened = tokio::select! {
        biased;
        opened = open(resolver, permit, &client, released) => opened,
        // It waits better as what it is: then it is noticed when it leaves, whatever it has said.
        () = speaks_http(resolver, permit, &client) => return Some((client, None)),
    };
    let mut reached = match opened {
        Ok(reached) => reached,
        Err(Failure::ClientLeft) => return None,
        Err(failure) => return Some((client, Some(failure))),
    };
    let (mut of_client, mut of_pod) = ([0; 1], [0; 1]);
    tokio::select! {
        // A pod that closes idle connections may say so in the moment in which a request comes.
        biased;
        _ = client.peek(&mut of_client) => {
            if says_http(resolver, permit, &client).await {
                return Some((client, None));
            }
        }
        said = reached.pod.peek(&mut of_pod) => {
            if !matches!(said, Ok(1)) {
                return Some((client, None));
            }
        }
        () = idle(resolver.settings.longest_idle) => return None,
    }
    reached.carry(resolver, client).await;
    None
}

/// Ends if a client's first words are HTTP's.
async fn speaks_http(resolver: &Resolver, permit: &ConnectionPermit, client: &TcpStream) {
    let mut first = [0; 1];
    let spoke = matches!(client.peek(&mut first).await, Ok(1));
    if !(spoke && says_http(resolver, permit, client).await) {
        std::future::pending().await
    }
}

/// Whether what a client has said is HTTP's.
async fn says_http(resolver: &Resolver, permit: &ConnectionPermit, client: &TcpStream) -> bool {
    let declared = resolver.app_protocol(permit.listen_port);
    let said = protocol::of(client, declared.as_deref(), Duration::ZERO).await;
    matches!(said, Some(Protocol::Http1 | Protocol::Http2))
}

async fn idle(longest: Option<Duration>) {
    match longest {
        Some(longest) => sleep(longest).await,
        None => std::future::pending().await,
    }
}

/// A pod that was reached for a client; counts as open for as long as it lives.
struct Reached {
    pod: TcpStream,
    _under_way: UnderWay,
    _open: Open,
}

impl Reached {
    async fn carry(&mut self, resolver: &Resolver, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        copy(&mut client, &mut self.pod, resolver.settings.longest_idle).await;
    }
}

async fn open(
    resolver: &Arc<Resolver>,
    permit: &ConnectionPermit,
    client: &TcpStream,
    released: Option<Released>,
) -> Result<Reached, Failure> {
    let (pod, under_way) = reach_a_pod(resolver, permit.listen_port, client, released).await?;
    let table = resolver.table.load();
    let service = table.at(permit.listen_port).ok_or(Failure::NotManaged)?;
    let open = Open::count(&service.seen);
    Ok(Reached {
        pod,
        _under_way: under_way,
        _open: open,
    })
}

async fn reach_a_pod(
    resolver: &Arc<Resolver>,
    listen_port: u16,
    client: &TcpStream,
    mut released: Option<Released>,
) -> Result<(TcpStream, UnderWay), Failure> {
    let started = Instant::now();
    let given = released.as_ref().map(|released| released.deadline);
    let mut tried = BTreeSet::new();
    loop {
        let service = resolver
            .table
            .load()
            .at(listen_port)
            .cloned()
            .ok_or(Failure::NotManaged)?;
        let pods = service
            .port(listen_port)
            .map(|port| port.pods.clone())
            .unwrap_or_default();
        let turn = released.is_some() || !service.has_waiters();
        match choose(&pods, &tried).filter(|_| turn) {
            Some(pod) => match reach(pod).await {
                Some(reached) => {
                    if let Some(released) = released {
                        released.answered();
                    }
                    return Ok(reached);
                }
                None => drop(tried.insert(pod.backend.pod.clone())),
            },
            None => {
                if let Some(released) = released.take() {
                    released.failed();
                }
                if !tried.is_empty() {
                    resolver.hold.rest(&service.key);
                    tried.clear();
                }
                let deadline = given.unwrap_or(started + to_std(service.room.timeout));
                let waiting = resolver.hold_for_pod(&service, 0, deadline);
                released = tokio::select! {
                    verdict = waiting => Some(verdict?),
                    () = abandoned(client) => return Err(Failure::ClientLeft),
                };
            }
        }
    }
}

async fn reach(pod: &Pod) -> Option<(TcpStream, UnderWay)> {
    let under_way = pod.under_way();
    Some((connect(pod.backend.address).await?, under_way))
}
