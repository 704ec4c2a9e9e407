//! Relays a connection that is not HTTP, or that must not be understood: TLS, databases, servers that speak first.
//! Never reads a byte before a pod is connected.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::connect;
use super::relay::relay as copy;
use crate::answer::Failure;
use crate::client_stream::abandoned;
use crate::clock::to_std;
use crate::hold::Released;
use crate::listener::Guest;
use crate::net::TcpStream;
use crate::pod::{Pod, UnderWay, choose};
use crate::resolver::Resolver;
use crate::table::Open;

/// Relays until both sides have ended. Without a pod the connection is closed: there are no words to say why.
pub(crate) async fn relay(
    resolver: &Arc<Resolver>,
    guest: &Guest,
    mut client: TcpStream,
    released: Option<Released>,
) {
    let Ok((mut pod, _under_way)) =
        reach_a_pod(resolver, guest.listen_port, &client, released).await
    else {
        return;
    };
    let Some(_open) = resolver
        .table
        .load()
        .at(guest.listen_port)
        .map(|service| Open::count(&service.seen))
    else {
        return;
    };
    let _ = client.set_nodelay(true);
    copy(&mut client, &mut pod, resolver.settings.longest_idle).await;
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
