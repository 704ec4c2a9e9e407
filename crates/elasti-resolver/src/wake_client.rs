//! Who a wake is for, where resolvers are set to tell it: read from the request, or peeked from an unread connection.

use std::net::IpAddr;
use std::time::Duration;

use elasti_api::WakeClient;
use http::Request;
use tokio::time::timeout;

use crate::access_log::user_agent;
use crate::head;
use crate::net::TcpStream;
use crate::protocol::{CountedAs, Declared};

/// A wake waits at most so long for the head of its first request, which nearly always comes with the connection.
const HEAD_TIMEOUT: Duration = Duration::from_millis(10);

pub(crate) fn of_request<B>(request: &Request<B>, address: &str) -> WakeClient {
    WakeClient::http(
        request.method().as_str(),
        request.uri().path(),
        user_agent(request.headers()),
        address,
    )
}

/// The client of a connection that stays unread.
pub(crate) async fn of_unread(
    stream: &TcpStream,
    declared: Declared,
    address: IpAddr,
) -> WakeClient {
    let address = address.to_canonical().to_string();
    let _ = timeout(HEAD_TIMEOUT, stream.peek(&mut [0; 1])).await;
    let counted_as = CountedAs::so_far(stream, declared);
    if counted_as == CountedAs::Http
        && let Ok(Some(head)) = timeout(HEAD_TIMEOUT, head::peek(stream)).await
    {
        return of_request(&head, &address);
    }
    WakeClient::at(counted_as.as_str(), &address)
}
