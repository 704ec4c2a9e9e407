//! The limits of the HTTP server, over real sockets.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use elasti_runtime::http_server::HttpServer;
use http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);
const GENEROUS: HttpServer = HttpServer {
    max_connections: 10,
    max_connections_per_peer: 10,
    header_timeout: LIMIT,
};

async fn start(server: HttpServer) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |peer: IpAddr, _| async move {
        Ok::<_, Infallible>(Response::new(format!("hello {peer}")))
    };
    (address, tokio::spawn(server.serve(listener, answer)))
}

/// Sends one request and gives what comes before the connection pauses or ends; empty if it was closed.
async fn get(stream: &mut TcpStream) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    if stream.write_all(request).await.is_err() {
        return String::new();
    }
    let mut buffer = [0; 1024];
    let received = timeout(LIMIT, stream.read(&mut buffer)).await.unwrap();
    String::from_utf8_lossy(&buffer[..received.unwrap_or(0)]).into_owned()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let received = timeout(LIMIT, stream.read(&mut [0; 64])).await.unwrap();
    received.unwrap_or(0) == 0
}

#[tokio::test]
async fn a_request_is_answered_and_the_end_closes_idle_connections() {
    let (address, server) = start(GENEROUS).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert!(get(&mut stream).await.ends_with("hello 127.0.0.1"));
    assert!(
        get(&mut stream).await.starts_with("HTTP/1.1 200"),
        "kept alive"
    );
    server.abort();
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn a_connection_past_the_limit_waits_until_another_ends() {
    let (address, _server) = start(HttpServer {
        max_connections: 1,
        ..GENEROUS
    })
    .await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(!get(&mut first).await.is_empty());
    let mut second = TcpStream::connect(address).await.unwrap();
    let waiting = tokio::spawn(async move { get(&mut second).await });
    assert!(
        !get(&mut first).await.is_empty(),
        "the first is still served"
    );
    assert!(!waiting.is_finished());
    drop(first);
    assert!(!waiting.await.unwrap().is_empty());
}

#[tokio::test]
async fn one_peer_cannot_take_every_connection() {
    let (address, _server) = start(HttpServer {
        max_connections_per_peer: 1,
        ..GENEROUS
    })
    .await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(!get(&mut first).await.is_empty());
    let mut second = TcpStream::connect(address).await.unwrap();
    assert!(is_closed(&mut second).await);
}

#[tokio::test]
async fn a_client_that_never_finishes_its_head_is_closed() {
    let (address, _server) = start(HttpServer {
        header_timeout: Duration::from_millis(50),
        ..GENEROUS
    })
    .await;
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    assert!(is_closed(&mut slow).await);
}

#[tokio::test]
async fn without_a_bound_for_each_peer_one_takes_every_connection_from_the_others() {
    for (of_each, answered) in [(10, true), (20, false)] {
        let (address, _server) = start(HttpServer {
            max_connections: 20,
            max_connections_per_peer: of_each,
            ..GENEROUS
        })
        .await;
        let mut idle = Vec::new();
        for _ in 0..20 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut neighbour = socket.connect(address).await.unwrap();
        let waiting = tokio::spawn(async move { get(&mut neighbour).await });
        if answered {
            assert!(!waiting.await.unwrap().is_empty());
        } else {
            // Whatever is accepted is answered at once: so it waits for one of the others to end.
            let mut first = idle.remove(0);
            assert!(!get(&mut first).await.is_empty());
            assert!(!waiting.is_finished());
            drop(first);
            assert!(!waiting.await.unwrap().is_empty());
        }
    }
}
