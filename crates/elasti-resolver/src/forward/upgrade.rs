//! Carries an upgraded connection (WebSocket and others) after the pod has agreed with 101.
//! Never passes a byte before that.

use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::body::Body;
use super::relay::relay;
use crate::listener::ConnectionPermit;
use crate::pod::UnderWay;
use crate::table::Open;

/// What lives as long as the connection.
pub(crate) struct Stream {
    pub(crate) _open: Open,
    pub(crate) _under_way: UnderWay,
    pub(crate) _permit: ConnectionPermit,
    pub(crate) longest_idle: Option<Duration>,
}

/// The pod's 101 for the client; from then on both sides' bytes are relayed until both have ended.
pub(crate) fn switch(
    mut answer: Response<Incoming>,
    client: OnUpgrade,
    stream: Stream,
) -> Response<Body> {
    let pod = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        if let (Ok(client), Ok(pod)) = (client.await, pod.await) {
            let (mut client, mut pod) = (TokioIo::new(client), TokioIo::new(pod));
            relay(&mut client, &mut pod, stream.longest_idle).await;
        }
        drop(stream);
    });
    answer.map(|_| Body::of_words(""))
}
