//! Relays an upgraded connection (WebSocket and others) after the pod has agreed with 101.

use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::body::Body;
use super::relay::relay;
use crate::listener::ConnectionPermit;
use crate::pod::InFlightGuard;
use crate::table::OpenGuard;

/// What lives as long as the upgraded connection.
pub(crate) struct UpgradeGuard {
    pub(crate) _open: OpenGuard,
    pub(crate) _in_flight: InFlightGuard,
    pub(crate) _permit: ConnectionPermit,
    pub(crate) idle_timeout: Option<Duration>,
}

/// The pod's 101 for the client; from then on both sides' bytes are relayed until both have ended.
pub(crate) fn switch(
    mut response: Response<Incoming>,
    client: OnUpgrade,
    guard: UpgradeGuard,
) -> Response<Body> {
    let pod = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        if let (Ok(client), Ok(pod)) = (client.await, pod.await) {
            let (mut client, mut pod) = (TokioIo::new(client), TokioIo::new(pod));
            relay(&mut client, &mut pod, guard.idle_timeout).await;
        }
        drop(guard);
    });
    response.map(|_| Body::from_text(""))
}
